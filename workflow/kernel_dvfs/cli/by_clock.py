"""`kernel-dvfs measure by-clock`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli import json_object
from kernel_dvfs.search import loop


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "example: kernel-dvfs measure by-clock --gpu SETUP.json --records measurements --options JSON -o by_clock.json"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="the setup that is measured under")
    parser.add_argument("--records", required=True, metavar="DIR", help="folder with visit/")
    parser.add_argument(
        "--options",
        required=True,
        metavar="JSON",
        help="pairs (CORE-MEM that may be visited, separated by commas, auto-auto first), limits_percent, minutes, "
        "worth_percent, over_percent, ties, seed",
    )
    parser.add_argument(
        "--kernels",
        metavar="FILE",
        help="what `kernel-dvfs measure kernels` wrote: records of another build are measured again (real GPU)",
    )
    parser.add_argument("--token", default="", metavar="TEXT", help="kept in the file, for the workflow")
    parser.add_argument("-o", "--output", required=True, metavar="S.json", help="what was visited, chosen and shown")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    given = json_object("--options", options.options)
    kernels = ""
    if options.kernels:
        with open(options.kernels, encoding="utf-8") as file:
            kernels = file.read().strip()
    loop.run(options.gpu, options.records, given, options.output, kernels, options.token)
