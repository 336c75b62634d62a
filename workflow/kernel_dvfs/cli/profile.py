"""`kernel-dvfs profile`: reads, checks and pools the records of a sweep and of further rounds."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli.numbers import auto_repeats
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement import request, round_file
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.profile import aggregate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs profile --gpu SETUP.json --records measurements "
        "--pairs auto-auto,1470-auto -o profile.parquet"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="the setup that the records were measured under")
    parser.add_argument("--records", required=True, metavar="DIR", help="folder with kernel/ and pass/")
    parser.add_argument(
        "--pairs", default="", help="clock pairs CORE-MEM of the sweep, separated by commas; without: no sweep"
    )
    parser.add_argument(
        "--auto-repeats", type=auto_repeats, metavar="N", default=10, help="records of auto-auto (default: 10)"
    )
    parser.add_argument(
        "--rounds", nargs="*", default=[], metavar="N.json", help="plans of the rounds whose records are pooled as well"
    )
    parser.add_argument("-o", "--output", required=True, metavar="P.parquet")


def run(options: argparse.Namespace) -> None:
    setup = read(options.gpu)
    pairs = [parse(text, "-") for text in options.pairs.split(",") if text]
    requests = request.sweep(setup, pairs, options.auto_repeats)
    for path in options.rounds:
        requests += round_file.read(path)["requests"]
    aggregate.from_records(setup, options.records, requests, options.auto_repeats, options.output)
