"""What a GPU's energy probes say about speed, and with calibration.energy all that they say about its spec.

Each figure of speed is that of the one probe that measures it, such that the simulated GPU (kernel_dvfs.gpu.model) with
these figures takes as long as the probe did. Nothing here is of one kernel of the workload.
"""

from statistics import fmean
from typing import Any

from kernel_dvfs.calibration.energy import Point, calibrate, clock_share, steady
from kernel_dvfs.errors import InputError

# a board that is said to be capped far below its limit is held by something else
_NEAR_LIMIT = 0.95
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
    """Mean power of the probes that the power limit held, W. Raises InputError where it held none."""
    capped = [point.power_w for point in steady(points) if point.capped_share > 0.5]
    capped = [watt for watt in capped if watt > _NEAR_LIMIT * limit_w]
    if not capped:
        raise InputError("energy probes: none ran at the power limit")
    return fmean(capped)


def figures(points: list[Point], spec: dict[str, Any], limit_w: float) -> dict[str, Any]:
    """All that the probes say about the spec of their GPU, as a tree of overrides (see gpu.spec.resolve).

    points: calibration.energy.read_points; spec: where the fit starts and what it keeps to where no probe ran; limit_w:
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
            "gemm": {"tensor_efficiency": tensor_efficiency(points, spec)},
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
