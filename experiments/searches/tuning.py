"""Does `kernel-dvfs tune` find the clocks of a running training? Beside a power limit found Zeus's way, and a grid.

A training on a simulated board, in virtual time: its steps are a mix of dense products and memory-bound kernels that
each seed draws; step times and power scatter, drift, and in the middle the sequences become half as long again. The
board's energy counter moves every 100 ms. Three ways have the same minutes on the same training:

* tune: kernel_dvfs_deploy.tune.TuningSession as it runs beside a real training, in virtual time: it sees signs of steps
  and the counter, and asks for clocks.
* power limit: what Zeus's GlobalPowerLimitOptimizer does: limits in steps of 25 W from the highest, one after the
  other, a window each, and the one of least energy whose mean step keeps the limit against the highest.
* grid: clock pairs, coarse, one after the other with the same length of time each, auto first; best as above.

Printed per scatter and limit: how far from the least energy that any pair or power limit reaches within the limit
(points of auto's energy: mean, and share of seeds within 0.3), and how often the way ends over the limit, by the
simulated truth. The bound is what nobody can beat who shows a pair by rounds of blocks with 90 %: one who knows every
truth, and spends all minutes on showing the one pair with the highest saving times chance to pass. All of it is
simulated.

    python experiments/searches/tuning.py --seeds 50 -o tuning.json

With --third the table says, instead, what a power limit could add to a clock pair at best: by the simulated truth, the
least energy of all pairs, of all power limits alone, and of each pair under each power limit that binds it, in steps of
5 W. No way that has to measure can gain more. Below each line, what tune's own procedure keeps within the minutes,
from clock pairs alone and from clock pairs and power limits. With --by-model: what tune would keep if it did not show
its pair in fresh rounds, and believed the physics and smoothness that lead its race instead.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices

import numpy as np

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import LaunchWork, parameters
from kernel_dvfs.measurement.real.watch import BoardSample, BoardState, Watch
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair, parse
from kernel_dvfs_clocks.files import write_json
from kernel_dvfs_deploy.guarded_control import GuardedControl
from kernel_dvfs_deploy.tune import Ended, Steps, TuningSession
from kernel_dvfs_deploy.tuning import OVER, Candidates, Procedure, TrialBlock

BLOCK_S, LOST_S = 5.0, 0.7  # of a block; to settle, and to the next move of the counter
_STEP_S = 0.4  # at auto
_COUNTER_S = 0.1  # from move to move
_POWER_SD = 0.01  # of a step
_OVER_TOLERANCE = 1e-4  # a share of time that no measurement could tell


class Setting(NamedTuple):
    """What holds the board: a clock pair, or a power limit in W."""

    pair: Pair
    cap_w: float | None = None


class Load:
    """What a seed's training is, in truth. memory_share: of a step, memory-bound; None: the seed draws it."""

    def __init__(self, spec: dict[str, Any], seed: int, memory_share: float | None = None) -> None:
        draw = random.Random(seed)
        self.spec, self.seed = spec, seed
        drawn = draw.uniform(0.1, 0.5)
        memory_share = drawn if memory_share is None else memory_share
        unit = [LaunchWork("gemm", 1e12, 0, 0, 1e9), LaunchWork("residual", 0, 1e8, 0, 4e9)]
        kernels = [parameters(spec, work) for work in unit]
        alone = [settle(spec, [(kernel, 1)], BASELINE, 60).time_s for kernel in kernels]
        shares = 1 - memory_share, memory_share
        self._load = [
            (kernel, max(1, round(share * _STEP_S / one_s))) for kernel, share, one_s in zip(kernels, shares, alone)
        ]
        self.drift = draw.uniform(-0.03, 0.03)  # of a step's time, over the minutes
        self.auto_core_mhz = settle(spec, self._load, BASELINE, 60).core_mhz
        self._truths: dict[Setting, tuple[float, float]] = {}

    def truth(self, setting: Setting) -> tuple[float, float]:
        """(s, W) of a step, without scatter and drift."""
        if setting not in self._truths:
            spec = self.spec
            if setting.cap_w is not None:
                spec = spec | {"governor": spec["governor"] | {"cap_w": setting.cap_w}}
            state = settle(spec, self._load, setting.pair, 60)
            self._truths[setting] = state.time_s, state.power_w
        return self._truths[setting]

    def change(self, setting: Setting) -> tuple[float, float]:
        """(time, energy) against auto, as shares, in truth."""
        (time_s, power_w), (auto_s, auto_w) = self.truth(setting), self.truth(Setting(BASELINE))
        return time_s / auto_s - 1, time_s * power_w / (auto_s * auto_w) - 1


