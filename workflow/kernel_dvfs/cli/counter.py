"""`kernel-dvfs counter`."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli.arguments import number
from kernel_dvfs.measurement.real.preflight import check_counter, check_whole
from kernel_dvfs.measurement.real.watch import disturbances, state_of
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.board import resolve
from kernel_dvfs_clocks.nvml.library import Library


def add_arguments(parser: ArgumentParser) -> None:
    parser.description = (
        "Compare a GPU's energy counter with the integral of its power reading, idle or under the load that runs. "
        "Only reads: no clock is set, nothing is run. Exit code 1 where the two disagree."
    )
    parser.epilog = "example: kernel-dvfs counter --seconds 10"
    parser.add_argument("--gpu", default="", metavar="GPU", help="UUID or index, if there are several")
    parser.add_argument(
        "--seconds", type=number(1, 3600, "seconds"), default=10.0, metavar="S", help="how long to look (default: 10)"
    )


def run(options: Namespace) -> int:
    with Library() as nvml:
        board = resolve(nvml, options.gpu.removeprefix("nvml:"))
        check_whole(board)

        def power_mw() -> int:
            reading_mw = board.power_mw()
            if not reading_mw:
                raise InputError(f"counter: {board.name()} has no power reading, so there is nothing to compare with")
            return reading_mw

        power_mw()
        counter = check_counter(board, time.monotonic, time.sleep)
        before = state_of(board)
        seen = counter.against_power(power_mw, options.seconds)
        after = state_of(board)
        more = (after.processes or 0) - (before.processes or 0)
        changed = disturbances(more, before.limit_mw, after.limit_mw, after.is_divided)
        name = board.name()
    remedy = {
        "agree": "",
        "disagree": "; trust neither before you know which: nvidia-smi -q -d POWER, another driver, a meter",
        "not steady": "; a power reading may lag by a second: look longer, or at a steady load",
    }[seen.verdict]
    print(
        f"{name}: counter {seen.counter_j:.1f} J, power integrated {seen.integral_j:.1f} J over "
        f"{seen.time_s:.2f} s ({seen.lowest_w:.0f} to {seen.highest_w:.0f} W, {seen.readings} readings), "
        f"counter {seen.difference_percent:+.1f} %: {seen.verdict}{remedy}{''.join(f'; {why}' for why in changed)}"
    )
    return int(seen.verdict == "disagree")
