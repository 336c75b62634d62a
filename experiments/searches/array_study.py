"""A study on arrays: sweep, race, walk and validation where the truth is known, hundreds an hour.

By the same functions and in the same order as on records (search/loop.py), but drawn in bulk (sampling.py). A
measurement is one window; a campaign is a session. For experiments on how to choose.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from experiments.searches.sampling import Campaign, Noise, Truth, measure
from experiments.searches.strategies import guided
from experiments.searches.testbed import Testbed
from kernel_dvfs.choice.from_profile import problem_of
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.gpu.clocks import key_of
from kernel_dvfs.profile.aggregate import standard_errors
from kernel_dvfs.search import race
from kernel_dvfs.search.candidates import Candidates
from kernel_dvfs.search.propose import Options
from kernel_dvfs.student import interval

AUTO_REPEATS = 4  # of a sweep, each in a session of its own
PROBED_AUTO_REPEATS = 2  # of a guided search
OVER = 0.1  # the chance of a walk to be over its limit
VALIDATION = 10  # blocks
# what measures the cells of a session
Measure = Callable[[np.ndarray], Campaign]


@dataclass(frozen=True, eq=False)
class Ground:
    """What is measured: a truth, the scatter about it, and what may be asked for."""

    known: Truth  # NaN where a kernel cannot be measured at a pair
    noise: Noise
    swept: int  # so many of the pairs, the first, are swept; the race may ask for the others
    an_hour: float  # measurements

    @cached_property
    def keys(self) -> list[tuple]:
        """(C,) the pairs as a problem names them."""
        return [key_of(pair) for pair in self.known.pairs]

    @cached_property
    def place(self) -> dict[tuple, int]:
        """{key: which of the pairs it is}."""
        return {key: place for place, key in enumerate(self.keys)}

    def supported(self, mem_mhz: float | None) -> list[float]:
        """Core clocks that may be asked for at a memory clock, MHz."""
        return [core for core, mem in self.keys if mem == mem_mhz and core is not None]

    @cached_property
    def exact(self) -> View:
        """The choice among all pairs, by the truth."""
        cell = np.flatnonzero(np.isfinite(self.known.time_s.ravel()))
        one = np.ones(len(cell))
        time, energy = (values.ravel()[cell] for values in (self.known.time_s, self.known.energy_j))
        return pooled(self, [Campaign(cell, one, time, energy, 0 * one, 0 * one)])

    def best(self, slack: float) -> np.ndarray:
        """[time, energy]: the change that one would make who knows the truth, percent."""
        return self.exact.change(race.chosen(self.exact.problem, [slack])[0])

    @cache  # noqa: B019 - a ground lives as long as its studies
    def best_path(self, slacks: tuple[float, ...]) -> np.ndarray:
        """(J, K): the path of one who knows the truth."""
        problem = self.exact.problem
        none = np.zeros((len(problem.targets), len(problem.keys)))
        return race.path(race.Estimate(problem, none, none, none, none, none[:, 0]), slacks)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A choice problem, and the cells (kernel x pair, flat) that its options stand for."""

    ground: Ground
    problem: Problem
    owner: np.ndarray  # (kernels,) target of each kernel
    pair: np.ndarray  # (N,) of each option

    @property
    def reached_mhz(self) -> np.ndarray:
        """(K,) core clock at the baseline, of the first launch of each target."""
        first = [self.ground.known.names.index(names[0]) for names in self.problem.members]
        return self.ground.known.auto_core_mhz[first]

    def block(self, wanted: np.ndarray, between: Collection[tuple] = ()) -> list[np.ndarray]:
        """The cells of each session of a block that measures these options (N,) bool, and every kernel at these keys.

        As loop.py spreads them: a kernel that is measured fewer times sits out some of the sessions.
        """
        pairs, count = len(self.ground.known.pairs), race.per_block(self.problem)
        row = {name: kernel for kernel, name in enumerate(self.ground.known.names)}
        asked: dict[int, list[int]] = defaultdict(list)
        for option in np.flatnonzero(wanted).tolist():
            for name in self.problem.members[self.problem.target[option]]:
                asked[row[name]].append(int(self.pair[option]))
        if between:
            for name in itertools.chain(*self.problem.members):
                asked[row[name]] += []
        new = [self.ground.place[key] for key in between]
        sessions = []
        for session in range(race.SESSIONS):
            cells = []
            for number, (kernel, own) in enumerate(asked.items()):
                every = race.SESSIONS // count[self.owner[kernel]]
                cells += [kernel * pairs + pair for pair in own if session % every == number % every]
                cells += [kernel * pairs + pair for pair in new if session == number % race.SESSIONS]
            sessions.append(np.array(cells, dtype=np.intp))
        return sessions

    def change(self, options: np.ndarray) -> np.ndarray:
        """(2, ...): change of an iteration's time and energy against auto in truth, percent, of choices (..., K)."""
        known, kernel = self.ground.known, np.arange(len(self.owner))
        pair = self.pair[options[..., self.owner]]
        whole = known.launches * np.array([known.time_s[:, 0], known.energy_j[:, 0]])
        chosen = (known.launches * values[kernel, pair] for values in (known.time_s, known.energy_j))
        return np.array([100 * (own.sum(-1) / auto.sum() - 1) for own, auto in zip(chosen, whole)])

    def changes(self, path: np.ndarray, sessions: Sequence[Campaign]) -> np.ndarray:
        """(2, J): change of time and energy that one block shows of each schedule of a path (J, K), percent of auto."""
        known, problem = self.ground.known, self.problem
        cell, time, energy = (
            np.concatenate([getattr(each, name) for each in sessions]) for name in ("cell", "time_s", "energy_j")
        )
        found, place = np.unique(cell, return_inverse=True)
        kernel, pair = np.divmod(found, len(known.pairs))
        table = np.zeros((len(problem.targets), len(known.pairs)), dtype=np.intp)
        table[problem.target, self.pair] = np.arange(len(problem.time))
        shown = []
        for values, whole in ((time, problem.baseline_time), (energy, problem.baseline_energy)):
            mean = np.bincount(place, values) / np.bincount(place)
            total = np.bincount(table[self.owner[kernel], pair], known.launches[kernel] * mean, len(problem.time))
            shown.append(100 * (total[path] - total[problem.baseline]).sum(1) / whole)
        return np.array(shown)


