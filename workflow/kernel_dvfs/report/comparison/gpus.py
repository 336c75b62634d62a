"""Every GPU and workload in a results folder side by side, by what was made there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import PASS_STRICT, STRICT
from kernel_dvfs.outputs import Output
from kernel_dvfs.report.headings import headings

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="GPUs and workloads side by side: changes of an iteration's time and energy against auto",
    title="GPUs and workloads side by side",
    text="Changes of an iteration against the GPU's own auto clocks. Claimed: by the data that chose; validated: "
    "measured again, with the 95 % interval. EDP trades time away, so compare its energy with its time.",
)
EDP = "kernel-global-edp"


def make(results_root: str | Path) -> pd.DataFrame:
    """One row a folder `<gpu>/<workload>` with a profile and a strict schedule; others are left out.

    baseline_*: an iteration at auto (of a table: the sum over its kernels), s and J. pass_*, kernel_claimed_*: strict
    global choices; kernel_fresh_*: the latter validated, with its 95 % interval; edp_*: global EDP, kernel level;
    changes in percent, empty where not made. pairs: clock pairs measured of the kernels. Raises InputError where no
    folder qualifies.
    """
    import pandas as pd

    from kernel_dvfs.report.results import Results

    root = Path(results_root)
    rows = []
    for path in sorted(root.glob(f"*/*/schedules/{STRICT}.json")):
        folder = path.parents[1]
        if not (folder / "profile.parquet").is_file():
            continue
        try:
            rows.append(_row(Results(folder)))
        except InputError as error:
            # another study's broken folder does not stop this one
            print(f"note: left out: {error}", file=sys.stderr)
    if not rows:
        raise InputError(
            f"{root}: no <gpu>/<workload> with a profile and schedules/{STRICT}.json; run snakemake choose"
        )
    return pd.DataFrame(rows)


def to_markdown(frame: pd.DataFrame) -> str:
    """The table in Markdown, a column for each GPU: they are few, their figures many."""
    words = frame.map(_cell).set_index("gpu").rename(columns=headings(frame.columns)).T
    return words.to_markdown(disable_numparse=True)


def _cell(value: Any) -> str:
    import pandas as pd

    if pd.isna(value):
        return "-"
    # + 0.0: no sign on what rounds to zero
    return f"{round(value, 2) + 0.0:.2f}" if isinstance(value, float) else str(value)


def _row(results: Results) -> dict:
    strict = results.schedule(STRICT)
    kernels = results.profile.query("study == 'kernel'")
    row = {
        "gpu": results.subject,
        # two specimens of one model have one name
        "slug": results.folder.parent.name,
        "workload": results.workload["name"],
        "kind": results.gpu["kind"],
        "baseline_time_s": strict["baseline_time"],
        "baseline_energy_j": strict["baseline_energy"],
    }
    row |= _changes("pass", results, PASS_STRICT)
    row |= _changes("kernel_claimed", results, STRICT)
    row |= _validated(results)
    row |= _changes("edp", results, EDP)
    return row | {"kernels": kernels.target.nunique(), "pairs": int(kernels.groupby("target").size().max())}


def _changes(prefix: str, results: Results, name: str) -> dict:
    """Changes by a schedule, None where it was not made or is not feasible."""
    made = (results.folder / "schedules" / f"{name}.json").is_file()
    schedule = results.schedule(name) if made else {}
    return {
        f"{prefix}_{quantity}_change_percent": schedule.get(f"{quantity}_change_percent")
        for quantity in ("time", "energy")
    }


def _validated(results: Results) -> dict:
    """The validation of the strict schedule, None where there is none."""
    row: dict[str, float | None] = {
        f"kernel_fresh_{quantity}_{bound}_percent": None
        for quantity in ("time", "energy")
        for bound in ("change", "low", "high")
    }
    if (results.folder / "tables" / "validation.csv").is_file():
        for found in results.table("validation").itertuples():
            for bound in ("change", "low", "high"):
                row[f"kernel_fresh_{found.quantity}_{bound}_percent"] = getattr(found, f"fresh_{bound}_percent")
    return row
