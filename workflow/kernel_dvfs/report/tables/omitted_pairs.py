"""Pairs of the grid that were not measured, each with its reason."""

import pandas as pd

from kernel_dvfs.files import read_json
from kernel_dvfs.measurement.record import SKIPPED

CAPTION = "Clock pairs left out of the sweep, of all targets or of one"


def make(results, omitted: list, skipped: bool = False) -> pd.DataFrame:
    """omitted: [[core_mhz, mem_mhz, reason]], for all targets; skipped: whether single points may have been as well."""
    rows = [{"target": "all", "core_mhz": core, "mem_mhz": mem, "reason": reason} for core, mem, reason in omitted]
    for path in sorted(results.folder.glob("measurements/kernel/*/*/r0.json")) if skipped else ():
        content = read_json(path)
        if content["schema"] == SKIPPED:
            request = {name: content["request"][name] for name in ("core_mhz", "mem_mhz")}
            rows.append({"target": content["kernel"]["name"]} | request | {"reason": content["reason"]})
    return pd.DataFrame(rows, columns=["core_mhz", "mem_mhz", "reason", "target"])
