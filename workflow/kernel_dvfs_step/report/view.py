"""What the page of a captured step says first: joules, watts and time of one step, and how few kernels make most of it.

Reads the step's own tables and what the setup says of kernels that stay at auto.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_dvfs.report.page.frontier import HERE, ONE, ChoiceCurve, FirstScreen, ShownChange, Stop, apply_at, offered
from kernel_dvfs.report.page.tables import Rows, plain, signed
from kernel_dvfs_step.report.sums import sums_in_words

_MOST_PERCENT = 80.0
# more time that a step may take, percent: where the slider over its settings stops
_LIMITS_PERCENT = (0, 1, 2, 3, 4, 5, 7.5, 10, 15, 20)
_SETTING = re.compile(r"core locked at ([\d.]+) MHz|power limit of ([\d.]+) W")
_ENDS = ("energy_change_least_percent", "energy_change_most_percent")
_AT_AUTO: tuple[Any, ...] = (ShownChange(0.0), ShownChange(0.0), {}, {"known": "measured", "what": "auto"})
_DEARER_PERCENT = 3.0  # more energy than the loop's that is worth a word: both are read from a counter
_NAMED = 10  # kernels left at auto that are named, with what keeps them there


@dataclass(frozen=True, slots=True)
class Card:
    """A number that stands out, what it is, and what belongs to it."""

    title: str
    value: str
    text: str  # "": nothing


@dataclass(frozen=True, slots=True)
class StepView:
    """The cards of a step, and lines on what is not in its numbers."""

    sentence: list[tuple[str, bool]]  # words, and whether they are the finding
    cards: list[Card]
    notes: list[str]
    settings: FirstScreen | None = None  # what one core clock or one power limit for the step saves


def step_view(workload: Mapping[str, Any], tables: Mapping[str, Rows], is_forecast: bool) -> StepView | None:
    """Return what the page of a step says first; None where it is no step, or nothing of it is there yet.

    workload: of the setup. tables: {name: rows} of those that are there.
    """
    totals = tables.get("step_totals")
    if "step" not in workload or not totals:
        return None
    row = totals[0]
    what = "as a whole" if row["step"] == "as a whole" else "sum of its kernels"
    what = f"{what}, at auto clocks" + (", forecast" if is_forecast else "")
    if "energy_least_j" in row:
        what += f"; its power is the model's, and anything from {_of(row, 'energy_least_j')} to "
        what += f"{_of(row, 'energy_most_j')} J is possible"
    cap = row["power_cap_share"]
    # a study in minutes measured some
    its, their, measured = ("the", "their", " measured") if workload.get("tail") else ("its", "the", "")
    those = f"{row['kernels']} kernels{measured}"
    cards = [
        Card("Energy of one step", f"{_of(row, 'energy_j')} J", what),
        Card("Time of one step", f"{_of(row, 'time_ms')} ms", f"{row['launches']} launches of {those}"),
        Card(
            "Mean power",
            f"{_of(row, 'power_w')} W",
            "" if cap is None else f"{100 * cap:.0f} % of the time under the power cap",
        ),
        Card(
            "80 % of the energy",
            f"{row['kernels_of_80_percent']} of {row['kernels']}",
            f"kernels{measured}",
        ),
    ]
    if needed := _make_most(tables.get("step_saving")):
        cards.append(Card("80 % of the saving", f"{needed} of {row['kernels']}", "kernels make it"))
    few = f"{row['kernels_of_80_percent']} of {its} {those}"
    is_apart, sums = sums_in_words(tables.get("step_check") or ())
    sentence = [
        (f"One step takes {_of(row, 'energy_j')} J and {_of(row, 'time_ms')} ms at the GPU's own clocks; ", False),
        (few, True),
        (f" take 80 % of {their} energy.{' Its kernels do not add up to it.' * is_apart}", False),
    ]
    sums_note = [f"{sums}.{' What is paid is the whole.' * is_apart}"] if sums else []
    notes = sums_note + _dearer(workload) + _residual(totals) + _notes(workload) + _tail(totals)
    settings = _settings(tables.get("step_limits") or (), row)
    return StepView(sentence, [*_ways(workload, tables), *cards], notes, settings)


def _ways(workload: Mapping[str, Any], tables: Mapping[str, Rows]) -> list[Card]:
    """Return cards of loop, graph and schedule: of the first two what was measured one after the other in one process;
    of the schedule the graph, changed by as much as the study measured."""
    whole = workload.get("whole") or {}
    if "loop_us" not in whole or "graph_us" not in whole:
        return []
    loop = whole["loop_us"], whole.get("loop_j")
    graph = whole["graph_us"], whole.get("graph_j")
    cards = [
        _way("As a loop", *loop, "calls of the step as your program makes them, at auto clocks", workload),
        _way("As a graph", *graph, f"replays of it, at auto clocks: {_against(graph, loop)} the loop", workload),
    ]
    if (call_us := whole.get("call_us")) is not None:
        cards.append(_waits(call_us, loop, graph))
    chosen = next(iter(tables.get("headline") or ()), None)
    if chosen and graph[1] and (energy := chosen.get("fresh_energy_change_percent")) is not None:
        time = chosen.get("fresh_time_change_percent") or 0.0
        changed = graph[0] * (1 + time / 100), graph[1] * (1 + energy / 100)
        text = f"the graph, changed by what the study measured: {_against(changed, loop)} the loop"
        cards.append(_way("At the schedule", *changed, text, workload))
    return cards


def _dearer(workload: Mapping[str, Any]) -> list[str]:
    """Return a line that a graph takes more energy than the loop, where it does."""
    whole = workload.get("whole") or {}
    loop_j, graph_j = whole.get("loop_j"), whole.get("graph_j")
    if not (loop_j and graph_j and graph_j > (1 + _DEARER_PERCENT / 100) * loop_j):
        return []
    return [
        f"Its graph takes {100 * (graph_j / loop_j - 1):.0f} % more energy than the loop: do not replay it before you "
        "know why. What is measured below are the graph's kernels."
    ]


def _waits(call_us: float, loop: tuple[float, float | None], graph: tuple[float, float | None]) -> Card:
    """Return the card of what of the loop's time is not the GPU's: it runs nothing and waits for the next launch."""
    waits_us = max(0.0, loop[0] - call_us)
    text = f"{100 * waits_us / loop[0]:.0f} % of the loop's time the GPU has nothing to run: it waits for the host"
    if loop[1] and graph[1] and graph[0] < loop[0] and graph[1] < loop[1]:
        text += f"; a replay saves {plain(loop[1] - graph[1])} J of it"
    return Card("Not the GPU", f"{plain(1e-3 * waits_us)} ms", text)


def _way(title: str, time_us: float, energy_j: float | None, text: str, workload: Mapping[str, Any]) -> Card:
    time = f"{plain(1e-3 * time_us)} ms"
    if energy_j is None:
        return Card(title, time, text)
    per = [
        f"{plain(1e3 * energy_j / count)} mJ a {item}, {1e6 * count / time_us:,.0f} {item}s a second"
        for item, count in (workload.get("items") or {}).items()
    ]
    return Card(title, f"{plain(energy_j)} J", ", ".join([time, *per]) + f"; {text}")


def _against(way: tuple[float, float | None], loop: tuple[float, float | None]) -> str:
    """Return `-23 % time, -15 % energy against`, in words."""
    changes = [f"{100 * (way[0] / loop[0] - 1):+.0f} % time"]
    if way[1] is not None and loop[1]:
        changes.append(f"{100 * (way[1] / loop[1] - 1):+.0f} % energy")
    return ", ".join(changes) + " against"


def _settings(rows: Iterable[Mapping[str, Any]], totals: Mapping[str, Any]) -> FirstScreen | None:
    """Return the slider over core locks and power limits, as table step_limits has them; None where none of them saves
    within the last limit."""
    ways: dict[str, list[tuple[ShownChange, ShownChange, dict[str, Any], Mapping[str, Any]]]] = {HERE: [], ONE: []}
    for row in rows:
        if match := _SETTING.match(row["what"]):
            name, setting = (
                (HERE, {"power_cap_w": float(match[2])}) if match[2] else (ONE, {"core_mhz": float(match[1])})
            )
            energy, time = (ShownChange(row[f"{quantity}_change_percent"]) for quantity in ("energy", "time"))
            ways[name].append((energy, time, setting, row))
    curves = []
    for name, title in ((ONE, "Core clock locked"), (HERE, "Power limit set")):
        stops = []
        for limit in _LIMITS_PERCENT:
            within = [way for way in ways[name] if way[1].best <= limit and way[0].best < 0]
            energy, time, setting, row = min(within, key=lambda way: way[0].best, default=_AT_AUTO)
            ends = [signed(row[name], 1) for name in _ENDS if row.get(name) is not None]
            note = f"energy {ends[0]} to {ends[1]} %" if len(ends) == 2 else ""
            stops.append(Stop(limit, energy, time, row["known"], row["what"], apply_at([("", setting)]), note))
        curves.append(ChoiceCurve(name, title, stops))
    if all(stop.energy.best == 0 for curve in curves for stop in curve.stops):
        return None
    return offered(curves, curves[0].stops[:1], (totals["energy_j"], 1e-3 * totals["time_ms"]))


def _residual(totals: Rows) -> list[str]:
    """Return a line on by how much kernels that draw more than the limit for a moment were scaled in the sum."""
    row = next((row for row in totals if row["step"] == "sum of its kernels"), {})
    time, energy = (row.get(f"residual_{quantity}_percent") for quantity in ("time", "energy"))
    if time is None or energy is None:
        return []
    return [
        "Kernels repeated with rests briefly exceed the power limit; the sum scales them to what their sections "
        f"leave: {time:+.1f} % time, {energy:+.1f} % energy."
    ]


def _tail(totals: Rows) -> list[str]:
    """Return a line on what was not measured for want of time, and what share of the sum that is."""
    measured = next((row for row in totals if row["step"] == "sum of its kernels"), None)
    rest = next((row for row in totals if row["step"] == "the others, not measured"), None)
    if not measured or not rest:
        return []
    known_j, rest_j = measured["energy_j"] or 0.0, rest["energy_j"] or 0.0
    return [
        f"{rest['kernels']} kernels were not measured for want of time: {100 * rest_j / (known_j + rest_j):.1f} % of "
        "the energy of all, told by their time in the step at the power that is left of their sections."
    ]


def _of(row: Mapping[str, Any], column: str) -> str:
    return plain(row[column])


def _make_most(saving: Rows | None) -> int:
    """Return how many kernels make 80 % of the saving; 0 where nothing is saved, or that is not known."""
    shares = [row["saving_so_far_percent"] or 0.0 for row in saving or ()]
    if not shares or shares[-1] < _MOST_PERCENT:
        return 0
    return 1 + sum(share < _MOST_PERCENT for share in shares)


def _notes(workload: Mapping[str, Any]) -> list[str]:
    notes = []
    left = workload.get("left_at_auto", ())
    if left:
        share = workload.get("measured_share")
        left_share = "" if share is None else f"{100 * (1 - share):.1f} % of the step's traced time: "
        names = ", ".join(f"{name} ×{launches} ({reason})" for name, launches, reason in left[:_NAMED])
        names += f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        notes.append(f"Left at auto, since they cannot be repeated alone; {left_share}{names}.")
    if overlapped := workload.get("overlapped"):
        notes.append(
            f"Overlapped with other kernels in the step, so the sum of all kernels is above the whole: "
            f"{', '.join(overlapped)}."
        )
    for section, why in workload.get("by_difference", {}).items():
        notes.append(
            f"Section {section} is the difference of two measurements, the step up to its end and up to its "
            f"beginning. {why[0].upper()}{why[1:]}."
        )
    for section, why in workload.get("not_repeated", {}).items():
        notes.append(f"Section {section} was not measured as a whole: {why}.")
    notes += [f"{line[0].upper()}{line[1:]}." for line in workload.get("said", ())]
    if why := workload.get("state_left_out"):
        notes.append(f"Not all of the step's state could be put back before each kernel was measured: {why}.")
    return notes
