"""Does a simulated board say what one should do? What clocks save and which is best, on what was left out, by board.

    python experiments/calibration/savings.py ../shared/data/measured    # experiments/results/savings.txt

Strict and 2 %: the choice of least energy, a clock a kernel, at no or at 2 % more time in all; each kernel has the same
time at the reference clock. Real rows are smoothed over the clock where there are many: the choice from 61 noisy
rows promises 14 % where 5 to 9 % are there, by how far one smooths. Best clock: the one for all kernels that takes
the least energy, and how far a kernel's own is off in the mean.

A kernel has its own C, M, t0, A, B and exponent p, by every second clock where there are many; its errors are those of
the other clocks. A board's constants:
  before    as the spec has them, but p = 3, and memory work that no core clock changes
  family    as the spec has them, with its p for all kernels
  shipped   as the spec has them, p a kernel's own
  left out  fitted in five folds without a kernel's application: standing power, clock tree, voltage, memory exponent
A V100 and a Quadro RTX 8000 are not shipped; the form alone is judged.

Hopper: FP64 products at locked clocks and under power limits (experiments/data/hopper_sweeps.csv). The H200's locks
fitted the voltage, the H100's were left out; every second limit of the H100 fitted what a board at its cap draws beyond
a lock. One factor of the product's energy is the board's own, from its lock at 1005 MHz.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np
from scipy.optimize import least_squares, nnls

from experiments.calibration import top_of_curve
from experiments.calibration.calibrate_h200 import LOCK_MHZ
from experiments.calibration.constants import power_constants, values, voltages, with_values
from experiments.calibration.energy import at, limited_mhz, product, read_sweep
from experiments.calibration.points import clear_of_cap_w, measured_board
from experiments.calibration.points import read_points as read_kernels
from experiments.searches.one_sweep import Table, of_table
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.kernel import Kernel
from kernel_dvfs.gpu.model import clock_w, launch_time_s, run_j, static_w
from kernel_dvfs_clocks.clocks import supported_core_mhz
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

Spec = dict[str, Any]
REPORT = Path(__file__).parents[1] / "results" / "savings.txt"
SWEEPS = Path(__file__).parents[1] / "data" / "hopper_sweeps.csv"
# spec, board in SWEEPS, the use of its locked clocks
HOPPER = (("h200_sxm", "H200", "fit"), ("h100_sxm", "H100", "judge"))
KNOWN = {"fit": "fitted", "judge": "left out"}
FOLDS = 5
SLACKS = (0.0, 0.02)
MANY_CLOCKS = 30
SMOOTH_MHZ = 120  # half of the window in which a line is fitted
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.5, 8.0, 12.0)
MEMORY_EXPONENTS = (0.0, 0.02, 0.04, 0.06)
_STARTS = ((0.5, 0.5, 0.05), (0.9, 0.2, 0.05), (0.2, 0.9, 0.05))
_ROBUST = 0.01  # an error of time from which a row pulls less


def _other(core: tuple[int, int], mem_mhz: int, static_w: float, clock_w_per_ghz: float, voltage: list) -> Spec:
    """Overrides of the A100 that make it another board: where its fit starts."""
    own = {str(mem_mhz): 1}
    return {
        "clocks": {
            "core_mhz": {"lowest": core[0], "highest": core[1], "step": 1},
            "mem_mhz": [mem_mhz],
            "auto_core_mhz": core[1],
            "auto_mem_mhz": mem_mhz,
        },
        "memory": {
            "reference_mhz": mem_mhz,
            "eta": own,
            "static_w": {str(mem_mhz): static_w},
            "dram_energy_scale": own,
        },
        "core": {"clock_w_per_ghz": clock_w_per_ghz, "v_over_v0": voltage},
        "governor": {"cap_w": 1000},
    }


# name: (table, its suite or None for all, spec, overrides that make it the board)
V100 = _other((705, 1380), 877, 23.5, 11.9, [[945, 1.0], [1102, 1.05], [1237, 1.13], [1380, 1.23]])
RTX_8000 = _other((705, 1710), 6500, 49.5, 15.5, [[945, 1.0], [1110, 1.03], [1305, 1.09], [1500, 1.19], [1710, 1.37]])
BOARDS = {
    "A100 SXM": ("a100_ttu.csv", None, {}),
    "V100": ("v100_nvdvfs.csv", "real", V100),
    "Quadro RTX 8000": ("rtx8000_nvdvfs.csv", "real", RTX_8000),
}


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """A measured board: its rows, what is taken for the truth of them, and which clocks fit."""

    spec: Spec
    rows: Table  # clocks ascending
    truth: Table
    core_mhz: np.ndarray  # (P,)
    fitted: np.ndarray  # (P,) bool
    fold: np.ndarray  # (K,)

    @property
    def capped_w(self) -> float:
        return clear_of_cap_w(self.spec)


def read_board(folder: Path, name: str) -> Board:
    table, suite, over = BOARDS[name]
    rows = of_table(folder / table, "equal-time")
    if suite:
        with open(folder / table, encoding="utf-8", newline="") as file:
            wanted = {row["kernel"] for row in csv.DictReader(file) if row["suite"] == suite}
        rows = _of(rows, [number for number, target in enumerate(rows.targets) if target in wanted])
    order = sorted(range(len(rows.pairs)), key=lambda place: rows.pairs[place][0])
    rows = replace(
        rows,
        pairs=tuple(rows.pairs[place] for place in order),
        offered=rows.offered[:, order],
        baseline=np.array([order.index(place) for place in rows.baseline]),
        time_s=rows.time_s[:, order],
        energy_j=rows.energy_j[:, order],
    )
    core_mhz = np.array([pair[0] for pair in rows.pairs])
    many, fitted, truth = len(core_mhz) >= MANY_CLOCKS, np.ones(len(core_mhz), bool), rows
    if many:
        fitted[1:-1:2] = False
        truth = replace(rows, time_s=smooth(core_mhz, rows.time_s), energy_j=smooth(core_mhz, rows.energy_j))
    of = np.array([target.partition("::")[0] for target in rows.targets])
    spec = specs.resolve("a100_sxm", over)
    return Board(spec, rows, truth, core_mhz, fitted, top_of_curve.folds_by_application(of, 0))


def _of(rows: Table, kept: list[int]) -> Table:
    arrays = {name: getattr(rows, name)[kept] for name in ("offered", "weight", "baseline", "time_s", "energy_j")}
    return replace(rows, targets=tuple(rows.targets[number] for number in kept), **arrays)


def smooth(core_mhz: np.ndarray, values_of: np.ndarray) -> np.ndarray:
    """(K, P) values, each that of a line through the logarithms of those near by, near ones first."""
    found = np.empty_like(values_of)
    for place, mhz in enumerate(core_mhz):
        away = core_mhz - mhz
        weight = np.sqrt(np.clip(1 - np.abs(away / SMOOTH_MHZ) ** 3, 0, None) ** 3)
        line = np.stack([np.ones_like(away), away], 1) * weight[:, None]
        found[:, place] = np.exp(np.linalg.lstsq(line, (np.log(values_of) * weight).T, rcond=None)[0][0])
    return found


def fit_times(board: Board, exponents: Sequence[float], memory_exponent: float) -> tuple[list[Kernel], np.ndarray]:
    """(kernels, their costs): C, M, t0 of each by its rows at the fitted clocks, with the best exponent p."""
    found, costs = [], []
    reference_ghz = board.spec["clocks"]["auto_core_mhz"] / 1000
    ghz = board.core_mhz[board.fitted] / 1000
    for times, baseline in zip(board.rows.time_s, board.rows.baseline, strict=True):
        base_s, measured = times[baseline], np.log(times[board.fitted])
        tries = []
        for p in exponents:
            for start in _STARTS:

                def kernel(x: np.ndarray, p=p, base_s=base_s) -> Kernel:
                    core, memory, latency = (base_s * np.exp(x)).tolist()
                    scale = reference_ghz**-memory_exponent
                    return Kernel(core * reference_ghz, memory * scale, latency, p, 0.0, 0.0, memory_exponent)

                def error(x: np.ndarray, kernel=kernel, measured=measured) -> np.ndarray:
                    own = kernel(x)
                    return np.log([launch_time_s(own, each, 1.0) for each in ghz]) - measured

                best = least_squares(error, np.log(start), loss="soft_l1", f_scale=_ROBUST, bounds=(-9, 1))
                tries.append((best.cost, p, kernel(best.x)))
        cost, _, own = min(tries, key=lambda each: each[0])
        found.append(own)
        costs.append(cost)
    return found, np.array(costs)


def fit_powers(board: Board, spec: Spec, kernels: Sequence[Kernel], which: Sequence[int]) -> tuple[dict, np.ndarray]:
    """({kernel: with A and B}, relative errors) of the kernels `which` under a spec's constants, their times known."""
    mem_mhz, warm_c = spec["clocks"]["auto_mem_mhz"], spec["thermal"]["reference_c"]
    standing_w = np.array([static_w(spec, mem_mhz, warm_c) + clock_w(spec["core"], mhz) for mhz in board.core_mhz])
    unit = Kernel(0, 0, 0, 1, 1.0, 0.0)
    core = np.array([run_j(spec, [(unit, 1)], mhz, mem_mhz) for mhz in board.core_mhz])
    found, off = {}, []
    for number in which:
        power_w = board.rows.energy_j[number] / board.rows.time_s[number]
        used = board.fitted & (power_w < board.capped_w)
        time_s = np.array([launch_time_s(kernels[number], mhz / 1000, 1.0) for mhz in board.core_mhz[used]])
        matrix = np.stack([core[used], np.ones(used.sum())], 1) / (time_s * power_w[used])[:, None]
        wanted = 1 - standing_w[used] / power_w[used]
        (core_j, dram_j), _ = nnls(matrix, wanted)
        found[number] = kernels[number]._replace(core_j=float(core_j), dram_j=float(dram_j))
        off.append(matrix @ (core_j, dram_j) - wanted)
    return found, np.concatenate(off)