class Training(Steps):
    """A training in virtual time, which ends soon after the minutes. scatter: sd of a step's time, as a share. every:
    so many steps are told at once.

    It is the steps that a TuningSession follows, and by `control` the GPU that it asks.
    """

    def __init__(self, load: Load, scatter: float, minutes: float, every: int = 1) -> None:
        super().__init__()
        self._every = every
        self._random = random.Random(f"{load.seed} {scatter}")
        self._load, self._scatter, self._minutes_s = load, scatter, 60 * minutes
        self._now_s, self._end_s = 0.0, 60 * minutes + 600
        self.setting = Setting(BASELINE)
        self._times_s, self._energies_j = deque([0.0], 64), deque([0.0], 64)  # at the ends of steps
        self._signs = deque([(0, 0.0)], 64)  # (steps so far, s) that were told

    def control(self) -> GuardedControl:
        """The GPU, as a TuningSession asks it."""
        about = {"name": self._load.spec["name"], "clocks": self._load.spec["clocks"]}
        made = SimpleNamespace(about=about, reads_only=False, pair=BASELINE, board=self, period_s=_COUNTER_S)

        def ask(pair: Pair) -> None:
            made.pair = Pair(*pair)
            self.setting = Setting(made.pair)

        made.ask, made.to_auto = ask, lambda: ask(BASELINE)
        made.seen = lambda: (self._load.auto_core_mhz, 0)

        def look() -> BoardSample:
            asked = (self._load.auto_core_mhz if clock == AUTO else clock for clock in made.pair)
            return BoardSample(0, *map(int, asked), None, self.energy_mj())

        made.watch = lambda now_s: Watch(look, lambda: BoardState(None, False, None, 50.0, None, None), now_s)
        return cast(GuardedControl, made)

    def energy_mj(self) -> int:
        """The counter."""
        at_s = math.floor(self._now_s / _COUNTER_S) * _COUNTER_S
        while self._times_s[-1] <= at_s:
            self._train()
        after = bisect_right(self._times_s, at_s)
        (begin_s, end_s), (begin_j, end_j) = (
            (self._times_s[after - 1], self._times_s[after]),
            (self._energies_j[after - 1], self._energies_j[after]),
        )
        return round(1000 * (begin_j + (at_s - begin_s) / (end_s - begin_s) * (end_j - begin_j)))

    def now_s(self) -> float:
        return self._now_s

    def wait(self, seconds: float) -> None:
        """To the counter's next move: looks before it would see nothing."""
        move_s = (math.floor(self._now_s / _COUNTER_S) + 1) * _COUNTER_S
        self._now_s = move_s + seconds * self._random.random()

    def since(self, begin_s: float, least: int, lasting_s: float, patience_s: float) -> list[tuple[int, float]]:
        found = [sign for sign in self._signs if sign[1] >= begin_s]
        while not found or found[-1][0] - found[0][0] < least or found[-1][1] - found[0][1] < lasting_s:
            self._train()
            if self._signs[-1][1] >= begin_s and self._signs[-1] not in found[-1:]:
                found.append(self._signs[-1])
            if self._times_s[-1] > self._end_s:
                raise Ended
        self._now_s = max(self._now_s, found[-1][1])
        return found

    def sleep(self, seconds: float) -> None:
        raise Ended  # what is kept by now is the answer

    def window(self, setting: Setting, seconds: float) -> TrialBlock:
        """Train for about so long at a setting; steps before the clocks have settled are not counted."""
        self.setting = setting
        begin_s = self._times_s[-1] + LOST_S
        while self._times_s[-1] < begin_s:
            self._train()
        first = self._count, self._times_s[-1], self._energies_j[-1]
        while self._times_s[-1] < first[1] + seconds:
            self._train()
        return TrialBlock(self._count - first[0], self._times_s[-1] - first[1], self._energies_j[-1] - first[2])

    def _train(self) -> None:
        """A step."""
        own_s, own_w = self._load.truth(self.setting)
        longer = 1 + self._load.drift * self._times_s[-1] / self._minutes_s
        if self._times_s[-1] > self._minutes_s / 2:
            longer *= 1.5
        # what makes a step longer takes energy, too; the power has a scatter of its own
        time_s = own_s * longer * max(0.2, self._random.gauss(1, self._scatter))
        self._done(time_s, time_s * own_w * self._random.gauss(1, _POWER_SD))

    def _done(self, time_s: float, energy_j: float) -> None:
        self._times_s.append(self._times_s[-1] + time_s)
        self._energies_j.append(self._energies_j[-1] + energy_j)
        self._count += 1
        if self._count % self._every == 0:
            self._signs.append((self._count, self._times_s[-1]))


