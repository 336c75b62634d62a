"""Does `kernel-dvfs tune` find the clocks of a running training? Beside a power limit found Zeus's way, and a grid.

A training on a simulated board, in virtual time: its steps are a mix of dense products and memory-bound kernels that
each seed draws; step times and power scatter, drift, and in the middle the sequences become half as long again. Three
ways have the same minutes on the same training:

* tune: the procedure of kernel_dvfs.deploy.tuning.
* power limit: what Zeus's GlobalPowerLimitOptimizer does: limits in steps of 25 W from the highest, one after the
  other, a window each, and the one of least energy whose mean step keeps the limit against the highest.
* grid: clock pairs, coarse, one after the other with the same length of time each, auto first; best as above.

Printed per scatter and limit: how far from the least energy that any pair or power limit reaches within the limit
(points of auto's energy: mean, and share of seeds within 0.3), and how often the way ends over the limit, by the
simulated truth. All of it is simulated.

    python experiments/searches/tuning.py --seeds 50 -o tuning.json
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from typing import Any, NamedTuple

from kernel_dvfs.deploy.tuning import Block, Candidates, Procedure
from kernel_dvfs.files import write_json
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import Work, parameters

BLOCK_S, SETTLE_S = 5.0, 0.5
_STEP_S = 0.4  # at auto
_OVER_TOLERANCE = 1e-4  # a share of time that no measurement could tell


class Setting(NamedTuple):
    """What holds the board: a clock pair, or a power limit in W."""

    pair: Pair
    cap_w: float | None = None


class Training:
    """A training in virtual time. scatter: sd of a step's time, as a share; minutes: when tuning ends."""

    def __init__(self, spec: dict[str, Any], seed: int, scatter: float, minutes: float) -> None:
        self.random = random.Random(f"{seed} {scatter}")
        self._spec, self._scatter, self._end_s = spec, scatter, 60 * minutes
        self.now_s = 0.0
        memory_share = self.random.uniform(0.1, 0.5)
        unit = [Work("gemm", 1e12, 0, 0, 1e9), Work("residual", 0, 1e8, 0, 4e9)]
        kernels = [parameters(spec, work) for work in unit]
        alone = [settle(spec, [(kernel, 1)], BASELINE, 60).time_s for kernel in kernels]
        shares = 1 - memory_share, memory_share
        self._load = [
            (kernel, max(1, round(share * _STEP_S / one_s))) for kernel, share, one_s in zip(kernels, shares, alone)
        ]
        self._drift = self.random.uniform(-0.03, 0.03)  # of a step's time, over the minutes
        self.auto_core_mhz = settle(spec, self._load, BASELINE, 60).core_mhz
        self._truths: dict[Setting, tuple[float, float]] = {}

    def truth(self, setting: Setting) -> tuple[float, float]:
        """(s, J) of a step, without scatter and drift."""
        if setting not in self._truths:
            spec = self._spec
            if setting.cap_w is not None:
                spec = spec | {"governor": spec["governor"] | {"cap_w": setting.cap_w}}
            state = settle(spec, self._load, setting.pair, 60)
            self._truths[setting] = state.time_s, state.time_s * state.power_w
        return self._truths[setting]

    def change(self, setting: Setting) -> tuple[float, float]:
        """(time, energy) against auto, as shares, in truth."""
        (time_s, energy_j), (auto_s, auto_j) = self.truth(setting), self.truth(Setting(BASELINE))
        return time_s / auto_s - 1, energy_j / auto_j - 1

    def block(self, setting: Setting, block_s: float = BLOCK_S) -> Block:
        """Train for about block_s at a setting; steps before the clocks have settled are not counted."""
        own_s, own_j = self.truth(setting)
        self.now_s += SETTLE_S
        longer = 1 + self._drift * self.now_s / self._end_s
        if self.now_s > self._end_s / 2:
            longer *= 1.5
        steps = max(5, round(block_s / (own_s * longer)))
        factor = sum(max(0.2, self.random.gauss(1, self._scatter)) for _ in range(steps)) / steps
        time_s = steps * own_s * longer * factor
        # what makes a step longer takes energy, too; the power has a scatter of its own
        energy_j = time_s * own_j / own_s * self.random.gauss(1, 0.003)
        self.now_s += time_s
        return Block(steps, time_s, energy_j)


