"""`kernel-dvfs serving trace`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import SEED, columns_of, number, one_of, whole
from kernel_dvfs_clocks.errors import InputError, one_line
from kernel_dvfs_clocks.files import digest
from kernel_dvfs_serving.commands.shared import add_headings
from kernel_dvfs_serving.trace import hours, multiplied, read_trace, summary, week, write_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving trace --hours 1 --rate 3 --seed 1 -o synthetic_hour.csv"
    parser.add_argument("trace", nargs="?", metavar="TRACE.csv", help="to check, sum up and print the SHA-256 of")
    parser.add_argument(
        "--times", type=whole(1, 1000), default=1, metavar="N", help="copies of each of its requests (default: 1)"
    )
    parser.add_argument(
        "--hours", type=number(1 / 60, 168), metavar="H", help="make a synthetic trace of so many hours"
    )
    parser.add_argument("--week", **one_of(("conversation", "coding")), help="make a synthetic week of published shape")
    parser.add_argument(
        "--rate", type=number(1e-3, 1000), default=3.0, metavar="R", help="of the hours, requests/s (default: 3)"
    )
    parser.add_argument(
        "--swing",
        type=number(0, 0.99),
        default=0.6,
        metavar="X",
        help="of that rate, slowly up and down (default: 0.6)",
    )
    parser.add_argument("--service", **one_of(("conversation", "coding")), default="conversation", help="of the hours")
    parser.add_argument(
        "--bursts", type=whole(0, 10_000), default=0, metavar="N", help="minutes of ten times the rate (default: 0)"
    )
    parser.add_argument(
        "--scale", type=number(1e-3, 100), default=0.05, metavar="X", help="of the week's rate (default: 0.05)"
    )
    parser.add_argument("--days", type=number(1 / 1440, 7), default=7.0, metavar="D", help="of the week (default: 7)")
    parser.add_argument("--seed", type=SEED, default=1)
    add_headings(parser)
    parser.add_argument("-o", "--output", metavar="TRACE.csv", help="where a trace that is made goes")


def run(options: argparse.Namespace) -> None:
    is_made = options.hours is not None or options.week or options.times != 1
    if is_made and not options.output:
        raise InputError("a trace that is made needs a place: -o synthetic.csv")
    if options.week:
        trace = week(options.week, options.scale, options.seed, options.days)
    elif options.hours is not None:
        span_s = round(3600 * options.hours)
        trace = hours(options.rate, options.seed, span_s, options.service, options.swing, options.bursts)
    elif options.trace:
        trace = multiplied(read_trace(options.trace, columns=columns_of(options.columns)), options.times, options.seed)
    else:
        raise InputError("name a trace to check, or ask for a synthetic one: --hours 1 or --week conversation")
    path = options.output if is_made else options.trace
    tell(*(f"note: {notice}" for notice in trace.notices))
    if is_made:
        write_trace(path, trace)
    print(f"{one_line(f'{path}: {trace.subject}')}\nsha256 {digest(path)}")
    for name, value in summary(trace).items():
        print(f"{name} {value:g}")
