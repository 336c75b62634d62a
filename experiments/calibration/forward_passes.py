"""What whole forward passes, measured by others, say of tensor cores and of the simulated A100.

    python experiments/calibration/forward_passes.py tensor     # energy of a tensor-core FLOP on a GA102 (A10)
    python experiments/calibration/forward_passes.py a100       # the simulated A100 PCIe, 15 workloads at 11 clocks

For GPUs whose single kernels nobody has published: whole passes (PyTorch, eager attention) at locked clocks, from
experiments/data/energaizer_forward_passes.csv (MIT). The work of a pass follows from the architecture and from the
operations that an eager pass launches. Fitted are few constants of the GPU, none of a workload. Time does not depend on
power, so it comes first: how fast eager kernels run, then what energies and standing power are. Runs that the power cap
held say what clock it left them, and nothing here: they are what a fit is judged on.
"""

from __future__ import annotations

import argparse
import copy
import csv
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

import numpy as np
from scipy.optimize import least_squares, nnls

from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.governor import OperatingPoint, settle
from kernel_dvfs.gpu.kernel import Kernel, LaunchWork, family_of, parameters
from kernel_dvfs.gpu.model import launch_time_s, relative_voltage
from kernel_dvfs.workload.formulas import Gemm
from kernel_dvfs.workload.traffic import L2Cache, gemm_byte
from kernel_dvfs_clocks.clocks import AUTO, Pair
from kernel_dvfs_clocks.errors import InputError

_BYTE = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A transformer by its published sizes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    mlp: int  # width of the hidden layer of the MLP
    gated: bool  # two products into the MLP instead of one, RMS norms, rotary positions
    upcast: bool  # softmax in fp32, so scores are cast there and back
    mlp_elementwise: int  # elementwise launches of the activation (reads + writes of a tensor each)


ARCHITECTURES = {
    "gpt2": Architecture(12, 768, 12, 12, 3072, gated=False, upcast=False, mlp_elementwise=8),
    "opt-1.3b": Architecture(24, 2048, 32, 32, 8192, gated=False, upcast=True, mlp_elementwise=1),
    "bert-large": Architecture(24, 1024, 16, 16, 4096, gated=False, upcast=False, mlp_elementwise=1),
    "qwen2-1.5b": Architecture(28, 1536, 12, 2, 8960, gated=True, upcast=True, mlp_elementwise=2),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One pass at one locked core clock."""

    gpu: str
    model: str  # of ARCHITECTURES
    precision: str  # bf16: tensor cores; fp32: FP32 lanes
    batch: int
    sequence: int
    core_mhz: int  # asked for
    energy_j: float  # of one pass
    time_s: float  # of one pass
    reached_core_mhz: float  # mean over the run

    @property
    def power_w(self) -> float:
        return self.energy_j / self.time_s

    @property
    def is_held(self) -> bool:
        """Whether the power cap held the clock below the one asked for."""
        return self.reached_core_mhz < self.core_mhz - 1

    @property
    def workload(self) -> tuple[str, str, int, int]:
        return self.model, self.precision, self.batch, self.sequence


def read_runs(path: str | PathLike[str], gpu: str) -> list[Run]:
    """The runs of one GPU in a table of passes. Raises InputError where it has none."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        runs = [
            Run(
                row["gpu"],
                row["model"],
                row["precision"],
                int(row["batch"]),
                int(row["sequence"]),
                int(row["core_mhz"]),
                float(row["energy_j"]),
                float(row["time_ms"]) * 1e-3,
                float(row["reached_core_mhz"] or row["core_mhz"]),
            )
            for row in csv.DictReader(lines)
            if row["gpu"] == gpu
        ]
    if not runs:
        raise InputError(f"{path}: no run of {gpu}; name a GPU of its column gpu")
    return runs


