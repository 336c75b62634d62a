"""Boards whose truth is known, and what visits of them measure: seconds are counted, scatter is drawn.

A study by clock is a generator of visits (search/by_clock.py), so a board of arrays answers it as a GPU would, hundreds
of studies an hour. What a visit takes and how it scatters is as real boards of the project showed (H200, H100): see the
constants.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from experiments.searches.one_sweep import CONFIG, TABLES, table_truth
from experiments.searches.sampling import Noise, Truth, noise_of, truth
from kernel_dvfs.choice.global_waste import least_energy
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.measurement.visit import Visit
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import ALONE, plan
from kernel_dvfs.search.board_pairs import LEAST, pairs_of
from kernel_dvfs.search.by_clock import StudyOptions, StudyOutcome, VisitOutcome, WalkedChoice, answered
from kernel_dvfs.search.parts import Space, targets_of
from kernel_dvfs.student import interval
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair

OPENING_S = 20.0  # a measuring process: tensors allocated, graphs captured
SWITCH_S, AUTO_SWITCH_S = 0.5, 2.0  # until a pair is in force and verified; at auto, until the cap has settled
KERNEL_S, AUTO_KERNEL_S = 0.25, 1.0  # from one window to the next at the same clocks
READ_S = 0.0041  # by how much a reading of the energy counter is late at most
EVENT_SD, EVENT_S = 0.0015, 0.25  # of a kernel's time, by events, while it ran for so long
POWER_SD, AUTO_POWER_SD = 0.003, 0.010  # of a window's power besides, at locked clocks and at auto
VALIDATION = 10  # blocks
DEVICE = "rtx_3080_ti"  # whose noise a measured table is given


@dataclass(frozen=True, eq=False)
class Board:
    """A truth, the scatter about it, and what may be asked for. K kernels at C pairs, the first of them auto."""

    known: Truth
    noise: Noise
    space: Space

    @cached_property
    def row(self) -> dict[str, int]:
        """{kernel: its place}."""
        return {name: row for row, name in enumerate(self.known.names)}

    @cached_property
    def place(self) -> dict[Pair, int]:
        """{pair: its place}."""
        return {pair: place for place, pair in enumerate(self.known.pairs)}

    @cached_property
    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """(K, C) each: time and energy of all launches, percent of the iteration's at auto."""
        launches = self.known.launches[:, None]
        tables = launches * self.known.time_s, launches * self.known.energy_j
        time, energy = (100 * table / table[:, 0].sum() for table in tables)
        return time, energy

    def best(self, limit: float) -> float:
        """The change of energy of who knows the truth, percent; kernels may stay at auto."""
        members = [list(own) for own in targets_of(self.known.groups)]
        time, energy = ([table[own].sum(0) for own in members] for table in self.totals)
        found = least_energy(Problem.of(time, energy, [0] * len(members)), 100 + limit, effort=0)
        assert found, "auto keeps every limit"
        return float(sum(np.concatenate(energy)[found.option])) - 100

    def best_of_passes(self, limit: float) -> float:
        """The same where each pass has one pair."""
        tables = []
        for table in self.totals:
            of_launch = table / self.known.launches[:, None]
            tables.append(
                [
                    np.sum([launches * of_launch[self.row[name]] for name, launches in kernels.items()], axis=0)
                    for kernels in self.space.passes.values()
                ]
            )
        found = least_energy(Problem.of(*tables, [0] * len(tables[0])), 100 + limit, effort=0)
        assert found, "auto keeps every limit"
        return float(sum(np.concatenate(tables[1])[found.option])) - 100

    def kernels(self, shown: WalkedChoice) -> np.ndarray:
        """(K,) place of each kernel's pair in a choice for kernels."""
        return np.array([self.place[shown.pairs[name]] for name in self.known.names])

    def change(self, shown: WalkedChoice) -> tuple[float, float]:
        """The change of time and energy that a choice brings in truth, percent; for kernels or for passes."""
        if self.known.names[0] in shown.pairs:
            row, chosen = np.arange(len(self.known.names)), self.kernels(shown)
            time, energy = (float(table[row, chosen].sum()) - 100 for table in self.totals)
            return time, energy
        changes = []
        for table in self.totals:
            of_launch = table / self.known.launches[:, None]
            parts = [
                launches * of_launch[self.row[name], self.place[shown.pairs[own]]]
                for own, kernels in self.space.passes.items()
                for name, launches in kernels.items()
            ]
            changes.append(float(sum(parts)) - 100)
        return changes[0], changes[1]


