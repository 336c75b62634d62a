"""What independent evidence says of the simulated RTX 3080 Ti's figures that its data set does not determine.

    python experiments/calibration/board.py [--table rtx3080ti_calibration.csv]

1. Readings, none of which uses the paper's saving. Public products: experiments/data/public_products.csv, rates of
   square bf16 products that owners posted (GitHub, zzc0721/torch-performance-test-data, by number of the issue; 117
   and 144 have one owner). The A10G is the same chip at a fixed 1710 MHz, where no product reaches its power cap, so
   its rate over that of the tensor cores is what a product of a size makes of its clock.
2. With --table: how much single runs scatter where a lock chooses the clock and where the governor does, by runs that
   9251 and 9501 MHz of memory should make no difference to.
3. The paper's way on the simulated board over tensor-core energy: one measurement of each point of its grid, the strict
   choice, and what is true of it. Mean over seeds, and the 5th to 95th percentile of studies.
4. The least energy at a tolerated slowdown, by the truth: on the paper's grid, and with clocks between.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np

from experiments.calibration.forward_passes import A10, FACTS, read_runs, tensor_fits
from experiments.searches.array_study import one_sweep
from experiments.searches.sampling import measure
from experiments.searches.selection_bias import Setting, ground_of
from experiments.searches.testbed import of_table
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.clocks import BASELINE
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import Work, parameters
from kernel_dvfs.workload.formulas import Gemm, gemm
from kernel_dvfs.workload.traffic import Cache, gemm_byte, wave_share

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
    cache = Cache(spec["memory"]["l2_mb"] * 1e6, spec["sm_count"])
    share = wave_share(g, spec["sm_count"], tile) if tile else 1.0
    kernel = parameters(spec, Work("gemm", gemm(g).tensor_flop, 0, 0, gemm_byte(g, cache), share))
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
    print(f"  by tiles, RTX 3080 Ti: {gemm_byte(square(10240), Cache(6e6, 80)) / once:.1f}")


def scatter(path: str) -> None:
    bed = of_table(path, "equal-time")
    pairs = bed.candidates.pairs
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


def ways(seeds: int) -> None:
    for title, more in (("the default board", {}), ("a steady clock at the cap", {"governor": {"hunting_mhz": 0}})):
        print(
            f"\nthe paper's way on {title}, change of energy / of time, %; the paper: claimed -15.64, true -14.6 / +0.6"
        )
        print(f"{'pJ/FLOP':>9}{'claimed':>9}{'true':>9}{'5 to 95 %':>18}{'time':>8}{'5 to 95 %':>18}")
        for pj in TENSOR_PJ:
            ground, _ = ground_of(Setting("board", 0, overrides={"energy_pj": {"tensor_bf16_flop": pj}} | more))
            every, found = np.arange(ground.known.time_s.size), []
            for seed in range(seeds):
                sweep = measure(ground.known, ground.noise, np.random.default_rng(seed), every)
                chosen = one_sweep(ground, [sweep], [0.0], "untied")
                found.append([chosen.claimed[0][1], *chosen.view.change(chosen.options[0])])
            claimed, time, energy = np.array(found).T
            low, high = np.percentile([energy, time], [5, 95], axis=1)
            print(
                f"{pj:>9.2f}{claimed.mean():>9.2f}{energy.mean():>9.2f}{f'{low[0]:.2f} to {high[0]:.2f}':>18}"
                f"{time.mean():>+8.2f}{f'{low[1]:+.2f} to {high[1]:+.2f}':>18}"
            )


def frontier() -> None:
    grounds = [ground_of(Setting("board", 0, fine=fine))[0] for fine in (False, True)]
    print("\nleast energy at a tolerated slowdown, by the truth, change of energy, %")
    print(f"{'slowdown, %':>12}{'grid':>9}{'between':>9}")
    for limit in LIMITS_PERCENT:
        grid, between = (ground.best(limit / 100)[1] for ground in grounds)
        print(f"{limit:>12}{grid:>9.2f}{between:>9.2f}")
    print("the paper: -15.64 at 0 (claimed), -14.6 at +0.6 (measured again)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", help="measured table of the RTX 3080 Ti, as `kernel-dvfs import` takes it")
    parser.add_argument("--seeds", type=int, default=40, help="studies of the paper's way at each energy (default: 40)")
    arguments = parser.parse_args()
    try:
        readings(specs.resolve(GPU))
        if arguments.table:
            scatter(arguments.table)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    ways(arguments.seeds)
    frontier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
