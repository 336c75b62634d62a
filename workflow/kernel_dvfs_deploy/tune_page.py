"""The page of a training that was tuned while it ran: what is kept, what it saves, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_dvfs.report.page.render import render
from kernel_dvfs.report.page.tables import table

_KWH = 3.6e6  # J


def make(summary: Mapping[str, Any]) -> str:
    """Return the page as HTML. summary: of a session (deploy.tune.TuningSession)."""
    energies = [summary["energy_j"], *summary["auto_would_have_taken_j"]] if "energy_j" in summary else []
    rows = [
        {
            "clocks": trial["pair"],
            "tries": trial["rounds"],
            "energy_change_percent": trial["energy_change_percent"],
            "time_change_percent": trial["time_change_percent"],
        }
        for trial in summary.get("tried", [])
    ]
    return render(
        "tune.html.j2",
        gpu=f"{summary['gpus']} x {summary['gpu']}" if summary["gpus"] > 1 else summary["gpu"],
        summary=summary,
        kept="arguments" in summary,
        kwh=[f"{energy_j / _KWH:.4g}" for energy_j in energies],
        tried=table("tried", rows, drop=(), folds=True),
    )
