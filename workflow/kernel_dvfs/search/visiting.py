"""Asking for visits: their sessions and places, what they take, and what is done where one cannot be used."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np

from kernel_dvfs.measurement.visit import (
    AUTO_PASS_S,
    AUTO_WINDOW_S,
    PASS_S,
    SETTLE_S,
    WINDOW_S,
    Visit,
    least_s,
)
from kernel_dvfs.search.knowledge import Knowledge, Observation
from kernel_dvfs.search.parts import Space
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

TRIES = 3  # of a visit that cannot be used, each with a record; nothing below a study tries again


class VisitOutcome(NamedTuple):
    """What a visit measured."""

    time_s: np.ndarray  # (K,) of one launch
    power_w: np.ndarray  # (M,) of each of visit.metered, NaN where a window tells nothing
    spent_s: float  # of the board's time, without what a session takes to open
    is_usable: bool
    is_capped: bool = False  # the power cap held the passes below the clocks asked for
    is_held: bool = False  # it held a kernel that was metered by itself


Times = Generator[Visit, VisitOutcome, np.ndarray | None]


class Visiting:
    """Asks for visits one after the other, and keeps what they took."""

    def __init__(self, space: Space, known: Knowledge, opening_s: float, seed: int):
        self.session, self.spent_s = 0, opening_s
        self.left_out = np.zeros(len(space.pairs), dtype=bool)  # pairs that no try could be used at
        # pairs at which only all windows together tell what each kernel takes
        self.is_held = np.zeros(len(space.pairs), dtype=bool)
        self._space, self._known, self._opening_s, self._seed = space, known, opening_s, seed
        self._place = 0
        # of visits at locked clocks so far
        self._guessed_s, self._taken_s = guess_s(0), guess_s(0)

    def open(self) -> None:
        """Open another session."""
        self.session, self._place = self.session + 1, 0
        self.spent_s += self._opening_s

    def timed(self, pair: int) -> Times:
        """Visit a pair for times alone, and return the (K,) times of a launch."""
        return self.metered(pair, ())

    def metered(self, pair: int, parts: Sequence[int] | np.ndarray | None = None) -> Times:
        """Visit a pair, meter these parts (None: all), and return the (K,) times of a launch.

        A visit that cannot be used is made again. Where no try could be used, the pair is left out from then on and
        None is returned; raises InputError where that is auto.
        """
        known, space = self._known, self._space
        chosen = list(range(len(known.parts))) if parts is None else [int(part) for part in parts]
        names = tuple(tuple(space.names[kernel] for kernel in known.parts[part]) for part in chosen)
        pass_s, window_s = (PASS_S, WINDOW_S) if pair else (AUTO_PASS_S, AUTO_WINDOW_S)
        for _ in range(TRIES):
            answer = yield Visit(
                self.session, self._place, space.pairs[pair], pass_s, window_s if names else 0.0, names
            )
            self._place += 1
            self.spent_s += answer.spent_s
            if answer.is_usable:
                if pair:
                    self._guessed_s += guess_s(len(names))
                    self._taken_s += answer.spent_s
                powers = {part: watts for part, watts in zip(chosen, answer.power_w.tolist()) if watts == watts}
                known.add(Observation(self.session, pair, answer.time_s, powers))
                self.is_held[pair] |= answer.is_held
                if answer.is_capped and pair:
                    # A lock that is not held is none: the governor gives what power is left to such kernels, so what
                    # they take depends on all others. Nor will it be held at higher clocks.
                    self.left_out |= [is_above(other_pair, space.pairs[pair]) for other_pair in space.pairs]
                return answer.time_s
        if not pair:
            raise InputError(f"study: auto could not be measured in {TRIES} tries; see the records of its visits")
        self.left_out[pair] = True
        return None

    def shuffled(self, pairs: np.ndarray) -> list[int]:
        """Return the pairs in an order that seed and session draw."""
        return np.random.default_rng([self._seed, 2, self.session]).permutation(pairs).tolist()

    def cost_s(self, windows: int) -> float:
        """Return how long a visit of locked clocks takes with so many windows, as visits took so far."""
        return guess_s(windows) * self._taken_s / self._guessed_s

    @property
    def opening_s(self) -> float:
        """Return how long a session takes to open and to time auto."""
        return self._opening_s + AUTO_PASS_S + SETTLE_S


def is_above(pair: Pair, other: Pair) -> bool:
    """Return whether a pair of clocks is another, or higher in any and lower in none."""
    return pair != BASELINE and all(
        clock == other_clock or (isinstance(clock, int) and isinstance(other_clock, int) and clock > other_clock)
        for clock, other_clock in zip(pair, other)
    )


def guess_s(windows: int) -> float:
    """Return how long a visit of locked clocks takes with so many windows, before any was made."""
    return least_s(Pair(1, 1), PASS_S, windows, WINDOW_S)
