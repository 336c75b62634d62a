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
_CEILING_PERCENT = 1.0
# below the lowest point, for its number
_ROOM_PERCENT = 1.0


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
    """The figure of the study: latencies evenly spaced, zero among them; naive replays are cut off at a loss.

    frame: the table. subject: the GPU, as captions name it.
    """
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    latencies = sorted(set(frame.latency_ms))
    place = {each: number for number, each in enumerate(latencies)}
    frame = frame.assign(
        place=frame.latency_ms.map(place),
        panel=pd.Categorical(frame.behaviour.map(NAMES), list(NAMES.values())),
    )
    jitters = sorted(set(frame.jitter_percent))
    series = [_chosen(each) for each in jitters] + ["naive replay (+ time, %)", "one pair a pass"]
    chosen = frame.assign(way=frame.jitter_percent.map(_chosen), change=frame.energy_change_percent)
    calm = frame[frame.jitter_percent == jitters[0]]
    naive = calm.assign(way=series[-2], change=calm.naive_energy_change_percent.clip(lower=-10, upper=_CEILING_PERCENT))
    passes = calm.assign(way=series[-1], change=calm.per_pass_energy_change_percent)
    lines = pd.concat([chosen, naive, passes]).dropna(subset="change")
    lines = lines.assign(way=pd.Categorical(lines.way, series))
    late = naive[naive.naive_time_change_percent > _LATE_PERCENT]
    late = late.assign(
        text=[f"+{each:.1f}" if each < 10 else f"+{each:.0f}" for each in late.naive_time_change_percent]
    )
    count = len(jitters)
    return (
        p9.ggplot(lines, p9.aes("place", "change"))
        + p9.geom_hline(yintercept=0, size=0.3, color="#777777")
        + p9.geom_line(p9.aes(color="way", linetype="way"), size=0.6)
        + p9.geom_point(p9.aes(color="way", shape="way"), size=1.5, fill="white", stroke=0.5)
        + p9.geom_text(p9.aes(label="text"), data=late, size=5, va="top", nudge_y=-0.35, color=style.SERIES[2])
        + p9.facet_wrap("panel", ncol=1)
        + p9.scale_x_continuous(breaks=list(range(len(latencies))), labels=[f"{each:g}" for each in latencies])
        + p9.scale_color_manual([style.SERIES[0]] * count + [style.SERIES[2], style.SERIES[1]])
        + p9.scale_shape_manual([*style.SHAPES[:count], "x", "."])
        + p9.scale_linetype_manual([*style.cycle(style.LINES, count), "dashed", "dotted"])
        + p9.coord_cartesian(ylim=(float(lines.change.min()) - _ROOM_PERCENT, _CEILING_PERCENT))
        + p9.labs(
            title="What slow changes of clocks leave of the saving",
            subtitle=f"{subject}, {workload}; better: down\nlimit kept, except by naive replays (time lost: number)",
            x="latency of a change, ms",
            y="change of energy, %",
        )
        + p9.guides(**{key: p9.guide_legend(title="", ncol=2) for key in ("color", "shape", "linetype")})
        + style.theme(5.4)
    )


def _chosen(jitter_percent: float) -> str:
    return "chosen for it" if not jitter_percent else f"chosen, jitter {jitter_percent:g} %"
