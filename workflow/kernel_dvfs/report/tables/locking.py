"""Is auto the same as locked at the highest clocks? On some GPUs any lock changes how power is controlled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.gpu.clocks import label
from kernel_dvfs.layout import locking
from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Locked at the highest clocks, compared with auto (auto, locked, locked, auto in turn): core clock alone, "
    "memory clock alone, both; change with its 95 % interval over repeats, within one measuring session "
    "unless it says otherwise, and the core clocks reached",
    title="Locking",
    text="Three kernels ran at auto and locked at the highest clocks, in turn: the core locked alone, the memory "
    "alone, and both. At auto, the baseline of every percentage, both locks are reset. If the two differ, a "
    "lock by itself changes how the GPU controls its power, and every saving includes that difference. "
    "Differs: the interval excludes zero, and the change is at least 0.5 %.",
    kinds=("nvml",),
    of_choice=True,
    when=lambda plan: plan.clocks == "lock",
    inputs=lambda plan: plan.locking(),
    options=lambda plan: {"targets": plan.locked, "ways": tuple(plan.contracts), "sessions": plan.sessions},
)

WAYS = {"core": "core alone", "mem": "memory alone", "both": "both"}
DIFFERS = "differs"
# smaller differences are not worth a warning: of eighteen intervals, one leaves out zero by chance
_LEAST_PERCENT = 0.5


def make(results: Results, targets: list[str], ways: list[str], sessions: int) -> pd.DataFrame:
    """A row a way of locking and kernel of `targets`, measured in so many sessions; changes in percent, clocks in
    MHz."""
    import pandas as pd

    return pd.DataFrame([row for way in ways for row in _rows(results, targets, way, sessions)])


def _rows(results: Results, targets: list[str], way: str, sessions: int) -> list[dict[str, object]]:
    from kernel_dvfs.report import validation

    comparisons = results.comparisons(*(path for name in targets for path in locking(way, name, sessions)))
    changes = validation.kernel_changes(comparisons)
    rows = []
    for name in targets:
        repeats = [points for target, _, points in comparisons.points if target == name]
        request = repeats[0][1]["request"]
        clocks = label((request["core_mhz"], request["mem_mhz"]))
        row: dict[str, object] = {"id": name, "way": WAYS[way], "locked": clocks}
        for quantity, change in zip(("time", "energy"), changes[name]):
            row |= {
                f"{quantity}_change_percent": change.mean,
                f"{quantity}_low_percent": change.low,
                f"{quantity}_high_percent": change.high,
            }
        reached = [[point["reached"]["core_mhz"] for point in points] for points in repeats]
        row["auto_core_mhz"] = sum(core[0] + core[3] for core in reached) / (2 * len(reached))
        row["locked_core_mhz"] = sum(core[1] + core[2] for core in reached) / (2 * len(reached))
        differs = any(
            (change.low > 0 or change.high < 0) and abs(change.mean) >= _LEAST_PERCENT for change in changes[name]
        )
        row["verdict"] = DIFFERS if differs else "as auto"
        rows.append(row | {"repeats": len(repeats), "interval": changes[name][0].basis})
    return rows
