"""`kernel-dvfs plan-round`: what is measured next, from all records so far."""

import json

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement.setup import read


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs plan-round --gpu SETUP.json --records measurements --options JSON -o 1.json"
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="the setup that is measured under")
    parser.add_argument("--records", required=True, metavar="DIR", help="folder with kernel/ and pass/")
    parser.add_argument("--earlier", nargs="*", default=[], metavar="N.json", help="plans of the rounds before")
    parser.add_argument(
        "--options",
        required=True,
        metavar="JSON",
        help="search, pairs (CORE-MEM of the grid, separated by commas), auto_repeats, slacks_percent, ties, refine "
        "{rounds, repeats, margin_z}",
    )
    parser.add_argument("-o", "--output", required=True, metavar="N.json")


def run(options) -> None:
    from kernel_dvfs.search.next_round import write_next

    try:
        given = json.loads(options.options)
    except ValueError as error:
        raise InputError(f"--options {options.options}: not JSON ({error})") from None
    write_next(read(options.gpu), options.records, options.earlier, given, options.output)
