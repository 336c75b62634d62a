"""A choice played event by event: the clocks that each moment of an iteration really sees, and what that costs.

The programme's costs are sums over states; here only what runs is summed, stalls included. Choices that no programme
would make can be played too: changes asked for before the last one has landed, where the newer request replaces the one
under way, which never lands (as on a board whose lock is set again before it has taken effect); and changes that would
have to be asked for before the iteration begins, which are asked for as it begins and land late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernel_dvfs.gpu.noise import uniform
from kernel_dvfs_deploy.sequence.changes import Changes, Timing
from kernel_dvfs_deploy.sequence.launches import Sequence

if TYPE_CHECKING:
    from kernel_dvfs_deploy.sequence.launches import Pair

_HAIR_S = 1e-12


class Played(NamedTuple):
    """What an iteration took."""

    time_s: float
    energy_j: float
    asked: float  # changes that were asked for; a mean where several iterations were played
    landed: float  # and those that took effect


def replay(
    sequence: Sequence,
    timing: Timing,
    changes: Changes,
    seed: int | None = None,
    iterations: int = 1,
    latency_s: Callable[[int, int, Pair, Pair], float] | None = None,
) -> Played:
    """Play iterations one after the other, and return means over them.

    seed: of the jitter, or of what is drawn of a distribution; None: every change takes the expected latency.
    latency_s: instead, what each takes: (iteration, number of the change, pair before, pair after) -> s.
    """
    if timing.latency_s == 0:
        return _at_boundaries(sequence, timing, changes)
    run, pairs = _Run(sequence, timing, changes.first), sequence.pairs
    wanted = dict(zip(changes.at, range(len(changes))))
    steps = [(pairs[before], pairs[after]) for before, after in zip((changes.first, *changes.to), changes.to)]
    due_s = _foreseen(sequence, timing, changes)
    asked_s = [max(0.0, due - timing.lead_s(*step)) for due, step in zip(due_s, steps)]
    for iteration in range(iterations):
        latency = [
            _latency_s(timing, seed, number, *step) if latency_s is None else latency_s(iteration, number, *step)
            for number, step in enumerate(steps)
        ]
        if timing.behaviour == "ahead":
            run.ahead = _kept(changes, asked_s, latency, due_s)
        for launch in range(len(sequence)):
            if timing.behaviour == "lag" and launch in wanted:
                number = wanted[launch]
                run.landing = (run.now_s + latency[number], changes.to[number])
            run.launch(launch)
    return Played(
        float(run.now_s) / iterations, float(run.energy_j) / iterations, len(changes), run.landed / iterations
    )


def _kept(
    changes: Changes,
    asked_s: list[float],
    latency: list[float],
    due_s: list[float],
) -> list[tuple[int, int, float]]:
    """Return (launch, pair, deviation s) of the changes that land: one that is asked for before the last one has landed
    replaces it."""
    return [
        (changes.at[number], changes.to[number], asked_s[number] + latency[number] - due_s[number])
        for number in range(len(changes))
        if number + 1 == len(changes) or asked_s[number + 1] >= asked_s[number] + latency[number] - 1e-9
    ]


def expected(sequence: Sequence, timing: Timing, changes: Changes, seeds: int = 1) -> Played:
    """Return the mean over iterations with different jitter, `seeds` in all; one iteration where there is no jitter."""
    if not timing.jitter and timing.spreads is None:
        return replay(sequence, timing, changes)
    played = [replay(sequence, timing, changes, seed) for seed in range(seeds)]
    return Played(*(float(np.mean(values)) for values in zip(*played)))


def _latency_s(timing: Timing, seed: int | None, number: int, before: Pair, after: Pair) -> float:
    if seed is None:
        return timing.lead_s(before, after) if timing.spreads else timing.latency_s
    if timing.spreads:
        drawn = (
            spread.at(uniform(seed, "switch", domain, number))
            for domain, spread in enumerate(timing.spreads)
            if before[domain] != after[domain]
        )
        return max(drawn)
    return timing.latency_s * (1 + timing.jitter * (2 * uniform(seed, "switch jitter", number) - 1))


def _foreseen(sequence: Sequence, timing: Timing, changes: Changes) -> list[float]:
    """Return when the launches come to each change, s, if every one lands at its boundary."""
    due_s: list[float] = []
    now, pair, place = 0.0, changes.first, 0
    for at, to in zip(changes.at, changes.to):
        now += sequence.until_s[at, pair] - sequence.until_s[place, pair]
        due_s.append(float(now))
        now += timing.stall_s(sequence.pairs[pair], sequence.pairs[to])
        place, pair = at, to
    return due_s


def _at_boundaries(sequence: Sequence, timing: Timing, changes: Changes) -> Played:
    time, energy, pair, place = 0.0, 0.0, changes.first, 0
    ends: list[tuple[int, int | None]] = [*zip(changes.at, changes.to), (len(sequence), None)]
    for at, to in ends:
        time += sequence.until_s[at, pair] - sequence.until_s[place, pair]
        energy += sequence.until_j[at, pair] - sequence.until_j[place, pair]
        if to is not None:
            stall_s = timing.stall_s(sequence.pairs[pair], sequence.pairs[to])
            time, energy = time + stall_s, energy + stall_s * sequence.stall_w[pair]
            place, pair = at, to
    return Played(float(time), float(energy), len(changes), len(changes))


class _Run:
    """The launches as they run.

    Changes that are asked for ahead land before a launch, early or late by their deviation. Whoever asks sees how far
    the launches have come, so deviations do not add up.
    """

    def __init__(self, sequence: Sequence, timing: Timing, pair: int) -> None:
        self.sequence, self.timing, self.pair = sequence, timing, pair
        self.now_s = self.energy_j = 0.0
        self.landing: tuple[float, int] | None = None  # (when s, pair) of the change under way
        self.ahead: list[tuple[int, int, float]] = []  # (launch, pair, deviation s) of changes still to be asked for
        self.landed = 0

    def launch(self, number: int) -> None:
        """Run a launch through all changes that land in it."""
        left = 1.0
        while left > 0:
            self._foresee(number, left)
            time_s = self.sequence.launch_time_s[number, self.pair]
            power_w = self.sequence.launch_energy_j[number, self.pair] / time_s
            # a landing at a boundary belongs to the launch that begins there, whatever sums of floats say
            if self.landing is None or self.landing[0] >= self.now_s + left * time_s - _HAIR_S:
                self.now_s += left * time_s
                self.energy_j += left * time_s * power_w
                return
            until_s, landed = self.landing
            ran_s = max(0.0, until_s - self.now_s)
            self.now_s += ran_s
            self.energy_j += ran_s * power_w
            left -= ran_s / time_s
            stall_s = self.timing.stall_s(self.sequence.pairs[self.pair], self.sequence.pairs[landed])
            self.now_s += stall_s
            self.energy_j += stall_s * self.sequence.stall_w[self.pair]
            self.pair, self.landing = landed, None
            self.landed += 1

    def _foresee(self, number: int, left: float) -> None:
        """When the next change asked for ahead lands, by what is left until its boundary at the clocks in force."""
        if self.landing or not self.ahead:
            return
        at, pair, deviation_s = self.ahead[0]
        until = self.sequence.until_s[:, self.pair]
        boundary_s = self.now_s + until[at] - until[number] - (1 - left) * (until[number + 1] - until[number])
        self.landing = (boundary_s + deviation_s, pair)
        self.ahead.pop(0)