class Rig:
    """What measures a board: its answers to visits."""

    def __init__(self, board: Board, seed: int):
        self._board = board
        self._draw = np.random.default_rng([seed, 7])
        self._session = -1
        self._offsets = np.zeros((2, *board.known.time_s.shape))

    def answer(self, visit: Visit) -> VisitOutcome:
        """Measure a visit."""
        board, noise = self._board, self._board.noise
        if visit.session != self._session:
            self._session = visit.session
            self._offsets = noise.offset_sd * self._draw.standard_normal(self._offsets.shape)
        place = board.place[visit.pair]
        is_auto = place == 0
        spent_s = (AUTO_SWITCH_S if is_auto else SWITCH_S) + visit.pass_s
        share = board.totals[0][:, place] / board.totals[0][:, place].sum()
        sd = np.sqrt(noise.time_sd[:, place] ** 2 + EVENT_SD**2 * EVENT_S / (visit.pass_s * share))
        time_s = board.known.time_s[:, place] * self._scattered(self._offsets[0][:, place], sd)
        powers = []
        for names in visit.metered:
            rows = [board.row[name] for name in names]
            own_s, own_j = board.known.time_s[rows, place], board.known.energy_j[rows, place]
            watts = float((own_j * np.exp(self._offsets[1][rows, place])).sum() / own_s.sum())
            late = READ_S / np.sqrt(6) / visit.window_s
            besides = AUTO_POWER_SD if is_auto else POWER_SD
            sd = np.sqrt((noise.power_sd[rows, place] ** 2).mean() + late**2 + besides**2)
            powers.append(watts * float(self._scattered(np.zeros(1), sd)[0]))
            spent_s += (AUTO_KERNEL_S if is_auto else KERNEL_S) + visit.window_s
        return VisitOutcome(time_s, np.array(powers), spent_s, True)

    def _scattered(self, offset: np.ndarray, sd: np.ndarray | float) -> np.ndarray:
        return np.exp(offset + sd * self._draw.standard_normal(offset.shape))


def studied(board: Board, options: StudyOptions) -> StudyOutcome:
    """A study of a board, by the seed of its options."""
    return answered(board.space, options, Rig(board, options.seed).answer)


def validated(board: Board, shown: WalkedChoice, seed: int) -> dict[str, Any]:
    """What VALIDATION fresh blocks of auto and a choice for kernels show: whether the 95 % intervals hold the truth."""
    rig, chosen = Rig(board, seed), board.kernels(shown)
    targets = targets_of(board.known.groups)
    row = np.arange(len(chosen))
    changes = []
    for session in range(VALIDATION):
        times, energies = np.zeros((2, *board.known.time_s.shape))
        for place in (0, *np.unique(chosen)):
            metered = [own for own in targets if place == 0 or chosen[own[0]] == place]
            names = tuple(tuple(board.known.names[kernel] for kernel in own) for own in metered)
            answer = rig.answer(Visit(session, 0, board.known.pairs[place], 5.0, 0.5 if place else 1.0, names))
            times[:, place] = board.known.launches * answer.time_s
            for own, watts in zip(metered, answer.power_w):
                energies[list(own), place] = times[list(own), place] * watts
        changes.append([100 * (table[row, chosen].sum() / table[:, 0].sum() - 1) for table in (times, energies)])
    found: dict[str, Any] = {}
    for quantity, values, true in zip(("time", "energy"), np.array(changes).T.tolist(), board.change(shown)):
        about = interval(values, [str(block) for block in range(VALIDATION)])
        found |= {f"{quantity}_fresh_percent": about.mean, f"{quantity}_held": about.low <= true <= about.high}
    return found


@cache
def setup_of(gpu: str, is_cap_free: bool = False) -> tuple[Setup, list[Pair]]:
    """The setup of the configuration on a simulated GPU, and the pairs of its sweep. is_cap_free: the board draws no
    more at its power cap than at the same clocks locked."""
    governor = {"capped_extra_power": 0} if is_cap_free else {}
    with tempfile.TemporaryDirectory() as folder:
        planned = plan(load(str(CONFIG)) | ALONE | {"gpu": gpu, "gpu_overrides": {"governor": governor}}, folder)
        assert planned.setup, "a simulated GPU has a setup"
        return read(planned.setup.write()), list(planned.pairs)


def simulated(gpu: str, is_cap_free: bool = False) -> Board:
    """A simulated GPU of the configuration's workload. is_cap_free: as of setup_of."""
    setup, swept = setup_of(gpu, is_cap_free)
    spec = setup.gpu["spec"]
    pairs = pairs_of(spec["clocks"], swept)
    known = truth(setup, pairs)
    passes = {
        name: {kernel: float(launches) for kernel, launches in kernels}
        for name, kernels in setup.targets["pass"].items()
    }
    return Board(known, noise_of(spec, setup.measurement, known), _space(known, passes))


