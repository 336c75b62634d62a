"""What a choice over the sequence is compared with: one pair for all, one for each pass, the latency-free choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernel_dvfs.choice.global_waste import least_energy
from kernel_dvfs.choice.problem import TOLERANCE, Problem
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.sequence.chains import chain_of
from kernel_dvfs_deploy.sequence.changes import Changes, Timing
from kernel_dvfs_deploy.sequence.launches import Sequence

if TYPE_CHECKING:
    from kernel_dvfs_deploy.sequence.chains import Chain


def single(sequence: Sequence, slack: float = 0.0) -> Changes | None:
    """Return one pair for all launches: that of least energy within the limit; None where no pair keeps it.

    slack: tolerated slowdown, a fraction of the baseline time; also below.
    """
    limit = (1 + slack) * sequence.baseline_time_s * (1 + TOLERANCE)
    time, energy = sequence.until_s[-1], sequence.until_j[-1]
    pair = int(np.where(time <= limit, energy, np.inf).argmin())
    return Changes(pair, (), ()) if time[pair] <= limit else None


def per_pass(sequence: Sequence, timing: Timing, slack: float = 0.0, chain: Chain | None = None) -> Changes | None:
    """Return one pair for each of two passes, with changes where they meet: the least energy within the limit, changes
    paid.

    chain: of this sequence and timing, where it is at hand. None where the sequence does not have two passes, or no
    choice keeps the limit.
    """
    if len(sequence.passes) != 2:
        return None
    chain = chain or chain_of(sequence, timing)
    limit = (1 + slack) * sequence.baseline_time_s * (1 + TOLERANCE)
    border, size = sequence.passes[1][1], len(sequence.pairs)
    # an iteration ends at the second pair, so it begins there, and the first change lands as early as it may
    begin = np.minimum(chain.begin, border)
    # launches until `begin` and from the border on at the second pair, those between at the first: [first, second]
    time, energy = (
        (until[begin, np.arange(size)] + until[-1] - until[border])[None, :] + until[border][:, None] - until[begin].T
        for until in (sequence.until_s, sequence.until_j)
    )
    time = time + chain.stall_s + chain.stall_s.T
    energy = energy + chain.stall_s * sequence.stall_w[:, None] + chain.stall_s.T * sequence.stall_w
    best: float = np.inf
    chosen = None
    # a landing within launches leaves work at a pair that may use less energy; an order by energy is wrong by at most
    # this much
    within_s = timing.latest_s if timing.behaviour == "lag" else timing.spread_s
    play = 2 * within_s * float((sequence.energy_j / sequence.time_s).max())
    for flat in np.argsort(energy, axis=None, kind="stable").tolist():
        first, second = divmod(flat, size)
        if energy[first, second] - play >= best:
            break
        if time[first, second] - 2 * within_s > limit:
            continue
        at = (int(begin[second]), border)
        changes = Changes(second, (), ()) if first == second else Changes(second, at, (first, second))
        time_s, energy_j = chain.totals(changes)
        if time_s <= limit and energy_j < best:
            best, chosen = energy_j, changes
    return chosen


def latency_free(sequence: Sequence, slack: float = 0.0) -> Changes:
    """Return the best pair of each kernel where changes take no time: one choice per kernel, as in a kernel-level
    schedule.

    Raises InputError for a slack that no choice can keep.
    """
    count = np.bincount(sequence.kernel, minlength=len(sequence.time_s)).astype(float)
    used = np.flatnonzero(count)
    keys = list(range(len(sequence.pairs)))
    assert sequence.baseline is not None, "of an iteration that may stay at it"
    problem = Problem.of(
        list(count[used, None] * sequence.time_s[used]),
        list(count[used, None] * sequence.energy_j[used]),
        [sequence.baseline] * len(used),
        [keys] * len(used),
    )
    optimum = least_energy(problem, (1 + slack) * sequence.baseline_time_s, effort=0)
    option = np.zeros(len(count), dtype=np.intp)
    if optimum is None:
        raise InputError(f"sequence: no choice keeps {100 * slack:g} % slowdown; raise the slack")
    option[used] = problem.key[optimum.option]
    return Changes.of_pairs(option[sequence.kernel])