def works(
    model: str, precision: str, batch: int, sequence: int, byte_of: Callable[[Gemm], float]
) -> list[tuple[LaunchWork, int]]:
    """[(work, launches)] of one pass. byte_of: DRAM traffic of a bf16 matrix product on the GPU in question, B."""
    a, e = ARCHITECTURES[model], _BYTE[precision]
    tokens, head = batch * sequence, a.hidden // a.heads
    scores = batch * a.heads * sequence * sequence
    found: list[tuple[LaunchWork, int]] = []

    def product(m: int, n: int, k: int, count: int = 1, family: str = "gemm") -> None:
        gemm = Gemm(count, m, n, k, "TN", False, 0)
        flop, byte = 2.0 * count * m * n * k, byte_of(gemm) * e / 2
        tensor, fp32 = (flop, 0.0) if precision == "bf16" else (0.0, flop)
        found.append((LaunchWork(family, tensor, fp32, 0.0, byte), a.layers))

    def elementwise(elements: int, byte: float, family: str = "residual", sfu: float = 0.0, launches: int = 1) -> None:
        found.append((LaunchWork(family, 0.0, float(elements), sfu * elements, byte * elements), a.layers * launches))

    def norm() -> None:
        if a.gated:  # square, scale, cast and weight, the mean in between; in fp32
            elementwise(tokens * a.hidden, 8, launches=2)
            elementwise(tokens * a.hidden, 6)
        else:
            elementwise(tokens * a.hidden, 2 * e, "layernorm")

    norm()
    product(tokens, a.hidden, a.hidden)
    product(tokens, a.kv_heads * head, a.hidden)
    product(tokens, a.kv_heads * head, a.hidden)
    if a.gated:
        elementwise(tokens * (a.hidden + a.kv_heads * head), 3 * e, launches=3)
    product(sequence, sequence, head, batch * a.heads, "attention_gemm")
    elementwise(scores, 2 * e, launches=1 if model in ("gpt2", "opt-1.3b") else 2)  # scale, mask
    if a.upcast:
        elementwise(scores, 6)
        elementwise(scores, 8, "softmax", sfu=2)
        elementwise(scores, 6)
    else:
        elementwise(scores, 2 * e, "softmax", sfu=2)
    product(sequence, head, sequence, batch * a.heads, "attention_gemm")
    product(tokens, a.hidden, a.hidden)
    elementwise(tokens * a.hidden, 3 * e)
    norm()
    for _ in range(2 if a.gated else 1):
        product(tokens, a.mlp, a.hidden)
    elementwise(tokens * a.mlp, 2 * e, "gelu", sfu=2)
    if a.mlp_elementwise > 1:
        elementwise(tokens * a.mlp, 2.3 * e, launches=a.mlp_elementwise - 1)
    product(tokens, a.hidden, a.mlp)
    elementwise(tokens * a.hidden, 3 * e)
    return found


@dataclass(frozen=True, slots=True)
class Energies:
    """What a fit says of a GPU at one clock, each with its standard error."""

    standing_w: tuple[float, float]  # power of the board besides the work
    tensor_pj: tuple[float, float]  # of a tensor-core FLOP
    byte_pj: tuple[float, float]  # of a byte from DRAM through the SMs; (value, 0) where it was given
    mape: float  # mean absolute error of the passes' energy, percent


def energies(runs: list[Run], byte_of: Callable[[Gemm], float], byte_pj: float | None = None) -> Energies:
    """Energy = standing x time + tensor x FLOP + byte x bytes, least squares of the relative error over bf16 runs.

    All runs at one clock and clear of the cap, so that one voltage holds. byte_pj: keep a byte's energy at this.
    Raises InputError for fewer runs than unknowns.
    """
    if len(runs) < 4:
        raise InputError(f"forward passes: {len(runs)} runs cannot tell the energies of a GPU; give at least 4")
    columns = []
    for run in runs:
        load = works(run.model, run.precision, run.batch, run.sequence, byte_of)
        flop, byte = (sum(getattr(work, name) * count for work, count in load) for name in ("tensor_flop", "byte"))
        columns.append(np.array([run.time_s, flop * 1e-12, byte * 1e-12]) / run.energy_j)
    matrix, given = np.array(columns), 0.0 if byte_pj is None else byte_pj
    free = matrix if byte_pj is None else matrix[:, :2]
    wanted = 1 - given * matrix[:, 2] if byte_pj is not None else np.ones(len(runs))
    found = np.linalg.lstsq(free, wanted, rcond=None)[0]
    error = free @ found - wanted
    scatter = float(error @ error) / (len(runs) - len(found))
    sd = np.sqrt(np.diag(np.linalg.inv(free.T @ free)) * scatter)
    standing, tensor, *byte = ((float(value), float(each)) for value, each in zip(found, sd))
    return Energies(standing, tensor, byte[0] if byte else (given, 0.0), mape=100 * float(np.abs(error).mean()))


