"""What a GPU's energy probes say about its spec: standing power, clock tree, voltage, what an operation or a byte
costs, and how fast units are.

P = Ps (1 + l (T - T0)) + k V(f)^2 f + V(f)^2 sum(e_i rate_i) + sum(d_j rate_j), the simulated GPU's own power
(kernel_dvfs.gpu.model) with the probes' known rates. Linear in all but V, so all probes are solved together: those
below the cap, at one clock, tell the energies; those at the cap, which leaves each another clock, tell the voltage at
that clock, where the board draws more by the spec's governor.capped_extra_power than with the same clock locked. Where
no probe ran, the voltage keeps the shape of the spec. No kernel of the workload takes part.

f is the core clock that the driver reports, which sets the voltage. It is not the clock that is counted on the SMs:
that is lower while tensor cores work.

Each figure of speed is that of the one probe that measures it, such that the simulated GPU with these figures takes as
long as the probe did.
"""

import copy
import csv
import math
from dataclasses import dataclass
from os import PathLike
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from experiments.calibration.probes import PROBES
from kernel_dvfs.gpu.governor import OperatingPoint, held_factor, settle
from kernel_dvfs.gpu.kernel import Kernel
from kernel_dvfs.gpu.model import clock_w, relative_voltage, static_w
from kernel_dvfs.workload.formulas import Gemm
from kernel_dvfs.workload.traffic import tensor_share
from kernel_dvfs_clocks.clocks import AUTO, Pair
from kernel_dvfs_clocks.errors import InputError


@dataclass(frozen=True, slots=True)
class Point:
    """One probe as it was measured."""

    probe: str  # its name (probes.py)
    load: str
    operands: str
    duty: float  # share of the cycles of the load itself
    warps: float  # per SM; 0: a GEMM or nothing
    power_w: float  # mean power of the board
    core_mhz: float  # core clock as the driver reports it
    sm_mhz: float  # SM clock as counted on the GPU
    temp_c: float
    capped_share: float  # share of the time in which the board said that power held it
    time_s: float  # of one run
    operations: float  # in one run
    read_byte: float  # in one run
    write_byte: float  # in one run
    limit_w: float = math.inf  # of the board; inf: far from it

    @property
    def is_held(self) -> bool:
        """Whether the power cap held its clock; what says so far below the limit is held by something else."""
        return self.capped_share > 0.5 and self.power_w > _NEAR_LIMIT * self.limit_w


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the probes say about a spec."""

    static_w: float  # at the reference temperature and the auto memory clock
    clock_w_per_ghz: float
    v_over_v0: list[list[float]]  # [[MHz, V/V0]], as in a spec
    energy_pj: dict[str, float]  # {load or "load/zero" ...: pJ per operation or byte, at V0 in the core}
    sd_pj: dict[str, float]  # standard deviation of each, from the residuals
    power_error: dict[str, float]  # {probe: predicted / measured - 1}
    voltage_shown: tuple[float, float]  # lowest and highest clock seen, MHz


# loads whose energy is per operation; the others' is per byte
_OPERATIONS = ("fp32", "sfu", "int32", "tensor", "gemm", "fp64")
_ON_CHIP = ("shared", "l2_read")
_DRAM = ("dram_read", "dram_write", "dram_copy")
_TENSOR = ("tensor", "gemm")
REFERENCE_C = 55.0  # of the spec
# how firmly the spec's own figures hold where the probes say nothing: relative sd of the clock tree, sd of each step of
# V/V0 (its shape, rather than its height)
_PRIOR_CLOCK, _PRIOR_STEP = 0.30, 0.05
_POWER_SD = 0.01  # of a probe, relative: noise of a window and what the form cannot express
# a counted clock this far below what tensor work alone makes of the reported one is held by something else
_HELD = 0.02
# of the limit: a board that is said to be capped below it is held by something else
_NEAR_LIMIT = 0.95


def read_points(path: str | PathLike[str], limit_w: float) -> list[Point]:
    """The probes that experiments/benchmarks/gpu_energy.py measured on a board with this power limit, W; failed ones
    are left out. Raises InputError."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        points = [_point(line, limit_w) for line in lines if not line["error"]]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; measure it with experiments/benchmarks/gpu_energy.py") from None
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not a table of experiments/benchmarks/gpu_energy.py ({error!r})") from None
    if not points:
        raise InputError(f"{path}: no probe was measured")
    return points


