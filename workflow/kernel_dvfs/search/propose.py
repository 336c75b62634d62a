"""Which points to measure next, and what is left unfound: the guided search as a pure function of what is seen.

First the baseline of every target, then a few probes of each that matters, at clocks that differ from target to target
so that together they show the GPU's constants; then, round by round, the pairs that could still enter the optimum: in
each draw of the posterior the price at which the time budget binds tells what a pair would save, on average over the
draws its expected gain. The pairs of most expected gain for a second of measuring come first. It ends where the
expected gain of all pairs left is below a threshold, or at a budget.

Where all these probes would take most of the budget, they are fewer: one of each target where only the core clock
varies, else two of as many targets as half the budget holds, those of most energy. The rest goes by expected gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernel_dvfs.search.candidates import Candidates, Seen
from kernel_dvfs.search.fit import Fit, fit
from kernel_dvfs.search.posterior import calibrate, tables

UNFIT = 2.0  # misfit of a kernel, relative to the others', from which the model is not believed
_GAIN = 0.3  # share of its energy that a target may save at the very most, for leaving out what cannot matter
_HALVINGS = 45  # of the price
_SAME_MEMORY = 0.05  # memory clocks closer than this are alike, for a probe
# shares of the highest core clock at which targets are probed, in turn
_HIGH_MEMORY = (0.72, 0.82, 0.62)
_LOWER_MEMORY = (0.85, 0.72, 0.92)
_HIGH_CORE = (0.90, 0.82, 0.96)
_LOW_CORE = (0.50, 0.40, 0.56)
# where there are few probes, the first is worth having by itself: measured at auto and at one share of the highest core
# clock only, the kernels of four GPUs (published tables of RTX 3080 Ti, A100, V100, RTX 8000; slack 0, 2, 5 %) save
# most, or nearly so, where that share is between 0.75 and 0.83
_ONE_FOR_ALL = (0.79,)


@dataclass(frozen=True, slots=True)
class Options:
    """When a guided search ends, and how it looks."""

    threshold: float = 0.001  # expected gain at which it ends, as a share of the baseline's energy
    budget: float = 0.25  # share of all measurements that it may ask for
    probes: int | None = None  # of a target before the model is asked; None: 2 where the work is known or only the core
    # clock varies, else 4
    draws: int = 64  # of the posterior
    batch: float = 0.5  # what a round may measure, as a share of the number of targets
    window_s: float | None = None  # seconds that one measurement takes at least; a longer launch takes its own time.
    # None: every measurement counts alike
    seed: int = 1  # of the draws
    baseline_repeats: int = 1  # measurements of a baseline
    all_baseline_repeats: int = 1  # those of an exhaustive search


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to measure next, and why."""

    points: tuple[tuple[int, int], ...]  # (target, pair), indices; empty when the search is finished
    stage: str  # baseline, probes or search
    reason: str  # why it goes on or ends
    left: float | None = None  # energy expected to be unfound, as a share of the baseline's; None before a fit
    left_high: float | None = None  # 95th percentile of it
    unfit: tuple[int, ...] = ()  # targets, indices, that the model does not describe


def propose(
    candidates: Candidates, seen: Seen, slacks: Sequence[float] = (0.0,), options: Options | None = None
) -> Proposal:
    """The next points of a guided search. slacks: tolerated slowdowns (fractions) that are to be chosen for."""
    options = options or Options()
    measured = np.zeros(candidates.offered.shape, dtype=bool)
    measured[seen.target, seen.pair] = True
    rows = np.arange(len(candidates.targets))
    missing = np.flatnonzero(~measured[rows, candidates.baseline])
    if len(missing):
        return Proposal(tuple((int(k), int(candidates.baseline[k])) for k in missing), "baseline", "auto comes first")
    room = int(options.budget * candidates.everything(options.all_baseline_repeats))
    room -= candidates.spent(measured, options.baseline_repeats)
    probes = _probes(candidates, seen, measured, options)
    if probes:
        return Proposal(tuple(probes[: max(room, 0)]), "probes", "what the model needs to know of each target")
    return _search(candidates, fit(candidates, seen), measured, slacks, options, room)


def matter(candidates: Candidates, seen: Seen, threshold: float) -> np.ndarray:
    """Indices of the targets worth a look, most energy first: the rest together save half the threshold at most."""
    base = seen.pair == candidates.baseline[seen.target]
    energy = np.zeros(len(candidates.targets))
    energy[seen.target[base]] = seen.energy_j[base]
    energy *= candidates.weight
    order = np.argsort(-energy, kind="stable")
    tail = energy.sum() - np.cumsum(energy[order])
    count = int((tail * _GAIN > 0.5 * threshold * energy.sum()).sum()) + 1
    return order[:count]


def is_small(candidates: Candidates, options: Options) -> bool:
    """Whether all probes would take more than two thirds of what the budget holds beyond the baselines."""
    probes = full_probes(candidates) * len(candidates.targets)
    return 2 * _beyond_baselines(candidates, options) < 3 * probes


