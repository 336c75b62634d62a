"""`kernel-dvfs measure compare`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from kernel_dvfs import jobs
from kernel_dvfs.cli.arguments import REPEAT, SESSION
from kernel_dvfs.measurement.point import QUANTITIES
from kernel_dvfs_clocks.clocks import Pair, label
from kernel_dvfs_clocks.clocks import parse as parse_pair
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.measurement.consistency import Comparison


_MOST_REPEATS = 1000


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure compare --gpu SETUP.json --schedule kernel-global-waste-slack0.json -o fresh.json"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file")
    parser.add_argument("--schedule", default="", metavar="S.json", help="the chosen clocks")
    parser.add_argument(
        "--clocks", default="", metavar="CORE,MEM", help="instead of a schedule: these clocks for every kernel"
    )
    parser.add_argument("--target", default="", metavar="ID", help="one kernel or pass; without it, all")
    parser.add_argument("--first", type=REPEAT, default=0, metavar="N", help="number of the first repeat (default: 0)")
    parser.add_argument("--last", type=REPEAT, default=9, metavar="N", help="number of the last repeat (default: 9)")
    parser.add_argument(
        "--new-session",
        action="store_true",
        help="end the measuring process of a real GPU first, so that these repeats share nothing with earlier ones",
    )
    parser.add_argument("--session", default="", metavar="NAME", help=SESSION)
    parser.add_argument("-o", "--output", required=True, metavar="R.json", help="where the record goes")


def run(options: Namespace) -> None:
    if bool(options.schedule) == bool(options.clocks):
        raise InputError("compare: expected --schedule S.json or --clocks CORE,MEM, one of them")
    every = parse_pair(options.clocks) if options.clocks else None
    repeats = range(options.first, options.last + 1)
    if not 0 < len(repeats) <= _MOST_REPEATS:
        raise InputError(
            f"--first {options.first} --last {options.last}: {len(repeats) or 'no'} repeats; expected first <= last, "
            f"and at most {_MOST_REPEATS}"
        )
    where = options.gpu, options.schedule, options.output
    comparisons = jobs.compare(*where, repeats, options.target, every, options.session, options.new_session)
    if every:
        for name in dict.fromkeys(comparison["target"] for comparison in comparisons):
            print(_difference(name, every, comparisons), file=sys.stderr)


def _difference(name: str, pair: Pair, comparisons: list[Comparison]) -> str:
    """Return what a pair changes against auto, in words."""
    of_target = [comparison["points"] for comparison in comparisons if comparison["target"] == name]
    changes = []
    for field in QUANTITIES:
        values = [[point["summary"][field] for point in points] for points in of_target]
        changes.append(100 * (sum(v[1] + v[2] for v in values) / sum(v[0] + v[3] for v in values) - 1))
    return f"{name} at {label(pair)} against auto: time {changes[0]:+.2f} %, energy {changes[1]:+.2f} %"