def tuned(training: Training, slack: float, seed: int, minutes: float, say: Callable[[str], object]) -> Setting:
    """What the product keeps. say: called with each of its lines."""
    session = TuningSession([training.control()], training, slack, minutes, say, BLOCK_S, seed=seed)
    session.run()
    say(session.last_line())
    found = session.summary()
    assert not found["why"], found["why"]
    return Setting(parse(found["pair"].replace("-", ",")))


def one_after_the_other(training: Training, settings: list[Setting], slack: float, minutes: float) -> Setting:
    """A window each, the first one the baseline; the least energy whose mean step keeps the limit."""
    window_s = 60 * minutes / len(settings) - LOST_S
    seen = [training.window(setting, window_s) for setting in settings]
    limit_s = (1 + slack / 100) * seen[0].time_s / seen[0].steps
    kept = [place for place, block in enumerate(seen) if block.time_s / block.steps <= limit_s] or [0]
    return settings[min(kept, key=lambda place: seen[place].energy_j / seen[place].steps)]


def bound(load: Load, pairs: list[Pair], best: float, scatter: float, slack: float, minutes: float) -> dict[str, float]:
    """What one who knows every truth can show: {regret_points, within_0.3_points}."""
    normal = statistics.NormalDist()
    rounds = 60 * minutes / (4 * (BLOCK_S + LOST_S))
    se = scatter / math.sqrt(BLOCK_S / _STEP_S * rounds)
    found = (0.0, -best, best >= -0.003)  # auto: chance x energy, regret
    for pair in pairs:
        time, energy = load.change(Setting(pair))
        if time > slack / 100 + _OVER_TOLERANCE:
            continue
        passes = normal.cdf((slack / 100 - time) / se - normal.inv_cdf(1 - OVER))
        found = min(found, (passes * energy, passes * energy - best, passes * (energy - best <= 0.003)))
    return {"regret_points": 100 * found[1], "within_0.3_points": found[2]}


WAYS = "tune", "power limit", "grid"


