"""What a simulated RTX 3080 Ti does with GPT-3-xl, without noise, in a millisecond: for inferring which board it is.

truth.c has the governor, power and warmth of kernel_dvfs.gpu once more, since the package takes seconds for a board;
what a kernel is (gpu.kernel, workload.traffic) and what a request asks for (kernel_dvfs_clocks.clocks) come from the
package. A test compares times and energies with the package's.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.searches.one_sweep import FINE_FROM_MHZ, setup_of
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.kernel import LaunchWork, parameters
from kernel_dvfs.gpu.model import relative_bandwidth
from kernel_dvfs.workload.formulas import Gemm, gemm
from kernel_dvfs.workload.traffic import L2Cache, dense_gemm_byte, gemm_byte, tensor_share
from kernel_dvfs.workload.workload import rows_of
from kernel_dvfs_clocks.clocks import AUTO, Pair, applied_mem_mhz, asked_core_mhz, supported_core_mhz, top_core_mhz
from kernel_dvfs_clocks.errors import InputError

GPU = "rtx_3080_ti"
# how a board is conditioned before its points, as measurement.simulated.SimulatedGpu.condition does
CONDITION_STEP_S, CONDITION_BAND_C, CONDITION_MOST = 30.0, 1.0, 10.0
PUBLIC_SIDE = 10240  # of the square product whose rate owners of the board have posted (experiments/data)
PUBLIC = "public_product"
PASSES = ("forward", "backward")


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Loads (kernels, then the forward and the backward pass) at pairs, the baseline first."""

    time_s: np.ndarray  # (L, P) of one run
    power_w: np.ndarray  # (L, P) of the board, mean
    core_mhz: np.ndarray  # (L, P) reached, mean
    is_capped: np.ndarray  # (L, P)

    @property
    def energy_j(self) -> np.ndarray:
        """(L, P) of one run."""
        return self.time_s * self.power_w


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """What is measured: kernels of an iteration and both passes, at the pairs of the paper's grid."""

    names: tuple[str, ...]  # K kernels
    rows: np.ndarray  # (K,) of the paper's Table 1
    launches: np.ndarray  # (K,) of an iteration
    works: tuple[LaunchWork, ...]  # K, then the public product
    gemms: Mapping[str, Gemm]  # the dense products
    all_rows: tuple[Any, ...]  # of the workload, as traffic takes them
    loads: tuple[tuple[tuple[int, float], ...], ...]  # (place of a kernel, launches) of each load
    pairs: tuple[Pair, ...]
    warm_s: float  # at a pair before a point counts

    @property
    def kernels(self) -> int:
        """Return how many kernels there are."""
        return len(self.names)


@cache
def default_study() -> Study:
    """Return the study of config.yaml at the pairs of its sweep."""
    setup, pairs = setup_of()
    kernels = setup.targets["kernel"]
    names = tuple(kernels)
    spec = setup.gpu["spec"]
    rows = tuple(rows_of(setup.workload, spec["sm_count"], spec["threads_per_sm"]))
    row_of = {row.id: row.number for row in rows}
    place = {name: number for number, name in enumerate(names)}
    alone = [((number, 1.0),) for number in range(len(names))]
    passes = [tuple((place[name], float(count)) for name, count in setup.targets["pass"][each]) for each in PASSES]
    public = Gemm(count=1, m=PUBLIC_SIDE, n=PUBLIC_SIDE, k=PUBLIC_SIDE, layout="NN", bias_epilogue=False, beta=0)
    share = tensor_share(public, spec["sm_count"], spec["rates"])
    byte = gemm_byte(public, L2Cache(spec["memory"]["l2_mb"] * 1e6, spec["sm_count"]))
    works = [LaunchWork(*kernels[name]["work"]) for name in names]
    return Study(
        names,
        np.array([row_of[name] for name in names]),
        np.array([kernels[name]["launches_per_iteration"] for name in names], dtype=float),
        (*works, LaunchWork("gemm", gemm(public).tensor_flop, 0, 0, byte, share)),
        {row.id: row.gemm for row in rows if row.gemm and row.family == "gemm"},
        rows,
        (*alone, *passes, ((len(names), 1.0),)),
        tuple(pairs),
        setup.measurement["warmup_s"],
    )


def headline_study() -> Study:
    """Return the same at every clock that a strict choice might take, with the whole iteration as the last load."""
    own = default_study()
    clocks = spec_of({})["clocks"]
    mems = dict.fromkeys(pair.mem_mhz for pair in own.pairs)
    fine = [Pair(core, mem) for mem in mems for core in supported_core_mhz(clocks) if core >= FINE_FROM_MHZ]
    iteration = tuple(enumerate(own.launches.tolist()))
    return replace(own, pairs=tuple(dict.fromkeys([*own.pairs, *fine])), loads=(*own.loads[:-1], iteration))


