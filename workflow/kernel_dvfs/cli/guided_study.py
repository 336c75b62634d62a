"""`kernel-dvfs study guided`: guided search compared with other ways, on a simulated GPU and on measured tables."""

import itertools
from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli.arguments import COUNT, PERCENT, number, one_of
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text


def add_arguments(parser: ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = "example: kernel-dvfs study guided --gpu SETUP.json --pairs auto-auto,1470-5001 --seeds 5 -o g.csv"
    parser.add_argument("--gpu", metavar="SETUP", help="a setup file of a simulated GPU")
    parser.add_argument("--pairs", help="clock pairs CORE-MEM of its exhaustive search, separated by commas")
    parser.add_argument("--table", metavar="T.csv", help="instead: a measured table, as `kernel-dvfs import` takes it")
    parser.add_argument("--weights", **one_of(("raw", "equal-time")), nargs="+", default=("raw", "equal-time"))
    parser.add_argument("--slack", type=PERCENT, nargs="+", default=[0.0], metavar="PERCENT", help="default: 0")
    parser.add_argument(
        "--budget",
        type=number(0.01, 100, "percent"),
        default=10.0,
        metavar="PERCENT",
        help="percent of all measurements (default: 10)",
    )
    parser.add_argument(
        "--points",
        type=number(1, 1e6),
        nargs="+",
        default=(),
        metavar="N",
        help="instead of --budget, for a table: so many measurements a kernel, its baseline included; one study each",
    )
    parser.add_argument("--seeds", type=COUNT, default=3, metavar="N", help="seeds 1 to N (default: 3)")
    ways = ("random", "grid", "three clocks", "bayesian")
    parser.add_argument("--without", **one_of(ways), nargs="+", default=(), help="ways to leave out")
    parser.add_argument("-o", "--output", required=True, metavar="G.csv", help="a row a way and seed; G.md: means")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    from kernel_dvfs.studies import guided_study

    if bool(options.gpu) == bool(options.table):
        raise InputError("study guided: give either --gpu SETUP (with --pairs) or --table T.csv")
    if options.points and not options.table:
        raise InputError("study guided: --points are measurements a kernel of a table; give --table T.csv")
    share, seeds = options.budget / 100, list(range(1, options.seeds + 1))
    rows: list[dict] = []
    for slack in options.slack:
        if options.table:
            shares = guided_study.shares_of_points(options.table, options.points) or [share]
            for weights, own in itertools.product(options.weights, shares):
                rows += guided_study.of_tables(options.table, weights, slack / 100, own, seeds, options.without)
        else:
            rows += _simulated(options, slack / 100, share, seeds)
    write_text(options.output, guided_study.csv_of(rows))
    write_text(options.output.removesuffix(".csv") + ".md", guided_study.markdown_of(guided_study.summarised(rows)))


def _simulated(options: Namespace, slack: float, share: float, seeds: list[int]) -> list[dict]:
    import tempfile

    from kernel_dvfs.gpu.clocks import parse
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.studies import guided_study

    if not options.pairs:
        raise InputError("study guided: --gpu needs --pairs, the grid of the exhaustive search")
    setup = read(options.gpu)
    if setup.gpu["kind"] != "simulated":
        raise InputError(f"{options.gpu}: a {setup.gpu['kind']} GPU; its truth is not known, give a simulated one")
    pairs = [parse(text, "-") for text in options.pairs.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        return guided_study.of_simulated(setup, folder, pairs, slack, share, seeds, options.without)
