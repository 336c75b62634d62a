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
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text
from kernel_dvfs_deploy.commands.costs import add_stall_arguments, stalls_of
from kernel_dvfs_deploy.sequence import baselines
from kernel_dvfs_deploy.sequence.chains import chain_of
from kernel_dvfs_deploy.sequence.changes import BEHAVIOURS, Changes, Timing
from kernel_dvfs_deploy.sequence.costs import ASSUMED, read_latency
from kernel_dvfs_deploy.sequence.launches import Sequence, read_sequence
from kernel_dvfs_deploy.sequence.programme import choose_changes
from kernel_dvfs_deploy.sequence.replay import expected

if TYPE_CHECKING:
    from kernel_dvfs.measurement.latency_file import Latency

LATENCIES_S = (0, 1e-6, 1e-5, 1e-4, 1e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1)
JITTERS = (0, 0.1, 0.3)

# jitters drawn of each replay of the latency-free choice
_DRAWS = 5
# ways on that the exact search looks at where the gap is wide: some five CPU seconds
_EFFORT = 20_000_000
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
