"""The answer of a study in one line, read from its folder when a run ends."""

from __future__ import annotations

import csv
import json
import os

from kernel_dvfs.layout import STRICT

_VERDICTS = {"over": ", slower than its limit", "ambiguous": ", too few repeats to say whether it keeps its limit"}


def summary(folder: str, device: str) -> str | None:
    """`simulated RTX 3080 Ti: -6.7 % energy, -0.1 % time (validated). Open <folder>/report.html`.

    Changes of an iteration under the strict schedule, in percent of auto, negative where something is saved: as
    validated (tables/headline.csv), else as the schedule claims. None where the folder holds neither. device: how the
    GPU is called in text.
    """
    found = _validated(folder) or _claimed(folder)
    if found is None:
        return None
    energy_percent, time_percent, how = found
    page = os.path.join(folder, "report.html")
    where = f" Open {page}" if os.path.isfile(page) else f" See {folder}"
    return f"{device}: {_signed(energy_percent)} % energy, {_signed(time_percent)} % time ({how}).{where}"


def _validated(folder: str) -> tuple[float, float, str] | None:
    try:
        with open(os.path.join(folder, "tables", "headline.csv"), encoding="utf-8", newline="") as file:
            # the strict schedule comes first
            row = next(csv.DictReader(file))
        energy, time = (float(row[f"fresh_{quantity}_change_percent"]) for quantity in ("energy", "time"))
    except (OSError, ValueError, LookupError, StopIteration):
        return None
    return energy, time, f"validated{_VERDICTS.get(row.get('verdict', ''), '')}"


def _claimed(folder: str) -> tuple[float, float, str] | None:
    try:
        with open(os.path.join(folder, "schedules", f"{STRICT}.json"), encoding="utf-8") as file:
            schedule = json.load(file)
        energy, time = (float(schedule[f"{quantity}_change_percent"]) for quantity in ("energy", "time"))
        from_table = schedule["gpu"]["kind"] == "table"
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return energy, time, "claimed, from the table's own rows" if from_table else "claimed, not validated"


def _signed(percent: float) -> str:
    """One decimal, with a sign unless it is zero: what rounds to zero is no saving."""
    text = f"{percent:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text
