"""`kernel-dvfs measure search`: measures, beyond the sweep, what might be chosen, until nothing is left to measure."""

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli import json_object


def add_arguments(parser: ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = (
        "example: kernel-dvfs measure search --gpu SETUP.json --records measurements --options JSON -o search.json"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="the setup that is measured under")
    parser.add_argument("--records", required=True, metavar="DIR", help="folder with kernel/ and pass/")
    parser.add_argument(
        "--options",
        required=True,
        metavar="JSON",
        help="search, pairs (CORE-MEM of the grid, separated by commas), auto_repeats, slacks_percent, ties, refine "
        "{rounds, gain, checks, margin_z}, and what the search is configured by under its name",
    )
    parser.add_argument(
        "--kernels",
        metavar="FILE",
        help="what `kernel-dvfs measure kernels` wrote: records of another build are measured again (real GPU)",
    )
    parser.add_argument("--token", default="", metavar="TEXT", help="kept in the file, for the workflow")
    parser.add_argument("-o", "--output", required=True, metavar="S.json", help="what was asked for, and what was read")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    from kernel_dvfs.search import loop

    given = json_object("--options", options.options)
    kernels = ""
    if options.kernels:
        with open(options.kernels, encoding="utf-8") as file:
            kernels = file.read().strip()
    loop.run(options.gpu, options.records, given, options.output, kernels, options.token)