def study(
    loads: list[Load], scatter: float, slack: float, minutes: float, every: int, say: Callable[[str], object]
) -> dict[str, Any]:
    """A row a way: regret in points, share within 0.3, share over the limit; of all loads. every: as of Training; only
    tune is told of steps, the others see each."""
    spec = loads[0].spec
    cap_w = spec["governor"]["cap_w"]
    limits = [Setting(BASELINE, cap_w - 25 * n) for n in range(int(cap_w / 2 / 25) + 1)]
    ways: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    bounds = []
    for load in loads:
        candidates = Candidates(spec["clocks"], spec, load.auto_core_mhz)
        coarse = candidates.pairs[:: math.ceil(len(candidates.pairs) / 24)]
        grid = [Setting(BASELINE), *(Setting(pair) for pair in coarse)]
        everything = [Setting(BASELINE), *limits, *(Setting(pair) for pair in candidates.pairs)]
        best = min(energy for time, energy in map(load.change, everything) if time <= slack / 100 + _OVER_TOLERANCE)
        tries: dict[str, Callable[[Training], Setting]] = {
            "tune": lambda training, load=load: tuned(training, slack, load.seed, minutes, say),
            "power limit": lambda training: one_after_the_other(training, limits, slack, minutes),
            "grid": lambda training, grid=grid: one_after_the_other(training, grid, slack, minutes),
        }
        for way, run in tries.items():
            time, energy = load.change(run(Training(load, scatter, minutes, every if way == "tune" else 1)))
            ways[way].append((100 * (energy - best), 100 * time - slack))
        bounds.append(bound(load, candidates.pairs, best, scatter, slack, minutes))
    row: dict[str, Any] = {"scatter_percent": 100 * scatter, "slack_percent": slack, "seeds": len(loads)}
    for way, found in ways.items():
        row[way] = {
            "regret_points": statistics.mean(regret for regret, _ in found),
            "within_0.3_points": sum(r <= 0.3 and o <= 100 * _OVER_TOLERANCE for r, o in found) / len(loads),
            "over_limit": sum(over > 100 * _OVER_TOLERANCE for _, over in found) / len(loads),
        }
    row["bound"] = {key: statistics.mean(each[key] for each in bounds) for key in bounds[0]}
    return row


_LIMIT_STEP_W = 5
_LIMIT_SD = 0.005  # of time, and of energy, that the clock which stands for a power limit leaves open


class WithLimits:
    """What a procedure chooses from: clock pairs, and power limits at which a board that hunts under its limit runs.

    Before anything is measured a limit is taken for the core clock that would draw it, if half of the power goes with
    V^2 f as `Candidates` has it.
    """

    def __init__(self, spec: dict[str, Any], load: Load) -> None:
        pairs = Candidates(spec["clocks"], spec, load.auto_core_mhz)
        alone = [at for at, pair in enumerate(pairs.pairs) if pair[1] == BASELINE[1]][::-1]
        core = np.array([float(pairs.pairs[at][0]) / load.auto_core_mhz for at in alone])
        rise = spec["core"]["v_over_v0"]
        volt = np.interp(core * load.auto_core_mhz, [mhz for mhz, _ in rise], [each for _, each in rise])
        power = 1 + 0.5 * ((volt / volt[-1]) ** 2 * core - 1)
        auto_w = load.truth(Setting(BASELINE))[1]  # seen at auto, before anything is tried
        limits_w = [w for w in range(int(auto_w) - 1, int(0.8 * auto_w), -_LIMIT_STEP_W) if w > power[0] * auto_w]
        stands = np.zeros((len(limits_w), len(pairs.pairs)))
        for row, watts in enumerate(limits_w):
            above = min(int(np.searchsorted(power, watts / auto_w)), len(alone) - 1)
            share = np.clip((watts / auto_w - power[above - 1]) / (power[above] - power[above - 1]), 0, 1)
            stands[row, alone[above - 1]], stands[row, alone[above]] = 1 - share, share
        self.pairs: list[Any] = [*pairs.pairs, *(Setting(BASELINE, watts) for watts in limits_w)]
        self.place = {setting: at for at, setting in enumerate(self.pairs)}
        all_of = np.vstack([np.eye(len(pairs.pairs)), stands])
        apart = np.subtract.outer(np.log(limits_w), np.log(limits_w)) / 0.05
        rest = np.zeros((len(self.pairs),) * 2)
        rest[len(pairs.pairs) :, len(pairs.pairs) :] = _LIMIT_SD**2 * np.exp(-0.5 * apart**2)
        self.time_mean, self.energy_mean = all_of @ pairs.time_mean, all_of @ pairs.energy_mean
        self.time_cov = all_of @ pairs.time_cov @ all_of.T + rest
        self.energy_cov = all_of @ pairs.energy_cov @ all_of.T + rest


