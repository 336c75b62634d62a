"""What the energy probes say about the spec of the simulated H200, and how well the model fits the probes.

    python experiments/calibration/calibrate_h200.py            # experiments/results/calibration_h200.txt

Reads energy_probes_h200.csv (gpu_energy.py), all at 1380 to 1980 MHz, and below that the locked clocks of another H200
(hopper_sweeps.csv); no kernel of the workload takes part. The figures are copied into gpu/specs/h200_sxm.yaml by hand,
and a test holds them equal. governor.capped_extra_power is what three power limits of an H100 tell, of the same
sweep: with it the simulated one has the clocks that they left its product. The H100's other limits, and its locked
clocks, took no part and judge (savings.py).
"""

import argparse
import math
import os
import sys
from functools import cache
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from scipy.optimize import minimize_scalar

from experiments.calibration import energy
from experiments.calibration.energy import (
    Point,
    calibrate,
    clock_share,
    energy_name,
    limited_mhz,
    product,
    read_points,
    read_sweep,
    steady,
)
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.model import clock_w, static_w
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

RESULTS = Path(__file__).parents[1] / "results"
SWEEPS = Path(__file__).parents[1] / "data" / "hopper_sweeps.csv"
GPU, PROBES, REPORT = "h200_sxm", "energy_probes_h200.csv", "calibration_h200.txt"
LIMITED, LOCK_MHZ = "h100_sxm", 1005  # whose power limits are known, and the lock that tells its product's energy
_MOST_EXTRA = 0.2
LIMIT_W = 700
# where the fit starts. The voltage is flat to the least energy of the sweep, then a straight line that goes on as the
# sweep begins; steps of it are kept by 0.05 each where nothing else tells them
_KNEE_MHZ, _NODES_MHZ, _AT_1980 = 1005, (1305, 1475, 1601, 1727, 1854, 1980), 1.6
START = {
    "memory": {"static_w": {"3201": 100}},
    "core": {
        "clock_w_per_ghz": 9,
        "v_over_v0": [
            [mhz, 1 + (_AT_1980 - 1) * (mhz - _KNEE_MHZ) / (1980 - _KNEE_MHZ)] for mhz in (_KNEE_MHZ, *_NODES_MHZ)
        ],
    },
}
# (probe, what it shows)
SHOWN = (
    ("spin_w1", "awake, one warp an SM"),
    ("fp32_w32", "FP32 FMA, 2 FLOP each"),
    ("fp32_zero", "the same on zeros"),
    ("sfu_w32", "special functions"),
    ("int32_w32", "32-bit integer"),
    ("shared_w32", "shared memory"),
    ("l2_read_w32", "L2 read"),
    ("l2_read_zero", "L2 read of zeros"),
    ("dram_read_w32", "DRAM read"),
    ("dram_write_w32", "DRAM write"),
    ("dram_copy_w32", "DRAM copy"),
    ("dram_copy_zero", "DRAM copy of zeros"),
    ("tensor_w32", "`mma` on random operands"),
    ("tensor_zero", "`mma` on zeros"),
    ("gemm", "cuBLASLt 8192 cubed"),
    ("gemm_half", "the same, a triangle of one factor zero"),
    ("gemm_zero", "the same on zeros"),
    ("gemm_inner", "256 x (2048 x 128, k = 2048)"),
    ("gemm_outer", "256 x (2048 x 2048, k = 128)"),
)
HEAD = (
    "| probe | load | W | core clock reported, MHz | SM clock counted, MHz | rate | "
    "whole board, pJ | above standing, pJ | at V0, pJ |\n|---|---|--:|--:|--:|--:|--:|--:|--:|"
)


def points() -> list:
    return read_points(RESULTS / PROBES, LIMIT_W) + read_sweep(SWEEPS, "H200", "fit")


def start(extra: float | None = None) -> dict:
    """The spec that the fit starts from and keeps to where no probe ran. extra: what a board at its cap draws beyond
    the same clocks locked, of its power; None: as fitted."""
    if extra is None:
        extra = capped_extra("fit")
    return specs.resolve(GPU, specs.merge(START, {"governor": {"capped_extra_power": extra}}))


def limited(extra: float, use: str) -> list[tuple[Point, float]]:
    """[(power limit of the H100 for a use, the clock that it leaves the simulated one, MHz)] with so much extra."""
    fitted = calibrate(points(), start(extra))
    spec = specs.resolve(LIMITED)
    spec["memory"]["static_w"][str(spec["clocks"]["auto_mem_mhz"])] = fitted.static_w
    spec["core"] |= {"clock_w_per_ghz": fitted.clock_w_per_ghz, "v_over_v0": fitted.v_over_v0}
    spec["governor"]["capped_extra_power"] = extra
    (lock,) = (point for point in read_sweep(SWEEPS, "H100", "judge") if point.core_mhz == LOCK_MHZ)
    kernel = product(spec, lock)
    return [
        (point, limited_mhz(spec, kernel, point.power_w))
        for point in read_sweep(SWEEPS, "H100", use)
        if point.capped_share
    ]


