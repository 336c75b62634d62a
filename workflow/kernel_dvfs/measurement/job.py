"""What a measurement job does: one target at one clock pair, one record.

A point need not be measured where a power cap is known not to deliver its core clock (setting skip_capped): if the cap
already held back a lower core clock of the same kernel and memory clock, the higher one would run the same. That says
nothing about other memory clocks: a lower one may leave power for the core.
"""

from __future__ import annotations

import os

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO, Pair, label, parse
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.campaign import AnyBench, open_bench
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.measurement.verdict import POWER_CAP_ACTIVE, is_reached


def measure(
    setup: Setup,
    setup_path: str,
    target: Target,
    pair: Pair,
    campaign: str,
    repeat: int,
    output: str,
    bench: AnyBench | None = None,
    session: str = "",
) -> None:
    """Measure a point and write its record to `output`, or in its place why it need not be measured.

    setup_path: the file of `setup`. output: a path <core>-<mem>/r<repeat>.json, where points may be skipped. bench: of
    this target, open already; session: what else campaign.open_bench is told. Raises InputError where the GPU cannot
    measure.
    """
    # what is measured again was not left out the first time, and its repeats must not lack one
    if not repeat and (why := _why_skipped(output, setup, target, pair)):
        record.write_skipped(output, setup, target, pair, repeat, why)
        return
    bench = bench or open_bench(setup, setup_path, target, session)
    point = bench.point(pair, campaign, repeat)
    record.write_point(output, setup, bench, target, campaign, repeat, point)


def _why_skipped(output: str, setup: Setup, target: Target, pair: Pair) -> str:
    """Why the point whose record goes to `output` need not be measured; "" if it must be."""
    if not setup.measurement.get("skip_capped") or target.study != "kernel" or pair[0] == AUTO:
        return ""
    folder, name = os.path.dirname(os.path.dirname(os.path.abspath(output))), os.path.basename(output)
    for other in _lower(folder, pair):
        try:
            point = record.read_point(os.path.join(folder, label(other), name), setup, target, other)
        except InputError:
            continue  # not measured yet, or skipped itself
        reached = point["reached"]
        held = POWER_CAP_ACTIVE in point["reasons"] and not is_reached(other[0], reached["core_mhz"])
        if point["verdict"] == "throttled" and held and is_reached(other[1], reached["mem_mhz"]):
            return f"the power cap held {label(other)} at {reached['core_mhz']:g} MHz already"
    return ""


def _lower(folder: str, pair: Pair) -> list[Pair]:
    """Pairs with a folder in `folder`, the memory clock of `pair` and a lower core clock; the highest first."""
    highest, found = pair.core_mhz, {}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        try:
            core_mhz, mem_mhz = parse(name, "-")
        except InputError:
            continue
        if isinstance(core_mhz, int) and isinstance(highest, int) and core_mhz < highest and mem_mhz == pair.mem_mhz:
            found[core_mhz] = Pair(core_mhz, mem_mhz)
    return [found[core_mhz] for core_mhz in sorted(found, reverse=True)]
