"""`kernel-dvfs serving experiment`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import whole
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.experiments import EXPERIMENTS
from kernel_dvfs_serving.replay import lines
from kernel_dvfs_serving.study import ServingStudy, write_experiment
from kernel_dvfs_serving.study_plan import REPLAYED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    sharing = " and ".join(name for name, cores in REPLAYED.items() if cores > 1)
    parser.epilog = "example: kernel-dvfs serving experiment systems results/serving/sim-h100-sxm-llama2-70b/mine"
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(REPLAYED)}")
    parser.add_argument("folder", metavar="FOLDER", help="of the study; written to its experiments/")
    parser.add_argument(
        "--cores", type=whole(1, 1024), default=1, metavar="N", help=f"{sharing} may use two (default: 1)"
    )


def run(options: argparse.Namespace) -> None:
    if options.name not in EXPERIMENTS:
        raise InputError(f"no experiment '{options.name}'; allowed: {', '.join(EXPERIMENTS)}")
    study = ServingStudy(options.folder, options.cores)
    outcomes = EXPERIMENTS[options.name](study)
    write_experiment(study.path(options.name), outcomes, study.made_of)
    for outcome in outcomes:
        tell(*(f"note: {line}" for line in (lines(outcome) if "system" in outcome else [])))
