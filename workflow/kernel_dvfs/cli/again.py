"""`kernel-dvfs measure again`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs import jobs
from kernel_dvfs.cli.arguments import REPEAT
from kernel_dvfs_clocks.errors import InputError


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "example: kernel-dvfs measure again --gpu SETUP.json --repeat 0 "
        "--schedules kernel-global-waste-slack0.json pass-global-waste-slack0.json -o strict.json pass.json"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file")
    parser.add_argument("--schedules", required=True, nargs="+", metavar="S.json", help="the chosen clocks")
    parser.add_argument("--repeat", type=REPEAT, default=0, metavar="N", help="number of the repeat (default: 0)")
    parser.add_argument(
        "-o", "--output", required=True, nargs="+", metavar="R.json", help="where the record of each schedule goes"
    )


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    if len(options.schedules) != len(options.output):
        raise InputError(
            f"again: {len(options.schedules)} schedules and {len(options.output)} outputs; give one for each"
        )
    jobs.again(options.gpu, options.schedules, options.repeat, options.output)
