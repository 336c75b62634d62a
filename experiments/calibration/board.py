"""What independent evidence says of the simulated RTX 3080 Ti's figures that its data set does not determine.

    python experiments/calibration/board.py [PART ...] [--table rtx3080ti_calibration.csv]

readings    none is the paper's: what is known without it (infer_board.py puts the two together). Public products:
            experiments/data/public_products.csv, rates of square bf16 products that owners posted (GitHub,
            zzc0721/torch-performance-test-data, by number of the issue; 117 and 144 have one owner). The A10G is the
            same chip at a fixed 1710 MHz, where no product reaches its power cap, so its rate over that of the tensor
            cores is what a product of a size makes of its clock.
scatter     with --table: how much single runs scatter where a lock chooses the clock and where the governor does, by
            runs that 9251 and 9501 MHz of memory should make no difference to.
exponents   with --table: how well exponents of the time model fit the points.
products    what the dense products of the study do on the simulated board, at auto and just below.
frontier    the least energy at a tolerated slowdown, by the truth: on the paper's grid, and with clocks between.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np

from experiments.calibration.fit import fit, form_of, score_table
from experiments.calibration.forward_passes import A10, FACTS, read_runs, tensor_fits
from experiments.calibration.points import clear_of_cap_w, measured_board, read_points
from experiments.searches.one_sweep import (
    ground_of,
    of_table,
    setup_of,
)
from experiments.searches.sampling import true_points
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import LaunchWork, parameters
from kernel_dvfs.workload.formulas import Gemm, gemm
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs.workload.traffic import L2Cache, gemm_byte, gemm_bytes, wave_share
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

GPU = "rtx_3080_ti"
PRODUCTS = Path(__file__).parents[1] / "data" / "public_products.csv"
A10G_MHZ = 1710
TENSOR_PJ = (0.6, 0.68, 0.75, 0.83, 0.9, 1.0, 1.05)
LIMITS_PERCENT = (0, 0.6, 1, 2, 5, 10)


def products(board: str) -> dict[tuple[str, int], float]:
    """{(issue, n): TFLOP/s} of a board's public bf16 products."""
    with PRODUCTS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["board"] == board]
    return {(row["issue"], int(row["n"])): float(row["bf16_tflop_per_s"]) for row in rows}


def square(n: int) -> Gemm:
    """A product of two square matrices."""
    return Gemm(count=1, m=n, n=n, k=n, layout="NN", bias_epilogue=False, beta=0)


def product_rate(spec: dict, n: int) -> tuple[float, float]:
    """(TFLOP/s, MHz reached) of a square product at auto on a simulated GPU as warm as its static power was taken."""
    tile, g = spec["rates"].get("gemm_tile"), square(n)
    cache = L2Cache(spec["memory"]["l2_mb"] * 1e6, spec["sm_count"])
    share = wave_share(g, spec["sm_count"], tile) if tile else 1.0
    kernel = parameters(spec, LaunchWork("gemm", gemm(g).tensor_flop, 0, 0, gemm_byte(g, cache), share))
    state = settle(spec, [(kernel, 1)], BASELINE, spec["thermal"]["reference_c"])
    return gemm(g).tensor_flop / state.time_s * 1e-12, state.core_mhz