def left_out(board: Board, by_exponent: dict[float, tuple[list[Kernel], np.ndarray]]) -> list[tuple[Spec, Kernel]]:
    """[(spec, kernel)]: constants by the kernels of the other folds, a kernel's own by its own rows."""
    constants = power_constants(board.spec, set(board.spec["clocks"]["mem_mhz"])) + voltages(board.spec)[1:]
    start = np.array(values(board.spec, constants))
    found: list[Any] = [None] * len(board.fold)
    for fold in range(FOLDS):
        others, own = np.flatnonzero(board.fold != fold), np.flatnonzero(board.fold == fold)
        kernels, _ = min(by_exponent.values(), key=lambda fit: fit[1][others].sum())

        def error(x: np.ndarray, kernels=kernels, others=others) -> np.ndarray:
            return fit_powers(board, with_values(board.spec, constants, x * start), kernels, others)[1]

        least = np.where([constant[0][1] == "v_over_v0" for constant in constants], 1 / start, 0)
        x = least_squares(
            error, np.ones(len(start)), loss="soft_l1", f_scale=0.02, bounds=(np.minimum(least, 0.999), np.inf)
        ).x
        spec = with_values(board.spec, constants, x * start)
        for number, kernel in fit_powers(board, spec, kernels, own)[0].items():
            found[number] = spec, kernel
    return found