Spec = dict[str, Any]

# (start, least, most) of: efficiency of dense and of attention's products, rate of FP32 lanes, rate of streaming
# through the SMs, share of the DRAM bandwidth; the last three relative to the spec
_TIMES = np.array([(0.6, 0.1, 1), (0.5, 0.1, 1), (0.9, 0.3, 1.3), (0.6, 0.1, 2), (0.9, 0.3, 1.1)]).T
_NEAR_CAP_W = 15  # a run this close to the cap may have been held now and then
# how strongly an energy that the runs do not tell is kept near its start: a relative change of 1 counts as much as an
# error of 14 % in one run
_KEEP = 0.02


def load(spec: Spec, run: Run) -> list[tuple[LaunchWork, int]]:
    """The work of a run on the GPU of `spec`: [(work, launches)]."""
    cache = L2Cache(spec["memory"]["l2_mb"] * 1e6, spec["sm_count"])
    return works(run.model, run.precision, run.batch, run.sequence, lambda g: gemm_byte(g, cache))


def simulate(spec: Spec, run: Run) -> OperatingPoint:
    """The state in which the simulated GPU of `spec` runs a pass at the clock asked for, warm."""
    return settle(spec, _kernels(spec, run), Pair(run.core_mhz, AUTO), spec["thermal"]["reference_c"])


def fit(runs: list[Run], spec: Spec) -> Spec:
    """`spec` with rates and efficiencies, then powers and energies, fitted to the runs clear of the cap."""
    free = [run for run in runs if not run.is_held and run.power_w < spec["governor"]["cap_w"] - _NEAR_CAP_W]
    return fit_powers(free, fit_times(free, spec))


def fit_times(runs: list[Run], spec: Spec) -> Spec:
    """`spec` with its families' efficiencies and the rate of its FP32 lanes fitted to the runs' times."""

    def error(x: np.ndarray) -> list[float]:
        moved = _with_times(spec, x)
        return [_time_s(moved, run) / run.time_s - 1 for run in runs]

    start, least, most = _TIMES
    return _with_times(spec, least_squares(error, start, bounds=(least, most), diff_step=1e-3).x)


def fit_powers(runs: list[Run], spec: Spec) -> Spec:
    """`spec` with standing power and energies fitted to the runs' energies, their times being known."""
    start = np.ones(6)
    rows = np.array([_energy_j(spec, run) / run.energy_j for run in runs])
    kept = np.sqrt(_KEEP) * np.eye(len(start))
    found = nnls(np.vstack([rows, kept]), np.concatenate([np.ones(len(runs)), kept @ start]))[0]
    static, clock, tensor, fp32, stream, dram = map(float, found)
    moved = copy.deepcopy(spec)
    memory, energy = moved["memory"], moved["energy_pj"]
    memory["static_w"] = {mhz: static * watt for mhz, watt in memory["static_w"].items()}
    moved["core"]["clock_w_per_ghz"] *= clock
    factors = {"tensor_bf16_flop": tensor, "fp32_flop": fp32, "stream_byte": stream, "sm_cycle": stream}
    for name, factor in (factors | {"dram_byte": dram}).items():
        energy[name] *= factor
    return moved


def _kernels(spec: Spec, run: Run) -> list[tuple[Kernel, int]]:
    return [(parameters(spec, work), count) for work, count in load(spec, run)]


def _with_times(spec: Spec, x: np.ndarray) -> Spec:
    dense, attention, fp32, streaming, dram = map(float, x)
    moved = copy.deepcopy(spec)
    for name, family in moved["families"].items():
        if name in ("gemm", "attention_gemm"):
            family["tensor_efficiency"] = dense if name == "gemm" else attention
        else:
            family["sm_byte_per_clock"] *= streaming
        family["dram_efficiency"] = min(1.0, family["dram_efficiency"] * dram)
    moved["rates"]["fp32_tflop_per_s_per_ghz"] *= fp32
    return moved


def _time_s(spec: Spec, run: Run) -> float:
    core_ghz = run.reached_core_mhz / 1000
    return sum(count * launch_time_s(kernel, core_ghz, 1.0) for kernel, count in _kernels(spec, run))