def readings(spec: dict) -> None:
    per_ghz = spec["rates"]["tensor_bf16_tflop_per_s_per_ghz"]
    known = {n: rate / (per_ghz * A10G_MHZ / 1000) for (_, n), rate in products("A10G").items()}
    boards = products("RTX 3080 Ti")
    print("share of the tensor cores' rate that a product reaches: A10G at 1710 MHz, and 0.99 of whole waves")
    for n, share in known.items():
        waves = wave_share(square(n), spec["sm_count"], spec["rates"]["gemm_tile"])
        print(f"  n = {n:5}: {share:.3f}, {0.99 * waves:.3f}")
    print("\ncore clock of public RTX 3080 Ti boards by their products, MHz: rate / (A10G's share x rate per GHz)")
    clock = {key: 1000 * rate / (per_ghz * known[key[1]]) for key, rate in boards.items()}
    for n in known:
        own = [mhz for (_, size), mhz in clock.items() if size == n]
        print(f"  n = {n:5}: " + ", ".join(f"{mhz:.0f}" for mhz in own) + f"; mean {np.mean(own):.0f}")
    cool = [mhz for (_, n), mhz in clock.items() if n <= 2048]
    print(f"  light (n <= 2048): {min(cool):.0f} to {max(cool):.0f}, mean {np.mean(cool):.0f}")

    rates = [rate for (_, n), rate in boards.items() if n == 10240]
    print(f"\na product of n = 10240: public boards {min(rates):.1f} to {max(rates):.1f} TFLOP/s; simulated at auto:")
    for pj in (0.5, *TENSOR_PJ, 1.3, 2.2):
        rate, mhz = product_rate(specs.resolve(GPU, {"energy_pj": {"tensor_bf16_flop": pj}}), 10240)
        where = "within" if min(rates) <= rate <= max(rates) else f"{rate - np.mean(rates):+.1f} from their mean"
        print(f"  {pj:4.2f} pJ/FLOP: {rate:.1f} TFLOP/s at {mhz:.0f} MHz, {where}")

    (full_rate,) = products("RTX A4000").values()
    print(f"\nthe same product on a public RTX A4000 (tensor cores at the full rate): {full_rate} TFLOP/s; simulated:")
    for pj in (0.75, 1.2, 1.3, 1.4, 1.5, 1.6):
        rate, mhz = product_rate(specs.resolve("rtx_a4000", {"energy_pj": {"tensor_bf16_flop": pj}}), 10240)
        print(f"  {pj:4.2f} pJ/FLOP: {rate:.1f} TFLOP/s at {mhz:.0f} MHz")

    print("\ntensor-core energy of the same chip, 57 forward passes on an A10 at 900 MHz:")
    busy = [pj for words, pj in tensor_fits(read_runs(FACTS, A10)) if not words.startswith("57")]
    print(
        f"  the six readings of passes that keep it busy: {min(busy):.2f} to {max(busy):.2f}, mean {np.mean(busy):.2f}"
    )
    print(f"  H200, probes: {specs.resolve('h200_sxm')['energy_pj']['tensor_bf16_flop']:.2f}")

    # memory that overlaps with p = 3 and still leaves a share of the rate
    seconds = gemm(square(10240)).tensor_flop / (products("A10G")["126", 10240] * 1e12)
    once = 3 * 2 * 10240**2
    print("\nDRAM traffic of the A10G's product of n = 10240 (600 GB/s, 0.9 of it reached), times each operand once:")
    for peak in (0.993, 1.0):
        longest = seconds * (1 - (known[10240] / peak) ** 3) ** (1 / 3)
        print(f"  at most {longest * 0.9 * 600e9 / once:.1f}, if without memory it ran at {peak} of the rate")
    print(f"  by tiles, RTX 3080 Ti: {gemm_byte(square(10240), L2Cache(6e6, 80)) / once:.1f}")
    double = gemm_byte(Gemm(1, 16384, 16384, 16384, "NN", False, 0), L2Cache(20e6, 108, (128, 64)), element_byte=8)
    print(
        f"  by tiles of 128 x 64, FP64 on an A100: a byte in {2 * 16384**3 / double:.0f} FLOP; by its counters in 122"
    )


