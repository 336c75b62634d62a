"""Figures of the pipeline study."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kernel_dvfs.change import change_percent
from kernel_dvfs.outputs import Outputs
from kernel_dvfs_pipeline.report import paper, tables
from kernel_dvfs_pipeline.schedules import BACKWARD
from kernel_dvfs_pipeline.study import (
    ALL_MAX,
    BEST_PUBLISHED,
    BOUND,
    KERNELS_IN_PIPELINE,
    MARKED_RATIO,
    ONE_CLOCK,
    ONE_CLOCK_EACH,
    PER_STAGE,
    REALISED,
    SPLIT,
    UNIFORM,
    Corner,
    PipelineStudy,
    RunnablePlan,
    latency_of_level,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import plotnine as p9

    from kernel_dvfs_pipeline.stage_profile import InstructionSettings
    from kernel_dvfs_pipeline.study import PlannedPart

OUTPUTS = Outputs()

_CHARACTERS = 68


def subtitle(study: PipelineStudy, better: str = "", microbatches: int | None = None) -> str:
    """Return whose numbers a figure shows: subject and shape; better: the direction in which numbers are better, or
    ""."""
    shape = f"{study['stages']} stages" + (f" x {microbatches} microbatches" if microbatches else "")
    text = f"{study.subject}, {study['name']}, {shape}" + (f"; better: {better}" if better else "")
    return textwrap.fill(text, _CHARACTERS, break_on_hyphens=False)


# what figures call a method whose name in the tables is shorthand
NAMES = {
    ALL_MAX: "highest clocks",
    UNIFORM: "one clock for all",
    PER_STAGE: "one clock per stage",
    BOUND: "proven lower bound",
    ONE_CLOCK: "one clock per operation",
    SPLIT: "split operations",
    REALISED: "published plan, as run",
    BEST_PUBLISHED: "published plan, best in time",
}


# what the key calls the plans that are marked, and the names next to single points
SERIES = {name: NAMES[name] for name in (ONE_CLOCK, REALISED)}


_NAMED = (ALL_MAX, UNIFORM, PER_STAGE)


_POINTS = 200  # of the bound's line


_NEAR_POINTS = 1.0  # percentage points of time and energy; the names of nearer baselines would cover each other


@OUTPUTS.figure(
    "Energy of an iteration against its time, changes against all clocks at their highest (negative = saved): "
    "bound, plans as run, baselines",
    title="Energy of an iteration over its time",
    text="The line: no plan can be below it. The marks: plans that can be run.",
    inputs=lambda plan: plan.solved(Corner)[:1] + plan.solved(RunnablePlan)[:1],
)
def frontier(study: PipelineStudy) -> p9.ggplot:
    """Draw it for the first number of microbatches."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    microbatches = study["microbatches"][0]
    lines, marks, baselines = frontier_data(study, microbatches)
    series = [name for name in SERIES.values() if name in set(marks.series)]
    marks = marks.assign(series=pd.Categorical(marks.series, series))
    return (
        p9.ggplot(lines, p9.aes("time", "energy"))
        + p9.geom_hline(yintercept=0, linetype="dotted", size=0.4)
        + p9.geom_line(color=style.SERIES[0], size=0.7)
        + p9.geom_point(p9.aes(shape="series", color="series"), data=marks, size=1.5, fill="white", stroke=0.5)
        + p9.geom_point(data=baselines, size=1.6, color=style.INK)
        + p9.geom_text(
            p9.aes(label="name"),
            data=baselines,
            size=style.SMALL_PT,
            ha="left",
            va="bottom",
            nudge_x=0.6,
            nudge_y=0.3,
        )
        + p9.scale_color_manual(style.SERIES[:2])
        # room for the topmost name
        + p9.scale_y_continuous(expand=(0.05, 0, 0.12, 0))
        + p9.scale_shape_manual(("o", "^"))
        + p9.labs(
            title="Energy of an iteration against its time",
            subtitle=subtitle(study, "down and to the left", microbatches),
            x=style.TIME_CHANGE,
            y=style.ENERGY_CHANGE,
            caption="Against all clocks at their highest; up to the least energy.\n"
            "Line: proven lower bound. Marks: plans that can be run.",
        )
        + style.keys(color="", shape="")
        + style.theme(3.0)
    )


