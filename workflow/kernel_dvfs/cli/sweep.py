"""`kernel-dvfs measure sweep`: measures a whole sweep of a simulated GPU in one process, straight into a profile."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli.arguments import COUNT, one_of
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.profile import aggregate


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> None:
    pairs = [parse(text, "-") for text in options.pairs.split(",")]
    aggregate.from_bench(read(options.gpu), pairs, options.auto_repeats, options.output, options.studies)