def scatter(path: str) -> None:
    bed = of_table(path, "equal-time")
    pairs = bed.pairs
    power = bed.energy_j / bed.time_s
    print("\nscatter of single runs longer than 0.1 ms, from twins at 9251 and 9501 MHz of memory, %: sd, robust sd")
    for core in (630.0, 1050.0, 1470.0, 1890.0, 2100.0):
        one, other = (pairs.index((core, mem)) for mem in (9251.0, 9501.0))
        long = bed.time_s[:, one] > 1e-4
        line = f"  core {core:.0f} MHz: {long.sum()} kernels"
        for words, table in (("time", bed.time_s), ("power", power)):
            apart = np.log(table[long, one] / table[long, other])
            apart = apart[np.isfinite(apart)]
            robust = 1.4826 * np.median(np.abs(apart - np.median(apart)))
            line += f"; {words} {100 * apart.std(ddof=1) / np.sqrt(2):.2f}, {100 * robust / np.sqrt(2):.2f}"
        print(line)


def exponents(path: str) -> None:
    spec = measured_board(GPU)
    points = read_points(path, spec, clear_of_cap_w(spec))
    print("\nexponent p of the time model, fitted to the points; mean absolute error of time, %: below the cap, auto")
    for p in (2.0, 3.0, 4.0, 5.0):
        scores = score_table(fit(points, spec, replace(form_of(spec), overlap=p)), points)
        print(f"  p = {p:g}: " + ", ".join(f"{scores[of, 'time'].mape:.2f}" for of in ("below", "auto")))


def at_auto() -> None:
    setup, _ = setup_of()
    products = {row.id: (row.gemm, row.multiplicity) for row in kernel_rows() if row.family == "gemm"}
    once = {name: gemm(g).read_byte + gemm(g).write_byte for name, (g, _) in products.items()}
    whole = sum(count * once[name] for name, (_, count) in products.items())
    print(f"\nthe {len(products)} dense products of the study: DRAM bytes, times each operand once, in all (each)")
    for tile in ((256, 128), (128, 128)):
        byte = gemm_bytes(products, L2Cache(6e6, 80, tile))
        total = sum(count * byte[name] for name, (_, count) in products.items()) / whole
        each = [byte[name] / once[name] for name in products]
        print(f"  tiles of {tile[0]} x {tile[1]}: {total:.1f} ({min(each):.1f} to {max(each):.1f})")
    pairs = [BASELINE, Pair(1890, 9251), Pair(1890, 5001)]
    time_s, energy_j, core_mhz = np.array([true_points(setup, name, pairs) for name in products]).transpose(1, 2, 0)
    print(f"  at auto: {spread(energy_j[0] / time_s[0], '.0f')} W, {spread(core_mhz[0], '.0f')} MHz")
    for place, pair in enumerate(pairs[1:], 1):
        time, energy = (100 * (values[place] / values[0] - 1) for values in (time_s, energy_j))
        print(f"  at {pair.core_mhz}/{pair.mem_mhz}: time {spread(time, '+.1f')} %, energy {spread(energy, '+.1f')} %")


def spread(values: np.ndarray, digits: str) -> str:
    return f"{values.min():{digits}} to {values.max():{digits}}"


def frontier() -> None:
    grounds = [ground_of(fine=fine) for fine in (False, True)]
    print("\nleast energy at a tolerated slowdown, by the truth, change of energy, %")
    print(f"{'slowdown, %':>12}{'grid':>9}{'between':>9}")
    for limit in LIMITS_PERCENT:
        grid, between = (ground.best(limit / 100)[1] for ground in grounds)
        print(f"{limit:>12}{grid:>9.2f}{between:>9.2f}")
    print("the paper: -15.64 at 0 (claimed), -14.6 at +0.6 (measured again)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", help="measured table of the RTX 3080 Ti, as `kernel-dvfs import` takes it")
    parts: dict[str, Callable[[argparse.Namespace], None]] = {
        "readings": lambda _: readings(specs.resolve(GPU)),
        "scatter": lambda asked: scatter(asked.table) if asked.table else None,
        "exponents": lambda asked: exponents(asked.table) if asked.table else None,
        "products": lambda _: at_auto(),
        "frontier": lambda _: frontier(),
    }
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all of {', '.join(parts)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(parts):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    try:
        for name in arguments.parts or parts:
            parts[name](arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