def followed(training: Training, board: Any, slack: float, seed: int, minutes: float) -> Setting:
    """What tune's procedure keeps, of whatever board offers."""
    procedure, used_s = Procedure(board, slack, seed), 0.0
    while procedure.phase != "keep":
        own = procedure.pair
        block = training.window(own if isinstance(own, Setting) else Setting(own), BLOCK_S)
        used_s += block.time_s + LOST_S
        procedure.add(block, used_s / (60 * minutes))
    return procedure.kept if isinstance(procedure.kept, Setting) else Setting(procedure.kept)


def by_model(training: Training, board: Candidates, slack: float, seed: int, minutes: float) -> Setting:
    """What tune would keep if it raced all the minutes and believed its model: the pair of least expected energy whose
    time and energy keep the limit, and save, with OVER by what the model knows then."""
    procedure, used_s = Procedure(board, slack, seed), 0.0
    while used_s < 60 * minutes:
        block = training.window(Setting(procedure.pair), BLOCK_S)
        used_s += block.time_s + LOST_S
        procedure.add(block, 0.0)  # the race goes on
    time, energy, time_cov, energy_cov = procedure.known()
    sure = statistics.NormalDist().inv_cdf(1 - OVER)
    longest, most = (
        mean + sure * np.sqrt(np.maximum(np.diag(cov), 0)) for mean, cov in ((time, time_cov), (energy, energy_cov))
    )
    kept = np.where((longest <= slack / 100) & (most < 0), energy, 0.0)
    at = int(np.argmin(kept))
    return Setting(board.pairs[at] if kept[at] < 0 else BASELINE)


def believed(loads: list[Load], scatter: float, slack: float, minutes: float) -> str:
    """tune's procedure beside `by_model`, in words."""
    spec = loads[0].spec
    told = []
    for name, way in (("shown in fresh rounds", followed), ("believed by the model", by_model)):
        regrets, over = [], []
        for load in loads:
            board = Candidates(spec["clocks"], spec, load.auto_core_mhz)
            truths = map(load.change, [Setting(BASELINE), *map(Setting, board.pairs)])
            best = min(energy for time, energy in truths if time <= slack / 100 + _OVER_TOLERANCE)
            time, energy = load.change(way(Training(load, scatter, minutes), board, slack, load.seed, minutes))
            regrets.append(100 * (energy - best))
            over.append(time > slack / 100 + _OVER_TOLERANCE)
        near = statistics.mean(each <= 0.3 and not is_over for each, is_over in zip(regrets, over))
        told.append(
            f"{name}: {statistics.mean(regrets):+.2f} points from the best pair, within 0.3 in {100 * near:.0f} %, "
            f"over in {100 * statistics.mean(over):.0f} %"
        )
    return "; ".join(told)


def tried(loads: list[Load], scatter: float, slack: float, minutes: float) -> dict[str, Any]:
    """What tune's procedure keeps of clock pairs, and of pairs and power limits: points saved, over the limit."""
    row: dict[str, Any] = {"scatter_percent": 100 * scatter, "slack_percent": slack, "seeds": len(loads)}
    spec = loads[0].spec
    for name in ("pairs", "pairs and limits"):
        found = []
        for load in loads:
            alone = Candidates(spec["clocks"], spec, load.auto_core_mhz)
            board = alone if name == "pairs" else WithLimits(spec, load)
            found.append(load.change(followed(Training(load, scatter, minutes), board, slack, load.seed, minutes)))
        over = [time > slack / 100 + _OVER_TOLERANCE for time, _ in found]
        row[name] = {
            "saved_points": -100 * statistics.mean(energy for _, energy in found),
            "over_limit": statistics.mean(over),
        }
    return row