def _point(line: dict[str, str], limit_w: float) -> Point:
    text = {
        "duty": line["duty"],
        "warps": line["warps"] or 0,
        "power_w": line["power_w"],
        "core_mhz": line["nvml_sm_mhz_median"],
        "sm_mhz": line["sm_mhz"],
        "temp_c": line["temp_c"],
        "capped_share": line["throttle_share"] or 0,
        "time_s": float(line["time_us"]) * 1e-6,
        **{name: line[name] for name in ("operations", "read_byte", "write_byte")},
    }
    number = {name: float(value) for name, value in text.items()}
    if not all(np.isfinite(value) and value >= 0 for value in number.values()) or not number["time_s"]:
        raise ValueError(f"probe {line['probe']}: a figure is not a number of at least 0")
    return Point(line["probe"], line["load"], line["operands"], **number, limit_w=limit_w)


def read_sweep(path: str | PathLike[str], board: str, use: str) -> list[Point]:
    """The FP64 products of a board that are there for a use, `fit` or `judge`; those that a power limit held with a
    capped share of 1. Their temperature is not known: that at which the standing power holds.
    """
    with open(path, encoding="utf-8", newline="") as file:
        lines = [*csv.DictReader(line for line in file if not line.startswith("#"))]
    found = []
    for line in lines:
        if (line["board"], line["use"]) == (board, use):
            clock, limit = float(line["core_mhz"]), line["limit_w"]
            clocks = float(line["power_w"]), clock, clock, REFERENCE_C, float(bool(limit))
            name = f"fp64_{limit}w" if limit else f"fp64_{clock:.0f}"
            work = 1.0, 1e12 * float(line["tflop_per_s"]), 0.0, 0.0
            found.append(Point(name, "fp64", "", 1, 0, *clocks, *work, float(limit or math.inf)))
    return found


def product(spec: dict[str, Any], point: Point) -> Kernel:
    """The product of a sweep: core work alone, with the energy that it took at a lock."""
    mhz, without = point.core_mhz, Kernel(point.time_s * point.core_mhz / 1000, 0.0, 0.0, 3.0, 0.0, 0.0)
    own_j = (point.power_w - at(spec, without, round(mhz)).power_w) * point.time_s
    return without._replace(core_j=own_j / relative_voltage(spec["core"], mhz) ** 2)


def at(spec: dict[str, Any], kernel: Kernel, core_mhz: int) -> OperatingPoint:
    """The state of a kernel at a locked clock, the board as warm as its standing power was taken."""
    return settle(spec, [(kernel, 1)], Pair(core_mhz, AUTO), spec["thermal"]["reference_c"])


def limited_mhz(spec: dict[str, Any], kernel: Kernel, limit_w: float) -> float:
    """The core clock that a power limit leaves a kernel, MHz, mean."""
    limited = spec | {"governor": spec["governor"] | {"cap_w": limit_w}}
    return at(limited, kernel, spec["clocks"]["core_mhz"]["highest"]).core_mhz


def energy_name(point: Point) -> str:
    """What the energy of a probe's load is called: `fp32`, `fp32/zero`; a GEMM of few operations a byte, which runs
    another of cuBLASLt's kernels, goes by the probe's own name."""
    own = point.probe.removesuffix(f"_{point.operands}") if point.load == "gemm" else point.load
    load = own if own in ("gemm_outer", "gemm_inner") else point.load
    return load if point.operands in ("random", "") else f"{load}/{point.operands}"


def clock_share(points: list[Point]) -> float:
    """SM clock counted over core clock reported while tensor cores work without a pause: the mean of all such probes;
    1 where there is none."""
    shares = [point.sm_mhz / point.core_mhz for point in points if point.load in _TENSOR and point.duty == 1]
    return float(np.mean(shares)) if shares else 1.0


def steady(points: list[Point]) -> list[Point]:
    """The points whose voltage is known: all but those whose counted clock is lower than tensor work explains."""
    share = clock_share(points)

    def explained(point: Point) -> float:
        if point.load not in _TENSOR:
            return 1.0
        return 1 / (point.duty / share + 1 - point.duty)

    return [point for point in points if point.sm_mhz >= (1 - _HELD) * explained(point) * point.core_mhz]


def _is_standing(point: Point) -> bool:
    """A board that is awake and does nothing: one warp an SM that looks at the clock (more of them cost energy)."""
    return point.load == "spin" and point.warps == 1


