"""A choice measured again: one block, which is a session of visits. Light: measurement jobs import it.

Auto's passes come first and last; between them each chosen pair is visited, with passes and a window of power of each
kernel that is chosen there. What is compared is the whole iteration: its time and energy at auto are those of
its passes, and a kernel's are its part of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kernel_dvfs.measurement.target import kernels_of
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.measurement.visit import (
    AUTO_PASS_S,
    HEAVY_SHARE,
    PASS_S,
    WINDOW_S,
    Visit,
    VisitMeasurement,
    Visitor,
    power_in_passes_mw,
)
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair

if TYPE_CHECKING:
    from kernel_dvfs.measurement.consistency import ComparedPoint, Comparison
    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.measurement.target import MeasurementTarget

# sessions of a choice measured again are numbered from here on, so that they are none of those that chose it
FRESH = 10_000
REST, REST_WINDOW_S = 6, 1.0  # windows of what no choice has at a pair, where the cap asks for them
TRIES = 2  # of a visit that cannot be used; the last one is kept


def compare_iteration(
    setup: Setup, visitor: Visitor, choices: Sequence[Mapping[MeasurementTarget, Pair]], repeat: int
) -> list[list[Comparison]]:
    """Return (auto, chosen) of each target of each choice in one block: times and energies within the iteration.

    choices: pairs of all kernels, or of all passes, each. One session serves all of them: a pair that several choose is
    visited once. A target that stays at auto is not measured twice: its two points are one.
    """
    session = FRESH + repeat
    first = _visited(visitor, Visit(session, 0, BASELINE, AUTO_PASS_S, 0.0, ()))
    time_us = {
        name: about["launches_per_iteration"] * first["passes"]["time_us"][name]
        for name, about in setup.targets["kernel"].items()
    }
    by_time = sorted(time_us, key=lambda name: (time_us[name], name))
    light = _light(time_us, by_time)
    chosen: dict[Pair, dict[str, None]] = {}  # {pair: kernels that some choice has there}
    for pairs in choices:
        for target, pair in pairs.items():
            chosen.setdefault(pair, {}).update(dict.fromkeys(kernels_of(setup, target)))
    # the light ones that go to one pair share a window at auto as well
    metered = {pair: _windows(setup, names, light) for pair, names in chosen.items()}
    locked = [pair for pair in metered if pair != BASELINE]
    everything = _windows(setup, setup.targets["kernel"], light)
    # at auto too, those that no choice names: only all kernels together tell what each takes of the iteration
    at_auto = _apart([*(group for groups in metered.values() for group in groups), *everything])
    at: dict[Pair, list[VisitMeasurement]] = {}
    place = 0
    for pair in locked:
        place += 1
        at[pair] = [_visited(visitor, Visit(session, place, pair, PASS_S, WINDOW_S, metered[pair]))]
        others = [name for name in by_time if name not in chosen[pair]]
        if others and any(power["is_capped"] for power in at[pair][0]["powers"]):
            # Then what all kernels take together tells what these take. Of the others only the sum counts: hot and cool
            # ones are mixed, which the cap leaves alone.
            place += 1
            rest = tuple(filter(None, (tuple(others[begin::REST]) for begin in range(REST))))
            at[pair].append(_visited(visitor, Visit(session, place, pair, PASS_S, REST_WINDOW_S, rest)))
    # how much all take at auto is what the passes take: windows tell how they share it, so that short ones do
    last = _visited(visitor, Visit(session, place + 1, BASELINE, AUTO_PASS_S, WINDOW_S, at_auto))
    at[BASELINE] = [last, first]
    powers = {pair: power_in_passes_mw(setup, visits[0], visits[1:]) for pair, visits in at.items()}
    name = visitor.run.get("run_id", f"fresh-{repeat}")
    comparisons: list[list[Comparison]] = []
    for pairs in choices:
        compared: list[Comparison] = []
        for target, pair in pairs.items():
            kernels = kernels_of(setup, target)
            auto, point = (_point(at[clocks], powers[clocks], kernels) for clocks in (BASELINE, pair))
            compared.append({"target": target.name, "repeat": repeat, "session": name, "points": [auto, point]})
        comparisons.append(compared)
    return comparisons


def _visited(visitor: Visitor, visit: Visit) -> VisitMeasurement:
    """Return a visit, made again where it cannot be used."""
    for _ in range(TRIES):
        visited = visitor.visit(visit)
        if visited["verdict"] not in UNUSABLE:
            break
    return visited


def _apart(groups: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return the groups with each kernel in the first that has it only."""
    seen: set[str] = set()
    groups_apart = []
    for group in groups:
        if new := tuple(name for name in group if name not in seen):
            groups_apart.append(new)
        seen.update(new)
    return tuple(groups_apart)


def _light(time_us: Mapping[str, float], by_time: Sequence[str]) -> set[str]:
    """Return the kernels whose launches make up the last few percent of an iteration, the shortest, which come first in
    `by_time`."""
    left_us = (1 - HEAVY_SHARE) * math.fsum(time_us.values())
    light = set()
    for name in by_time:
        left_us -= time_us[name]
        if left_us < 0:
            break
        light.add(name)
    return light


def _windows(setup: Setup, names: Iterable[str], light: set[str]) -> tuple[tuple[str, ...], ...]:
    """Return the windows of some kernels: one each, copies of one launch together, and one for all light ones."""
    windows: dict[object, list[str]] = {}
    together = [name for name in names if name in light]
    for name in (name for name in names if name not in light):
        group = setup.targets["kernel"][name].get("replicate_group")
        windows.setdefault((group,) if group else name, []).append(name)
    return tuple(map(tuple, [*windows.values(), *([together] if together else [])]))


def _point(
    timed: Sequence[VisitMeasurement], power_mw: Mapping[str, float], kernels: Mapping[str, int]
) -> ComparedPoint:
    """Return a target's point: times of all these visits, the first of which is named, powers in the passes."""
    metered = timed[0]
    times_us = [
        math.fsum(count * visited["passes"]["time_us"][name] for name, count in kernels.items()) for visited in timed
    ]
    time_us = math.fsum(times_us) / len(times_us)
    by_kernel_us = {
        name: math.fsum(visited["passes"]["time_us"][name] for visited in timed) / len(timed) for name in kernels
    }
    energy_mj = 1e-6 * math.fsum(count * by_kernel_us[name] * power_mw[name] for name, count in kernels.items())
    odd = [visited for visited in timed if visited["verdict"] != "ok"]
    worst = next((visited for visited in odd if visited["verdict"] in UNUSABLE), odd[0] if odd else metered)
    asked = {name: metered["request"][name] for name in ("policy", "core_mhz", "mem_mhz", "switch_s")}
    more = {
        name: value
        for name, value in metered["request"].items()
        if name in ("through", "lock", "core_range_mhz", "mem_range_mhz") and asked["policy"] != AUTO
    }
    return cast(
        "ComparedPoint",
        {
            "request": asked | more,
            "reached": {**metered["reached"], "alias_of": None},
            "summary": {
                "n": len(timed),
                "time_us": time_us,
                "time_sd_us": None,
                "energy_mj": energy_mj,
                "energy_sd_mj": None,
                "power_mw": 1e6 * energy_mj / time_us,
            },
            "verdict": worst["verdict"],
            "reasons": worst["reasons"],
        },
    )