def with_powers(board: Board, kernels: Sequence[Kernel]) -> list[tuple[Spec, Kernel]]:
    """[(spec, kernel)] with the board's own constants."""
    return [(board.spec, own) for own in fit_powers(board, board.spec, kernels, range(len(kernels)))[0].values()]


def simulated(board: Board, model: Sequence[tuple[Spec, Kernel]]) -> Table:
    """The board's table by a model, without noise, as warm as its standing power was taken."""
    time_s, energy_j = np.empty((2, *board.rows.time_s.shape))
    for number, (spec, kernel) in enumerate(model):
        for place, mhz in enumerate(board.core_mhz):
            state = at(spec, kernel, round(mhz))
            time_s[number, place], energy_j[number, place] = state.time_s, state.time_s * state.power_w
    return replace(board.rows, time_s=time_s, energy_j=energy_j)


class Verdict(NamedTuple):
    """What a table says: errors of points at clocks that did not fit, %; savings, %; best clock, MHz, and |off|."""

    time: float
    power: float
    strict: float
    slack: float
    best_mhz: str
    off_mhz: float = math.nan

    def __str__(self) -> str:
        cells = ((self.time, 8, 2), (self.power, 8, 2), (self.strict, 10, 2), (self.slack, 10, 2))
        said = "".join(
            f"{value:>{width}.{digits}f}" if value == value else " " * width for value, width, digits in cells
        )
        return said + f"{self.best_mhz:>10}" + ("" if math.isnan(self.off_mhz) else f"{self.off_mhz:>8.0f}")


def verdict(board: Board, table: Table) -> Verdict:
    every, scored = np.arange(len(board.rows.targets)), ~board.fitted if not board.fitted.all() else board.fitted
    errors = [math.nan, math.nan]
    if table is not board.truth:
        errors = [
            float(100 * np.abs(one / other - 1)[:, scored].mean())
            for one, other in (
                (table.time_s, board.rows.time_s),
                (table.energy_j / table.time_s, board.rows.energy_j / board.rows.time_s),
            )
        ]
    saved = [
        table.change(table.energy_j, every, table.choose(table.time_s, table.energy_j, every, slack))
        for slack in SLACKS
    ]
    relative = table.energy_j / board.rows.time_s[every, board.rows.baseline][:, None]
    off = np.abs(board.core_mhz[table.energy_j.argmin(1)] - board.core_mhz[board.truth.energy_j.argmin(1)])
    return Verdict(*errors, *saved, f"{board.core_mhz[relative.sum(0).argmin()]:.0f}", float(off.mean()))


