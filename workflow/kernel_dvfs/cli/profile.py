"""`kernel-dvfs measure pool`: reads, checks and pools the records of a sweep and of a search."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli.arguments import COUNT
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import parse
from kernel_dvfs.measurement import request
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.profile import aggregate
from kernel_dvfs.search import search_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure pool --gpu SETUP.json --records measurements "
        "--pairs auto-auto,1470-auto -o profile.parquet"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="the setup that the records were measured under")
    parser.add_argument("--records", required=True, metavar="DIR", help="folder with kernel/ and pass/")
    parser.add_argument(
        "--pairs", default="", help="clock pairs CORE-MEM of the sweep, separated by commas; without: no sweep"
    )
    parser.add_argument(
        "--auto-repeats", type=COUNT, metavar="N", default=10, help="records of auto-auto (default: 10)"
    )
    parser.add_argument(
        "--search", metavar="S.json", help="pool what this search (kernel-dvfs measure search) asked for as well"
    )
    parser.add_argument("-o", "--output", required=True, metavar="P.parquet")


def run(options: argparse.Namespace) -> None:
    setup = read(options.gpu)
    pairs = [parse(text, "-") for text in options.pairs.split(",") if text]
    requests, checksums = request.sweep(setup, pairs, options.auto_repeats), None
    checks, stay = [], set()
    if options.search:
        found = search_file.read(options.search)
        if found.setup != setup.digest:
            raise InputError(
                f"search {options.search}: its setup is {found.setup}, expected {setup.digest}; run "
                "kernel-dvfs measure search again"
            )
        requests, checksums, checks, stay = requests + found.requests, found.records, found.checks, found.stay
    if not requests:
        raise InputError("measure pool: nothing to pool: give --pairs of the sweep, or --search S.json, or both")
    where = options.records, requests, options.auto_repeats, options.output
    aggregate.from_records(setup, *where, checksums, checks, stay)
