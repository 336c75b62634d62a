"""`kernel-dvfs study selection-bias`: is a claimed saving the saving that one gets? A simulated GPU, many seeds."""

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli.arguments import COUNT, PERCENT, SEED, STANDARD_ERRORS, whole
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement.setup import read


def add_arguments(parser: ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = (
        "example: kernel-dvfs study selection-bias --gpu SETUP.json --pairs auto-auto,1470-auto --seeds 20 -o beyond"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a simulated GPU")
    parser.add_argument("--pairs", required=True, help="clock pairs CORE-MEM of the grid, separated by commas")
    parser.add_argument("--seeds", type=whole(1, 100_000), default=200, metavar="N", help="studies (default: 200)")
    parser.add_argument(
        "--first-seed",
        type=SEED,
        default=0,
        metavar="N",
        help="the first of their seeds; the others follow (default: 0)",
    )
    parser.add_argument("--slack", type=PERCENT, default=0.0, metavar="PERCENT", help="tolerated slowdown (default: 0)")
    parser.add_argument(
        "--rounds", type=whole(0, 100), default=10, metavar="N", help="of measuring again (default: 10)"
    )
    parser.add_argument(
        "--gain",
        type=STANDARD_ERRORS,
        default=0.5,
        metavar="Z",
        help="the rounds end where another one is expected to gain less than so many standard errors of the claimed "
        "saving (default: 0.5)",
    )
    parser.add_argument(
        "--checks",
        type=whole(0, 100),
        default=6,
        metavar="N",
        help="measurements that the last choice rests on (default: 6)",
    )
    parser.add_argument(
        "--margin-z",
        type=STANDARD_ERRORS,
        default=2.0,
        metavar="Z",
        help="standard errors of the total time that are kept free (default: 2)",
    )
    parser.add_argument("--auto-repeats", type=COUNT, default=10, metavar="N", help="of a sweep (default: 10)")
    parser.add_argument(
        "--fresh", type=whole(2, 1000), default=10, metavar="N", help="validation repeats (default: 10)"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="where studies and tables/ go")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    import pandas as pd

    from kernel_dvfs.files import write_text
    from kernel_dvfs.report.write import write_table
    from kernel_dvfs.studies.report.selection_bias import OUTPUT, make
    from kernel_dvfs.studies.selection_bias import procedures, rows

    setup = read(options.gpu)
    if setup.gpu["kind"] != "simulated":
        raise InputError(f"{options.gpu}: gpu kind '{setup.gpu['kind']}' has no known truth; take a simulated GPU")
    if options.checks == 1:
        raise InputError("--checks 1: one measurement has no scatter to judge by; expected 0 (no check) or at least 2")
    pairs = [parse(text, "-") for text in options.pairs.split(",")]
    ways = procedures(options.rounds, options.gain, options.checks, options.margin_z)
    chosen = range(options.first_seed, options.first_seed + options.seeds)
    found = rows(setup, pairs, ways, chosen, options.slack / 100, options.auto_repeats, options.fresh)
    studies = pd.DataFrame(found)
    write_text(f"{options.output}/selection_bias_studies.csv", studies.to_csv(index=False, float_format="%.5g"))
    subject = f"simulated {setup.gpu['name']}, {setup.workload['name']}"
    table = make(studies, options.slack)
    write_table(table, options.output, "selection_bias", OUTPUT.caption, subject, OUTPUT.formats)