HEAD = f"{'':34}{'time':>8}{'power':>8}{'strict':>10}{'2 %':>10}{'best':>10}{'|off|':>8}"


class Row(NamedTuple):
    """A row of the one table."""

    board: str
    data: str
    known: str  # what the data was to the simulated board: fitted or left out
    real: Verdict
    own: Verdict


def applications(folder: Path) -> tuple[list[str], list[Row]]:
    lines, told = ["errors of points, savings in % of energy, clocks in MHz", HEAD], []
    for name in BOARDS:
        board = read_board(folder, name)
        real = verdict(board, board.truth)
        lines.append(f"{f'{name}, real, {len(board.fold)} kernels':34}{real}")
        by_exponent = {g: fit_times(board, EXPONENTS, g) for g in MEMORY_EXPONENTS}
        if not BOARDS[name][2]:
            family = board.spec["families"]["gemm"]
            own = with_powers(board, by_exponent[family["memory_exponent"]][0])
            all_alike = with_powers(board, fit_times(board, (family["overlap"],), family["memory_exponent"])[0])
            models = {
                "before": with_powers(board, fit_times(board, (3.0,), 0.0)[0]),
                "family": all_alike,
                "shipped": own,
            }
        else:
            models = {}
        for label, model in (models | {"left out": left_out(board, by_exponent)}).items():
            found = verdict(board, simulated(board, model))
            lines.append(f"{f'  {label}':34}{found}")
            if label in ("shipped", "left out"):
                known = "fitted" if label == "shipped" else label
                data = f"{len(board.fold)} {'kernels' if BOARDS[name][1] else 'applications'}"
                told.append(Row(name, data, known, real, found))
    return lines, told


def rtx_3080_ti(folder: Path, draws: int = 20) -> tuple[list[str], list[Row]]:
    """Its kernels as in top_of_curve.py: auto predicted, the constants of the top from the other folds, single runs."""
    spec, path = measured_board("rtx_3080_ti"), folder / "rtx3080ti_calibration.csv"
    points, real = read_kernels(path, spec, clear_of_cap_w(spec)), of_table(path, "equal-time")
    of = np.array([name.partition("::")[0].removeprefix("pre_") for name in points.kernels])
    model = top_of_curve.left_out(points, spec, top_of_curve.folds_by_application(of, 0), every=False)
    table, draw, every = top_of_curve.Table(model, real), np.random.default_rng(0), np.arange(len(of))
    seen = real.time_s, real.energy_j

    def saving(time_s: np.ndarray, energy_j: np.ndarray, slack: float) -> float:
        return real.change(energy_j, every, real.choose(time_s, energy_j, every, slack))

    def best(energy_j: np.ndarray) -> str:
        """Of the pairs that all kernels have, the one for all of them."""
        spent = (energy_j / real.energy_j[every, real.baseline][:, None]).sum(0)
        shared = np.where(real.offered.all(0), spent, np.inf)
        return "/".join("auto" if clock is None else f"{clock:.0f}" for clock in real.pairs[int(shared.argmin())])

    noisy = [table.measured_once(draw) for _ in range(draws)]
    own = table.time, table.energy
    errors = [
        float(100 * np.nanmean(np.abs(one / other - 1)))
        for one, other in ((own[0], seen[0]), (own[1] / own[0], seen[1] / seen[0]))
    ]
    lines, found = [], []
    for label, off, tables, spent in (
        (f"RTX 3080 Ti, real, {len(every)} kernels", [math.nan] * 2, [seen], seen[1]),
        ("  left out, measured once", errors, noisy, own[1]),
    ):
        saved = [float(np.mean([saving(*each, slack) for each in tables])) for slack in SLACKS]
        found.append(Verdict(*off, *saved, best(spent)))
        lines.append(f"{label:34}{found[-1]}")
    return lines, [Row("RTX 3080 Ti", f"{len(every)} kernels", "left out", *found)]


