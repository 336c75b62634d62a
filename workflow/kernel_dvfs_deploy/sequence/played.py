"""Iterations played on a simulated GPU, in blocks: auto, each choice, auto, with noise and latencies of their own.

The board takes what it takes in this session, not what the profile says, and its changes land when its latencies let
them: of each change drawn from the distribution, half of whose variance belongs to the clock that is asked for. A late
one lands late, and one that the next request overtakes never lands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as List
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernel_dvfs.gpu.noise import latency_s
from kernel_dvfs.measurement.simulated_iteration import SimulatedVisitor
from kernel_dvfs.measurement.visit import AUTO_PASS_S, Visit
from kernel_dvfs_clocks.clocks import BASELINE, Pair, clock_of
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.sequence.replay import replay

if TYPE_CHECKING:
    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs_deploy.sequence import launches
    from kernel_dvfs_deploy.sequence.changes import Changes, Timing
    from kernel_dvfs_deploy.sequence.launches import Sequence

# of one play: what is under way at the end of one lands in the next
ITERATIONS = 2


class BlockChange(NamedTuple):
    """What a choice changes against auto in one block, percent."""

    time: float
    energy: float


class SimulatedPlayer:
    """A simulated GPU that plays iterations. exact: without noise, so that only latencies are drawn.

    Raises InputError for a timing without distributions.
    """

    def __init__(self, setup: Setup, sequence: Sequence, timing: Timing, exact: bool = False) -> None:
        if timing.spreads is None:
            raise InputError("played: a simulated GPU draws latencies from distributions; give one for each clock")
        self._visitor = SimulatedVisitor(setup, exact)
        self._sequence, self._timing = sequence, timing
        self._seed: int = setup.measurement["seed"]
        self._switching = {
            domain: {"median_s": spread.median_s, "p99_s": spread.p99_s}
            for domain, spread in zip(("core", "mem"), timing.spreads)
        }

    def block(self, session: int, choices: List[Changes]) -> list[BlockChange]:
        """Measure each choice in one session, and return what it changes."""
        first, *plays, last = range(len(choices) + 2)
        auto = [self._auto(session, first)]
        chosen = [self._play(session, place, changes) for place, changes in zip(plays, choices)]
        auto.append(self._auto(session, last))
        time_s, energy_j = (math.fsum(values) / len(auto) for values in zip(*auto))
        return [
            BlockChange(100 * (chosen_s / time_s - 1), 100 * (chosen_j / energy_j - 1)) for chosen_s, chosen_j in chosen
        ]

    def _auto(self, session: int, place: int) -> tuple[float, float]:
        passes = self._visitor.visit(Visit(session, place, BASELINE, AUTO_PASS_S, 0.0, ()))["passes"]
        return 1e-6 * passes["iteration_us"], 1e-9 * passes["iteration_us"] * passes["power_mw"]

    def _play(self, session: int, place: int, changes: Changes) -> tuple[float, float]:
        """Return (s, J) of an iteration."""
        sequence = self._sequence
        time_s, energy_j = sequence.time_s.copy(), sequence.energy_j.copy()
        row = dict(zip(sequence.names, sequence.kernel.tolist()))
        visit = Visit(session, place, BASELINE, ITERATIONS * sequence.baseline_time_s, 0.0, ())
        for pair in {changes.first, *changes.to}:
            taken = self._visitor.launches(visit._replace(pair=_locked(sequence.pairs[pair])))
            for name, kernel in row.items():
                time_s[kernel, pair], energy_j[kernel, pair] = taken[name]
        # where no power of a stall was given, it is the least of any kernel at the pair, of this session too
        least_w = (sequence.energy_j / sequence.time_s).min(axis=0)
        stall_w = (energy_j / time_s).min(axis=0) if np.array_equal(sequence.stall_w, least_w) else sequence.stall_w
        fresh = replace(sequence, time_s=time_s, energy_j=energy_j, stall_w=stall_w)

        def drawn_s(iteration: int, number: int, before: launches.Pair, after: launches.Pair) -> float:
            key = ("played", session, place, iteration, number)
            return latency_s(self._switching, self._seed, _locked(before), _locked(after), *key)

        played = replay(fresh, self._timing, changes, iterations=ITERATIONS, latency_s=drawn_s)
        power_w = self._visitor.read(visit, played.energy_j / played.time_s, ITERATIONS * played.time_s)
        return played.time_s, power_w * played.time_s


def _locked(pair: launches.Pair) -> Pair:
    """Return a pair as clocks are asked for."""
    return Pair(*map(clock_of, pair))