def calibrate(points: list[Point], spec: dict[str, Any]) -> Calibration:
    """Fit the points (see read_points) from the spec of their GPU (gpu.spec.resolve). Raises InputError: too little
    was measured."""
    used = [point for point in steady(points) if point.load not in ("idle", "spin") or _is_standing(point)]
    names = sorted({energy_name(point) for point in used if point.load != "spin"})
    if not any(point.load == "spin" for point in used) or "l2_read" not in names:
        raise InputError("energy probes: a spin and an L2 read are needed to tell standing from switching power")
    nodes = len(spec["core"]["v_over_v0"])
    mem = str(spec["clocks"]["auto_mem_mhz"])
    measured = np.array([point.power_w for point in used])
    shape = np.array([voltage for _, voltage in spec["core"]["v_over_v0"]])
    prior = np.array([spec["memory"]["static_w"][mem], spec["core"]["clock_w_per_ghz"], *shape[1:]])

    def moved(x: np.ndarray) -> dict[str, Any]:
        new = spec | {"core": copy.deepcopy(spec["core"]), "memory": copy.deepcopy(spec["memory"])}
        new["memory"]["static_w"][mem] = x[0]
        new["core"]["clock_w_per_ghz"] = x[1]
        new["core"]["v_over_v0"] = [[mhz, v] for (mhz, _), v in zip(spec["core"]["v_over_v0"], [1.0, *x[2:]])]
        return new

    def predicted(x: np.ndarray) -> np.ndarray:
        new, energy = moved(x[: 1 + nodes]), dict(zip(names, x[1 + nodes :] * 1e-12))
        return np.array([_power_w(new, energy, point) for point in used])

    def residual(x: np.ndarray) -> np.ndarray:
        steps = np.diff(np.array([1.0, *x[2 : 1 + nodes]])) - np.diff(shape / shape[0])
        held = np.array([(x[1] / prior[1] - 1) / _PRIOR_CLOCK, *(steps / _PRIOR_STEP)])
        return np.concatenate([(predicted(x) / measured - 1) / _POWER_SD, held])

    start = np.concatenate([prior, [_start_pj(spec, used, name) for name in names]])
    low = np.concatenate([[0, 0], np.ones(nodes - 1), np.zeros(len(names))])
    found = least_squares(residual, start, x_scale=np.maximum(start, 1e-3), bounds=(low, np.inf))
    spread = _sd(found, len(used))
    fitted = moved(found.x[: 1 + nodes])
    clocks = [point.core_mhz for point in used]
    return Calibration(
        float(found.x[0]),
        float(found.x[1]),
        [[mhz, float(voltage)] for mhz, voltage in fitted["core"]["v_over_v0"]],
        dict(zip(names, map(float, found.x[1 + nodes :]))),
        dict(zip(names, map(float, spread[1 + nodes :]))),
        {point.probe: float(error) for point, error in zip(used, predicted(found.x) / measured - 1)},
        (min(clocks), max(clocks)),
    )


def _power_w(spec: dict[str, Any], energy: dict[str, float], point: Point) -> float:
    """The model's power of a probe. energy: {name: J per operation or byte}."""
    watt = _free_power_w(spec, energy, point)
    return watt * held_factor(spec["governor"]) if point.is_held else watt


def _free_power_w(spec: dict[str, Any], energy: dict[str, float], point: Point) -> float:
    mhz = point.core_mhz
    voltage2 = relative_voltage(spec["core"], mhz) ** 2
    standing = static_w(spec, spec["clocks"]["auto_mem_mhz"], point.temp_c) + clock_w(spec["core"], mhz)
    if point.load == "spin":
        return standing
    own, byte = energy[energy_name(point)], point.read_byte + point.write_byte

    def of_operands(load: str) -> float:  # a byte of zeros costs less
        return energy.get(f"{load}/zero" if point.operands == "zero" else load, energy.get(load, 0.0))

    if point.load in _OPERATIONS:
        # a GEMM's compulsory bytes cost what the memory probes say
        moved_j = byte * (of_operands("l2_read") * voltage2 + of_operands("dram_copy"))
        return standing + (own * voltage2 * point.operations + moved_j) / point.time_s
    if point.load in _ON_CHIP:
        return standing + own * voltage2 * byte / point.time_s
    return standing + (own + of_operands("l2_read") * voltage2) * byte / point.time_s


def _start_pj(spec: dict[str, Any], points: list[Point], name: str) -> float:
    """Where an energy starts: all that a probe draws above a standing board, spread over its work."""
    point = max((point for point in points if energy_name(point) == name), key=lambda point: point.power_w)
    standing = static_w(spec, spec["clocks"]["auto_mem_mhz"], point.temp_c) + clock_w(spec["core"], point.core_mhz)
    count = point.operations if point.load in _OPERATIONS else point.read_byte + point.write_byte
    return max(1e-3, 1e12 * 0.5 * (point.power_w - standing) * point.time_s / count)


def _sd(found: Any, count: int) -> np.ndarray:
    """Standard deviation of each unknown, by the curvature at the solution; residuals have sd 1 by construction or,
    where they are larger, their own."""
    free = max(1, count - len(found.x))
    scale = max(1.0, 2 * found.cost / free)
    covariance = np.linalg.pinv(found.jac.T @ found.jac) * scale
    return np.sqrt(np.diag(covariance))


_DIGITS = 3  # of a figure in a spec


