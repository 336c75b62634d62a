"""Whether the kernels of a step add up to it, in words: for its page, and for the line that a run ends with.

The workflow imports it: the standard library is all that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]  # of a table, as data


def step_answer(tables: Mapping[str, Rows]) -> str | None:
    """Return `one step takes 25.35 J and 39.07 ms at auto clocks; its kernels add up to it within ...`, from the tables
    step_totals and step_check; None where the first is not there."""
    totals = tables.get("step_totals")
    if not totals:
        return None
    what = "" if totals[0]["step"] == "as a whole" else ", the sum of its kernels"
    sentence = f"one step takes {totals[0]['energy_j']:.4g} J and {totals[0]['time_ms']:.4g} ms at auto clocks{what}"
    _, sums = sums_in_words(tables.get("step_check") or ())
    return f"{sentence}; {sums[0].lower()}{sums[1:]}" if sums else sentence


def sums_in_words(rows: Rows) -> tuple[bool, str]:
    """Return whether the kernels are known not to add up to the step, and a sentence, without its full stop, on by how
    much they do or do not, and where; of the rows of the table step_check. "" where the step has no row."""
    row = next((row for row in rows if row["section"] == "step"), None)
    if row is None:
        return False, ""
    time, energy = _differences_percent(row)
    if row["adds_up"] is True:
        return False, f"Its kernels add up to it within {abs(time):.1f} % of time, {abs(energy):.1f} % of energy"
    if row["adds_up"] is not False:
        return False, f"Whether its kernels add up to it is {row['adds_up']}, and these may draw any power"
    parts = []
    for section in rows:
        if section is not row and section["adds_up"] is False:
            section_time, section_energy = _differences_percent(section)
            parts.append(f"{section['section']} ({section_time:+.1f} % time, {section_energy:+.1f} % energy)")
    where = f"; the gap is in {', '.join(parts)}" if parts else ""
    return True, (
        f"Its kernels do not add up to it: against their sum, the step as a whole takes {time:+.1f} % time and "
        f"{energy:+.1f} % energy{where}"
    )


def _differences_percent(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return by how much a section, or the step, takes more time and energy than the best sum of its kernels."""
    sums = ("with_others_", "paced_", "")
    best = next((prefix for prefix in sums if row.get(f"{prefix}time_difference_percent") is not None), "")
    time, energy = (row[f"{best}{quantity}_difference_percent"] or 0.0 for quantity in ("time", "energy"))
    return time, energy
