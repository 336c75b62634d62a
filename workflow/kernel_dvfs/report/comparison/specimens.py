"""Specimens of one GPU model side by side: how far two differ at the same points, and what the clocks chosen on one
cost on the other."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import STRICT
from kernel_dvfs.outputs import Output
from kernel_dvfs.report.headings import headings

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Boards of one type, same workload: the second against the first, and the first's schedule on the second",
    title="Specimens of one model",
    text="GPUs of the same name under different UUIDs: how far two boards that were sold as equal are apart.",
)
COLUMNS = (
    "gpu", "workload", "first", "second", "kernels", "points",
    "auto_time_difference_percent", "auto_energy_difference_percent",
    "median_time_difference_percent", "median_energy_difference_percent",
    "largest_time_difference_percent", "largest_energy_difference_percent",
    "carried_time_change_percent", "carried_energy_change_percent",
    "own_time_change_percent", "own_energy_change_percent",
)  # fmt: skip
_KEY = ["target", "core_mhz", "mem_mhz"]


def make(results_root: str | Path) -> pd.DataFrame:
    """One row for every two real GPUs of one name with one workload; COLUMNS, no row where there are none.

    points: kernel x clock pair that both measured. auto_*: an iteration at auto. median_*, largest_* (by size): over
    the points. carried_*: the first's strict schedule by the second's measurements against its auto; own_*: the
    second's own schedule likewise. All in percent, empty where not made.
    """
    import pandas as pd

    from kernel_dvfs.report.results import Results

    specimens: dict[tuple[str, str], list[Results]] = {}
    for path in sorted(Path(results_root).glob("*/*/profile.parquet")):
        results = Results(path.parent)
        try:
            if results.gpu["kind"] == "nvml":
                specimens.setdefault((results.gpu["name"], results.workload["name"]), []).append(results)
        except InputError:
            continue  # the table of all GPUs says so
    rows = [
        {"gpu": name, "workload": workload} | _row(first, second)
        for (name, workload), alike in specimens.items()
        for first, second in combinations(alike, 2)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def to_markdown(frame: pd.DataFrame) -> str:
    """The table in Markdown, a column for each pair."""
    if frame.empty:
        return "No two boards of one type have been measured with the same workload."
    table = frame.map(lambda value: f"{value:.2f}" if isinstance(value, float) else value).T
    return table.rename(index=headings(COLUMNS)).to_markdown(headers=[""] * (len(frame) + 1))


def _row(first: Results, second: Results) -> dict:
    one, two = _points(first), _points(second)
    both = one.add_suffix("_first").join(two.add_suffix("_second"), how="inner")
    difference = {
        quantity: 100 * (both[f"{column}_second"] / both[f"{column}_first"] - 1)
        for quantity, column in (("time", "time_s"), ("energy", "energy_j"))
    }
    row: dict[str, object] = {
        "first": first.gpu["slug"],
        "second": second.gpu["slug"],
        "kernels": both.index.get_level_values("target").nunique(),
        "points": len(both),
    }
    auto = both[both.is_baseline_first]
    weight = auto.launches_per_iteration_first
    for quantity, column in (("time", "time_s"), ("energy", "energy_j")):
        here, there = ((weight * auto[f"{column}_{which}"]).sum() for which in ("first", "second"))
        row[f"auto_{quantity}_difference_percent"] = 100 * (there / here - 1) if here else None
        found = difference[quantity]
        row[f"median_{quantity}_difference_percent"] = found.median()
        row[f"largest_{quantity}_difference_percent"] = found.loc[found.abs().idxmax()] if len(found) else None
    return row | _on(two, first, "carried") | _on(two, second, "own")


def _points(results: Results) -> pd.DataFrame:
    profile = results.profile.query("study == 'kernel'")
    # auto is empty, and empty equals nothing
    clocks = profile[["core_mhz", "mem_mhz"]].astype(object).where(profile[["core_mhz", "mem_mhz"]].notna(), "auto")
    return profile.assign(core_mhz=clocks.core_mhz, mem_mhz=clocks.mem_mhz).set_index(_KEY)


def _on(points: pd.DataFrame, chooser: Results, prefix: str) -> dict:
    """Changes by the chooser's strict schedule, on the specimen of `points`."""
    names = [f"{prefix}_{quantity}_change_percent" for quantity in ("time", "energy")]
    if not (chooser.folder / "schedules" / f"{STRICT}.json").is_file():
        return dict.fromkeys(names)
    targets = chooser.schedule(STRICT)["targets"]
    keys = [(target, clocks["core_mhz"], clocks["mem_mhz"]) for target, clocks in targets.items()]
    auto = points[points.is_baseline].reset_index(["core_mhz", "mem_mhz"])
    if not keys or not all(key in points.index and key[0] in auto.index for key in keys):
        return dict.fromkeys(names)  # the other one's grid lacks a pair
    chosen, base = points.loc[keys], auto.loc[[key[0] for key in keys]]
    weight = chosen.launches_per_iteration.to_numpy()
    return {
        name: 100 * float((weight * chosen[column]).sum() / (weight * base[column].to_numpy()).sum() - 1)
        for name, column in zip(names, ("time_s", "energy_j"))
    }
