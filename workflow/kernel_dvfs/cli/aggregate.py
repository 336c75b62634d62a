"""`kernel-dvfs measure aggregate`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs import jobs
from kernel_dvfs.cli.arguments import COUNT
from kernel_dvfs.measurement import request
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.profile import aggregate
from kernel_dvfs_clocks.clocks import parse as parse_pair
from kernel_dvfs_clocks.errors import InputError


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure aggregate --gpu SETUP.json --records measurements "
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
    parser.add_argument("--by-clock", metavar="B.json", help="make the profile of this study by clock, not of a sweep")
    parser.add_argument(
        "--published",
        default="",
        metavar="P.parquet",
        help="also write the profile of one sweep: the first measurement of each point",
    )
    parser.add_argument("-o", "--output", default="", metavar="P.parquet", help="where the profile goes")


def run(options: Namespace) -> None:
    setup = read(options.gpu)
    pairs = [parse_pair(text, "-") for text in options.pairs.split(",") if text]
    requests = request.sweep(setup, pairs, options.auto_repeats)
    if bool(requests) == bool(options.by_clock):
        raise InputError("measure aggregate: give --pairs of the sweep, or --by-clock B.json, one of them")
    if not options.output and (options.by_clock or not options.published):
        raise InputError("measure aggregate: nothing to write; give --output P.parquet")
    if options.by_clock:
        jobs.pool_visits(options.gpu, options.records, options.by_clock, options.output)
    else:
        where = options.records, requests, options.auto_repeats
        aggregate.from_records(setup, *where, options.output, options.published)