def tuned(training: Training, candidates: Candidates, slack: float, seed: int, minutes: float) -> Setting:
    """What the product's own procedure keeps."""
    procedure = Procedure(candidates, slack, seed)
    while procedure.phase != "keep":
        block = training.block(Setting(procedure.pair))
        procedure.add(block, training.now_s / (60 * minutes))
    return Setting(procedure.kept)


def one_after_the_other(training: Training, settings: list[Setting], slack: float, minutes: float) -> Setting:
    """A window each, the first one the baseline; the least energy whose mean step keeps the limit."""
    window_s = 60 * minutes / len(settings) - SETTLE_S
    seen = [training.block(setting, window_s) for setting in settings]
    limit_s = (1 + slack / 100) * seen[0].time_s / seen[0].steps
    kept = [place for place, block in enumerate(seen) if block.time_s / block.steps <= limit_s] or [0]
    return settings[min(kept, key=lambda place: seen[place].energy_j / seen[place].steps)]


def study(gpu: str, scatter: float, slack: float, seeds: int, minutes: float) -> dict[str, Any]:
    """A row a way: regret in points, share within 0.3, share over the limit; of so many seeds."""
    spec = gpu_spec.resolve(gpu)
    cap_w = spec["governor"]["cap_w"]
    limits = [Setting(BASELINE, cap_w - 25 * n) for n in range(int(cap_w / 2 / 25) + 1)]
    ways: dict[str, list[tuple[float, float]]] = {"tune": [], "power limit": [], "grid": []}
    for seed in range(seeds):
        truth = Training(spec, seed, scatter, minutes)
        candidates = Candidates(spec["clocks"], spec, truth.auto_core_mhz)
        coarse = candidates.pairs[:: math.ceil(len(candidates.pairs) / 24)]
        grid = [Setting(BASELINE), *(Setting(pair) for pair in coarse)]
        everything = [Setting(BASELINE), *limits, *(Setting(pair) for pair in candidates.pairs)]
        best = min(energy for time, energy in map(truth.change, everything) if time <= slack / 100 + _OVER_TOLERANCE)
        made = {
            "tune": tuned(Training(spec, seed, scatter, minutes), candidates, slack, seed, minutes),
            "power limit": one_after_the_other(Training(spec, seed, scatter, minutes), limits, slack, minutes),
            "grid": one_after_the_other(Training(spec, seed, scatter, minutes), grid, slack, minutes),
        }
        for way, setting in made.items():
            time, energy = truth.change(setting)
            ways[way].append((100 * (energy - best), 100 * time - slack))
    row: dict[str, Any] = {"gpu": gpu, "scatter_percent": 100 * scatter, "slack_percent": slack, "seeds": seeds}
    for way, found in ways.items():
        row[way] = {
            "regret_points": statistics.mean(regret for regret, _ in found),
            "within_0.3_points": sum(r <= 0.3 and o <= 100 * _OVER_TOLERANCE for r, o in found) / seeds,
            "over_limit": sum(over > 100 * _OVER_TOLERANCE for _, over in found) / seeds,
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200_sxm")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("-o", "--output", metavar="T.json")
    options = parser.parse_args()
    rows = []
    for scatter in (0.01, 0.10):
        for slack in (0.0, 1.0, 3.0):
            rows.append(row := study(options.gpu, scatter, slack, options.seeds, options.minutes))
            told = "; ".join(
                f"{way}: {row[way]['regret_points']:+.2f} points from the best pair, within 0.3 in "
                f"{100 * row[way]['within_0.3_points']:.0f} %, over in {100 * row[way]['over_limit']:.0f} %"
                for way in ("tune", "power limit", "grid")
            )
            print(f"simulated {options.gpu}, scatter {100 * scatter:g} %, limit {slack:g} %: {told}", flush=True)
    if options.output:
        write_json(options.output, {"rows": rows, "minutes": options.minutes})


if __name__ == "__main__":
    main()
