"""Pairs of the grid that were not measured, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.files import read_json
from kernel_dvfs.measurement.record import SKIPPED
from kernel_dvfs.outputs import MEASURED, Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Clock pairs left out of the sweep, of all targets or of one",
    title="Clock pairs that were left out",
    text="Pairs of the grid that the GPU cannot run, and why.",
    formats=("csv",),
    kinds=MEASURED,
    of_choice=True,
    options=lambda plan: {
        "omitted": [[*pair, reason] for pair, reason in plan.omitted],
        "skipped": plan.is_real and plan.options["skip_capped"],
    },
)


def make(results: Results, omitted: list[tuple[str, str, str]], skipped: bool = False) -> pd.DataFrame:
    """omitted: [[core_mhz, mem_mhz, reason]], for all targets; skipped: whether single points may have been as well."""
    import pandas as pd

    rows = [{"target": "all", "core_mhz": core, "mem_mhz": mem, "reason": reason} for core, mem, reason in omitted]
    for path in sorted(results.folder.glob("measurements/kernel/*/*/r0.json")) if skipped else ():
        content = read_json(path)
        if content["schema"] == SKIPPED:
            request = {name: content["request"][name] for name in ("core_mhz", "mem_mhz")}
            rows.append({"target": content["kernel"]["name"]} | request | {"reason": content["reason"]})
    return pd.DataFrame(rows, columns=["core_mhz", "mem_mhz", "reason", "target"])