@cache
def capped_extra(use: str) -> float:
    """governor.capped_extra_power by the power limits that are there for a use, to rounding: the least squares of the
    clocks that they leave."""

    def off(extra: float) -> float:
        return sum(math.log(mhz / point.core_mhz) ** 2 for point, mhz in limited(extra, use))

    return float(f"{minimize_scalar(off, bounds=(0, _MOST_EXTRA), method='bounded', options={'xatol': 1e-4}).x:.2g}")


def figures() -> dict:
    """What the spec has to say, to rounding."""
    extra = {"governor": {"capped_extra_power": capped_extra("fit")}}
    return specs.merge(energy.figures(points(), start(), LIMIT_W), extra)


def table() -> str:
    """The probes as Markdown: power, clocks, rate; energy per operation or byte: of the whole board, above a board that
    stands by at that clock, and the load's own part (without the bytes below it) at the lowest voltage."""
    measured = {point.probe: point for point in points()}
    spec = start()
    fitted = calibrate(list(measured.values()), spec)
    spec["memory"]["static_w"][str(spec["clocks"]["auto_mem_mhz"])] = fitted.static_w
    spec["core"] |= {"clock_w_per_ghz": fitted.clock_w_per_ghz, "v_over_v0": fitted.v_over_v0}
    lines = [HEAD]
    for name, what in SHOWN:
        point = measured[name]
        amount, unit = point.operations, "T/s"
        if not amount:
            amount, unit = point.read_byte + point.write_byte, "TB/s"
        if point.load == "spin":
            amount = 0
        rate = f"{amount / point.time_s / 1e12:.3g} {unit}" if amount else ""
        standing_w = static_w(spec, spec["clocks"]["auto_mem_mhz"], point.temp_c) + clock_w(
            spec["core"], point.core_mhz
        )
        pj = [
            f"{1e12 * watt * point.time_s / amount:.3g}" if amount else ""
            for watt in (point.power_w, point.power_w - standing_w)
        ]
        own = fitted.energy_pj.get(energy_name(point))
        pj.append("" if own is None else f"{own:.3g}")
        cells = (f"{point.power_w:.0f}", f"{point.core_mhz:.0f}", f"{point.sm_mhz:.0f}", rate, *pj)
        lines.append(f"| {name} | {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report() -> str:
    measured = points()
    fitted = calibrate(measured, start())
    lines = [
        f"{PROBES} and {SWEEPS.name}: {len(measured)} points; the figures of the simulated H200 that they give",
        "",
        f"standing power {fitted.static_w:.1f} W, clock tree {fitted.clock_w_per_ghz:.2f} W/GHz, "
        f"voltage seen from {fitted.voltage_shown[0]:.0f} to {fitted.voltage_shown[1]:.0f} MHz",
        f"a board at its cap draws {100 * capped_extra('fit'):.2g} % more than at the same clocks locked, by every "
        f"second limit of an H100; by the others {100 * capped_extra('judge'):.2g} %",
        "V/V0 " + "  ".join(f"{mhz}: {voltage:.3f}" for mhz, voltage in fitted.v_over_v0),
        f"SM clock counted over core clock reported, tensor cores at work: {clock_share(measured):.3f}",
        "",
        "pJ per operation or byte, core part at V0 (sd of the fit)",
        *(f"  {name:16} {pj:8.3f} ({fitted.sd_pj[name]:.3f})" for name, pj in fitted.energy_pj.items()),
        "",
        "spec",
        *_lines(figures()),
        "",
        "power of the model over the probe, %; core clock reported and SM clock counted, MHz",
    ]
    kept = {point.probe for point in steady(measured)}
    for point in measured:
        error = fitted.power_error.get(point.probe)
        why = "held by more than tensor work explains" if point.probe not in kept else "not in the fit"
        said = why if error is None else f"{100 * error:+6.1f}"
        clocks = f"{point.core_mhz:6.0f} {point.sm_mhz:7.1f}"
        lines.append(f"  {point.probe:16} {point.power_w:6.1f} W {clocks}  {said}")
    errors = [abs(error) for error in fitted.power_error.values()]
    lines.append(f"mean absolute error of power, {len(errors)} points: {100 * sum(errors) / len(errors):.1f} %")
    lines += ["", table()]
    return "\n".join(lines) + "\n"


def _lines(tree, path=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{path}{key}.")
        else:
            yield f"  {path}{key}: {value}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default=str(RESULTS / REPORT))
    options = parser.parse_args()
    text = report()
    write_text(options.output, text)
    print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
