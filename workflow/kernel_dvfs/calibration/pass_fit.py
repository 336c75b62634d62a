"""Fits a GPU's spec to measured forward passes: how fast eager kernels run, then what energies and standing power are.

Few constants of the GPU, none of a workload. Time does not depend on power, so it comes first. Runs that the power cap
held say what clock it left them, and nothing here: they are what a fit is judged on.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from scipy.optimize import least_squares, nnls

from kernel_dvfs.calibration.forward_passes import Run, works
from kernel_dvfs.gpu.clocks import AUTO, Pair
from kernel_dvfs.gpu.governor import State, settle
from kernel_dvfs.gpu.kernel import Kernel, Work, family_of, parameters
from kernel_dvfs.gpu.model import launch_time_s, relative_voltage
from kernel_dvfs.workload.traffic import Cache, gemm_byte

Spec = dict[str, Any]

# (start, least, most) of: efficiency of dense and of attention's products, rate of FP32 lanes, rate of streaming
# through the SMs, share of the DRAM bandwidth; the last three relative to the spec
_TIMES = np.array([(0.6, 0.1, 1), (0.5, 0.1, 1), (0.9, 0.3, 1.3), (0.6, 0.1, 2), (0.9, 0.3, 1.1)]).T
_NEAR_CAP_W = 15  # a run this close to the cap may have been held now and then
# how strongly an energy that the runs do not tell is kept near its start: a relative change of 1 counts as much as an
# error of 14 % in one run
_KEEP = 0.02


def load(spec: Spec, run: Run) -> list[tuple[Work, int]]:
    """The work of a run on the GPU of `spec`: [(work, launches)]."""
    cache = Cache(spec["memory"]["l2_mb"] * 1e6, spec["sm_count"])
    return works(run.model, run.precision, run.batch, run.sequence, lambda g: gemm_byte(g, cache))


def simulate(spec: Spec, run: Run) -> State:
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
