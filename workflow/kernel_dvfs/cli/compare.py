"""`kernel-dvfs measure compare`: auto, chosen, chosen, auto for one target of a schedule or all, in fresh campaigns."""

from __future__ import annotations

import argparse
import sys

from kernel_dvfs.choice.schedule_file import REMEDY, pairs_of, read_schedule
from kernel_dvfs.cli.arguments import REPEAT
from kernel_dvfs.cli.measure import SESSION
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import BASELINE, Pair, label
from kernel_dvfs.gpu.clocks import parse as parse_pair
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import new_session, open_bench
from kernel_dvfs.measurement.consistency import Comparison
from kernel_dvfs.measurement.point import QUANTITIES
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.measurement.target import Target, parse

_MOST_REPEATS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> None:
    setup = read(options.gpu)
    if bool(options.schedule) == bool(options.clocks):
        raise InputError("compare: expected --schedule S.json or --clocks CORE,MEM, one of them")
    every = parse_pair(options.clocks) if options.clocks else None
    granularity, chosen = ("kernel", {}) if every else _chosen(options.schedule, setup)
    if options.target:
        targets = [parse(setup, f"{granularity}/{options.target}")]
    else:
        targets = [Target(granularity, name) for name in setup.targets[granularity]]
    repeats = range(options.first, options.last + 1)
    if not 0 < len(repeats) <= _MOST_REPEATS:
        raise InputError(
            f"--first {options.first} --last {options.last}: {len(repeats) or 'no'} repeats; expected first <= last, "
            f"and at most {_MOST_REPEATS}"
        )
    comparisons = []
    if options.new_session:
        new_session(setup, options.gpu)
    for target in targets:
        bench = open_bench(setup, options.gpu, target, options.session)
        # a kernel that the schedule does not know (another bias split) stays at auto
        pair = every or chosen.get(target.name, BASELINE)
        comparisons += [bench.compare(pair, repeat) for repeat in repeats]
    record.write_comparison(options.output, setup, bench.device, options.schedule or options.clocks, comparisons)
    if every:
        for target in targets:
            print(_difference(target.name, every, comparisons), file=sys.stderr)


def _difference(name: str, pair: Pair, comparisons: list[Comparison]) -> str:
    """What a pair changes against auto, in words."""
    changes = []
    for field in QUANTITIES:
        values = [
            [point["summary"][field] for point in each["points"]] for each in comparisons if each["target"] == name
        ]
        changes.append(100 * (sum(v[1] + v[2] for v in values) / sum(v[0] + v[3] for v in values) - 1))
    return f"{name} at {label(pair)} against auto: time {changes[0]:+.2f} %, energy {changes[1]:+.2f} %"


def _chosen(path: str, setup: Setup) -> tuple[str, dict[str, Pair]]:
    """(kernel or pass, {target: Pair}) of a schedule, at least one target of it this setup's."""
    schedule = read_schedule(path)
    granularity, chosen = schedule["granularity"], pairs_of(path, schedule)
    if not set(chosen) & set(setup.targets[granularity]):
        raise InputError(f"schedule {path}: holds no {granularity} of workload {setup.workload['name']}; {REMEDY}")
    return granularity, chosen
