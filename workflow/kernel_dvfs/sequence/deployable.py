"""What a study can deploy at known latencies, beside a clock for each kernel and changes that cost nothing."""

from __future__ import annotations

from collections.abc import Sequence as List
from typing import TYPE_CHECKING, Any

from kernel_dvfs.sequence import baselines
from kernel_dvfs.sequence.chains import chain_of
from kernel_dvfs.sequence.changes import Changes, Timing
from kernel_dvfs.sequence.programme import Choice, choose_changes

if TYPE_CHECKING:
    from kernel_dvfs.sequence.launches import Sequence

FREE, RUN, PASS, LAUNCH = (
    "each kernel, changes free",
    "one pair for the run",
    "a pair for each pass",
    "launch by launch, asked ahead",
)


def deployables(
    sequence: Sequence,
    latencies_s: List[float],
    stalls_s: tuple[float, float],
    swept_s: List[float] = (),
    slack: float = 0.0,
) -> tuple[list[dict[str, Any]], dict[float, Choice]]:
    """(rows, {latency s: the choice launch by launch at it}).

    latencies_s: from the request of a change to its effect. stalls_s: how long the GPU stands still where the core
    clock changes, and where the memory clock does. swept_s: further stalls, for both alike, that the choice launch by
    launch is repeated for. slack: fraction of the baseline's time. A row: way, latency_ms, core_stall_ms, mem_stall_ms
    (None where nothing changes), changes in percent of the baseline, negative = less, gap_points: what a better choice
    of the same kind could save at most, in percentage points of the baseline's energy. Raises InputError for a slack
    that no choice can keep.
    """
    rows = [_row(sequence, FREE, choose_changes(sequence, Timing("ahead", 0.0), slack), Timing("ahead", 0.0))]
    single = baselines.single(sequence, slack)
    if single is not None:
        rows.append(_exact(sequence, RUN, single, None))
    timings = [Timing("ahead", latency_s, 0.0, *stalls_s) for latency_s in latencies_s]
    chains = [chain_of(sequence, timing) for timing in timings]
    for timing, chain in zip(timings, chains):
        by_pass = baselines.per_pass(sequence, timing, slack, chain)
        if by_pass is not None:
            rows.append(_exact(sequence, PASS, by_pass, timing))
    swept = [(stall_s, stall_s) for stall_s in swept_s if (stall_s, stall_s) != tuple(stalls_s)]
    found = _by_launch(sequence, [tuple(stalls_s), *swept], latencies_s, slack)
    rows += [
        _row(sequence, LAUNCH, choice, timing) | {"is_default": stalls == tuple(stalls_s)}
        for (stalls, timing), choice in found.items()
    ]
    return rows, {timing.latency_s: choice for (stalls, timing), choice in found.items() if stalls == tuple(stalls_s)}


def _by_launch(
    sequence: Sequence, stalls: List[tuple[float, ...]], latencies_s: List[float], slack: float
) -> dict[tuple[tuple[float, ...], Timing], Choice]:
    """{(stalls, timing): the choice launch by launch}, in the order of both lists. What can be played at a longer
    latency and stall can be played at a shorter one, so those found for the longest come first and are built upon."""
    found: dict[tuple[tuple[float, ...], Timing], Choice] = {}
    for own in sorted(stalls, reverse=True):
        for latency_s in sorted(latencies_s, reverse=True):
            timing = Timing("ahead", latency_s, 0.0, *own)
            others = [choice.changes for choice in found.values()]
            found[own, timing] = choose_changes(sequence, timing, slack, others=others)
    order = [(own, Timing("ahead", latency_s, 0.0, *own)) for own in stalls for latency_s in latencies_s]
    return {key: found[key] for key in order}


def _exact(sequence: Sequence, way: str, changes: Changes, timing: Timing | None) -> dict[str, Any]:
    """The row of a choice that every other one of its kind was compared with. timing: None where nothing changes."""
    time_s, energy_j = chain_of(sequence, timing or Timing("ahead", 0.0)).totals(changes)
    return _row(sequence, way, Choice(changes, time_s, energy_j, energy_j), timing)


def _row(sequence: Sequence, way: str, choice: Choice, timing: Timing | None) -> dict[str, Any]:
    base_s, base_j = sequence.baseline_time_s, sequence.baseline_energy_j
    about = (timing.latency_s, timing.core_stall_s, timing.mem_stall_s) if timing else (None, None, None)
    latency_ms, core_ms, mem_ms = (None if each is None else 1e3 * each for each in about)
    return {
        "way": way,
        "latency_ms": latency_ms,
        "core_stall_ms": core_ms,
        "mem_stall_ms": mem_ms,
        "time_change_percent": 100 * (choice.time_s / base_s - 1),
        "energy_change_percent": 100 * (choice.energy_j / base_j - 1),
        "gap_points": 100 * choice.gap_j / base_j,
        "changes": len(choice.changes),
        "is_default": True,
    }