def frontier_data(study: PipelineStudy, microbatches: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return (bound; plans as run; baselines), each with columns time and energy: changes against all-max in percent.

    Bound and plans end at their least energy: nobody wants to be slower for more."""
    import numpy as np
    import pandas as pd

    runs = study.read(microbatches, RunnablePlan)
    base = next(run for run in runs if run.method == ALL_MAX)
    corners = study.read(microbatches, Corner)[::-1]
    corner_s = np.array([corner.time_s for corner in corners])
    corner_j = np.array([corner.energy_j for corner in corners])
    time_s = np.linspace(corner_s[0], min(base.time_s * MARKED_RATIO, corner_s[corner_j.argmin()]), _POINTS)
    # straight between corners, waiting included
    energy_j = np.interp(time_s, corner_s, corner_j)
    lines = pd.DataFrame(
        {"time": change_percent(time_s, base.time_s), "energy": change_percent(energy_j, base.energy_j)}
    )

    def changes(run: RunnablePlan) -> dict:
        return {
            "time": change_percent(run.time_s, base.time_s),
            "energy": change_percent(run.energy_j, base.energy_j),
        }

    marks = []
    for method, series in SERIES.items():
        series_runs = [run for run in runs if run.method == method]
        least = min(series_runs, key=lambda run: run.energy_j, default=None)
        last_s = min(least.time_s, time_s[-1]) if least else 0.0
        marks += [changes(run) | {"series": series} for run in series_runs if run.time_s <= last_s]
    named: list[dict] = []
    for run in runs:
        if run.method in _NAMED:
            point = changes(run) | {"name": NAMES[run.method]}
            near = [
                other
                for other in named
                if all(abs(other[key] - point[key]) < _NEAR_POINTS for key in ("time", "energy"))
            ]
            if near:
                near[0]["name"] += f", {point['name']}"
            else:
                named.append(point)
    return lines, pd.DataFrame(marks), pd.DataFrame(named)


_DRAWN = (BOUND, ONE_CLOCK, REALISED, BEST_PUBLISHED)


@OUTPUTS.figure(
    "Change of energy of a pipeline that waits for a straggler against all clocks at their highest (negative = "
    "saved), over T'/T",
    inputs=lambda plan: tables.OUTPUTS["table", "straggler"].made_from(plan),
)
def straggler(study: PipelineStudy) -> p9.ggplot:
    """Draw it for the first number of microbatches: bound, our plans, the published ones as looked up and at best."""
    import plotnine as p9

    from kernel_dvfs.report import style

    microbatches = study["microbatches"][0]
    frame = straggler_data(study, microbatches)
    methods = list(frame.method.cat.categories)
    return (
        p9.ggplot(frame, p9.aes("straggler_ratio", "energy_change_percent", color="method", shape="method"))
        + p9.geom_line(p9.aes(linetype="method"), size=0.6)
        + p9.geom_point(size=1.8, fill="white", stroke=0.5)
        + p9.scale_color_manual(style.cycle(style.SERIES, len(methods)))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(methods)))
        + p9.scale_linetype_manual(style.cycle(style.LINES, len(methods)))
        + p9.labs(
            title="Energy while waiting for a straggler",
            subtitle=subtitle(study, "down", microbatches),
            x="straggler's iteration time, times that of the highest clocks",
            y=style.ENERGY_CHANGE,
            caption="Against the highest clocks in the same time.",
        )
        + p9.guides(**{name: p9.guide_legend(title="", ncol=2) for name in ("color", "shape", "linetype")})
        + style.theme(3.1)
    )


def straggler_data(study: PipelineStudy, microbatches: int) -> pd.DataFrame:
    """Return ours of the table `straggler`, the series that are drawn; method: a category, by the names of figures."""
    import pandas as pd

    frame = tables.straggler(study)
    frame = frame[
        (frame.source == paper.OURS) & (frame.microbatches == microbatches) & frame.method.isin(_DRAWN)
    ].astype({"microbatches": int})
    drawn = [NAMES[method] for method in _DRAWN if method in set(frame.method)]
    return frame.assign(method=pd.Categorical(frame.method.map(NAMES), drawn))


@OUTPUTS.figure(
    "Change of energy of a pipeline that waits for a straggler (T'/T = 1.2), negative = saved, intrinsic and "
    "extrinsic; ours and the paper's",
    inputs=lambda plan: tables.OUTPUTS["table", "breakdown"].made_from(plan),
)
def breakdown(study: PipelineStudy) -> p9.ggplot:
    """Draw stacked bars of ours; the paper's emulated totals are whole bars."""
    import plotnine as p9

    from kernel_dvfs.report import style

    bars = breakdown_data(study)
    colours = {"intrinsic": style.SERIES[3], "extrinsic": style.SERIES[0], "paper": style.SERIES[2]}
    return (
        p9.ggplot(bars, p9.aes("label", "change_percent", fill="part"))
        + p9.geom_col(width=0.7, color=style.INK, size=0.2)
        + p9.coord_flip()
        + p9.scale_fill_manual([colours[part] for part in bars.part.cat.categories])
        + p9.labs(
            title="Where the change beside a straggler comes from",
            subtitle=subtitle(study, "left"),
            x="",
            y=style.ENERGY_CHANGE,
            caption="Of a pipeline that waits. Intrinsic: planned within it. Extrinsic: slower,\n"
            "since it must wait. Ours: (microbatches). Paper: SOSP'24, emulated.",
        )
        + style.keys(fill="")
        + style.theme(3.4)
    )


def breakdown_data(study: PipelineStudy) -> pd.DataFrame:
    """Return a row per bar and part: label, part, change_percent (negative = saved)."""
    import pandas as pd

    frame = tables.breakdown(study)
    rows: list[tuple[str, str, float]] = []
    for row in frame.itertuples(index=False):
        if row.source == paper.OURS:
            label = f"ours ({row.microbatches}): {row.method}"
            rows += [
                (label, "intrinsic", row.intrinsic_change_percent),
                (label, "extrinsic", row.extrinsic_change_percent),
            ]
        else:
            rows.append((f"{row.workload}, {row.method}", "paper", row.pipeline_change_percent))
    bars = pd.DataFrame(rows, columns=["label", "part", "change_percent"])
    labels = list(dict.fromkeys(bars.label))[::-1]
    # the part drawn last lies nearest to the axis
    parts = [name for name in ("extrinsic", "intrinsic", "paper") if name in set(bars.part)]
    return bars.assign(label=pd.Categorical(bars.label, labels), part=pd.Categorical(bars.part, parts))


@OUTPUTS.figure(
    "What a clock for each kernel adds to one clock for each operation of the pipeline, over the time of a "
    "change of clocks within an operation",
    when=tables.OUTPUTS["table", "levels"].when,
    inputs=lambda plan: tables.OUTPUTS["table", "levels"].made_from(plan),
)
def levels(study: PipelineStudy) -> p9.ggplot:
    """Draw them for the first number of microbatches, by T'/T; latencies are evenly spaced, zero among them."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = tables.levels(study)
    by_kernel = frame[frame.level.str.startswith(KERNELS_IN_PIPELINE)].assign(
        latency_ms=lambda kernels: [latency_of_level(level) for level in kernels.level]
    )
    by_kernel = by_kernel[by_kernel.latency_ms.notna()]
    one_clock = frame[frame.level == ONE_CLOCK_EACH].set_index("straggler_ratio").energy_change_percent
    further = by_kernel.energy_change_percent - by_kernel.straggler_ratio.map(one_clock)
    latencies = sorted(set(by_kernel.latency_ms))
    ratios = sorted(set(by_kernel.straggler_ratio))
    words = [f"T'/T = {ratio:g}" for ratio in ratios]
    by_kernel = by_kernel.assign(
        further_points=further,
        place=[latencies.index(latency_ms) for latency_ms in by_kernel.latency_ms],
        waits=pd.Categorical([f"T'/T = {ratio:g}" for ratio in by_kernel.straggler_ratio], words),
    )
    return (
        p9.ggplot(by_kernel, p9.aes("place", "further_points", color="waits", shape="waits"))
        + p9.geom_hline(yintercept=0, size=0.3)
        + p9.geom_line(p9.aes(linetype="waits"), size=0.6)
        + p9.geom_point(size=1.8, fill="white", stroke=0.5)
        + p9.scale_x_continuous(
            breaks=list(range(len(latencies))), labels=[f"{latency_ms:g}" for latency_ms in latencies]
        )
        + p9.scale_color_manual(style.SERIES[: len(words)])
        + p9.scale_shape_manual(style.SHAPES[: len(words)])
        + p9.scale_linetype_manual(style.LINES[: len(words)])
        + p9.labs(
            title="What clocks per kernel add to clocks per operation",
            subtitle=subtitle(study, "down", study["microbatches"][0]),
            x="time of one change of clocks within an operation, ms",
            y="further change of energy,\npoints (negative: saved)",
            caption="T'/T: a straggler's iteration time over that of the highest clocks.",
        )
        + style.keys(color="", shape="", linetype="")
        + style.theme(2.6)
    )


@OUTPUTS.figure(
    "Change of energy against all clocks at their highest in the same time (negative = saved), when each "
    "change of clocks stops a stage for a while",
    inputs=lambda plan: tables.OUTPUTS["table", "switching"].made_from(plan),
)
def switching(study: PipelineStudy) -> p9.ggplot:
    """Draw it for the first number of microbatches, by what was asked for; latencies are evenly spaced, with zero."""
    import plotnine as p9

    from kernel_dvfs.report import style

    microbatches = study["microbatches"][0]
    frame = tables.switching(study)
    frame = frame[frame.microbatches == microbatches]
    latencies = sorted(set(frame.latency_ms))
    frame = frame.assign(
        place=[latencies.index(latency_ms) for latency_ms in frame.latency_ms],
        asked=[NAMES[kind] for kind in frame.asked],
    )
    return (
        p9.ggplot(frame, p9.aes("place", "energy_change_percent", color="asked", shape="asked"))
        + p9.geom_line(p9.aes(linetype="asked"), size=0.6)
        + p9.geom_point(size=1.8, fill="white", stroke=0.5)
        + p9.expand_limits(y=0)
        + p9.scale_x_continuous(
            breaks=list(range(len(latencies))), labels=[f"{latency_ms:g}" for latency_ms in latencies]
        )
        + p9.scale_color_manual(style.SERIES[:2])
        + p9.scale_shape_manual(style.SHAPES[:2])
        + p9.scale_linetype_manual(style.LINES[:2])
        + p9.labs(
            title="What slow changes of clocks leave of the saving",
            subtitle=subtitle(study, "down", microbatches),
            x="time of one change of clocks, ms",
            y=style.ENERGY_CHANGE,
            caption="Against the highest clocks, in their time.",
        )
        + style.keys(color="", shape="", linetype="")
        + style.theme(2.6)
    )


# what the figure calls a plan, and its file
_PLANS = {"highest clocks": "all-max", "planned, same time": "one-clock"}


@OUTPUTS.figure(
    "Timeline of one iteration at the highest clocks and as planned for the same time; colour: power of a stage, W",
    inputs=lambda plan: plan.plans()[:1],
)
def timeline(study: PipelineStudy) -> p9.ggplot:
    """Draw it for the first number of microbatches; gaps are stages that wait."""
    import plotnine as p9
    from mizani.breaks import breaks_extended

    from kernel_dvfs.report import style

    microbatches = study["microbatches"][0]
    bars = timeline_data(study, microbatches)
    return (
        p9.ggplot(bars)
        + p9.geom_rect(
            p9.aes(xmin="begin_s", xmax="end_s", ymin="low", ymax="high", fill="watt"), color="white", size=0.1
        )
        + p9.facet_wrap("plan", ncol=1)
        + p9.scale_fill_gradientn(colors=list(style.GAIN), name="mean power of a GPU, W", breaks=breaks_extended(n=4))  # type: ignore[arg-type]
        + p9.scale_y_reverse(breaks=list(range(study["stages"])))
        + p9.labs(
            title="One iteration, stage by stage",
            subtitle=subtitle(study, microbatches=microbatches),
            x="time, s",
            y="stage",
            caption="Tall: backward; short: forward. White: the stage waits for another.",
        )
        + style.theme(3.6)
        + p9.theme(panel_grid_major_y=p9.element_blank(), legend_key_width=60, legend_key_height=6)
    )


def timeline_data(study: PipelineStudy, microbatches: int) -> pd.DataFrame:
    """Return a row per operation and plan: begin_s, end_s, low and high (of its bar), watt (mean, of one GPU)."""
    import pandas as pd

    rows = []
    for name, file in _PLANS.items():
        for rank in study.plan(microbatches, file)["ranks"]:
            for instruction in rank["instructions"]:
                half = 0.42 if instruction["instruction"].startswith(BACKWARD) else 0.26
                settings = study.profile.of(instruction["virtual_stage"], instruction["instruction"])
                rows.append(
                    {
                        "plan": name,
                        "begin_s": instruction["begin_s"],
                        "end_s": instruction["end_s"],
                        "low": rank["stage"] - half,
                        "high": rank["stage"] + half,
                        "watt": _watt(settings, instruction["clocks"]) / study["tensor_parallel"],
                    }
                )
    frame = pd.DataFrame(rows)
    return frame.assign(plan=pd.Categorical(frame.plan, list(_PLANS)))


def _watt(settings: InstructionSettings, parts: Sequence[PlannedPart]) -> float:
    """Return the mean power (W) over the parts of an operation."""
    rows = {settings.clocks(row): row for row in range(len(settings.time_s))}
    chosen = [(rows[part["core_mhz"], part["mem_mhz"]], part["share_of_kernels"]) for part in parts]
    energy_j = sum(share * settings.energy_j[row] for row, share in chosen)
    return float(energy_j / sum(share * settings.time_s[row] for row, share in chosen))
