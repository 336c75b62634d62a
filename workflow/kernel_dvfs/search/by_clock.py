"""The study by clock: all kernels at one clock pair while it is in force, then the next pair.

Start: auto, twice, and a low clock show which kernels are heavy and how the light ones slow down. Probes show what the
board is like. Search: always the pair of the most expected gain, until that is little or time is up. Refine: what a draw
of what is believed might choose is measured again in other sessions. Path: schedules from the fastest on, exactly
chosen. Walk: fresh sessions show which of them keep their limit.

A generator: it yields visits, is sent answers, and returns a result. It reads no file and no clock; its one source of
chance is the seed. So the same answers lead to the same visits, which is how an interrupted study goes on.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import Pair
from kernel_dvfs.measurement.visit import Visit
from kernel_dvfs.search import gain, walk
from kernel_dvfs.search.board_pairs import probes
from kernel_dvfs.search.knowledge import Knowledge, Look, Pooled, pooled
from kernel_dvfs.search.parts import Level, Space, levels_of, parts_of

PASS_S, AUTO_PASS_S = 2.5, 5.0  # at auto the power cap's controller wanders
WINDOW_S, AUTO_WINDOW_S = 0.5, 1.0  # likewise
SEARCHED = 4  # visits of the search in a session
REFINED = 2  # sessions that measure again
TRIES = 3  # of a visit that cannot be used
MOST_VISITS, MOST_BLOCKS = 40, 60  # of a search, and of a walk
_DRAWS, _TABLES = 24, 6  # of what is believed: for the gain, and for what is measured again
_SWITCH_S, _KERNEL_S = 0.5, 0.25  # guesses of what a visit and a window take besides
_LV = 1
# of the gain that is expected of a pair: the prior's physics is never quite that of a board, which widens what is
# believed possible
_REALISED = 1 / 6
_PASSES = 4


class Options(NamedTuple):
    """How a study is made."""

    limits_percent: tuple[float, ...]  # of added time, ascending
    minutes: float  # of the board
    worth_percent: float  # points of energy that another minute must be worth
    over_percent: float  # the chance, at most, that a choice is over its limit
    ties: str  # "tied": copies share data and choice; "untied"
    seed: int
    opening_s: float  # what a session takes before its first visit, known or guessed


class Answer(NamedTuple):
    """What a visit measured."""

    time_s: np.ndarray  # (K,) of one launch
    power_w: np.ndarray  # (M,) of each of visit.metered
    spent_s: float  # of the board's time, without what a session takes to open
    is_usable: bool
    iteration_w: float | None = None  # mean over the passes; None: what its kernels draw one by one


class Shown(NamedTuple):
    """The choice for a level and a limit, and what the walk has shown for it."""

    pairs: dict[str, Pair]  # of every target; all BASELINE where nothing was shown to keep the limit
    schedules: int  # of the path
    passed: int  # of these; 0: nothing was shown
    time_percent: tuple[float, ...]  # change against auto in each block
    energy_percent: float  # change against auto, as believed
    energy_se_percent: float
    over_percent: float
    worth_percent: float  # points of energy that another minute might gain


class Result(NamedTuple):
    """What a study has found."""

    shown: dict[tuple[str, float], Shown]  # by level and limit
    table: Pooled
    visits: int
    sessions: int
    spent_s: float  # opening of sessions included


Visits = Generator[Visit, Answer, None]


def study(space: Space, options: Options) -> Generator[Visit, Answer, Result]:
    """Yield the visits of a study and return its result. Raises InputError where auto cannot be measured."""
    if options.ties == "untied":
        space = space._replace(groups=(None,) * len(space.names))
    made = _Study(space.checked(), options)
    yield from made.start()
    yield from made.search()
    yield from made.refine()
    paths = made.paths()
    yield from made.walk(paths)
    return made.result(paths)


class _Study:
    def __init__(self, space: Space, options: Options):
        self._space, self._options = space, options
        self._known = Knowledge(space, options.seed)
        self._session, self._place = 0, 0
        self._spent_s = options.opening_s
        self._guessed_s, self._visited_s = 1.0, 1.0  # of visits so far: as guessed, and as they were
        self._left_out = np.zeros(len(space.pairs), dtype=bool)
        self._blocks: list[np.ndarray] = []  # (K, C) times of a launch, NaN where not visited
        self._block_s = 0.0

    def start(self) -> Visits:
        """Visit auto and the probes; the slowest of these first, for times alone."""
        space = self._space
        auto = yield from self._visit(0, metered=False)
        slow = None
        for pair in probes(space.pairs):
            if slow is None:
                slow = yield from self._visit(pair, metered=False)
        if slow is None:
            raise InputError("study: no pair of locked clocks could be measured; see the records of its visits")
        assert auto is not None, "auto is measured or an error is raised"
        parts = parts_of(space, auto, slow)
        self._known.divide(parts)
        self._levels = levels_of(space, parts, auto)
        yield from self._visit(0)
        for pair in probes(space.pairs):
            yield from self._visit(pair)

    def search(self) -> Visits:
        """Visit the pair of the most expected gain, again and again; every few visits in a new session."""
        since = 0
        while len(self._known.seen) < MOST_VISITS:
            gained = self._gains(self._levels[-1 if since % _PASSES == _PASSES-1 else 0])
            best = int(gained.argmax())
            cost_s = self._cost_s(len(self._known.parts)) + (self._options.opening_s + AUTO_PASS_S) / SEARCHED
            if self._spent_s + cost_s + self._reserve_s() > 60 * self._options.minutes:
                return
            if _REALISED * gained[best] < self._options.worth_percent * cost_s / 60:
                return
            if since % SEARCHED == 0:
                self._open()
                yield from self._visit(0, metered=False)
            yield from self._visit(best)
            since += 1

    def refine(self) -> Visits:
        """Measure again, in sessions of their own, what a draw of what is believed would choose."""
        for number in range(REFINED):
            wanted = self._wanted(number)
            self._open()
            yield from self._visit(0, metered=False)
            for pair in self._order(np.flatnonzero(wanted.any(0))):
                yield from self._visit(pair, np.flatnonzero(wanted[:, pair]))

    def paths(self) -> list[np.ndarray]:
        """(N, J) pairs of each level: the schedules that the walk goes through."""
        few = self._few()
        believed = [self._known.of_level(level) for level in self._levels]
        return [walk.path(*own[:2], few, self._options.limits_percent) for own in believed]

    def walk(self, paths: Sequence[np.ndarray]) -> Visits:
        """Time auto and the paths' pairs in one session after the other, until a minute is worth too little."""
        pairs = np.unique(np.concatenate([path.ravel() for path in paths]))
        if not len(pairs):
            return
        dropped = 0
        while len(self._blocks) < MOST_BLOCKS and dropped < TRIES:
            began_s = self._spent_s
            self._open()
            shape = len(self._space.names), len(self._space.pairs)
            times = np.full(shape, np.nan)
            first = yield from self._visit(0, metered=False)
            for pair in self._order(pairs):
                found = yield from self._visit(pair, metered=False, leave_out=False)
                if found is not None:
                    times[:, pair] = found
            last = yield from self._visit(0, metered=False)
            assert first is not None and last is not None
            times[:, 0] = (first + last) / 2
            if np.isnan(times[:, pairs]).any():
                dropped += 1
                continue
            self._blocks.append(times)
            self._block_s = self._spent_s - began_s
            if len(self._blocks) < walk.LEAST_BLOCKS:
                continue
            if self._spent_s + self._block_s > 60 * self._options.minutes:
                return
            if max(self._worths(paths).values(), default=0.0) < self._options.worth_percent:
                return

    def result(self, paths: Sequence[np.ndarray]) -> Result:
        """What was found, the walk's times pooled with all others."""
        worths = self._worths(paths) if len(self._blocks) >= walk.LEAST_BLOCKS else {}
        shown = {}
        for level, path in zip(self._levels, paths):
            for limit in self._options.limits_percent:
                worth = worths.get((level.name, limit), 0.0)
                shown[level.name, limit] = self._shown(level, path, limit, worth)
        looks = self._known.looks
        table = pooled(self._space, self._known.parts, looks)
        return Result(shown, table, len(looks), self._session + 1, self._spent_s)

    def _shown(self, level: Level, path: np.ndarray, limit: float, worth: float) -> Shown:
        over = self._options.over_percent / 100
        changes = self._changes(level, path)
        passed = walk.furthest(changes, limit, over)
        time, energy, drawn = self._known.of_level(level)
        row = np.arange(len(energy))
        change, error = 0.0, 0.0
        if passed:
            choice = path[passed - 1]
            change = float((energy[row, choice] - energy[:, 0]).sum())
            error = float((drawn[1][:, row, choice] - drawn[1][:, :, 0]).sum(1).std(ddof=1))
        if change >= 0:
            passed, change, error = 0, 0.0, 0.0
        choice = path[passed - 1] if passed else np.zeros(len(energy), dtype=int)
        pairs = {name: self._space.pairs[pair] for names, pair in zip(level.targets, choice.tolist()) for name in names}
        blocks = changes[:, passed - 1] if passed else np.zeros(len(changes))
        over_percent = self._options.over_percent
        return Shown(pairs, len(path), passed, tuple(blocks.tolist()), change, error, over_percent, worth)

    def _visit(
        self, pair: int, parts: Sequence[int] | np.ndarray | None = None, metered: bool = True, leave_out: bool = True
    ) -> Generator[Visit, Answer, np.ndarray | None]:
        """Visit a pair and return the (K,) times of a launch. One that cannot be used is made again.

        parts: that are metered; None: all. None is returned, and the pair left out, where no try could be used. Raises
        InputError where that is auto.
        """
        known, space = self._known, self._space
        if not metered:
            parts = ()
        chosen = range(len(known.parts)) if parts is None else [int(part) for part in parts]
        pass_s, window_s = (PASS_S, WINDOW_S) if pair else (AUTO_PASS_S, AUTO_WINDOW_S)
        names = tuple(tuple(space.names[kernel] for kernel in known.parts[part].kernels) for part in chosen)
        for _ in range(TRIES):
            asked = Visit(self._session, self._place, space.pairs[pair], pass_s, window_s if names else 0.0, names)
            answer = yield asked
            self._place += 1
            self._spent_s += answer.spent_s
            if answer.is_usable:
                if pair:
                    self._guessed_s += _guess_s(len(names))
                    self._visited_s += answer.spent_s
                powers = dict(zip(chosen, answer.power_w.tolist()))
                known.add(Look(self._session, pair, answer.time_s, powers, answer.iteration_w))
                return answer.time_s
        if not pair:
            raise InputError(f"study: auto could not be measured in {TRIES} tries; see the records of its visits")
        self._left_out[pair] |= leave_out
        return None

    def _open(self) -> None:
        """Open another session."""
        self._session, self._place = self._session + 1, 0
        self._spent_s += self._options.opening_s

    def _order(self, pairs: np.ndarray) -> list[int]:
        """The pairs in an order that session and seed draw."""
        return np.random.default_rng([self._options.seed, 2, self._session]).permutation(pairs).tolist()

    def _cost_s(self, windows: int) -> float:
        """How long a visit of locked clocks takes with so many windows, as visits took so far."""
        return _guess_s(windows) * self._visited_s / self._guessed_s

    def _reserve_s(self) -> float:
        """What is kept for what follows the search: its measuring again, and the fewest blocks of a walk."""
        pairs, opening = gain.FEW, self._options.opening_s + AUTO_PASS_S + _SWITCH_S
        again = opening + pairs * self._cost_s(len(self._known.parts) // 3)
        block = opening + AUTO_PASS_S + _SWITCH_S + pairs * self._cost_s(0)
        return REFINED * again + walk.LEAST_BLOCKS * block

    def _usable(self) -> np.ndarray:
        """(C,) bool: locked pairs that every part was measured at."""
        return self._known.is_seen & ~self._left_out & (np.arange(len(self._space.pairs)) > 0)

    def _gains(self, level: Level) -> np.ndarray:
        """(C,) what each pair is expected to gain, points of energy, at the limit that it gains the most."""
        usable, found = self._usable(), np.zeros(len(self._space.pairs))
        others = ~self._left_out & (np.arange(len(found)) > 0)
        time, energy, drawn = self._known.of_level(level, _DRAWS)
        for limit in self._options.limits_percent:
            cost = gain.price(time, energy, others, 100 + limit)
            found = np.maximum(found, gain.expected_gain(time, energy, drawn, usable, cost))
        return np.where(others & ~usable, found, 0.0)

    def _few(self) -> list[int]:
        """The few pairs that paths are made of."""
        usable, found = self._usable(), set()
        for level in self._levels:
            time, energy, _ = self._known.of_level(level)
            for limit in self._options.limits_percent:
                cost = max(gain.price(time, energy, usable, 100 + limit), 0.05)
                found |= set(gain.few_pairs(time, energy, usable, [cost / 2, cost, 2 * cost]))
        return sorted(found)

    def _wanted(self, number: int) -> np.ndarray:
        """(U, C) bool: the parts that one of a few draws would choose at each of the few pairs."""
        few = np.array(self._few())
        level = self._levels[0]
        time, energy, drawn = self._known.of_level(level, _TABLES, number)
        usable = np.isin(np.arange(len(self._space.pairs)), few)
        wanted = np.zeros(time.shape, dtype=bool)
        row = np.arange(len(time))
        for limit in self._options.limits_percent:
            cost = gain.price(time, energy, usable, 100 + limit)
            for score in drawn[1] + cost * drawn[0]:
                wanted[row, few[score[:, few].argmin(1)]] = True
        return wanted

    def _changes(self, level: Level, path: np.ndarray) -> np.ndarray:
        """(B, N) change of time of each schedule in each block, percent of auto."""
        row, found = np.arange(len(level.launches)), []
        for times in self._blocks:
            own = level.launches @ np.nan_to_num(times)
            found.append(100 * ((own[row, path]).sum(1) / own[:, 0].sum() - 1))
        return np.array(found).reshape(-1, len(path))

    def _worths(self, paths: Sequence[np.ndarray]) -> dict[tuple[str, float], float]:
        """Points of energy that another minute of the walk might gain, by level and limit."""
        found, usable = {}, self._usable()
        for level, path in zip(self._levels, paths):
            time, energy, _ = self._known.of_level(level)
            changes = self._changes(level, path)
            for limit in self._options.limits_percent if len(path) else ():
                cost = gain.price(time, energy, usable, 100 + limit)
                block = walk.worth_of_block(changes, limit, cost, self._options.over_percent / 100)
                found[level.name, limit] = 60 * block / self._block_s
        return found


def _guess_s(windows: int) -> float:
    """How long a visit of locked clocks takes with so many windows, as guessed."""
    return _SWITCH_S + PASS_S + windows * (_KERNEL_S + WINDOW_S)
