"""Figure 6: claimed change of energy over the slowdown that is tolerated, each kernel by itself and all together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Relaxed waste: claimed change of energy (negative = saved) over the tolerated slowdown, limits kept by "
    "each kernel (local) or by the iteration (global); dotted line: strict, no time lost",
    title="Figure 6. Claimed energy over tolerated slowdown",
    text="Choosing for all kernels together (global) beats choosing for each by itself (local). Claimed, so "
    "optimistic: the same noisy data selected the clocks.",
    section="choosing",
    place=1,
    formats=FIGURE_FORMATS,
    of_choice=True,
    inputs=lambda plan: [f"{plan.folder}/tables/relaxed.csv"],
)
SCOPES = ("global", "local")
# slacks are sampled a hair off the limits of what is feasible
_STRICT_PERCENT = 1e-3


def draw(results: Results) -> p9.ggplot:
    """From the table `relaxed`; points without a schedule (infeasible) are absent."""
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = claimed(results.table("relaxed"))
    strict = frame[frame.slack_percent.abs() < _STRICT_PERCENT]
    # a line needs two points
    alone = ~frame.scope.duplicated(keep=False)
    lines, marked = frame[~alone], frame[alone | frame.index.isin(strict.index)]
    kept = dict(zip(strict.scope, strict.energy_change_percent))
    scopes = list(frame.scope.cat.categories)
    labels = [f"{scope} (strict: {kept[scope]:+.1f} %)" if scope in kept else scope for scope in scopes]
    return (
        p9.ggplot(frame, p9.aes("slack_percent", "energy_change_percent"))
        + p9.aes(color="scope", linetype="scope", shape="scope")
        + p9.geom_vline(xintercept=0, linetype="dotted", size=0.5)
        + p9.geom_line(data=lines[lines.scope == "global"], size=0.7)
        # a kernel by itself goes from one clock to the next
        + p9.geom_step(data=lines[lines.scope == "local"], direction="hv", size=0.7)
        + p9.geom_point(data=marked, size=2.2, stroke=0.6, fill="white")
        + p9.expand_limits(y=0)
        + p9.scale_color_manual(style.cycle(style.SERIES, len(scopes)), labels=labels)
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(scopes)), labels=labels)
        + p9.scale_linetype_manual(style.cycle(style.LINES, len(scopes)), labels=labels)
        + p9.labs(
            title="Claimed energy over tolerated slowdown",
            subtitle=style.subtitle(results, "down"),
            x="tolerated slowdown, % (negative: faster than auto)",
            y="claimed change of energy, %\n(negative: saved)",
            caption="Limit kept by each kernel (local) or by the iteration (global). Dotted:\n"
            "strict, no time lost. Claimed by the data that selected the clocks, with\nno margin kept to the limit.",
        )
        + style.keys(color="", shape="", linetype="")
        + style.theme(3.0)
    )


def claimed(table: pd.DataFrame) -> pd.DataFrame:
    """Columns slack_percent, scope (category), energy_change_percent; ascending slack, no empty cells."""
    import pandas as pd

    table = table.dropna(subset="energy_change_percent")
    scopes = [scope for scope in SCOPES if scope in set(table.scope)]
    table = table.assign(scope=pd.Categorical(table.scope, scopes))
    return table[["slack_percent", "scope", "energy_change_percent"]].sort_values(["scope", "slack_percent"])