def probe(points: list[Point], name: str) -> Point:
    """The point of a probe. Raises InputError where it was not measured."""
    for point in points:
        if point.probe == name:
            return point
    raise InputError(f"energy probes: {name} was not measured")


def latency_us(points: list[Point], spec: dict[str, Any]) -> float:
    """What a launch takes besides its work: a spin of known cycles, less those cycles."""
    point = probe(points, "spin_w1")
    return 1e6 * point.time_s - point.operations / spec["sm_count"] / point.sm_mhz


def sm_byte_per_clock(points: list[Point], spec: dict[str, Any]) -> float:
    """What one SM takes from L2 in a cycle."""
    point = probe(points, "l2_read_w32")
    return point.read_byte / point.time_s / (spec["sm_count"] * point.sm_mhz * 1e6)


def tensor_efficiency(points: list[Point], spec: dict[str, Any], name: str = "gemm") -> float:
    """Share of the tensor cores' peak that a GEMM reaches, at the SM clock counted."""
    point = probe(points, name)
    peak = spec["rates"]["tensor_bf16_tflop_per_s_per_ghz"] * 1e9 * point.sm_mhz
    return point.operations / point.time_s / peak


def _whole_waves(spec: dict[str, Any]) -> float:
    """Share of the tensor cores that the probe's product keeps busy by the spec's tiles."""
    (settings,) = (probe.settings for probe in PROBES if probe.name == "gemm")
    g = Gemm(*(settings[name] for name in ("count", "m", "n", "k", "layout")), False, 0)
    return tensor_share(g, spec["sm_count"], spec["rates"])


def dram_efficiency(points: list[Point], spec: dict[str, Any], name: str) -> float:
    """Share of the DRAM's nominal bandwidth that a probe would reach if its core work took no time."""
    point = probe(points, name)
    if point.load == "gemm":
        core = tensor_efficiency(points, spec, name) / tensor_efficiency(points, spec)
    else:
        byte_per_s = (point.read_byte + point.write_byte) / point.time_s
        core = byte_per_s / (sm_byte_per_clock(points, spec) * spec["sm_count"] * point.sm_mhz * 1e6)
    p = spec["families"]["gemm"]["overlap"]
    memory_s = point.time_s * (1 - core**p) ** (1 / p)
    return (point.read_byte + point.write_byte) / memory_s / (spec["memory"]["gb_per_s"] * 1e9)


def cap_w(points: list[Point], limit_w: float) -> float:
    """Mean power of the probes that a power limit held, W. Raises InputError where it held none."""
    capped = [point.power_w for point in steady(points) if point.is_held and point.limit_w == limit_w]
    if not capped:
        raise InputError("energy probes: none ran at the power limit")
    return fmean(capped)


def figures(points: list[Point], spec: dict[str, Any], limit_w: float) -> dict[str, Any]:
    """All that the probes say about the spec of their GPU, as a tree of overrides (see gpu.spec.resolve).

    points: of read_points; spec: where the fit starts and what it keeps to where no probe ran; limit_w:
    the board's power limit, W.
    """
    fitted = calibrate(points, spec)
    pj = fitted.energy_pj
    copy = dram_efficiency(points, spec, "dram_copy_w32")
    tree = {
        "memory": {"static_w": {str(spec["clocks"]["auto_mem_mhz"]): fitted.static_w}},
        "core": {
            "clock_w_per_ghz": fitted.clock_w_per_ghz,
            "v_over_v0": fitted.v_over_v0,
            "tensor_clock_share": clock_share(points),
        },
        "energy_pj": {
            "tensor_bf16_flop": pj["gemm"],
            "fp32_flop": pj["fp32"],
            "sfu_op": pj["sfu"],
            "instruction": pj["int32"],
            "stream_byte": pj["l2_read"],
            "dram_byte": pj["dram_copy"],
        },
        "governor": {"cap_w": cap_w(points, limit_w)},
        "families": {
            "default": {
                "sm_byte_per_clock": sm_byte_per_clock(points, spec),
                "dram_efficiency": copy,
                "latency_us": latency_us(points, spec),
            },
            "gemm": {"tensor_efficiency": min(1.0, tensor_efficiency(points, spec) / _whole_waves(spec))},
            "attention_gemm": {
                "tensor_efficiency": tensor_efficiency(points, spec),
                "dram_efficiency": dram_efficiency(points, spec, "gemm_inner"),
                "tensor_energy": pj["gemm_inner"] / pj["gemm"],
            },
            "bias": {"dram_efficiency": dram_efficiency(points, spec, "dram_read_w32")},
        },
    }
    return _rounded(tree)


def _rounded(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _rounded(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_rounded(value) for value in node]
    # clocks are whole numbers and stay as they are
    return node if isinstance(node, int) else float(f"{node:.{_DIGITS}g}" if node < 1000 else f"{node:.0f}")