def hopper() -> tuple[list[str], list[Row]]:
    """The sweeps of FP64 products against the boards of the specs."""
    lines, told = ["", "FP64 products at locked clocks: J per TFLOP, and its error in %"], []
    for gpu, board, locks in HOPPER:
        spec, points = specs.resolve(gpu), {use: read_sweep(SWEEPS, board, use) for use in KNOWN}
        locked = [point for point in points[locks] if not point.capped_share]
        least = next(point for point in locked if point.core_mhz == LOCK_MHZ)
        kernel = product(spec, least)
        lines.append(f"{board} ({KNOWN[locks]}); {1e12 * kernel.core_j / least.operations:.2f} pJ a FLOP")
        errors = []
        for point in locked:
            off = 100 * (at(spec, kernel, round(point.core_mhz)).power_w / point.power_w - 1)
            pj = 1e12 * point.power_w / point.operations
            errors.append(abs(off))
            lines.append(f"  lock {point.core_mhz:>5.0f} MHz {point.power_w:>6.0f} W{pj:>8.2f}{off:>+8.1f}")
        best = min(locked, key=lambda point: point.power_w / point.operations).core_mhz
        own_best = best_clock_mhz(spec, kernel)
        lines.append(f"  least energy: {best:.0f} MHz of the locks, simulated {own_best} MHz")
        unknown = math.nan, math.nan  # one kernel tells no saving of many
        real, own = (
            Verdict(*unknown, *unknown, f"{best:.0f}"),
            Verdict(math.nan, float(np.mean(errors)), *unknown, f"{own_best:.0f}"),
        )
        told.append(Row(spec["name"], f"one FP64 product at {len(locked)} locks", KNOWN[locks], real, own))
        steady = spec | {"governor": spec["governor"] | {"capped_extra_power": 0}}
        for use, known in KNOWN.items():
            limits = [point for point in points[use] if point.capped_share]
            errors = []
            for point in limits:
                now, without = (limited_mhz(each, kernel, point.power_w) for each in (spec, steady))
                errors.append([100 * abs(mhz / point.core_mhz - 1) for mhz in (now, without)])
                said = f"{point.core_mhz:.0f} MHz by its rate, simulated {now:.0f}"
                off = 100 * (now / point.core_mhz - 1)
                lines.append(f"  limit {point.limit_w:.0f} W ({known}): {said} ({off:+.1f} %)")
            if limits:
                now, without = np.mean(errors, axis=0)
                lines.append(
                    f"  limits, {known} ({len(limits)}): off by {now:.1f} %, by what locks draw {without:.1f} %"
                )
    return lines, told


def one_table(rows: Sequence[Row]) -> str:
    """Markdown: every board, what its points, savings and best clock are judged by."""
    lines = [
        "| board | judged by | fitted or left out | points: time, power, % | strict, % | 2 %, % | best clock, MHz |",
        "|---|---|---|--:|--:|--:|--:|",
    ]

    def beside(one: float, other: float) -> str:
        return "not judged" if math.isnan(one) else f"{one:.1f} / {other:.1f}"

    for row in rows:
        power = f"{row.own.power:.1f}"
        points = f"power {power}" if math.isnan(row.own.time) else f"{row.own.time:.1f}, {power}"
        cells = (beside(row.real.strict, row.own.strict), beside(row.real.slack, row.own.slack))
        best = f"{row.real.best_mhz} / {row.own.best_mhz}"
        cells = (row.board, row.data, row.known, points, *cells, best)
        lines.append(f"| {' | '.join(cells)} |")
    for name in specs.names():
        board = specs.resolve(name)["name"]
        if specs.savings_of(board) == specs.NOT_JUDGED:
            lines.append(f"| {board} | nothing by clock | not judged | | not judged | not judged | not judged |")
    return "\n".join(lines)


def best_clock_mhz(spec: Spec, kernel: Kernel) -> int:
    """The locked clock at which a kernel takes the least energy."""
    states = {mhz: at(spec, kernel, mhz) for mhz in supported_core_mhz(spec["clocks"])}
    return min(states, key=lambda mhz: states[mhz].power_w * states[mhz].time_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the measured tables")
    parser.add_argument("-o", "--output", default=str(REPORT))
    options = parser.parse_args()
    if not options.folder.is_dir():
        raise InputError(f"{options.folder}: no such folder; name that of the measured tables")
    parts = applications(options.folder), rtx_3080_ti(options.folder), hopper()
    lines = [line for told, _ in parts for line in told]
    table = one_table([row for _, rows in parts for row in rows])
    text = "\n".join([*lines, "", "real / simulated", table]) + "\n"
    write_text(options.output, text)
    print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
