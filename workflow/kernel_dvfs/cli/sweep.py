"""`kernel-dvfs measure sweep`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs import jobs
from kernel_dvfs.cli.arguments import COUNT, one_of
from kernel_dvfs_clocks.clocks import parse as parse_pair


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs measure sweep --gpu SETUP.json --pairs auto-auto,1470-auto -o profile.parquet"
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file")
    parser.add_argument("--pairs", required=True, help="clock pairs CORE-MEM, separated by commas")
    parser.add_argument(
        "--auto-repeats", type=COUNT, metavar="N", default=10, help="measurements of auto-auto (default: 10)"
    )
    parser.add_argument(
        "--studies", nargs="+", **one_of(("kernel", "pass")), default=("kernel", "pass"), help="default: kernel pass"
    )
    parser.add_argument("-o", "--output", required=True, metavar="P.parquet")


def run(options: Namespace) -> None:
    pairs = [parse_pair(text, "-") for text in options.pairs.split(",")]
    jobs.sweep(options.gpu, pairs, options.auto_repeats, options.studies, options.output)
