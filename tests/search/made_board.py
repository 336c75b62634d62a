"""A board of a few kernels whose truth is a formula, and what visits of it measure: for studies by clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernel_dvfs.search.by_clock import Space, StudyOptions, VisitOutcome, answered
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair

PAIRS = (
    BASELINE,
    *(Pair(core, mem) for mem in (3000, 2000) for core in (1800, 1700, 1600, 1500, 1400, 1300, 1000, 900)),
)
NAMES = ("gemm_a", "gemm_b", "gemm_c", "gelu", "norm", "bias", "reduce", "embed")
LAUNCHES = np.array([24.0, 24.0, 12.0, 24.0, 24.0, 48.0, 6.0, 1.0])
# s of a launch that core clock, memory clock and neither decide
COMPUTE = 1e-4 * np.array([9.0, 9.0, 14.0, 1.0, 0.6, 0.05, 0.10, 0.03])
MEMORY = 1e-4 * np.array([2.0, 2.0, 5.0, 5.0, 3.0, 0.08, 0.02, 0.05])
FIXED = 1e-4 * np.array([0.1, 0.1, 0.2, 0.3, 0.2, 0.01, 0.01, 0.02])
GROUPS = ("gemm", "gemm", None, None, None, None, None, None)
PASSES = {
    "forward": dict(zip(NAMES, (24.0, 0.0, 12.0, 24.0, 8.0, 0.0, 0.0, 1.0))),
    "backward": dict(zip(NAMES, (0.0, 24.0, 0.0, 0.0, 16.0, 48.0, 6.0, 0.0))),
}
SPACE = Space(NAMES, LAUNCHES, GROUPS, PASSES, PAIRS)
OPTIONS = StudyOptions((0.0, 1.5), 25.0, 0.02, 10.0, "tied", 5, 17.0)


def truth() -> tuple[np.ndarray, np.ndarray]:
    """(K, C) time and energy of a launch. Auto runs a little below the highest clock and draws a little more."""
    core = np.array([0.97 if core == AUTO else core / 1800 for core, _ in PAIRS])
    mem = np.array([1.0 if mem == AUTO else mem / 3000 for _, mem in PAIRS])
    time = np.hypot(COMPUTE[:, None] / core, MEMORY[:, None] / mem) + FIXED[:, None]
    volts = np.maximum(0.62, core)
    busy = 300 * volts**2 * COMPUTE[:, None] + 90 * mem * MEMORY[:, None]
    watts = 60 + 40 * mem + 90 * volts**2 * core + busy / time
    watts[:, 0] *= 1.03
    return time, time * watts


@dataclass
class Rig:
    """Answers visits of the board. unusable: {(session, place)} of visits that cannot be used. capped_mhz: the core
    clock from which on the power cap holds the passes."""

    time_sd: float = 0.002
    power_sd: float = 0.006
    session_sd: float = 0.001
    locked_power: float = 1.0
    capped_mhz: float = float("inf")
    unusable: set[tuple[int, int]] = field(default_factory=set)
    asked: list = field(default_factory=list)
    answers: list = field(default_factory=list)

    def answer(self, visit):
        time, energy = truth()
        place = PAIRS.index(visit.pair)
        of_session, draw = (np.random.default_rng([1, visit.session, place, *more]) for more in ((), (visit.place, 7)))
        sd = self.session_sd * of_session.standard_normal(len(NAMES)) + self.time_sd * draw.standard_normal(len(NAMES))
        powers = []
        for names in visit.metered:
            rows = [NAMES.index(name) for name in names]
            watts = energy[rows, place].sum() / time[rows, place].sum() * (self.locked_power if place else 1.0)
            powers.append(watts * np.exp(self.power_sd * draw.standard_normal()))
        spent_s = 0.7 + visit.pass_s + len(visit.metered) * (0.3 + visit.window_s)
        is_usable = (visit.session, visit.place) not in self.unusable
        found = VisitOutcome(
            time[:, place] * np.exp(sd),
            np.array(powers),
            spent_s,
            is_usable,
            place > 0 and visit.pair[0] >= self.capped_mhz,
        )
        self.asked.append(visit)
        self.answers.append(found)
        return found


def studied(rig, space=SPACE, options=OPTIONS):
    """The result of a study that the rig answers."""
    return answered(space, options, rig.answer)


def change(pairs):
    """True change of time and energy, percent, of pairs {kernel: pair}."""
    tables = [LAUNCHES[:, None] * table for table in truth()]
    chosen = [PAIRS.index(pairs[name]) for name in NAMES]
    return [100 * (table[np.arange(len(NAMES)), chosen].sum() / table[:, 0].sum() - 1) for table in tables]