def third(loads: list[Load], slack: float) -> dict[str, Any]:
    """What a power limit could add to a clock pair, in points of auto's energy; of all loads, by their truths."""
    spec = loads[0].spec
    cap_w = int(spec["governor"]["cap_w"])
    limits_w = range(cap_w, cap_w // 2, -_LIMIT_STEP_W)
    gains, alone = [], []
    for load in loads:
        pairs = [BASELINE, *Candidates(spec["clocks"], spec, load.auto_core_mhz).pairs]

        def least(settings: list[Setting], load: Load = load) -> float:
            return min(energy for time, energy in map(load.change, settings) if time <= slack / 100 + _OVER_TOLERANCE)

        by_pair = [Setting(pair) for pair in pairs]
        bound = [Setting(pair, cap) for pair in pairs for cap in limits_w if cap < load.truth(Setting(pair))[1]]
        best = least(by_pair)
        alone.append(100 * (best - least([Setting(BASELINE), *(each for each in bound if each.pair == BASELINE)])))
        gains.append(100 * (best - least([*by_pair, *bound])))
    return {
        "slack_percent": slack,
        "seeds": len(loads),
        "pair_and_limit_over_pair_points": {"mean": statistics.mean(gains), "most": max(gains)},
        "limit_alone_over_pair_points": {"mean": statistics.mean(alone), "most": max(alone)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200_sxm")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--scatter", type=float, nargs="+", default=[1.0, 10.0], help="of a step, percent")
    parser.add_argument("--slack", type=float, nargs="+", default=[0.0, 1.0, 3.0], help="limits, percent")
    parser.add_argument("--every", type=int, default=1, help="so many steps are told at once, as by a training's log")
    parser.add_argument("--third", action="store_true", help="what a power limit could add, by the truth")
    parser.add_argument("--by-model", action="store_true", help="what tune would keep if it believed its model")
    parser.add_argument("--say", action="store_true", help="print what tune says, too")
    parser.add_argument("-o", "--output", metavar="T.json")
    options = parser.parse_args()
    spec = gpu_spec.resolve(options.gpu)
    loads = [Load(spec, options.first_seed + seed) for seed in range(options.seeds)]
    rows: list[dict[str, Any]] = []
    if options.third:
        for slack in options.slack:
            rows.append(row := third(loads, slack))
            both, alone = row["pair_and_limit_over_pair_points"], row["limit_alone_over_pair_points"]
            print(
                f"simulated {options.gpu}, limit {slack:g} %: the best pair under the best power limit saves "
                f"{both['mean']:.3f} points more than the best pair (at most {both['most']:.3f}), the best power limit "
                f"alone {alone['mean']:+.2f} ({alone['most']:+.2f})",
                flush=True,
            )
            for scatter in options.scatter:
                rows.append(row := tried(loads, scatter / 100, slack, options.minutes))
                told = "; ".join(
                    f"{name}: {row[name]['saved_points']:.2f} points, over in {100 * row[name]['over_limit']:.0f} %"
                    for name in ("pairs", "pairs and limits")
                )
                print(f"  tune's procedure, scatter {scatter:g} %: {told}", flush=True)
    if options.by_model:
        for scatter, slack in product(options.scatter, options.slack):
            told = believed(loads, scatter / 100, slack, options.minutes)
            print(f"simulated {options.gpu}, scatter {scatter:g} %, limit {slack:g} %: {told}", flush=True)
    if not (options.third or options.by_model):
        for scatter, slack in product(options.scatter, options.slack):
            cell = loads, scatter / 100, slack
            rows.append(row := study(*cell, options.minutes, options.every, print if options.say else len))
            told = "; ".join(
                f"{way}: {row[way]['regret_points']:+.2f} points from the best pair, within 0.3 in "
                f"{100 * row[way]['within_0.3_points']:.0f} %, over in {100 * row[way]['over_limit']:.0f} %"
                for way in WAYS
            )
            at_best = row["bound"]
            print(
                f"simulated {options.gpu}, scatter {scatter:g} %, limit {slack:g} %: {told}; bound: "
                f"{at_best['regret_points']:+.2f}, within 0.3 in {100 * at_best['within_0.3_points']:.0f} %",
                flush=True,
            )
    if options.output:
        write_json(
            options.output,
            {"gpu": options.gpu, "minutes": options.minutes, "first_seed": options.first_seed, "rows": rows},
        )


if __name__ == "__main__":
    main()