def _energy_j(spec: Spec, run: Run) -> np.ndarray:
    """(6,) J of a run by the spec: static, clock, tensor, FP32, streaming, DRAM; their sum is its energy."""
    voltage2 = relative_voltage(spec["core"], run.reached_core_mhz) ** 2
    energy = spec["energy_pj"]
    totals = np.zeros(5)
    for work, count in load(spec, run):
        cycles = work.byte / family_of(spec, work)["sm_byte_per_clock"]
        totals += count * np.array([work.tensor_flop, work.fp32_flop, work.byte, cycles, work.sfu_op])
    tensor, fp32, byte, cycles, sfu = totals * 1e-12
    static_w = spec["memory"]["static_w"][str(spec["clocks"]["auto_mem_mhz"])]
    clock_w = spec["core"]["clock_w_per_ghz"] * voltage2 * run.reached_core_mhz / 1000
    return np.array(
        [
            static_w * run.time_s,
            clock_w * run.time_s,
            energy["tensor_bf16_flop"] * voltage2 * tensor,
            energy["fp32_flop"] * voltage2 * fp32,
            (energy["stream_byte"] * byte + energy["sm_cycle"] * cycles + energy["sfu_op"] * sfu) * voltage2,
            energy["dram_byte"] * byte,
        ]
    )


FACTS = Path(__file__).parents[1] / "data" / "energaizer_forward_passes.csv"
A10 = "A10"  # GA102 like the RTX 3080 Ti: 72 SMs, GDDR6, 150 W; all runs at 900 MHz, at or near the voltage's floor
A100 = "A100 40GB PCIe"
# where the fit of the A100 PCIe starts: idle power of the artifact, the rest as the A100 SXM
START = {
    "memory": {"static_w": {"1215": 45}},
    "core": {"clock_w_per_ghz": 7.5},
    "energy_pj": {"tensor_bf16_flop": 1, "fp32_flop": 2, "dram_byte": 51, "stream_byte": 25, "sm_cycle": 800},
}
_WAITS_W = 100  # below this an A10 waits for its host most of the time
TILES = ((256, 128), (128, 128))


def streaming_byte_pj(spec: dict) -> float:
    """Energy of a byte from DRAM through the SMs at V0, as the spec of a GPU has it, pJ."""
    energy, family = spec["energy_pj"], spec["families"]["residual"]
    return energy["dram_byte"] + energy["stream_byte"] + energy["sm_cycle"] / family["sm_byte_per_clock"]


def tensor_fits(runs: list[Run]) -> list[tuple[str, float]]:
    """[(in words, pJ per tensor-core FLOP)]: each way to read the A10's runs, tile by tile."""
    busy = [run for run in runs if run.power_w >= _WAITS_W]
    ga102, ga104 = (streaming_byte_pj(specs.resolve(name)) for name in ("rtx_3080_ti", "rtx_a4000"))
    ways = (
        (f"{len(runs)} runs, byte free", runs, None),
        (f"{len(busy)} runs that keep the GPU busy, byte free", busy, None),
        (f"the same, byte {ga102:.0f} pJ (GDDR6X: spec of the RTX 3080 Ti)", busy, ga102),
        (f"the same, byte {ga104:.0f} pJ (GDDR6: spec of the RTX A4000)", busy, ga104),
    )
    found = []
    for words, chosen, byte_pj in ways:
        for tile in TILES:
            cache = L2Cache(6e6, 72, tile)
            fit = energies(chosen, lambda g, cache=cache: gemm_byte(g, cache), byte_pj)
            (watt, _), (pj, sd), (byte, _) = fit.standing_w, fit.tensor_pj, fit.byte_pj
            print(
                f"{words}; tile {tile[0]} x {tile[1]}: tensor {pj:.2f} +- {sd:.2f} pJ/FLOP, byte {byte:.0f} pJ, "
                f"standing {watt:.0f} W; mean error of energy {fit.mape:.1f} %"
            )
            found.append((words, pj))
    return found


def tensor() -> None:
    values = [pj for _, pj in tensor_fits(read_runs(FACTS, A10))]
    print(f"least {min(values):.2f}, mean {sum(values) / len(values):.2f}, most {max(values):.2f} pJ/FLOP")


