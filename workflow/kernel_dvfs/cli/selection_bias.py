"""`kernel-dvfs study selection-bias`: is a claimed saving the saving that one gets? A simulated GPU, many seeds."""

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli.numbers import auto_repeats, whole_number
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
    parser.add_argument("--seeds", default="200", metavar="N", help="studies (default: 200)")
    parser.add_argument("--slack", type=float, default=0.0, metavar="PERCENT", help="tolerated slowdown (default: 0)")
    parser.add_argument("--rounds", default="10", metavar="N", help="of measuring again (default: 10)")
    parser.add_argument("--repeats", default="1", metavar="N", help="measurements in a round (default: 1)")
    parser.add_argument("--margin-z", type=float, default=2.6, metavar="Z", help="default: 2.6")
    parser.add_argument("--auto-repeats", type=auto_repeats, default=10, metavar="N", help="of a sweep (default: 10)")
    parser.add_argument("--fresh", default="10", metavar="N", help="validation repeats (default: 10)")
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
    seeds = whole_number("--seeds", options.seeds, 1)
    rounds, repeats = whole_number("--rounds", options.rounds), whole_number("--repeats", options.repeats, 1)
    validated = whole_number("--fresh", options.fresh, 2)
    pairs = [parse(text, "-") for text in options.pairs.split(",")]
    ways = procedures(rounds, repeats, options.margin_z)
    found = rows(setup, pairs, ways, seeds, options.slack / 100, options.auto_repeats, validated)
    studies = pd.DataFrame(found)
    write_text(f"{options.output}/selection_bias_studies.csv", studies.to_csv(index=False, float_format="%.5g"))
    subject = f"simulated {setup.gpu['name']}, {setup.workload['name']}"
    table = make(studies, options.slack)
    write_table(table, options.output, "selection_bias", OUTPUT.caption, subject, OUTPUT.formats)
