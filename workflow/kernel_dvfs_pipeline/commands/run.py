"""`kernel-dvfs pipeline run`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import SCALE, SIZE, number, whole
from kernel_dvfs_pipeline import training
from kernel_dvfs_pipeline.commands.of_training import add_training
from kernel_dvfs_pipeline.curve import TICKS_PER_S
from kernel_dvfs_pipeline.graph import read_graph
from kernel_dvfs_pipeline.recording import GRAPH, STAGES
from kernel_dvfs_pipeline.stage_profile import read_stage_profile
from kernel_dvfs_pipeline.study import read_plan

if TYPE_CHECKING:
    from kernel_dvfs_pipeline.runtime import Runtime


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline run`."""
    parser.epilog = (
        "example: kernel-dvfs pipeline run train.py plan.json --iterations 1000 -o certificate.json, after torchrun "
        "--nproc-per-node 4 --no-python"
    )
    add_training(parser)
    parser.add_argument("plan", metavar="PLAN.json", help="of pipeline plan, with --latency")
    parser.add_argument("--iterations", type=SIZE, required=True, metavar="N", help="to train, at least")
    parser.add_argument(
        "--blocks",
        type=whole(0, 1000),
        default=5,
        metavar="N",
        help="at auto and at the plan each, for the certificate (default: 5)",
    )
    parser.add_argument(
        "--slack", type=number(0, 100, "%"), default=1.0, metavar="P", help="%% of time that it may cost (default: 1)"
    )
    parser.add_argument(
        "--stages",
        dest="stages_csv",
        metavar="FOLDER",
        help="of pipeline measure: to follow another plan where a replica straggles",
    )
    parser.add_argument("--scale-energy", type=SCALE, default=1.0, metavar="X", help="as of the plan (default: 1)")
    parser.add_argument(
        "--look-every", type=SIZE, default=10, metavar="N", help="iterations between two looks (default: 10)"
    )
    parser.add_argument("-o", "--output", required=True, metavar="CERTIFICATE.json")


def run(options: argparse.Namespace) -> None:
    """Run a training at a plan's clocks and certify what that saves."""

    def runtime() -> Runtime:
        # only where it is asked for: this needs the solver, which a training's own Python seldom has
        from kernel_dvfs_pipeline.planner import Planner
        from kernel_dvfs_pipeline.runtime import Runtime

        folder = options.stages_csv
        profile = read_stage_profile(os.path.join(folder, STAGES), scale_energy=options.scale_energy)
        planner = Planner(profile, read_graph(os.path.join(folder, GRAPH)), profile.blocking_w or 0.0)
        return Runtime(planner, max(read_plan(options.plan)["time_s"], planner.ends_ticks[0] / TICKS_PER_S))

    certificate = training.run(
        options.training,
        options.plan,
        options.output,
        options.iterations,
        options.gpus,
        options.through,
        options.dry_run,
        options.blocks,
        options.block_s,
        options.slack,
        runtime if options.stages_csv else None,
        options.look_every,
        tell,
    )
    if certificate:
        print(certificate)
