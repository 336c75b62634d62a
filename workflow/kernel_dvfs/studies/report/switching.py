"""What slow changes of clocks leave of an iteration's saving: two tables, and a figure, a panel for each behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_dvfs.outputs import FIGURE_FORMATS, MEASURED, Output

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.measurement.latency_file import Latency
    from kernel_dvfs.studies.switching import Row


def _clocks_are_chosen(plan: Any) -> bool:
    return plan.is_chosen


OUTPUT = Output(
    caption=(
        "Change of an iteration's energy within its time limit where each change of clocks takes time, chosen for that "
        "latency: the stream waits for a change, launches lag behind it, or it is asked for ahead; beside the "
        "latency-free choice replayed as it is (naive), and one pair for each pass or for all"
    ),
    kinds=MEASURED,
    when=_clocks_are_chosen,
)
KNOWN = Output(
    caption=(
        "Latencies of a change of clocks that are known of, and what this iteration would still save if this GPU had "
        "them (asked for ahead, no jitter, the next longer latency of the study; beyond it one pair for the run)"
    ),
    kinds=MEASURED,
    when=_clocks_are_chosen,
)
FIGURE = Output(caption=OUTPUT.caption, formats=FIGURE_FORMATS, kinds=MEASURED, when=_clocks_are_chosen)

NAMES = {"wait": "wait: the stream stands still", "lag": "lag: launches run on", "ahead": "ahead: asked for in time"}
# a replay that saves by losing time is not the same thing: its points say how much
_LATE_PERCENT = 0.05
# naive replays lose hundreds of percent where changes are slow: such points stand at the edge, with their numbers
_CEILING_PERCENT = 1.0
_ROOM_PERCENT = 1.2  # below the lowest point, for its number


def make(rows: list[Row]) -> pd.DataFrame:
    """The table of the study: rows of studies.switching.study."""
    import pandas as pd

    return pd.DataFrame(rows).round(6)


def make_known(rows: list[Row], measured: Latency | None = None) -> pd.DataFrame:
    """The table of known latencies: rows of studies.switching.study. measured: a file of `kernel-dvfs latency`."""
    import pandas as pd

    from kernel_dvfs.studies.switching import known_rows

    return pd.DataFrame(known_rows(rows, measured)).round(6)


def draw(frame: pd.DataFrame, subject: str, workload: str) -> p9.ggplot:
    """The figure of the study: latencies evenly spaced, zero among them; what lies above the axis is told at its edge.

    frame: the table. subject: the GPU, as captions name it.
    """
    import plotnine as p9

    from kernel_dvfs.report import style

    lines, numbers, outside = data(frame)
    latencies = sorted(set(frame.latency_ms))
    series = list(lines.way.cat.categories)
    count = len(series) - 2
    ceiling = _CEILING_PERCENT + 2 * _ROOM_PERCENT * bool(len(outside))
    plot = (
        p9.ggplot(lines, p9.aes("place", "change"))
        + p9.geom_hline(yintercept=0, size=0.3, color=style.FRAME)
        + p9.geom_line(p9.aes(color="way", linetype="way"), size=0.6)
        + p9.geom_point(p9.aes(color="way", shape="way"), size=1.5, fill="white", stroke=0.5)
        + p9.facet_wrap("panel", ncol=1)
        + p9.scale_x_continuous(
            breaks=list(range(len(latencies))), labels=[f"{each:g}" for each in latencies], expand=(0.1, 0)
        )
        + p9.scale_color_manual([style.SERIES[0]] * count + [style.SERIES[2], style.SERIES[1]])
        + p9.scale_shape_manual([*style.SHAPES[:count], "x", "."])
        + p9.scale_linetype_manual([*style.cycle(style.LINES, count), "dashed", "dotted"])
        + p9.coord_cartesian(ylim=(float(lines.change.min()) - _ROOM_PERCENT, ceiling))
        + p9.labs(
            title="What slow changes of clocks leave of the saving",
            subtitle=f"{subject}, {workload}; better: down\nno time lost, except by naive replays",
            x="time until a change of clocks takes effect, ms",
            y="change of energy against auto, % (negative: saved)",
            caption="Naive replay: the schedule chosen for free changes, as it is. Numbers:\n"
            "percent of time that it loses" + ("; arrows: above the axis, with its energy." if len(outside) else "."),
        )
        + p9.guides(**{key: p9.guide_legend(title="", ncol=2) for key in ("color", "shape", "linetype")})
        + style.theme(5.6)
    )
    for is_beside, own in numbers.groupby("is_beside"):
        where: dict = {"ha": "right", "nudge_x": -0.1} if is_beside else {"va": "top", "nudge_y": -0.35}
        plot += p9.geom_text(p9.aes(label="text"), own, size=5, color=style.QUIET, **where)
    if len(outside):
        plot += p9.geom_point(p9.aes(y=ceiling - 0.35), outside, shape="^", size=1.8, color=style.SERIES[2])
        plot += p9.geom_text(p9.aes(y=ceiling - 0.8, label="text"), outside, size=5, va="top", color=style.QUIET)
    return plot


def data(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """(what is drawn; numbers of naive replays; naive replays above the axis), of the table `frame`.

    All with place (number of the latency) and panel (behaviour); lines: way (category), change (percent of energy);
    numbers: change, text (percent of time lost), is_beside (a line is below it); outside: text.
    """
    import pandas as pd

    latencies = sorted(set(frame.latency_ms))
    frame = frame.assign(
        place=frame.latency_ms.map(latencies.index),
        panel=pd.Categorical(frame.behaviour.map(NAMES), list(NAMES.values())),
    )
    jitters = sorted(set(frame.jitter_percent))
    series = [_chosen(each) for each in jitters] + ["naive replay", "one pair a pass"]
    chosen = frame.assign(way=frame.jitter_percent.map(_chosen), change=frame.energy_change_percent)
    calm = frame[frame.jitter_percent == jitters[0]]
    naive = calm.assign(way=series[-2], change=calm.naive_energy_change_percent)
    # None all along where the profile has no passes
    passes = calm.assign(way=series[-1], change=calm.per_pass_energy_change_percent.astype(float))
    is_outside = naive.change > _CEILING_PERCENT
    lines = pd.concat([chosen, naive[~is_outside], passes]).dropna(subset="change")
    lines = lines.assign(way=pd.Categorical(lines.way, series))
    late = naive[~is_outside & (naive.naive_time_change_percent > _LATE_PERCENT)]
    late = late.assign(
        text=[_signed(each) for each in late.naive_time_change_percent],
        is_beside=late.energy_change_percent < late.change,
    )
    outside = naive[is_outside]
    outside = outside.assign(
        text=[
            f"{_signed(energy)} %\ntime {_signed(time)}"
            for energy, time in zip(outside.change, outside.naive_time_change_percent)
        ]
    )
    return lines, late, outside


def _signed(percent: float) -> str:
    return f"{percent:+.1f}" if abs(percent) < 10 else f"{percent:+.0f}"


def _chosen(jitter_percent: float) -> str:
    return "chosen for it" if not jitter_percent else f"chosen, jitter {jitter_percent:g} %"