def spec_of(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shipped spec with figures replaced, unchecked: families.default holds for every family."""
    over = dict(overrides)
    families = dict(over.pop("families", {}))
    everywhere = families.pop("default", {})
    spec = specs.merge(specs.resolve(GPU), over)
    own = {name: values | everywhere | families.get(name, {}) for name, values in spec["families"].items()}
    return spec | {"families": own}


def truth(study: Study, spec: Mapping[str, Any], backward_factor: float = 1.0) -> Truth:
    """Return what a board does: its kernels, then both passes, then the public product.

    backward_factor: of the energy of a tensor-core FLOP in products of the backward pass.
    """
    dense = dense_gemm_byte(list(study.all_rows), spec)
    kernels = []
    for name, work in zip([*study.names, PUBLIC], study.works):
        factor = backward_factor if name.startswith("backward") and work.tensor_flop else 1.0
        own = work._replace(byte=dense.get(name, work.byte), energy_factor=factor)
        *figures, memory_exponent = parameters(dict(spec), own)
        assert not memory_exponent  # truth.c does without it
        kernels.append(figures)
    pairs = [_asked(spec, pair) for pair in study.pairs]
    mhz, volt = (np.ascontiguousarray(each) for each in np.array(spec["core"]["v_over_v0"], dtype=float).T)
    counts = np.array([len(load) for load in study.loads], dtype=np.int32)
    index = np.array([place for load in study.loads for place, _ in load], dtype=np.int32)
    launches = np.array([count for load in study.loads for _, count in load])
    found = np.zeros((len(study.loads), len(pairs), 4))
    board = _board(spec, study.warm_s)
    own, at = np.array(kernels), np.array(pairs)
    library().truths(
        *(ctypes.byref(board), len(mhz), _of(mhz), _of(volt), len(pairs), _of(at), _of(own)),
        *(len(counts), _of(counts), _of(index), _of(launches), _of(found)),
    )
    time_s, power_w, core_mhz, capped = np.moveaxis(found, -1, 0)
    return Truth(time_s, power_w, core_mhz, capped > 0)


def traffic_of(spec: Mapping[str, Any]) -> float:
    """Return the DRAM bytes of the dense products of an iteration over "each operand once"."""
    study = default_study()
    dense, launches = dense_gemm_byte(list(study.all_rows), spec), {row.id: row.multiplicity for row in study.all_rows}
    once = {name: gemm(own).read_byte + gemm(own).write_byte for name, own in study.gemms.items()}
    whole, least = (sum(launches[name] * own[name] for name in study.gemms) for own in (dense, once))
    return float(whole / least)


def least_change(time_s: np.ndarray, energy_j: np.ndarray, auto: tuple[float, float], slack: float) -> float:
    """Return the least change of energy, percent, of (K, P) options that in all take at most `slack` longer than auto.

    By the best price of time, so a little less than the exact choice saves. auto: its time and energy, of all.
    """
    limit, every = auto[0] * (1 + slack), np.arange(len(time_s))

    def at(price: float) -> tuple[float, float]:
        taken = (energy_j + price * time_s).argmin(1)
        return float(time_s[every, taken].sum()), float(energy_j[every, taken].sum())

    low, high = 0.0, auto[1] / auto[0]
    while at(high)[0] > limit and high < 1e6 * auto[1] / auto[0]:
        low, high = high, 4 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle)[0] <= limit else (middle, high)
    time, energy = at(0.0) if at(0.0)[0] <= limit else at(high)
    return 100 * (energy / auto[1] - 1) if time <= limit else 0.0


def strict(time_s: np.ndarray, energy_j: np.ndarray) -> np.ndarray:
    """Return the (D, K) places of the pairs of least energy that in all take no longer than the first pair does.

    time_s, energy_j: (D, K, P) of all launches. By prices and swaps: within 0.1 points of the exact choice.
    """
    draws, kernels, pairs = time_s.shape
    chosen = np.zeros((draws, kernels), dtype=np.int32)
    time_s, energy_j = np.ascontiguousarray(time_s), np.ascontiguousarray(energy_j)
    library().strict(draws, kernels, pairs, _of(time_s), _of(energy_j), _of(chosen))
    return chosen


class _Board(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_double)
        for name in (
            *("clock_w_per_ghz", "mhz_per_w", "above_w", "lowest_mhz", "step_mhz", "cap_w", "hunting_mhz"),
            *("light_mhz", "light_s", "auto_extra_power"),
            *("leakage_per_c", "reference_c", "ambient_c", "c_per_w", "tau_s"),
            *("condition_step_s", "condition_band_c", "condition_most", "warm_s"),
        )
    ]


def _board(spec: Mapping[str, Any], warm_s: float) -> _Board:
    clocks, governor, thermal = spec["clocks"], spec["governor"], spec["thermal"]
    return _Board(
        *(spec["core"]["clock_w_per_ghz"], clocks["top"]["mhz_per_w"], clocks["top"]["above_w"]),
        *(clocks["core_mhz"]["lowest"], clocks["core_mhz"]["step"], governor["cap_w"], governor["hunting_mhz"]),
        *(governor["auto_light_load_core_mhz"], governor["auto_light_load_below_us"] * 1e-6),
        governor["auto_extra_power"],
        *(thermal[name] for name in ("leakage_per_c", "reference_c", "ambient_c", "c_per_w", "tau_s")),
        *(CONDITION_STEP_S, CONDITION_BAND_C, CONDITION_MOST, warm_s),
    )


def _asked(spec: Mapping[str, Any], pair: Pair) -> tuple[float, ...]:
    clocks, memory, is_auto = spec["clocks"], spec["memory"], pair.core_mhz == AUTO
    mem_mhz = applied_mem_mhz(clocks, pair)
    cool = clocks["auto_core_mhz"] if is_auto else top_core_mhz(clocks)
    bandwidth = relative_bandwidth(memory, mem_mhz)
    static_w, scale = memory["static_w"][str(mem_mhz)], memory["dram_energy_scale"][str(mem_mhz)]
    return asked_core_mhz(clocks, pair), cool, bandwidth, static_w, scale, float(is_auto)


def _of(values: np.ndarray) -> ctypes.c_void_p:
    return values.ctypes.data_as(ctypes.c_void_p)


@cache
def library() -> ctypes.CDLL:
    """Return truth.c, compiled. Raises InputError without a C compiler."""
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        raise InputError(f"{compiler}: no such C compiler; install one or name it in CC")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "truth.so")
        source = Path(__file__).with_name("truth.c")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", target, source, "-lm"], check=True)
        return ctypes.CDLL(str(target))