def full_probes(candidates: Candidates, known: np.ndarray | None = None) -> int:
    """Probes of a target where the budget is not small. known: (P,) bool, its pairs; None: all."""
    every = np.any(candidates.offered, axis=0) if known is None else known
    return 2 if candidates.work is not None or len(_memory_levels(candidates, every)) < 2 else 4


def _beyond_baselines(candidates: Candidates, options: Options) -> int:
    """Measurements that the budget leaves when all baselines are measured."""
    whole = int(options.budget * candidates.everything(options.all_baseline_repeats))
    return whole - options.baseline_repeats * int(candidates.copies.sum())


def _probes(candidates: Candidates, seen: Seen, measured: np.ndarray, options: Options) -> list:
    """The probes that are still to be made, targets with most energy first."""
    few = options.probes is None and is_small(candidates, options)
    wanted = []
    for turn, target in enumerate(matter(candidates, seen, options.threshold)):
        pairs = probes_of(candidates, target, turn, options.probes, measured[target], few)
        wanted += [(int(target), pair) for pair in pairs]
    if few:
        spent = int(measured.sum()) - len(candidates.targets)
        whole = _beyond_baselines(candidates, options)
        most = whole // 2 if len(_memory_levels(candidates, np.any(candidates.offered, axis=0))) > 1 else whole
        return wanted[: max(most - spent, 0)]
    return wanted


def _memory_levels(candidates: Candidates, known: np.ndarray) -> list[float]:
    """Memory clocks of the pairs `known` (P,), the highest first, without those that are nearly alike."""
    mem = candidates.mem_mhz
    levels = np.unique(mem[known & ~np.isnan(mem)])[::-1]
    return [level for n, level in enumerate(levels) if not n or level < (1 - _SAME_MEMORY) * levels[n - 1]]


