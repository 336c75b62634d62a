"""Headings of a table's columns, made from the columns' names: for pages, Markdown and LaTeX.

A name ends in its unit (`_percent`, `_mhz`, `_j`, ...). Where a table has one quantity both claimed and measured again,
each heading says which of the two it is. What changes are against is auto, or as the caller names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNITS = {
    "percent": "%",
    "pp": "points",
    "points": "points",
    "mhz": "MHz",
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "mj": "mJ",
    "j": "J",
    "w": "W",
    "kwh": "kWh",
    "share": "share",
}
# words that a practitioner knows by another name than the column's
_WORDS = {"fresh": "measured again:", "reoptimised": "chosen there:"}
# without the words claimed and measured again
_TITLES = {
    "row": "row",
    "id": "id in schedules",
    "core_mhz": "core, MHz",
    "mem_mhz": "memory, MHz",
    "mem_stall_ms": "memory stall, ms",
    "reached_core_mhz": "core ran at, MHz",
    "reached_mem_mhz": "memory ran at, MHz",
    "step_time_us": "in the step: time, µs",
    "step_time_ms": "in the step: time, ms",
    "step_core_mhz": "in the step: core, MHz",
    "known": "how known",
    "what": "what is set",
    "peak_percent": "of the peak, %",
    "tflop_per_s": "TFLOP/s",
    "energy_per_pflop_j": "energy per PFLOP, J",
    "time_change_least_percent": "time, at least, %",
    "time_change_most_percent": "time, at most, %",
    "energy_change_least_percent": "energy, at least, %",
    "energy_change_most_percent": "energy, at most, %",
    "time_change_percent": "time, %",
    "energy_change_percent": "energy, %",
    "change_percent": "change, %",
    "j_per_token_in_time": "J per token in time",
    "slack_percent": "slower by at most, %",
    "time_bound_percent": "time at most, as shown, %",
    "another_minute_pp": "another minute saves at most, points",
    "waste_j": "waste left, J",
    "optimism_pp": "measured again less claimed, points",
    "time_optimism_pp": "time: measured again less claimed, points",
    "energy_optimism_pp": "energy: measured again less claimed, points",
    "interval": "interval",
    "n": "measurements",
    "pairs": "clock pairs",
    "points": "cases",
    "number": "no.",
    "ours": "found here",
    "inferred": "used to infer the board",
    "tensor_energy_pj_per_flop": "tensor core, pJ/FLOP",
    "is_default": "default",
    "default_energy_change_percent": "energy at the defaults, %",
    "low_energy_change_percent": "energy, lowest, %",
    "high_energy_change_percent": "energy, highest, %",
    "paper_energy_change_percent": "the paper, %",
    "baseline_time_s": "time at {against}, s",
    "baseline_energy_j": "energy at {against}, J",
    "auto_time_s": "time at auto, s",
    "auto_energy_j": "energy at auto, J",
    "carry_over_time_cost_pp": "loss from reusing clocks: time, points",
    "carry_over_energy_cost_pp": "loss from reusing clocks: energy, points",
    "edp_time_change_percent": "claimed time by EDP, %",
    "edp_energy_change_percent": "claimed energy by EDP, %",
    "pass_time_change_percent": "claimed time, clocks by pass, %",
    "pass_energy_change_percent": "claimed energy, clocks by pass, %",
}
_CLAIMED, _FRESH = "claimed", "fresh"


def headings(columns: Iterable[str], against: str = "auto") -> dict[str, str]:
    """Return {column: heading} of a table: `time_change_percent` beside `fresh_time_change_percent` is "claimed time,
    %".

    The ends of an interval (`time_low_percent`) are claimed or measured again as their change is. against: what the
    baseline is called (words.against).
    """
    columns = [str(column) for column in columns]
    columns_of = {_CLAIMED: {_bare(column) for column in columns if _CLAIMED in column.split("_")}}
    columns_of[_FRESH] = {_bare(column) for column in columns if _FRESH in column.split("_")}
    titles = {}
    for column in columns:
        is_told = _bare(column) != column
        other = None if is_told else next((what for what in columns_of if _change(column) in columns_of[what]), None)
        titles[column] = heading_of(column, {_CLAIMED: _FRESH, _FRESH: _CLAIMED}.get(other or "", ""), against)
    return titles


def heading_of(column: str, which: str = "", against: str = "auto") -> str:
    """Return the heading of one column; which: "claimed" or "fresh" where the table has the other one too."""
    known = _TITLES.get(column, "").format(against=against)
    if known and which:
        return f"{_WORDS.get(which, which)} {known}"
    if known:
        return known
    words = re.sub(r"^kernel_(?=fresh|claimed)", "", column).split("_")  # clocks by kernel are what is meant
    unit = _UNITS.get(words[-1]) if len(words) > 1 else None
    words = [word for word in (words[:-1] if unit else words) if word != "change"]
    if which:
        # behind what says where it was chosen
        words.insert(next((place for place, word in enumerate(words) if word == "reoptimised"), -1) + 1, which)
    heading = " ".join(_WORDS.get(word, word) for word in words).replace(": measured again:", ", measured again:")
    return heading.removesuffix(":") + (f", {unit}" if unit else "")


def _bare(column: str) -> str:
    return "_".join(word for word in column.split("_") if word not in (_CLAIMED, _FRESH))


def _change(column: str) -> str:
    """Return the change that a column is an end of the interval of; any other column itself."""
    return re.sub(r"_(low|high)_percent$", "_change_percent", column)
