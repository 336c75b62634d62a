"""The page of a training that was tuned while it ran: what is kept, what it saves, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_dvfs.report.page.render import render
from kernel_dvfs.report.page.tables import table

_KWH = 3.6e6  # J


def make(found: Mapping[str, Any]) -> str:
    """The page as HTML. found: the summary of a session (deploy.tune.TuningSession)."""
    energies = [found["energy_j"], *found["auto_would_have_taken_j"]] if "energy_j" in found else []
    rows = [
        {
            "clocks": each["pair"],
            "tries": each["rounds"],
            "energy_change_percent": each["energy_change_percent"],
            "time_change_percent": each["time_change_percent"],
        }
        for each in found.get("tried", [])
    ]
    return render(
        "tune.html.j2",
        gpu=f"{found['gpus']} x {found['gpu']}" if found["gpus"] > 1 else found["gpu"],
        found=found,
        kept="arguments" in found,
        kwh=[f"{each / _KWH:.4g}" for each in energies],
        tried=table("tried", rows, drop=(), folds=True),
    )
