"""What the energy probes say about the spec of the simulated H200, and how well the model fits the probes.

    python experiments/calibration/calibrate_h200.py            # experiments/results/calibration_h200.txt

Reads energy_probes_h200.csv (gpu_energy.py); no kernel of the workload takes part. The figures are copied into
gpu/specs/h200_sxm.yaml by hand, and a test holds them equal. Where no probe ran the fit keeps to the figures below,
which are not the H200's own: voltage is the A100's, its clock axis scaled by 1980/1410.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from experiments.calibration import energy
from experiments.calibration.energy import calibrate, clock_share, energy_name, read_points, steady
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.model import clock_w, static_w

RESULTS = Path(__file__).parents[1] / "results"
GPU, PROBES, REPORT = "h200_sxm", "energy_probes_h200.csv", "calibration_h200.txt"
LIMIT_W = 700
# V/V0 is only known relative to a lowest clock, and that of no probe is below 1380 MHz
START = {
    "memory": {"static_w": {"3201": 110}},
    "core": {
        "clock_w_per_ghz": 9,
        "v_over_v0": [[1350, 1.0], [1475, 1.02], [1601, 1.04], [1727, 1.12], [1854, 1.2], [1980, 1.31]],
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
    return read_points(RESULTS / PROBES)


def start() -> dict:
    """The spec that the fit starts from and keeps to where no probe ran."""
    return specs.resolve(GPU, START)


def figures() -> dict:
    """What the spec has to say, to rounding."""
    return energy.figures(points(), start(), LIMIT_W)


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
        f"{PROBES}: {len(measured)} probes; the figures of the simulated H200 that they give",
        "",
        f"standing power {fitted.static_w:.1f} W, clock tree {fitted.clock_w_per_ghz:.2f} W/GHz, "
        f"voltage seen from {fitted.voltage_shown[0]:.0f} to {fitted.voltage_shown[1]:.0f} MHz",
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
    lines.append(f"mean absolute error of power, {len(errors)} probes: {100 * sum(errors) / len(errors):.1f} %")
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