def scores(runs: list[Run], spec: dict) -> dict[str, list[float]]:
    """Errors of the simulated GPU of `spec`, lists.

    time, power, energy, curve (energy relative to that at the highest clock): percent of measured. clock: what runs at
    the cap reached, MHz. least: the clock of least energy, steps of the sweep.
    """
    workloads: dict[tuple, list[tuple[Run, OperatingPoint]]] = {}
    for run in runs:
        workloads.setdefault(run.workload, []).append((run, simulate(spec, run)))
    found: dict[str, list[float]] = {name: [] for name in ("time", "power", "energy", "curve", "clock", "least")}
    for pairs in workloads.values():
        pairs.sort(key=lambda pair: pair[0].core_mhz)
        measured = [run.energy_j for run, _ in pairs]
        simulated = [state.time_s * state.power_w for _, state in pairs]
        found["time"] += [_percent(state.time_s, run.time_s) for run, state in pairs]
        found["power"] += [_percent(state.power_w, run.power_w) for run, state in pairs]
        found["energy"] += [_percent(ours, theirs) for ours, theirs in zip(simulated, measured)]
        found["curve"] += [
            _percent(ours / simulated[-1], theirs / measured[-1]) for ours, theirs in zip(simulated, measured)
        ][:-1]
        held = [(run, state) for run, state in pairs if run.is_held or state.capped]
        found["clock"] += [state.core_mhz - run.reached_core_mhz for run, state in held]
        found["least"].append(float(simulated.index(min(simulated)) - measured.index(min(measured))))
    return found


def _percent(ours: float, theirs: float) -> float:
    return 100 * (ours / theirs - 1)


def _line(words: str, found: dict[str, list[float]]) -> str:
    def mean(name: str) -> float:
        return fmean(map(abs, found[name]))

    right = sum(step == 0 for step in found["least"])
    return (
        f"| {words} | {mean('time'):.1f} | {mean('power'):.1f} | {mean('energy'):.1f} | {mean('curve'):.1f} | "
        f"{mean('clock'):.0f} ({len(found['clock'])}) | {right} of {len(found['least'])} |"
    )


def a100() -> None:
    """The A100 PCIe before (the A100 SXM with 250 W), as shipped, and fitted without the model that is predicted.

    Runs in fp32 are of one model only, so those are never left out, nor scored there.
    """
    runs = read_runs(FACTS, A100)
    before = specs.resolve("a100_sxm", {"governor": {"cap_w": 250}})
    start = specs.resolve("a100_pcie", START)
    shipped = specs.resolve("a100_pcie")
    free = [run for run in runs if not run.is_held]
    print(f"{len(runs)} runs of {len({run.workload for run in runs})} workloads; mean absolute errors, percent; clock:")
    print(
        "MHz, over the runs that the cap held in one of both; least: workloads whose clock of least energy is right\n"
    )
    print("| simulated GPU | time | power | energy | energy over clocks | clock at the cap (runs) | least |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    print(_line("before: A100 SXM at 250 W", scores(runs, before)))
    print(_line("before, times of eager kernels fitted", scores(runs, fit_times(free, before))))
    print(_line("A100 PCIe as shipped, times fitted", scores(runs, fit_times(free, shipped))))
    bf16: dict[str, list[float]] = {}
    for model in ARCHITECTURES:
        kept = [run for run in runs if run.model != model or run.precision == "fp32"]
        moved = fit(kept, start)
        left = [run for run in runs if run.model == model and run.precision == "bf16"]
        for name, errors in scores(left, moved).items():
            bf16.setdefault(name, []).extend(errors)
    print(_line("A100 PCIe, fitted without the model predicted (bf16)", bf16))
    fitted = fit(runs, start)
    energy = fitted["energy_pj"]
    print(
        f"\nfitted: static {fitted['memory']['static_w']['1215']:.1f} W, clock tree "
        f"{fitted['core']['clock_w_per_ghz']:.1f} W/GHz, tensor {energy['tensor_bf16_flop']:.2f} pJ/FLOP, FP32 "
        f"{energy['fp32_flop']:.1f}, stream {energy['stream_byte']:.0f} pJ/B, SM cycle {energy['sm_cycle']:.0f} pJ, "
        f"DRAM {energy['dram_byte']:.0f} pJ/B"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tensor", "a100"))
    {"tensor": tensor, "a100": a100}[parser.parse_args().what]()


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