def of_table(name: str) -> Board:
    """A measured table as the truth; the pairs that every kernel was measured at. Raises InputError without it.

    Where its reference is a locked pair, that is both auto and a pair.
    """
    known = table_truth(Path(TABLES) / name)
    columns = [0, *range(len(known.pairs))] if known.pairs[0] != BASELINE else [*range(len(known.pairs))]
    pairs = [BASELINE, *(known.pairs[column] for column in columns[1:])]
    highest = [max((clock for clock in clocks if clock != AUTO), default=0) for clocks in zip(*pairs)]
    keep = [0]
    for place, (core, mem) in enumerate(pairs):
        is_near = core != AUTO and core >= LEAST * highest[0] and (mem == AUTO or mem >= LEAST * highest[1])
        if is_near and np.isfinite(known.time_s[:, columns[place]]).all():
            keep.append(place)
    known = replace(
        known,
        pairs=[pairs[place] for place in keep],
        **{
            table: getattr(known, table)[:, [columns[place] for place in keep]]
            for table in ("time_s", "energy_j", "core_mhz")
        },
    )
    setup, _ = setup_of(DEVICE)
    noise = noise_of(setup.gpu["spec"], setup.measurement, known)
    return Board(known, noise, _space(known, {}))


def rough(gpu: str = "h200_sxm") -> Board:
    """A board whose physics no prior knows: off by 1.5 % in time, 2.5 % in power, and 0.3 % more at each pair."""
    board = simulated(gpu)
    draw, known = np.random.default_rng(77), board.known
    core, mem = (
        np.log([max(clocks) if clock == AUTO else clock for clock in column])
        for column in zip(*known.pairs)
        for clocks in [[clock for clock in column if clock != AUTO]]
    )
    apart = abs(core[:, None] - core) / 0.25 + abs(mem[:, None] - mem) / 0.5
    root = np.linalg.cholesky(np.exp(-apart) + 1e-6 * np.eye(len(core)))
    off = [
        sd * (draw.standard_normal(known.time_s.shape) @ root.T) + 0.003 * draw.standard_normal(known.time_s.shape)
        for sd in (0.015, 0.025)
    ]
    time, power = (own - own[:, :1] for own in off)
    known = replace(known, time_s=known.time_s * np.exp(time), energy_j=known.energy_j * np.exp(time + power))
    return replace(board, known=known)


def many(gpu: str = "h200_sxm", count: int = 400, is_cap_free: bool = False) -> Board:
    """A step of many short kernels, each between two of the workload's, with shares over four decades. is_cap_free: as
    of setup_of; then locks gain hardly any time, and a strict choice has little to trade."""
    board = simulated(gpu, is_cap_free)
    draw, known = np.random.default_rng(77), board.known
    one, other = draw.integers(0, len(known.names), (2, count))
    part = draw.uniform(0, 0.4, count)[:, None]
    launch_s = np.exp(draw.normal(np.log(1e-4), 1.3, count))[:, None]

    def between(table: np.ndarray) -> np.ndarray:
        logs = np.log(table)
        return np.exp((1 - part) * logs[one] + part * logs[other])

    time = between(known.time_s / known.time_s[:, :1]) * launch_s
    energy = time * between(known.energy_j / known.time_s)
    known = Truth(
        names=[f"k{number}" for number in range(count)],
        launches=draw.integers(1, 25, count).astype(float),
        groups=[None] * count,
        pairs=known.pairs,
        time_s=time,
        energy_j=energy,
        core_mhz=known.core_mhz[one],
    )
    setup, _ = setup_of(gpu)
    return Board(known, noise_of(setup.gpu["spec"], setup.measurement, known), _space(known, {}))


# {board: (how it is made, minutes that a study of it may take)}
BOARDS: dict[str, tuple[Callable[[], Board], float]] = {
    "H200": (lambda: simulated("h200_sxm"), 30),
    "H100": (lambda: simulated("h100_sxm"), 30),
    "RTX 3080 Ti": (lambda: simulated("rtx_3080_ti"), 30),
    "RTX 3080 Ti table": (lambda: of_table("rtx3080ti_calibration.csv"), 30),
    "A100 table": (lambda: of_table("a100_ttu.csv"), 30),
    "400 kernels": (many, 60),
    "400, cap is free": (lambda: many(is_cap_free=True), 60),
    "rough board": (rough, 40),
}


@cache
def board_of(name: str) -> Board:
    """A board by its name in BOARDS. Raises InputError where it needs a table that is not there."""
    return BOARDS[name][0]()


def _space(known: Truth, passes: dict[str, dict[str, float]]) -> Space:
    return Space(tuple(known.names), known.launches, tuple(known.groups), passes, tuple(known.pairs))