def pooled(ground: Ground, campaigns: Sequence[Campaign], ties: str = "tied") -> View:
    """What campaigns measured, pooled as a profile (profile.aggregate) and made a problem as a study's is."""
    known = ground.known
    cell, n, time, energy, time_squares, energy_squares = (
        np.concatenate([getattr(each, name) for each in campaigns])
        for name in ("cell", "n", "time_s", "energy_j", "time_squares", "energy_squares")
    )
    found, place = np.unique(cell, return_inverse=True)
    kernel, pair = np.divmod(found, len(known.pairs))
    total, keys = np.bincount(place, n), ground.keys
    columns: dict[str, Any] = {
        "study": np.full(len(found), "kernel", dtype=object),
        "target": np.array(known.names, dtype=object)[kernel],
        "launches_per_iteration": known.launches[kernel],
        "replicate_group": np.array(known.groups, dtype=object)[kernel],
        "core_mhz": [keys[each][0] for each in pair],
        "mem_mhz": [keys[each][1] for each in pair],
        "n": total,
        "verdict": np.full(len(found), "ok"),
        "is_baseline": pair == 0,
    }
    for column, error, values, squares in (
        ("time_s", "time_se_s", time, time_squares),
        ("energy_j", "energy_se_j", energy, energy_squares),
    ):
        columns[column] = np.bincount(place, n * values) / total
        columns[error] = standard_errors(cell // len(known.pairs), place, n, values, squares)
    problem = problem_of(columns, ("core_mhz", "mem_mhz"), "kernel", "counts", ties)
    target = {name: number for number, names in enumerate(problem.members) for name in names}
    own = np.array([ground.place[key] for key in problem.keys])
    return View(ground, problem, np.array([target[name] for name in known.names]), own[problem.key])


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a procedure chose for each limit, and what it claims for it."""

    view: View
    options: list[np.ndarray]  # (K,) each
    claimed: list[np.ndarray]  # [time, energy] each, percent of auto
    about: dict[str, int]  # blocks, and windows after the sweep


@dataclass(frozen=True, slots=True, eq=False)
class Raced:
    """Where a race has come to."""

    view: View
    known: race.Estimate
    blocks: int
    windows: int  # of the race so far
    left: list[race.Left]  # of each limit

    def score(self, slack: float, price: float) -> float:
        """What would be chosen now, in truth: change of energy + price x change of time, percent of auto's energy."""
        time, energy = self.view.change(race.chosen(self.known.problem, [slack])[0])
        return float(energy + price * time)


def swept(ground: Ground, measured: Measure) -> list[Campaign]:
    """A sweep: every pair of the grid once, auto AUTO_REPEATS times."""
    pairs = len(ground.known.pairs)
    cell = np.flatnonzero(np.isfinite(ground.known.time_s.ravel()))
    auto = cell[cell % pairs == 0]
    rest = cell[(cell % pairs > 0) & (cell % pairs < ground.swept)]
    return [*(measured(auto) for _ in range(AUTO_REPEATS)), measured(rest)]


def probed(
    ground: Ground, candidates: Candidates, sweep: Sequence[Campaign], slack: float, budget: float, seed: int
) -> list[Campaign]:
    """What a guided search sees of a sweep: those of its measurements that it asks for, auto PROBED_AUTO_REPEATS times.

    candidates: the targets and the pairs of the sweep. budget: share of the sweep's measurements.
    """
    known, (*autos, rest) = ground.known, sweep
    row = {name: number for number, name in enumerate(known.names)}
    first = np.array([row[name] for name in candidates.targets])
    copies = [
        [each for each, own in enumerate(known.groups) if each == target or (own and own == known.groups[target])]
        for target in first
    ]

    def table(quantity: str) -> np.ndarray:
        values = np.full(known.time_s.shape, np.nan)
        values.ravel()[rest.cell] = getattr(rest, quantity)
        return values[first, : ground.swept]

    def baselines(quantity: str) -> np.ndarray:
        return np.array([[getattr(each, quantity)[own].mean() for each in autos] for own in copies])

    time, energy = table("time_s"), table("energy_j")
    nothing = np.full(time.shape, np.nan)
    bases = baselines("time_s"), baselines("energy_j")
    bed = Testbed(candidates, time, energy, time, energy, *bases, nothing, nothing, nothing, nothing)
    repeats = {"baseline_repeats": PROBED_AUTO_REPEATS, "all_baseline_repeats": len(autos)}
    measured, _, _ = guided(bed, slack, Options(budget=budget, seed=seed, **repeats))
    target, pair = np.nonzero(measured)
    asked = np.isin(rest.cell, first[target] * len(known.pairs) + pair)
    return [*autos[:PROBED_AUTO_REPEATS], Campaign(*(getattr(rest, each.name)[asked] for each in fields(Campaign)))]


def one_sweep(ground: Ground, sweep: Sequence[Campaign], slacks: Sequence[float], ties: str) -> Found:
    """The paper's way: what one sweep shows to be best, believed."""
    view = pooled(ground, sweep, ties)
    problem, options = view.problem, race.chosen(view.problem, slacks)
    totals = problem.time, problem.energy
    claimed = [
        np.array([100 * (values[option].sum() / values[problem.baseline].sum() - 1) for values in totals])
        for option in options
    ]
    return Found(view, options, claimed, {})


def races(
    ground: Ground, sweep: Sequence[Campaign], slacks: Sequence[float], budget: int, seed: int, measured: Measure
) -> Iterator[Raced]:
    """The race of a study as loop.py runs it: what is known before each block, and at last before the walk.

    budget: windows of race and walk. measured: measures what they ask for.
    """
    campaigns, spent = list(sweep), 0
    for blocks in itertools.count():
        view = pooled(ground, campaigns)
        known = race.estimate(view.problem, max(slacks))
        wanted = race.picks(known, slacks, np.random.default_rng([seed, blocks]))
        cost = sum(map(len, view.block(wanted)))
        rest = (budget - spent - cost) / cost
        left = [race.outlook(known, slack, seed).left(rest, ground.an_hour / cost, OVER) for slack in slacks]
        yield Raced(view, known, blocks, spent, left)
        if not race.races_on(left, spent, cost, budget):
            return
        between: dict[tuple, None] = {}
        if ground.swept < len(ground.keys):
            own = known.problem, race.chosen(known.problem, slacks), ground.supported
            between = dict.fromkeys(race.at_auto(*own, view.reached_mhz) + race.halfway(*own))
        block = [measured(cell) for cell in view.block(wanted, between)]
        campaigns += block
        spent += windows_of(block)


def walk(view: View, path: np.ndarray, measured: Measure) -> Iterator[np.ndarray]:
    """(2, J) change of time and energy of a path's schedules, percent of auto, in one fresh block after the other."""
    sessions = view.block(race.compared(view.problem, path))
    while True:
        yield view.changes(path, [measured(cell) for cell in sessions])


def race_and_walk(
    ground: Ground, sweep: Sequence[Campaign], slacks: Sequence[float], budget: int, seed: int, measured: Measure
) -> Found:
    """A study after its sweep: the race, then the walk until little is left to gain or the budget is spent."""
    *_, raced = races(ground, sweep, slacks, budget, seed, measured)
    known, path = raced.known, race.path(raced.known, slacks)
    cost = max(1, cost_of(raced.view, path))
    most = max(race.LEAST_BLOCKS, (budget - raced.windows) // cost)
    outlooks = [race.outlook(known, slack, seed) for slack in slacks]
    counts = range(race.LEAST_BLOCKS, most + 1)
    blocks = next((count for count in counts if all(each.is_shown(count, OVER) for each in outlooks)), most)
    about = {"raced": raced.blocks, "race_windows": raced.windows}
    return _walked(raced.view, path, slacks, blocks, about, measured)


def only_shown(ground: Ground, slacks: Sequence[float], windows: int, measured: Measure) -> Found:
    """What nobody can beat with so many windows: the truth is known, and has only to be shown by a walk."""
    path = ground.best_path(tuple(slacks))
    blocks = max(race.LEAST_BLOCKS, windows // max(1, cost_of(ground.exact, path)))
    return _walked(ground.exact, path, slacks, blocks, {}, measured)


def validated(found: Found, option: np.ndarray, measured: Measure) -> dict[str, float]:
    """What VALIDATION fresh blocks of auto and a choice (K,) show, with 95 % intervals over blocks; percent of auto."""
    path = option[None]
    row: dict[str, float] = {"validation_windows": VALIDATION * cost_of(found.view, path)}
    if not row["validation_windows"]:
        return row
    shown = np.array(list(itertools.islice(walk(found.view, path, measured), VALIDATION)))[:, :, 0]
    for quantity, values in zip(("time", "energy"), shown.T.tolist()):
        about = interval(values, [str(block) for block in range(VALIDATION)])
        row |= {f"{quantity}_fresh_percent": about.mean, f"{quantity}_half_width_pp": about.high - about.mean}
    return row


def streams(ground: Ground, seed: int) -> list[Measure]:
    """What measures the sweep, race and walk, the validation, and the walk of one who knows the truth."""
    return [partial(measure, ground.known, ground.noise, np.random.default_rng([seed, stream])) for stream in range(4)]


def cost_of(view: View, path: np.ndarray) -> int:
    """Windows of a block of the walk along a path."""
    return sum(map(len, view.block(race.compared(view.problem, path))))


def windows_of(campaigns: Sequence[Campaign]) -> int:
    """How many windows campaigns took."""
    return int(sum(each.n.sum() for each in campaigns))


def _walked(
    view: View, path: np.ndarray, slacks: Sequence[float], blocks: int, about: dict[str, int], measured: Measure
) -> Found:
    """What a walk of so many blocks along a path shows for each limit."""
    problem, cost = view.problem, cost_of(view, path)
    blocks = blocks if cost else 0
    about = about | {"walked": blocks, "walk_windows": blocks * cost}
    options, claimed = [problem.baseline] * len(slacks), [np.zeros(2)] * len(slacks)
    if blocks:
        time, energy = np.array(list(itertools.islice(walk(view, path, measured), blocks))).transpose(1, 0, 2)
        for number, slack in enumerate(slacks):
            passed = race.passed(time, energy, 100 * slack, OVER)
            if passed:
                options[number] = path[passed - 1]
                claimed[number] = np.array([time[:, passed - 1].mean(), energy[:, passed - 1].mean()])
    return Found(view, options, claimed, about)
