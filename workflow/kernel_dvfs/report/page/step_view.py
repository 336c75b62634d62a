"""What the page of a captured step says first: joules, watts and time of one step, and how few kernels make most of it.

Reads the step's own tables, as text, and what the setup says of kernels that stay at auto.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_dvfs.report.page.tables import Rows, number, plain

_MOST_PERCENT = 80.0
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


def step_view(workload: Mapping[str, Any], tables: Mapping[str, Rows], is_forecast: bool) -> StepView | None:
    """workload: of the setup. tables: {name: rows} of those that are there. None where it is no step, or nothing of it
    is there yet."""
    totals = tables.get("step_totals")
    if "step" not in workload or not totals:
        return None
    row = totals[0]
    what = "as a whole" if row["step"] == "as a whole" else "sum of its kernels"
    what = f"{what}, at auto clocks" + (", forecast" if is_forecast else "")
    if "energy_least_j" in row:
        what += f"; its power is the model's, and anything from {_of(row, 'energy_least_j')} to "
        what += f"{_of(row, 'energy_most_j')} J is possible"
    cap = number(row["power_cap_share"])
    launched = f"{row['launches']} launches of {row['kernels']} kernels"
    cards = [
        Card("Energy of one step", f"{_of(row, 'energy_j')} J", what),
        Card("Time of one step", f"{_of(row, 'time_ms')} ms", launched),
        Card(
            "Mean power",
            f"{_of(row, 'power_w')} W",
            "" if cap is None else f"{100 * cap:.0f} % of the time under the power cap",
        ),
        Card(
            "80 % of the energy",
            f"{row['kernels_of_80_percent']} of {row['kernels']}",
            "kernels take it, the costliest of the table below",
        ),
    ]
    if needed := _make_most(tables.get("step_saving")):
        cards.append(Card("80 % of the saving", f"{needed} of {row['kernels']}", "kernels make it"))
    few = f"{row['kernels_of_80_percent']} of its {row['kernels']} kernels"
    sentence = [
        (f"One step takes {_of(row, 'energy_j')} J and {_of(row, 'time_ms')} ms at the GPU's own clocks; ", False),
        (few, True),
        (" take 80 % of the energy.", False),
    ]
    return StepView(sentence, cards, _notes(workload))


def _of(row: Mapping[str, str], column: str) -> str:
    value = number(row[column])
    return row[column] if value is None else plain(value)


def _make_most(saving: Rows | None) -> int:
    """How many kernels make 80 % of the saving; 0 where nothing is saved, or that is not known."""
    shares = [number(row["saving_so_far_percent"]) or 0.0 for row in saving or ()]
    if not shares or shares[-1] < _MOST_PERCENT:
        return 0
    return 1 + sum(share < _MOST_PERCENT for share in shares)


def _notes(workload: Mapping[str, Any]) -> list[str]:
    notes = []
    left = workload.get("left_at_auto", ())
    if left:
        share = workload.get("measured_share")
        told = "" if share is None else f"{100 * (1 - share):.1f} % of the step's traced time: "
        names = ", ".join(f"{name} ×{launches} ({reason})" for name, launches, reason in left[:_NAMED])
        names += f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        notes.append(f"Left at auto, since they cannot be repeated alone; {told}{names}.")
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
    if why := workload.get("state_left_out"):
        notes.append(f"Not all of the step's state could be put back before each kernel was measured: {why}.")
    return notes
