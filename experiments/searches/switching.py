"""What is left of an iteration's saving where a change of clocks takes time: by behaviour, latency and jitter.

Clocks are chosen for each latency, and compared with what one would play without knowing better: the latency-free
choice as it is, one pair for each pass, one pair for all.

    python experiments/searches/switching.py profile.parquet --jitters 0 0.3

writes switching.csv, and switching_known.csv: what latencies that are known of would leave. docs/make_figures.py draws
the first.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import pandas as pd

from kernel_dvfs.cli.arguments import PERCENT, SECONDS, SHARE
from kernel_dvfs.cli.change_costs import add_stall_arguments, stalls_of
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
from kernel_dvfs.sequence import baselines
from kernel_dvfs.sequence.chains import chain_of
from kernel_dvfs.sequence.changes import BEHAVIOURS, Changes, Timing
from kernel_dvfs.sequence.costs import ASSUMED, read_latency
from kernel_dvfs.sequence.launches import Sequence, read_sequence
from kernel_dvfs.sequence.programme import choose_changes
from kernel_dvfs.sequence.replay import expected

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.measurement.latency_file import Latency

LATENCIES_S = (0, 1e-6, 1e-5, 1e-4, 1e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1)
JITTERS = (0, 0.1, 0.3)

# jitters drawn of each replay of the latency-free choice
_DRAWS = 5
# ways on that the exact search looks at where the gap is wide: some five CPU seconds
_EFFORT = 20_000_000

CAPTION = (
    "Change of an iteration's energy within its time limit where each change of clocks takes time, chosen for that "
    "latency: launches lag behind a change, or it is asked for ahead; beside the latency-free choice replayed as it is "
    "(naive), and one pair for each pass or for all"
)
NAMES = {"lag": "lag: launches run on", "ahead": "ahead: asked for in time"}
# a replay that saves by losing time is not the same thing: its points say how much
_LATE_PERCENT = 0.05
# naive replays lose hundreds of percent where changes are slow: such points stand at the edge, with their numbers
_CEILING_PERCENT = 1.0
_ROOM_PERCENT = 1.2  # below the lowest point, for its number

_WORDS = {"core": "core", "mem": "memory"}

Row = dict[str, Any]  # a row of a table, by column


@dataclass(frozen=True, slots=True)
class Known:
    """A latency of a change of clocks that somebody has told."""

    what: str  # whose
    low_s: float
    high_s: float
    source: str
    mark: str  # how far to trust it


KNOWN = (
    Known("A100", 0.005, 0.025, "LATEST, arXiv 2502.20075", "unverified: recalled, not read again"),
    Known("Quadro RTX 6000", 0.020, 0.350, "LATEST, arXiv 2502.20075", "unverified: recalled, not read again"),
    Known("GH200", 0.005, 0.480, "LATEST, arXiv 2502.20075", "unverified: recalled, not read again"),
    Known("set by a tool's process", 0.050, 0.080, "DynamoLLM's paper, its default tool path", "stated there"),
    Known("simulated RTX 3080 Ti and RTX A4000, core", 0.015, 0.100, "gpu/specs, median to p99", "assumed"),
    Known("simulated RTX 3080 Ti and RTX A4000, memory", 0.030, 0.300, "gpu/specs, median to p99", "assumed"),
)


def study(
    sequence: Sequence,
    latencies_s: list[float],
    jitters: list[float],
    stalls_s: tuple[float, float],
    slack: float = 0.0,
    stall_source: str = ASSUMED,
) -> list[Row]:
    """The rows of the table, one for each behaviour, latency and jitter; changes in percent of the baseline.

    jitters: shares of the latency. stalls_s: how long the GPU stands still where the core clock changes, and where the
    memory clock does, and stall_source where that is from, in words. slack: fraction of the baseline's time.
    """
    naive = baselines.latency_free(sequence, slack)
    single = baselines.single(sequence, slack)
    rows = []
    for behaviour in BEHAVIOURS:
        for jitter in jitters:
            # what can be played at a longer latency is a start at a shorter one, if it can be played there
            others: list[Changes] = []
            own = {}
            for latency_s in sorted(latencies_s, reverse=True):
                timing = Timing(behaviour, latency_s, jitter, *stalls_s)
                own[latency_s], changes = _row(sequence, timing, slack, naive, single, others)
                others.append(changes)
            rows += [own[latency_s] | {"stall_source": stall_source} for latency_s in latencies_s]
    return rows


def _row(
    sequence: Sequence, timing: Timing, slack: float, naive: Changes, single: Changes | None, others: list[Changes]
) -> tuple[Row, Changes]:
    """(the row, the choice). others: to start from."""
    chain = chain_of(sequence, timing)
    found = choose_changes(sequence, timing, slack, chain, _EFFORT, others=others)
    base_s, base_j = sequence.baseline_time_s, sequence.baseline_energy_j
    played = expected(sequence, timing, naive, _DRAWS)
    by_pass = baselines.per_pass(sequence, timing, slack, chain)
    row: Row = {
        "behaviour": timing.behaviour,
        "latency_ms": 1e3 * timing.latency_s,
        "jitter_percent": 100 * timing.jitter,
        "core_stall_ms": 1e3 * timing.core_stall_s,
        "mem_stall_ms": 1e3 * timing.mem_stall_s,
        "energy_change_percent": 100 * (found.energy_j / base_j - 1),
        "time_change_percent": 100 * (found.time_s / base_s - 1),
        "changes": len(found.changes),
        "gap_points": 100 * found.gap_j / base_j,
        "naive_energy_change_percent": 100 * (played.energy_j / base_j - 1),
        "naive_time_change_percent": 100 * (played.time_s / base_s - 1),
        "naive_changes": played.asked,
        "naive_changes_landed": played.landed,
        "per_pass_energy_change_percent": None if by_pass is None else 100 * (chain.totals(by_pass)[1] / base_j - 1),
        "single_energy_change_percent": (
            None if single is None else 100 * (float(sequence.until_j[-1, single.first]) / base_j - 1)
        ),
    }
    return row, found.changes


def known_rows(rows: list[Row], measured: Latency | None = None) -> list[Row]:
    """Where the known latencies fall: what a host thread that asks ahead, jitter aside, would change there.

    measured: a file of `kernel-dvfs latency`, whose domains come first, from median to 95th percentile.
    """
    ahead = [row for row in rows if row["behaviour"] == "ahead" and not row["jitter_percent"]]

    def change(latency_s: float) -> float:
        # at the next longer latency that was looked at, beyond them one pair for the run: no less than is promised
        longer = [row for row in ahead if row["latency_ms"] >= 1e3 * latency_s * (1 - 1e-9)]
        if longer:
            return min(longer, key=lambda row: row["latency_ms"])["energy_change_percent"]
        return next((row["single_energy_change_percent"] for row in ahead), None) or 0.0

    own = []
    if measured:
        own = [
            Known(
                f"{measured.gpu_name}, {_WORDS[domain]}",
                each.settled_s["median"],
                each.settled_s["p95"],
                measured.about,
                f"median to p95 of {each.n} changes",
            )
            for domain, each in measured.domains.items()
        ]
    return [
        {
            "latency_of": known.what,
            "from_ms": 1e3 * known.low_s,
            "to_ms": 1e3 * known.high_s,
            "energy_change_at_from_percent": change(known.low_s),
            "energy_change_at_to_percent": change(known.high_s),
            "source": known.source,
            "trust": known.mark,
        }
        for known in (*own, *KNOWN)
    ]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument("--latencies", nargs="+", type=SECONDS, default=LATENCIES_S, metavar="S", help="seconds")
    parser.add_argument("--jitters", nargs="+", type=SHARE, default=JITTERS, metavar="SHARE", help="of the latency")
    parser.add_argument("--slack", type=PERCENT, default=0.0, metavar="PERCENT", help="tolerated slowdown (default: 0)")
    parser.add_argument("--measured", metavar="L.json", help="a file of kernel-dvfs latency: its latencies too")
    add_stall_arguments(parser)
    parser.add_argument("-o", "--output", default="experiments/results", metavar="DIR")
    options = parser.parse_args()
    found = read_sequence(options.profile, "profile", options.stall_w)
    measured = read_latency(options.measured, found.gpu) if options.measured else None
    latencies_s = sorted({*options.latencies, *(measured.latencies_s if measured else ())})
    stalls = stalls_of(options, measured)
    jitters = sorted(set(options.jitters))
    rows = study(found.sequence, latencies_s, jitters, stalls.both_s, options.slack / 100, stalls.source)
    gpu = f"simulated {found.gpu['name']}" if found.gpu["kind"] == "simulated" else found.gpu["name"]
    for name, own in (("switching", rows), ("switching_known", known_rows(rows, measured))):
        frame = pd.DataFrame(own).round(6).assign(gpu=f"{gpu}, {found.workload['name']}")
        write_text(f"{options.output}/{name}.csv", frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
