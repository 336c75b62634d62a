"""`kernel-dvfs calibrate`."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

import yaml

from kernel_dvfs.cli import tell
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.measurement.real import calibration
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text
from kernel_dvfs_clocks.guard import Guard
from kernel_dvfs_clocks.nvml.facts import facts_of


def add_arguments(parser: ArgumentParser) -> None:
    parser.description = (
        "Fit a simulated GPU to a board of this machine: two probes of its memory, half a minute each, at the clocks "
        "as they are. Nothing is set. Writes a configuration that a study takes (snakemake --configfile)."
    )
    parser.epilog = "example: kernel-dvfs calibrate --gpu nvml:0 -o board.yaml"
    parser.add_argument("--gpu", default="nvml", metavar="nvml[:UUID|INDEX]", help="which GPU (default: the only one)")
    parser.add_argument(
        "--like", default="", metavar="SPEC", help="the simulated GPU of its type (default: by its name)"
    )
    parser.add_argument("-o", "--output", default="board.yaml", metavar="FILE.yaml", help="default: board.yaml")


def run(options: Namespace) -> None:
    about = facts_of(options.gpu.removeprefix("nvml").removeprefix(":"))
    like = options.like or specs.of_board(about["name"])
    if not like:
        raise InputError(
            f"calibrate: no simulated GPU is of the type of {about['name']}; name the nearest, --like "
            f"{'|'.join(specs.names())}"
        )
    spec = specs.resolve(like)
    with Guard(about["uuid"], mode="dry-run", say=tell) as guard:
        probes = calibration.measure(guard, about, tell)
    overrides = calibration.overrides(spec, probes)
    date = time.strftime("%Y-%m-%d", time.gmtime())
    heading = f"# {about['name']} ({about['uuid']}), driver {about['driver']}, {date}: kernel-dvfs calibrate\n"
    write_text(options.output, heading + yaml.safe_dump({"gpu": like, "gpu_overrides": overrides}, sort_keys=False))
    families, families_of_spec = overrides["families"], spec["families"]
    print(
        f"{about['name']}: a DRAM byte takes {overrides['energy_pj']['dram_byte']:g} pJ ({like}: "
        f"{spec['energy_pj']['dram_byte']:g}); copies reach {families['default']['dram_efficiency']:g} of "
        f"{spec['memory']['gb_per_s']:g} GB/s ({families_of_spec['residual']['dram_efficiency']:g}), reads "
        f"{families['bias']['dram_efficiency']:g} ({families_of_spec['bias']['dram_efficiency']:g})"
    )
    print(f"{options.output}: simulates this board: snakemake --cores 1 all --configfile {options.output}")
