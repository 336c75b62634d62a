"""The study by clock: all kernels at one clock pair while it is in force, then the next pair.

Start: times at auto and at a few probes show which kernels are heavy, and how the light ones slow down; their power
shows what the board is like. Search: always the pair of the most expected gain, until that is little or half of the
time is up. Refine: what a draw of what is believed might choose is measured again in other sessions. Settle: the few
pairs that matter are timed again, where a limit is so steep that small errors of time cost much. Path: schedules from
the fastest on, exactly chosen. Walk: fresh sessions show which of them keep their limit.

A generator: it yields visits, is sent answers, and returns a result. It reads no file and no clock; its one source of
chance is the seed. So the same answers lead to the same visits, which is how an interrupted study goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np

from kernel_dvfs.measurement.visit import Visit
from kernel_dvfs.search import gain, outlook, walk
from kernel_dvfs.search.board_pairs import probes
from kernel_dvfs.search.knowledge import Knowledge, pooled
from kernel_dvfs.search.outcome import StudyOutcome, WalkedChoice, shown_of
from kernel_dvfs.search.parts import ChoiceLevel, Space, levels_of, parts_of
from kernel_dvfs.search.visiting import Visiting, VisitOutcome
from kernel_dvfs_clocks.errors import InputError

__all__ = ["Space", "StudyOptions", "StudyOutcome", "VisitOutcome", "WalkedChoice", "answered", "study"]

SEARCHED = 8  # visits of the search in a session
FOR_PASSES = 4  # every so many visits of the search serve passes
SEARCH_SHARE = 0.55  # of the time, at most
REFINED = 2  # sessions that measure again
MOST_PAIRS = 40  # of a search
DROPPED = 3  # blocks that may be lost to visits that cannot be used
# of the gain that is expected of a pair: no board's physics is quite the prior's, so the misfit is stretched, and more
# is believed possible than is; on boards of known truth a fifth to a tenth of it came
REALISED = 1 / 6
_NONE = "study: no pair of locked clocks could be measured; see the records of its visits"


class StudyOptions(NamedTuple):
    """How a study is made."""

    limits_percent: tuple[float, ...]  # of added time, ascending
    minutes: float  # of the board's time
    worth_percent: float  # points of energy that another minute must be worth
    over_percent: float  # the chance, at most, that a choice is over its limit
    ties: str  # "tied": copies share data and choice; "untied"
    seed: int
    opening_s: float  # what a session takes before its first visit, known or guessed


Visits = Generator[Visit, VisitOutcome, None]


def study(space: Space, options: StudyOptions) -> Generator[Visit, VisitOutcome, StudyOutcome]:
    """Yield the visits of a study and return its result. Raises InputError where auto cannot be measured."""
    if options.ties == "untied":
        space = space._replace(groups=(None,) * len(space.names))
    search_study = _Study(space.checked(), options)
    yield from search_study.start()
    yield from search_study.search()
    yield from search_study.refine()
    yield from search_study.settle()
    search_study.fix_paths()
    yield from search_study.walk()
    return search_study.result()


def answered(space: Space, options: StudyOptions, answer: Callable[[Visit], VisitOutcome]) -> StudyOutcome:
    """Make a study whose visits `answer` measures, and return its result. Raises InputError as `study` does."""
    visits = study(space, options)
    visit = next(visits)
    while True:
        measured = answer(visit)
        try:
            visit = visits.send(measured)
        except StopIteration as ended:
            result: StudyOutcome = ended.value
            return result


class _Study:
    def __init__(self, space: Space, options: StudyOptions):
        self._space, self._options = space, options
        self._limits = options.limits_percent
        self._known = Knowledge(space, options.seed)
        self._visiting = Visiting(space, self._known, options.opening_s, options.seed)
        self._levels: tuple[ChoiceLevel, ...] = ()
        self._paths: list[np.ndarray] = []  # (N, J) pairs of each level
        self._saved: list[np.ndarray] = []  # (N,) change of energy of each schedule, as believed before the walk
        self._blocks: list[np.ndarray] = []  # (K, C) times of a launch, NaN where not visited
        self._block_s = 0.0

    def start(self) -> Visits:
        """Visit auto and the probes, first for times alone."""
        auto, places = (yield from self._visiting.timed(0)), probes(self._space.pairs)
        probed = []
        for pair in places:
            probed.append((yield from self._visiting.timed(pair)))
        known = [times for times in probed if times is not None]
        if auto is None or not known:
            raise InputError(_NONE)
        parts = parts_of(self._space, auto, known)
        self._known.divide(parts)
        self._levels = levels_of(self._space, parts, auto)
        for pair in (0, *(pair for pair, times in zip(places, probed) if times is not None)):
            yield from self._visiting.metered(pair)
        if not (self._known.is_seen & self._allowed).any():
            raise InputError(_NONE)

    def search(self) -> Visits:
        """Visit the pair of the most expected gain, again and again; every few visits in a new session."""
        visiting, count = self._visiting, 0
        while self._known.is_seen.sum() <= MOST_PAIRS:
            level = self._levels[-1 if count % FOR_PASSES == FOR_PASSES - 1 else 0]
            gained = outlook.gains(self._known, level, self._limits, self._allowed)
            best = int(gained.argmax())
            cost_s = visiting.cost_s(len(self._known.parts)) + visiting.opening_s / SEARCHED
            if REALISED * gained[best] <= self._options.worth_percent * cost_s / 60:
                return
            left_s = 60 * self._options.minutes - visiting.spent_s - cost_s
            if left_s < max(self._reserve_s(), (1 - SEARCH_SHARE) * 60 * self._options.minutes):
                return
            if count % SEARCHED == 0:
                visiting.open()
                yield from visiting.timed(0)
            yield from visiting.metered(best)
            count += 1

    def refine(self) -> Visits:
        """Measure again, in sessions of their own, what a draw of what is believed would choose."""
        for number in range(REFINED):
            few = outlook.few(self._known, self._levels, self._limits, self._allowed)
            if not few:
                return
            wanted = outlook.wanted(self._known, self._levels[0], self._limits, few, number)
            self._visiting.open()
            yield from self._visiting.timed(0)
            for pair in self._visiting.shuffled(np.flatnonzero(wanted.any(0))):
                parts = None if self._visiting.is_held[pair] else np.flatnonzero(wanted[:, pair])
                yield from self._visiting.metered(pair, parts)

    def settle(self) -> Visits:
        """Time the few pairs again in other sessions while better times are worth it; half of the time left at most."""
        few = outlook.few(self._known, self._levels, self._limits, self._allowed)
        visiting = self._visiting
        session_s = 2 * visiting.opening_s + len(few) * visiting.cost_s(0)
        until_s = (visiting.spent_s + 60 * self._options.minutes) / 2
        while few and visiting.spent_s + session_s < until_s:
            gained = outlook.gain_of_timing(self._known, self._levels[0], self._limits, few)
            if gained < self._options.worth_percent * session_s / 60:
                return
            visiting.open()
            for pair in (0, *visiting.shuffled(np.array(few)), 0):
                yield from visiting.timed(pair)

    def fix_paths(self) -> None:
        """Choose the schedules that the walk goes through, by what is believed now."""
        few = outlook.few(self._known, self._levels, self._limits, self._allowed)
        for level in self._levels:
            time, energy, _ = self._known.of_level(level)
            path = walk.path(time, energy, few, self._limits)
            self._paths.append(path)
            self._saved.append((energy[np.arange(len(energy)), path] - energy[:, 0]).sum(1))

    def walk(self) -> Visits:
        """Time auto and the paths' pairs in one session after the other, until a minute is worth too little."""
        pairs, dropped, visiting = np.unique(np.concatenate([path.ravel() for path in self._paths])), 0, self._visiting
        while len(pairs) and len(self._blocks) < walk.MOST_BLOCKS and dropped < DROPPED:
            if len(self._blocks) >= walk.LEAST_BLOCKS:
                if visiting.spent_s + self._block_s > 60 * self._options.minutes:
                    return
                if max(self._worths().values()) < self._options.worth_percent:
                    return
            began_s = visiting.spent_s
            visiting.open()
            times = np.full((len(self._space.names), len(self._space.pairs)), np.nan)
            first = yield from visiting.timed(0)
            for pair in visiting.shuffled(pairs):
                kernel_s = yield from visiting.timed(pair)
                times[:, pair] = np.nan if kernel_s is None else kernel_s
            last = yield from visiting.timed(0)
            assert first is not None and last is not None, "auto is measured, or an error raised"
            times[:, 0] = (first + last) / 2
            if np.isfinite(times[:, pairs]).all():
                self._blocks.append(times)
                self._block_s = visiting.spent_s - began_s
            else:
                dropped += 1

    def result(self) -> StudyOutcome:
        """Return what was found; the walk's times count in the table, and in what is believed of energy."""
        worths = self._worths()
        shown = {
            (level.name, limit): shown_of(
                *(self._space, self._known, level, path, self._changes(level, path)),
                limit,
                self._options.over_percent,
                worths[level.name, limit],
            )
            for level, path in zip(self._levels, self._paths)
            for limit in self._limits
        }
        looks = self._known.looks
        table = pooled(self._space, self._known.parts, looks)
        return StudyOutcome(shown, table, len(looks), self._visiting.session + 1, self._visiting.spent_s)

    @property
    def _allowed(self) -> np.ndarray:
        """(C,) bool: the locked pairs that could be measured whenever they were asked for."""
        return ~self._visiting.left_out & (np.arange(len(self._space.pairs)) > 0)

    def _reserve_s(self) -> float:
        """Return what is kept for what follows the search: its measuring again, and the fewest blocks of a walk."""
        visiting = self._visiting
        again = visiting.opening_s + gain.FEW * visiting.cost_s(len(self._known.parts) // 3)
        block = 2 * visiting.opening_s + gain.FEW * visiting.cost_s(0)
        return REFINED * again + walk.LEAST_BLOCKS * block

    def _changes(self, level: ChoiceLevel, path: np.ndarray) -> np.ndarray:
        """Return (B, N) change of time of each schedule in each block, percent of auto."""
        row, changes = np.arange(len(level.launches)), []
        for times in self._blocks:
            duration = level.launches @ np.nan_to_num(times)
            changes.append(100 * (duration[row, path].sum(1) / duration[:, 0].sum() - 1))
        return np.array(changes).reshape(-1, len(path))

    def _worths(self) -> dict[tuple[str, float], float]:
        """Return points of energy that another minute of the walk might gain, by level and limit."""
        worths = {}
        for level, path, saved in zip(self._levels, self._paths, self._saved):
            changes = self._changes(level, path)
            for limit in self._limits:
                block = walk.worth_of_block(changes, saved, limit, self._options.over_percent / 100)
                worths[level.name, limit] = 60 * block / self._block_s if block else 0.0
        return worths
