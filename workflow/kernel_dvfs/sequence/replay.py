"""A choice played event by event: the clocks that each moment of an iteration really sees, and what that costs.

The programme's costs are sums over states; here nothing is summed but what runs. It also plays what no programme would
choose: changes asked for before the last one is through. The newer request then replaces the one under way, which never
lands (as on a board whose lock is set anew before it has taken effect).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernel_dvfs.gpu.draws import uniform
from kernel_dvfs.sequence.changes import Changes
from kernel_dvfs.sequence.launches import Sequence
from kernel_dvfs.sequence.timing import Timing

_HAIR_S = 1e-12


class Played(NamedTuple):
    """time_s, energy_j: of an iteration. asked, landed: changes asked for, and those that came about."""

    time_s: float
    energy_j: float
    asked: int
    landed: int


def replay(sequence: Sequence, timing: Timing, changes: Changes, seed: int | None = None) -> Played:
    """One iteration as it runs. seed: of the jitter; None: every change takes the expected latency."""
    if timing.behaviour == "wait" or timing.is_free:
        return _with_stalls(sequence, timing, changes, seed)
    latency = [_latency_s(timing, seed, number) for number in range(len(changes))]
    run = _Run(sequence, changes.first)
    if timing.behaviour == "ahead":
        # what is asked for before the last one is through replaces it
        landings = _foreseen(sequence, changes)
        kept = [
            number
            for number, at_s in enumerate(landings)
            if number + 1 == len(landings)
            or landings[number + 1] - timing.latency_s >= at_s + latency[number] - timing.latency_s - 1e-9
        ]
        run.ahead = [(changes.at[number], changes.to[number], latency[number] - timing.latency_s) for number in kept]
        for launch in range(len(sequence)):
            run.launch(launch)
    else:
        wanted = dict(zip(changes.at, range(len(changes))))
        for launch in range(len(sequence)):
            number = wanted.get(launch)
            if number is not None:
                run.landing = (run.now_s + latency[number], changes.to[number])
            run.launch(launch)
    return Played(float(run.now_s), float(run.energy_j), len(changes), run.landed)


def expected(sequence: Sequence, timing: Timing, changes: Changes, seeds: int = 1) -> Played:
    """The mean over several jitters, without jitter of one."""
    if not timing.jitter or timing.behaviour == "wait":
        return replay(sequence, timing, changes)
    played = [replay(sequence, timing, changes, seed) for seed in range(seeds)]
    return Played(*(float(np.mean(values)) for values in zip(*played)))


def _latency_s(timing: Timing, seed: int | None, number: int) -> float:
    if seed is None:
        return timing.latency_s
    return timing.latency_s * (1 + timing.jitter * (2 * uniform(seed, "switch jitter", number) - 1))


def _foreseen(sequence: Sequence, changes: Changes) -> list:
    """When each launch with a change begins if every change lands at its boundary, s."""
    found, now, pair, place = [], 0.0, changes.first, 0
    for at, to in zip(changes.at, changes.to):
        now += sequence.until_s[at, pair] - sequence.until_s[place, pair]
        found.append(float(now))
        place, pair = at, to
    return found


def _with_stalls(sequence: Sequence, timing: Timing, changes: Changes, seed) -> Played:
    time, energy, pair, place = 0.0, 0.0, changes.first, 0
    for number, (at, to) in enumerate([*zip(changes.at, changes.to), (len(sequence), None)]):
        time += sequence.until_s[at, pair] - sequence.until_s[place, pair]
        energy += sequence.until_j[at, pair] - sequence.until_j[place, pair]
        if to is not None:
            stall_s = _latency_s(timing, seed, number)
            time, energy = time + stall_s, energy + stall_s * sequence.stall_w[pair]
        place, pair = at, to
    return Played(float(time), float(energy), len(changes), len(changes))


class _Run:
    """The launches as they run. landing: (when, pair) of the change under way, or None. ahead: (launch, pair, deviation
    s) of those that are asked for in time to land before a launch; whoever asks sees how far the launches have come, so
    deviations do not add up."""

    def __init__(self, sequence: Sequence, pair: int):
        self.sequence, self.pair = sequence, pair
        self.now_s = self.energy_j = 0.0
        self.landing, self.ahead = None, []
        self.landed = 0

    def launch(self, number: int) -> None:
        """Run a launch through all changes that land in it."""
        left = 1.0
        while left > 0:
            self._foresee(number, left)
            time_s = self.sequence.launch_time_s[number, self.pair]
            power_w = self.sequence.launch_energy_j[number, self.pair] / time_s
            until = self.landing[0] if self.landing else np.inf
            # a landing at a boundary belongs to the launch that begins there, whatever sums of floats say
            if until >= self.now_s + left * time_s - _HAIR_S:
                self.now_s += left * time_s
                self.energy_j += left * time_s * power_w
                return
            ran_s = max(0.0, until - self.now_s)
            self.now_s += ran_s
            self.energy_j += ran_s * power_w
            left -= ran_s / time_s
            self.pair, self.landing = self.landing[1], None
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
