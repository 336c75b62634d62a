"""Race and walk: which clocks to measure next, and which schedule is shown to keep its time limit.

The best of noisy measurements is partly the luckiest, and data that propose a choice flatter it however often they are
pooled. So finding and showing use different data.

Race: blocks of sessions measure auto and what each of three tables would choose: the estimate itself and two draws from
it. What no plausible table chooses cannot matter. Targets that trade time and power alike share what is known of them
(empirical Bayes).

Path: the exact choice at many time limits, from the fastest schedule there is to a little beyond the last limit. From
here on these schedules are fixed.

Walk: fresh blocks measure auto and the path. Walking from the fastest schedule on, a step is taken while the change of
time, plus Student's t times its standard error over blocks, keeps the limit. The last schedule passed is the choice. It
is over its limit with a chance of at most `over_percent`, whatever the race did: to end beyond the first schedule that
is truly over, that one must have passed its own test (fixed-sequence testing; Maurer, Hothorn and Lehmacher 1995).

Works on choice problems and arrays, not on files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypedDict

import numpy as np

from kernel_dvfs.choice.global_waste import least_energy
from kernel_dvfs.choice.integer_grid import integer_grid_of
from kernel_dvfs.choice.problem import Problem, best_per_target
from kernel_dvfs.choice.relaxation import price_of_time
from kernel_dvfs.student import t_quantile

SESSIONS = 4  # of a block: a target of a large share is measured in each, others in every second or in one
NEW = 2  # pairs between the sweep's clocks that a block adds at most, for every target
DRAWS = 2  # tables drawn beside the estimate
SCHEDULES = 61  # of a path
LEAST_BLOCKS = 3  # of a walk: of fewer a standard error says little
RACE_SHARE = 0.5  # of the budget, after which no block of the race begins
ENOUGH = 0.01  # share of the saving: where less is left to gain, a walk ends before its budget
_ALIKE = 0.15  # by how much the logarithm of two targets' likeness falls with each unit of their excess difference
_COMMON = 5  # options that two targets must have in common to be compared
_PRIOR_FREEDOM = 10  # degrees of freedom that the targets' median variance counts for beside a target's own
_EXACT = 1e-12  # the least variance of a measurement's logarithm
_GAIN_DRAWS = 100


# without slots, which leave a cached property no place
@dataclass(frozen=True, eq=False)
class Estimate:
    """What is known of K targets at P clock pairs: logarithms of time and power against the target's baseline."""

    problem: Problem  # its time and energy are those of the estimate
    time: np.ndarray  # (K, P), NaN where not measured; 0 at the baseline
    power: np.ndarray  # (K, P) likewise
    time_variance: np.ndarray  # (K, P) of the estimate's error, NaN where not measured
    power_variance: np.ndarray  # (K, P) likewise
    single: np.ndarray  # (K,) variance of one measurement's log time

    def table(self, time: np.ndarray, power: np.ndarray) -> Problem:
        """The problem with times and energies that follow from logarithms (K, P) of time and power."""
        cell, base, baseline_time, baseline_energy = self._options
        slower, hotter = time[cell] - time[base], power[cell] - power[base]
        return replace(
            self.problem,
            time=baseline_time * np.exp(slower),
            energy=baseline_energy * np.exp(slower + hotter),
        )

    @cached_property
    def _options(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
        """Of all options: their cell of (K, P), that of their target's baseline, its time and its energy."""
        problem = self.problem
        owner = problem.target
        cell, base = (owner, problem.key), (owner, problem.key[problem.baseline][owner])
        return cell, base, problem.time[problem.baseline][owner], problem.energy[problem.baseline][owner]

    def block_sd(self, option: np.ndarray) -> float:
        """Standard deviation of a choice's change of time in one block, (K,) options, in the problem's unit."""
        base = self.problem.baseline
        variance = np.where(option == base, 0, 2 * self.single / per_block(self.problem))
        return float(np.sqrt((self.problem.time[base] ** 2 * variance).sum()))

    def drawn(self, draw: np.random.Generator) -> Problem:
        """A table that might be true: drawn from mean and variance."""
        time, power = (
            mean + sd * draw.standard_normal(mean.shape) for mean, sd in zip((self.time, self.power), self._sds)
        )
        return self.table(time, power)

    @cached_property
    def _sds(self) -> list[np.ndarray]:
        """(K, P) each: standard deviations of time and power, 0 where not measured."""
        return [np.sqrt(np.nan_to_num(variance)) for variance in (self.time_variance, self.power_variance)]


def estimate(problem: Problem, slack: float) -> Estimate:
    """What measurements say of a problem, with look-alikes sharing.

    slack: the largest limit, a fraction of the baseline's time. problem.n, time_se and energy_se must be known.
    """
    if problem.n is None or problem.time_se is None or problem.energy_se is None:
        raise ValueError("an estimate needs n, time_se and energy_se of the problem")
    count, pairs = len(problem.targets), len(problem.keys)
    base = problem.key[problem.baseline]
    variance = [_single_variance(problem, error) for error in _relative_variances(problem)]

    def dense(values: np.ndarray) -> np.ndarray:
        table = np.full((count, pairs), np.nan)
        table[problem.target, problem.key] = values
        return table

    row = np.arange(count)
    n = dense(problem.n)
    means = [dense(np.log(values)) for values in (problem.time, problem.energy / problem.time)]
    means = [each - each[row, base][:, None] for each in means]
    own = [each[:, None] / n for each in variance]
    # pairs that may matter: neither much slower nor above the baseline's energy, as far as one can tell
    sd = np.sqrt(own[0] + own[0][row, base][:, None])
    with np.errstate(invalid="ignore"):
        matters = means[0] < 0.10 + 3 * slack + sd
        matters &= means[0] + means[1] < 0.03 + 2 * np.sqrt(own[1]) + sd
    matters[row, base] = True
    (time, time_variance), (power, power_variance) = (shared(mean, spread, matters) for mean, spread in zip(means, own))
    known = Estimate(problem, time, power, time_variance, power_variance, variance[0])
    return replace(known, problem=known.table(time, power))


def shared(mean: np.ndarray, variance: np.ndarray, matters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) of logarithms (K, P) once targets that look alike share them; NaN where not measured.

    matters: (K, P) bool, the cells that targets are compared over. Two targets are compared up to a constant, since the
    level of each is its own: z sums their squared standardised differences over n cells, and their likeness is
    exp(-0.15 (z - (n - 1))), at most 1. A cell's prior is the mean of its look-alikes, weighted by likeness and
    precision; what look-alikes differ by beyond noise is estimated for each target by moments and widens the prior.
    """
    known = np.isfinite(mean)
    value, spread = np.where(known, mean, 0.0), np.where(known, variance, 1.0)
    both = (known[:, None] & known[None]) & (matters[:, None] | matters[None])
    weight = np.where(both, 1 / (spread[:, None] + spread[None]), 0.0)
    difference = value[:, None] - value[None]
    level = (weight * difference).sum(2) / np.maximum(weight.sum(2), 1e-300)
    apart = (weight * (difference - level[:, :, None]) ** 2).sum(2)
    cells = both.sum(2)
    likeness = np.where(cells >= _COMMON, np.exp(-_ALIKE * np.maximum(apart - (cells - 1), 0)), 0.0)
    np.fill_diagonal(likeness, 0.0)
    precision = np.where(known, 1 / spread, 0.0)
    total = likeness @ precision
    has_prior = total > 1e-9 * np.maximum(precision, 1e-9)
    safe = np.where(has_prior, total, 1.0)
    prior = (likeness @ (precision * value) + (likeness * level) @ precision) / safe
    prior_variance = 1 / safe
    use = known & matters & has_prior
    trust = np.where(use, 1 / (spread + prior_variance) ** 2, 0.0)
    excess = ((value - prior) ** 2 - spread - prior_variance) * trust
    prior_variance += np.maximum(excess.sum(1) / np.maximum(trust.sum(1), 1e-300), 0)[:, None]
    own = np.where(has_prior, prior_variance / (prior_variance + spread), 1.0)
    return np.where(known, prior + (value - prior) * own, np.nan), np.where(known, own * spread, np.nan)


def picks(known: Estimate, slacks: Sequence[float], draw: np.random.Generator) -> np.ndarray:
    """(N,) bool: options that the estimate or one of DRAWS other tables would choose at these limits, and baselines."""
    problem = known.problem
    wanted = problem.is_baseline
    for table in (problem, *(known.drawn(draw) for _ in range(DRAWS))):
        for option in chosen(table, slacks):
            wanted[option] = True
    return wanted


def chosen(problem: Problem, slacks: Sequence[float]) -> list[np.ndarray]:
    """The choice of least energy at each limit, (K,) options; none for a limit that nothing keeps."""
    found = [least_energy(problem, (1 + slack) * problem.baseline_time, effort=0) for slack in slacks]
    return [each.option for each in found if each]


def per_block(problem: Problem) -> np.ndarray:
    """(K,) how often a block measures a target at one pair: 4, 2 or 1 times, by its share of the baseline's time.

    The measure is the launch at which half of the time is in larger ones. The least is measured once: more blocks show
    their scatter better than larger ones.
    """
    each = problem.time[problem.baseline] / [len(members) for members in problem.members]
    size = np.repeat(each, [len(members) for members in problem.members])
    size = np.sort(size)[::-1]
    middle = size[np.searchsorted(np.cumsum(size), size.sum() / 2)]
    count = np.where(each > 0.7 * middle, SESSIONS, np.where(each > 0.35 * middle, SESSIONS // 2, 1))
    return count // count.min()


def halfway(problem: Problem, options: Iterable[np.ndarray], supported: Callable, most: int = NEW) -> list[tuple]:
    """Keys not measured yet, `most` at most: halfway between clocks that would be chosen and their measured neighbours.

    options: `chosen` of the problem. supported(mem): the core clocks of a memory clock (None: left to the governor),
    MHz. Those next to the choices of the most time come first. What lies between the clocks of the sweep is found by
    halving.
    """
    time = problem.time[problem.baseline]
    measured: dict[float | None, list[float]] = defaultdict(list)
    for core, mem in problem.keys:
        if core is not None:
            measured[mem].append(core)
    share: dict[tuple, float] = defaultdict(float)
    found: dict[tuple, list[float]] = {}  # most targets share their pair with another
    for option in options:
        for target, pair in enumerate(problem.keys[key] for key in problem.key[option]):
            core, mem = pair
            if core is None:
                continue
            if pair not in found:
                found[pair] = _between(core, measured[mem], supported(mem))
            for between in found[pair]:
                share[between, mem] += time[target]
    return sorted(share, key=lambda key: -share[key])[:most]


def at_auto(
    problem: Problem, options: Iterable[np.ndarray], supported: Callable, reached_mhz: np.ndarray
) -> list[tuple]:
    """Keys not measured yet: the core clock that the baseline reached under load, at each memory clock that is chosen.

    options: `chosen` of the problem. reached_mhz: (K,) at the baseline; half of its time is spent at the median or
    below. The next supported clock below is taken. There the baseline's time can be kept with less energy, if anywhere;
    halving might not come by. Only beside memory clocks at which core clocks were asked for: not every GPU can lock the
    core alone.
    """
    weight = problem.time[problem.baseline]
    order = np.argsort(reached_mhz)
    middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    median_mhz = reached_mhz[order][middle]
    mems = {problem.keys[key][1] for option in options for key in problem.key[option]}
    mems &= {mem for core, mem in problem.keys if core is not None}
    found = []
    for mem in sorted(mems, key=lambda mhz: mhz or 0.0):
        below = [core for core in supported(mem) if core <= median_mhz + 0.5]
        if below and (float(max(below)), mem) not in problem.keys:
            found.append((float(max(below)), mem))
    return found


def _between(core: float, measured: Sequence[float], supported: Sequence[float]) -> list[float]:
    """The supported clocks halfway between `core` and the next measured ones below and above."""
    ends = [max((each for each in measured if each < core), default=core)]
    ends += [min((each for each in measured if each > core), default=core)]
    free = [sorted(each for each in supported if min(core, end) < each < max(core, end)) for end in ends]
    return [each[len(each) // 2] for each in free if each]


def races_on(left: Iterable[Left], spent: int, cost: int, budget: int) -> bool:
    """Whether another block is raced before the walk: racing on must gain more than walking further would.

    left: of each limit, with a walk of what that block leaves. spent, cost, budget: points of the race so far, of the
    block, and of race and walk together.
    """
    room = budget - spent - cost >= LEAST_BLOCKS * cost and spent < RACE_SHARE * budget
    return room and any(each["race"] > each["walk"] for each in left)


def path(known: Estimate, slacks: Sequence[float]) -> np.ndarray:
    """(J, K) options: the exact choices at SCHEDULES limits a limit asked for, fastest first, each once.

    Half of them lie evenly between the fastest schedule there is (or the limit before) and the limit less 8 standard
    errors of its schedule's time, the others from there to 3 beyond.
    """
    problem = known.problem
    total = problem.baseline_time
    low = np.minimum.reduceat(problem.time, problem.first).sum() / total - 1
    limits: list[float] = []
    for slack in sorted(slacks):
        found = chosen(problem, [slack])
        sd = _sd(known, found[0]) / total if found else 0.0
        near = slack - max(8 * sd, 0.002), slack + max(3 * sd, 0.0006)
        if near[0] > low:
            limits += np.linspace(low, near[0], SCHEDULES // 3, endpoint=False).tolist()
        limits += np.linspace(max(near[0], low), near[1], SCHEDULES - SCHEDULES // 3).tolist()
        low = near[1]
    schedules = chosen(problem, sorted(limits))
    if not schedules:
        return np.zeros((0, len(problem.targets)), dtype=np.intp)
    kept = [schedules[0]]
    kept += [now for before, now in pairwise(schedules) if not np.array_equal(before, now)]
    return np.array(kept)


def compared(problem: Problem, path: np.ndarray) -> np.ndarray:
    """(N,) bool: the options that a walk along a path (J, K) measures; a target that never leaves its baseline none."""
    away = (path != problem.baseline).any(0)
    wanted = np.zeros(len(problem.time), dtype=bool)
    wanted[np.unique(path[:, away])] = True
    wanted[problem.baseline[away]] = True
    return wanted


def passed(time: np.ndarray, energy: np.ndarray, limit: float, over: float) -> int:
    """How many schedules of a path a walk has passed; none if the last of them saves nothing.

    time, energy: (B, J) changes against the baseline, of which `limit` is a time; the baseline itself keeps any.
    """
    count = furthest(time, limit, over)
    return count if count and energy[:, count - 1].mean() < 0 else 0


def furthest(changes: np.ndarray, limit: float, over: float) -> int:
    """How many schedules of a path are passed: each keeps `limit` with a confidence of 1 - over, as do all before it.

    changes: (B, J) change of time of each schedule in each block, in the unit of `limit`.
    """
    blocks = len(changes)
    error = changes.std(0, ddof=1) / np.sqrt(blocks)
    late = changes.mean(0) + t_quantile(blocks - 1, 1 - over) * error > limit + 1e-12
    return int(late.argmax()) if late.any() else changes.shape[1]


class Left(TypedDict):
    """What may still be saved, points of the baseline's energy, at most."""

    race: float  # by knowing better what to choose
    walk: float  # by showing it with more blocks
    another_hour: float  # all of the first, or what an hour brings of the second, whichever is more


class Outlook(NamedTuple):
    """What may still be saved at a limit, percent of the baseline's energy."""

    race: float  # by racing, at most
    step: float  # what a walk keeps free of its limit for each standard error of one block
    saving: float  # of today's choice

    def walk(self, blocks: float, over: float) -> float:
        """What a walk of so many blocks keeps free of its limit: Student's t x standard error."""
        count = max(blocks, LEAST_BLOCKS)
        return self.step * t_quantile(int(count) - 1, 1 - over) / float(np.sqrt(count))

    def left(self, blocks: float, more: float, over: float) -> Left:
        """The same as numbers. blocks: of the walk; more: blocks of an hour."""
        now = self.walk(blocks, over)
        gained = now - self.walk(blocks + more, over)
        return {"race": self.race, "walk": now, "another_hour": max(self.race, gained)}

    def is_shown(self, blocks: int, over: float) -> bool:
        """Whether a walk of so many blocks leaves less than ENOUGH of the saving to gain, or a hundredth of a point."""
        return self.race + self.walk(blocks, over) <= max(ENOUGH * self.saving, 0.01)


def price(problem: Problem, slack: float) -> float:
    """Of a unit of time, in energy, at which a limit binds; 0 where it does not, or where no choice keeps it."""
    grid = integer_grid_of(problem, (1 + slack) * problem.baseline_time, only_fitting=False)
    return float(price_of_time(grid)[0] * grid.energy_unit / grid.time_unit) if grid else 0.0


def outlook(known: Estimate, slack: float, seed: int) -> Outlook:
    """What may still be saved at a limit, for all lengths of the walk.

    By racing: the expected value of perfect information, that is the mean, over tables that might be true, of the score
    of today's choice less the best score in that table. A score is energy + price x time, at the price at which the
    limit binds, where the choice separates by target. By walking: the standard error of the time, at that price.
    """
    problem = known.problem
    cost = price(problem, slack)  # of a unit of time
    option = best_per_target(problem.energy + cost * problem.time, problem.target, problem.first)
    draw = np.random.default_rng(seed)
    lost = 0.0
    for _ in range(_GAIN_DRAWS):
        table = known.drawn(draw)
        score = table.energy + cost * table.time
        lost += float((score[option] - np.minimum.reduceat(score, problem.first)).sum())
    share, today = 100 / problem.baseline_energy, chosen(problem, [slack])
    saving = 100 - share * float(problem.energy[today[0]].sum()) if today else 0.0
    return Outlook(share * lost / _GAIN_DRAWS, share * cost * known.block_sd(option), saving)


def _relative_variances(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(N,) each: of one measurement's log time and log power. Energy is power x time, of independent errors."""
    assert problem.n is not None and problem.time_se is not None and problem.energy_se is not None
    time = (problem.time_se / problem.time) ** 2 * problem.n
    return time, (problem.energy_se / problem.energy) ** 2 * problem.n - time


def _single_variance(problem: Problem, variance: np.ndarray) -> np.ndarray:
    """(K,) variance of one measurement of each target: its own, drawn to the median of all while it has few repeats."""
    assert problem.n is not None
    count = len(problem.targets)
    members = np.array([len(each) for each in problem.members])
    freedom = np.bincount(problem.target, problem.n - 1, count) * members
    own = np.zeros(count)
    for k in range(count):
        seen = variance[problem.target == k]
        seen = seen[np.isfinite(seen)]
        own[k] = max(float(np.median(seen)), 0.0) if len(seen) else np.nan
    # of one launch of a class, so that classes of many launches compare with others
    own *= members
    freedom = np.where(np.isfinite(own), freedom, 0)
    median = float(np.median(own[freedom > 0])) if (freedom > 0).any() else 0.0
    own = np.where(freedom > 0, own, 0.0)
    return np.maximum((freedom * own + _PRIOR_FREEDOM * median) / (freedom + _PRIOR_FREEDOM), _EXACT) / members


def _sd(known: Estimate, option: np.ndarray) -> float:
    """Standard error of a choice's total change of time, in the problem's unit."""
    problem = known.problem
    row = np.arange(len(option))
    base = problem.key[problem.baseline]
    variance = known.time_variance[row, problem.key[option]] + known.time_variance[row, base]
    away = option != problem.baseline
    return float(np.sqrt((problem.time[problem.baseline] ** 2 * np.where(away, variance, 0)).sum()))
