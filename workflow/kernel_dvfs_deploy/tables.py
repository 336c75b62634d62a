"""The table of what a board can be set to today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_dvfs.layout import FREE, RELIED_ON, STRICT
from kernel_dvfs.limit_verdict import verdict
from kernel_dvfs.outputs import MEASURED, Outputs
from kernel_dvfs.report import remeasured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from kernel_dvfs.report.results import Results
    from kernel_dvfs.student import Change

OUTPUTS = Outputs()


@OUTPUTS.table(
    "What can be deployed if clock changes take time and stall the GPU for a moment, claimed and measured again: "
    "changes against auto, 95 % interval, the gap to the best choice of the same kind in percentage points of energy",
    title="What can be deployed",
    text="The first row counts changes as free: you cannot realise this saving today. In the others a change takes "
    "effect some time after its request, by a distribution with these medians, late ones included, and stalls the GPU. "
    "Costs are measured by kernel-dvfs latency, or assumed, because nobody has published them. Where iterations can be "
    "played, a walk shows that each choice keeps its limit, and further sessions measure it again; elsewhere changes "
    "are claimed, and optimistic. All are against the whole iteration at auto. Gap: what a better choice of the same "
    "kind could save at most by the data that chose, what is kept in reserve included.",
    section="choosing",
    place=0,
    procedure=RELIED_ON,
    kinds=MEASURED,
    of_choice=True,
    when=lambda plan: plan.is_deployable,
    inputs=lambda plan: [plan.schedule(STRICT), plan.deployable_file, *plan.validation(plan.headline[:1])],
    options=lambda plan: {"repeats": plan.repeats} if plan.headline else {},
)
def deployable(results: Results, repeats: int = 0) -> pd.DataFrame:
    """Return the rows of `schedules/deployable.json`, changes free first: times in ms, changes in percent, negative =
    less, gaps in points. repeats: of measuring the strict schedule again."""
    return deployed(
        results.deployable, remeasured.changes(results.measured_again(STRICT, repeats)) if repeats else None
    )


def deployed(listed: Iterable[Mapping[str, Any]], free: tuple[Change, Change] | None) -> pd.DataFrame:
    """Return the table of a list. free: changes of time and energy that measuring its first row again gave, None:
    unknown."""
    import pandas as pd

    from kernel_dvfs_deploy.sequence.deployable import again_of  # needs numpy, and a workflow only lists tables

    rows = []
    for entry in listed:
        changes = free if entry["way"] == FREE else again_of(entry)
        row = {name: entry[name] for name in ("way", "latency_ms", "mem_latency_ms", "core_stall_ms", "mem_stall_ms")}
        for quantity, change in zip(("time", "energy"), changes or (None, None)):
            row[f"claimed_{quantity}_change_percent"] = entry[f"{quantity}_change_percent"]
            row[f"fresh_{quantity}_change_percent"] = change.mean if change else None
            row[f"fresh_{quantity}_low_percent"] = change.low if change else None
            row[f"fresh_{quantity}_high_percent"] = change.high if change else None
        row |= {name: entry[name] for name in ("time_bound_percent", "gap_points", "changes", "clocks")}
        row["verdict"] = verdict(changes[0], entry["slack_percent"], True) if entry["again"] and changes else None
        rows.append(row | {name: entry[name] for name in ("is_default", "costs")})
    frame = pd.DataFrame(rows)
    numbers = [name for name in frame if name.endswith(("_percent", "_points"))]
    return frame.astype(dict.fromkeys(numbers, float)).round(dict.fromkeys(numbers, 4))