def probes_of(
    candidates: Candidates, target: int, turn: int, count: int | None, measured: np.ndarray, few: bool = False
) -> list:
    """Pairs to probe a target at, those not measured yet.

    turn: which place in the rotation of clocks. count: how many; None: as Options.probes has it. few: whether the
    budget is small.
    """
    core, mem = candidates.core_mhz, candidates.mem_mhz
    known = candidates.offered[target] & ~np.isnan(core)
    if (known & candidates.beside_baseline(target)).any():
        known &= candidates.beside_baseline(target)  # first the clocks, as auto has the further settings
    if not known.any():
        return []
    own = measured.copy()
    own[candidates.baseline[target]] = False
    distinct = _memory_levels(candidates, known)
    if count is None and few:
        count = min(2, max(1, len(distinct)))
    elif count is None:
        count = full_probes(candidates, known)
    if own.sum() >= min(count, known.sum()):
        return []
    share = core / core[known].max()
    highest = distinct[0] if len(distinct) else np.nan
    lower = distinct[1] if len(distinct) > 1 else highest
    lowest = distinct[2] if len(distinct) > 2 else lower
    plan = (
        (_ONE_FOR_ALL if few else _HIGH_MEMORY, highest),
        (_LOWER_MEMORY, lower),
        (_LOW_CORE, highest),
        (_HIGH_CORE, lowest),
    )
    found: list = []
    for number in range(count):
        shares, level = plan[number % len(plan)]
        want = shares[(turn + number // len(plan)) % len(shares)]
        here = known & ((mem == level) | (np.isnan(mem) & np.isnan(level)))
        here[found] = False
        here[candidates.baseline[target]] = False
        if here.any():
            found.append(int(np.where(here, np.abs(share - want), np.inf).argmin()))
    return [pair for pair in found if not measured[pair]]


def _search(
    candidates: Candidates,
    fitted: Fit,
    measured: np.ndarray,
    slacks: Sequence[float],
    options: Options,
    room: int,
) -> Proposal:
    seen, weight = fitted.seen, candidates.weight
    base = seen.pair == candidates.baseline[seen.target]
    base_time = float((weight[seen.target] * seen.time_s)[base].sum())
    base_energy = float((weight[seen.target] * seen.energy_j)[base].sum())
    time, energy = draws_of(fitted, options.draws, options.seed)
    known = np.where(measured, 0.0, np.inf)
    gains, bounds = [], []
    for slack in slacks:
        budget = (1 + slack) * base_time
        price, all_bound = price_of_time(time, energy, budget)
        _, own_bound = price_of_time(time + known, energy + known, budget)
        gains.append((energy + price[:, None, None] * np.where(np.isfinite(time), time, 0)) / base_energy)
        bounds.append((own_bound - all_bound) / base_energy)
    left = np.max(bounds, 0)
    unfit = np.flatnonzero(fitted.unfit > UNFIT)
    about = float(left.mean()), float(np.quantile(left, 0.95)), tuple(int(k) for k in unfit)
    if left.mean() <= options.threshold:
        return Proposal((), "search", "nothing left is expected to save more than the threshold", *about)
    if room < 1:
        return Proposal((), "search", "the budget of measurements is spent", *about)
    most = max(2, int(np.ceil(options.batch * len(candidates.targets))))
    seconds = np.ones(measured.shape)
    if options.window_s is not None:
        seconds = np.maximum(np.median(time, 0) / weight[:, None], options.window_s)
    points = _greedy(gains, measured, candidates, options.threshold, min(most, room), seconds)
    chosen = {target for target, _ in points}
    points += _doubted(candidates, time, energy, measured, [int(k) for k in unfit if k not in chosen])
    points = points[:room]
    if not points:
        return Proposal((), "search", "no single pair left is expected to save anything", *about)
    return Proposal(tuple(points), "search", "pairs that could still enter the optimum", *about)


def draws_of(fitted: Fit, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(S, K, P) weighted times and energies: as measured where measured, else drawn; infinite where not offered."""
    candidates, seen = fitted.candidates, fitted.seen
    log_time, log_energy = tables(fitted, draws, seed, calibrate(fitted, seed=seed))
    time, energy = np.exp(log_time), np.exp(log_energy)
    time[:, seen.target, seen.pair] = seen.time_s
    energy[:, seen.target, seen.pair] = seen.energy_j
    off = ~candidates.offered
    time[:, off] = energy[:, off] = np.inf
    return candidates.weight[:, None] * time, candidates.weight[:, None] * energy


def _greedy(
    scores: list[np.ndarray],
    measured: np.ndarray,
    candidates: Candidates,
    threshold: float,
    most: int,
    seconds: np.ndarray,
) -> list[tuple[int, int]]:
    """Pairs of most expected gain for a second, one after the other, each as if the ones before had been measured.

    seconds: (K, P) expected of a measurement.
    """
    best = [np.where(measured, score, np.inf).min(-1) for score in scores]  # (S, K) each
    free = candidates.offered & ~measured

    def expected(target: int) -> np.ndarray:
        gain = np.zeros(free.shape[1])
        for score, known in zip(scores, best, strict=True):
            gain = np.maximum(gain, np.maximum(known[:, target, None] - score[:, target], 0).mean(0))
        return np.where(free[target], gain, 0)

    gain = np.array([expected(target) for target in range(len(candidates.targets))])
    found: list[tuple[int, int]] = []
    least = 0.1 * threshold / np.sqrt(len(candidates.targets))
    while len(found) < most:
        worth = np.where(gain > least * 0.2, gain / seconds, 0)
        target, pair = map(int, np.unravel_index(worth.argmax(), gain.shape))
        if gain[target, pair] <= least * 0.2 or (gain[target, pair] <= least and found):
            break
        found.append((target, pair))
        free[target, pair] = False
        for score, known in zip(scores, best, strict=True):
            known[:, target] = np.minimum(known[:, target], score[:, target, pair])
        gain[target] = expected(target)
    return found


def _doubted(
    candidates: Candidates, time: np.ndarray, energy: np.ndarray, measured: np.ndarray, targets: list[int]
) -> list[tuple[int, int]]:
    """For each target that the model does not describe: the pair it is least sure of among those near the best."""
    found = []
    for target in targets:
        mean = energy[:, target].mean(0) * time[:, target].mean(0)
        free = candidates.offered[target] & ~measured[target]
        near = free & (mean <= 1.5 * mean[candidates.offered[target]].min())
        if near.any():
            spread = np.log(energy[:, target][:, near]).std(0)
            found.append((int(target), int(np.flatnonzero(near)[spread.argmax()])))
    return found


def price_of_time(time: np.ndarray, energy: np.ndarray, budget: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(price (S,), bound (S,)) of tables (S, K, P), weighted; infinite where a pair is not offered.

    The linear relaxation of the choice (choice.relaxation, one table, exact) by halving the price: for draws of a
    posterior, speed matters more than the last digit.

    price: least price, J/s, at which the pairs of least energy + price x time keep the budget (s, scalar or (S,)); the
    highest tried where none does. bound: sum of those scores - price x budget, a lower bound of the energy.
    """
    draws = len(time)
    budget = np.broadcast_to(budget, draws)
    reference = energy.min(-1).sum(-1) / time.min(-1).sum(-1)
    low, high = np.zeros(draws), 1e4 * reference

    def spent(price: np.ndarray) -> np.ndarray:
        score = energy + price[:, None, None] * np.where(np.isfinite(time), time, 0)
        best = score.argmin(-1)[..., None]
        return np.take_along_axis(time, best, -1)[..., 0].sum(-1)

    free = spent(low) <= budget * (1 + 1e-12)
    for step in range(_HALVINGS):
        # a price may be far below the highest: first find its order of magnitude
        middle = np.sqrt(np.maximum(low, 1e-6 * reference) * high) if step < 15 else (low + high) / 2
        keeps = spent(middle) <= budget * (1 + 1e-12)
        high, low = np.where(keeps, middle, high), np.where(keeps, low, middle)
    price = np.where(free, 0.0, high)
    score = energy + price[:, None, None] * np.where(np.isfinite(time), time, 0)
    return price, score.min(-1).sum(-1) - price * budget
