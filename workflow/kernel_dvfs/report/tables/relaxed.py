"""Figure 6 as numbers: energy against tolerated slowdown, from the largest time saving possible to 30 % slack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Relaxed waste: least energy at each tolerated slowdown, kernel level",
    title="Energy against tolerated slowdown, as numbers",
    text="The least energy at each slowdown that is allowed; the numbers of Figure 6.",
    section="choosing",
    place=3,
    formats=("csv",),
    of_choice=True,
    inputs=lambda plan: [f"{plan.folder}/schedules/frontier.json"],
)


def make(results: Results) -> pd.DataFrame:
    """Rows by scope and slack; a slack that a scope cannot keep (local, below its largest saving) has no row.

    The first row of each scope is its largest time saving; changes in percent, negative = less.
    """
    import pandas as pd

    columns = ("slack_percent", "scope", "time_change_percent", "energy_change_percent")
    return pd.DataFrame(results.frontier, columns=columns)
