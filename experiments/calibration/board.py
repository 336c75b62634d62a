"""What independent evidence says of the simulated RTX 3080 Ti's figures that its data set does not determine.

    python experiments/calibration/board.py [PART ...] [--table rtx3080ti_calibration.csv]

readings    none uses the paper's saving. Public products: experiments/data/public_products.csv, rates of square bf16
            products that owners posted (GitHub, zzc0721/torch-performance-test-data, by number of the issue; 117 and
            144 have one owner). The A10G is the same chip at a fixed 1710 MHz, where no product reaches its power cap,
            so its rate over that of the tensor cores is what a product of a size makes of its clock.
scatter     with --table: how much single runs scatter where a lock chooses the clock and where the governor does, by
            runs that 9251 and 9501 MHz of memory should make no difference to.
exponents   with --table: how well exponents of the time model fit the points.
products    what the dense products of the study do on the simulated board, at auto and just below.
ways        the paper's way on the simulated board, over tensor-core energy and over the scatter of a point: one
            measurement of each point of its grid, the strict choice, and what is true of it. Means over seeds, and the
            5th to 95th percentile of studies. Also written to experiments/results/board_ways.csv.
repeats     the same at the defaults, with what ten repeats of each choice show.
steps       the strict choice by the truth from the board of before to today's, one figure after the other.
frontier    the least energy at a tolerated slowdown, by the truth: on the paper's grid, and with clocks between.
hypothesis  not in the model: what clocks per pass would do if backward products drew less power.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np

from experiments.calibration.fit import MODEL, fit, score_table
from experiments.calibration.forward_passes import A10, FACTS, read_runs, tensor_fits
from experiments.calibration.points import clear_of_cap_w, measured_board, read_points
from experiments.searches.one_sweep import (
    Ground,
    ground_of,
    measured_again,
    measuring,
    of_table,
    one_sweep,
    setup_of,
)
from experiments.searches.sampling import per_launch, true_points, truth
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import Work, parameters
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.workload.formulas import Gemm, gemm
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs.workload.traffic import Cache, gemm_byte, gemm_bytes, wave_share

GPU = "rtx_3080_ti"
PRODUCTS = Path(__file__).parents[1] / "data" / "public_products.csv"
WAYS = Path(__file__).parents[1] / "results/board_ways.csv"
A10G_MHZ = 1710
TENSOR_PJ = (0.6, 0.68, 0.75, 0.83, 0.9, 1.0, 1.05)
LIMITS_PERCENT = (0, 0.6, 1, 2, 5, 10)
# offsets from session to session, %: where the governor chooses the clock, and where a lock does
SCATTER_PERCENT = ((0.3, 0.1), (0.5, 0.1), (0.6, 0.1), (0.3, 0.3), (0.5, 0.5), (0.6, 0.6))
PAPER = {"claimed": -15.64, "energy": -14.6, "time": 0.6}  # %
WITHIN_POINTS = 2.0
# the board of before by what it lacked, in the order in which today's figures are put in
EARLIER = (
    ("0.9 pJ a tensor-core FLOP -> 0.75", {"energy_pj": {"tensor_bf16_flop": 0.9}}),
    ("1958 MHz at auto -> 1930", {"clocks": {"auto_core_mhz": 1958}}),
    (
        "products at 0.90 of the peak -> 0.99 of whole waves",
        {"rates": {"gemm_tile": [1, 1]}, "families": {"gemm": {"tensor_efficiency": 0.9}}},
    ),
    ("a steady clock at the cap -> 60 MHz of hunting", {"governor": {"hunting_mhz": 0}}),
    (
        "1.3 % more power at auto -> 2.2 %, light loads lower",
        {"governor": {"auto_extra_power": 0.013, "auto_light_load_below_us": 0}},
    ),
)
BACKWARD_FACTORS = (1.0, 0.9, 0.8, 0.75, 0.7)


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
    print(f"  by tiles, RTX 3080 Ti: {gemm_byte(square(10240), Cache(6e6, 80)) / once:.1f}")
    double = gemm_byte(Gemm(1, 16384, 16384, 16384, "NN", False, 0), Cache(20e6, 108, (128, 64)), element_byte=8)
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
        scores = score_table(fit(points, spec, replace(MODEL, overlap=p)), points)
        print(f"  p = {p:g}: " + ", ".join(f"{scores[of, 'time'].mape:.2f}" for of in ("below", "auto")))


def at_auto() -> None:
    setup, _ = setup_of()
    products = {row.id: (row.gemm, row.multiplicity) for row in kernel_rows() if row.family == "gemm"}
    once = {name: gemm(g).read_byte + gemm(g).write_byte for name, (g, _) in products.items()}
    whole = sum(count * once[name] for name, (_, count) in products.items())
    print(f"\nthe {len(products)} dense products of the study: DRAM bytes, times each operand once, in all (each)")
    for tile in ((256, 128), (128, 128)):
        byte = gemm_bytes(products, Cache(6e6, 80, tile))
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


def studies(ground: Ground, seeds: int) -> np.ndarray:
    """(seeds, 3): change of energy claimed, of energy and of time in truth, percent, of studies by the paper's way."""
    found = []
    for seed in range(seeds):
        choice, claimed = one_sweep(ground, measuring(ground, np.random.default_rng(seed)), 0.0)
        time, energy = ground.change(choice)
        found.append([claimed[1], energy, time])
    return np.array(found)


HEAD = f"{'claimed':>9}{'true':>9}{'5 to 95 %':>18}{'time':>8}{'5 to 95 %':>18}{'within 2 pp':>14}"


def ways(seeds: int) -> None:
    print("\nthe paper's way, change of energy / of time, %; the paper: claimed -15.64, true -14.6 / +0.6")
    settings = [
        (f"a clock that hunts by {mhz} MHz at the cap", {"tensor_pj": pj, "hunting_mhz": mhz})
        for mhz in (60, 0)
        for pj in TENSOR_PJ
    ]
    for pj in (0.75, 0.9):
        name = f"scatter of a point, governed and locked, at {pj} pJ"
        settings += [(name, {"tensor_pj": pj, "governed": one, "locked": other}) for one, other in SCATTER_PERCENT]
    title, rows = "", []
    for name, changed in settings:
        row = {"tensor_pj": 0.75, "hunting_mhz": 60, "governed": 0.5, "locked": 0.1} | changed
        if name != title:
            title = name
            print(f"{title}:\n{'':15}{HEAD}")
        offset = {each: row[each] / 100 for each in ("governed", "locked")}
        over = {"energy_pj": {"tensor_bf16_flop": row["tensor_pj"]}, "governor": {"hunting_mhz": row["hunting_mhz"]}}
        found = studies(ground_of(over | {"noise": {"offset_sd": offset}}), seeds)
        claimed, energy, time = found.T
        low, high = np.percentile([energy, time], [5, 95], axis=1)
        near = (abs(energy - PAPER["energy"]) <= WITHIN_POINTS).mean()
        label = f"{row['governed']:g} / {row['locked']:g} %" if "governed" in changed else f"{row['tensor_pj']:.2f} pJ"
        print(
            f"{label:>15}{claimed.mean():>9.2f}{energy.mean():>9.2f}{f'{low[0]:.2f} to {high[0]:.2f}':>18}"
            f"{time.mean():>+8.2f}{f'{low[1]:+.2f} to {high[1]:+.2f}':>18}{near:>14.0%}"
        )
        means = {"claimed": claimed.mean(), "true": energy.mean(), "time": time.mean()}
        rows.append(row | {name: f"{value:.2f}" for name, value in means.items()} | {"within": f"{near:.2f}"})
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(WAYS, text.getvalue())


def repeats(seeds: int) -> None:
    """What ten repeats of a choice show, study by study, and how often that is what the paper found."""
    ground, rows = ground_of(), []
    for seed in range(seeds):
        measured = measuring(ground, np.random.default_rng([seed, 1]))
        choice, (claimed_time, claimed) = one_sweep(ground, measured, 0.0)
        time, energy = measured_again(ground, choice, measured)
        rows.append([claimed, claimed_time, energy, time])
    claimed, claimed_time, energy, time = np.array(rows).T
    print(f"\nthe paper's way at the defaults, {seeds} studies with ten repeats each: 5, 50 and 95 %")
    for name, values in (("claimed, energy", claimed), ("repeated, energy", energy), ("repeated, time", time)):
        print(f"  {name:17}" + ", ".join(f"{value:+.2f}" for value in np.percentile(values, [5, 50, 95])))
    near = abs(energy - PAPER["energy"]) <= WITHIN_POINTS
    for name, is_so in (
        ("repeated energy within 2 points of the paper's", near),
        ("claimed energy within 2 points of the paper's", abs(claimed - PAPER["claimed"]) <= WITHIN_POINTS),
        ("repeats save less energy than claimed", energy > claimed),
        ("repeats take more time than claimed", time > claimed_time),
    ):
        print(f"  {name}: {is_so.mean():.0%}")


def steps() -> None:
    """The strict choice from the board of before to today's."""
    print("\nthe truth from the earlier board to today's, change of energy, %, no longer / at most 0.6 % longer:")
    for number in range(len(EARLIER) + 1):
        over: dict = {}
        for _, figures in EARLIER[number:]:
            over = specs.merge(over, figures)
        ground = ground_of(over, fine=True)
        said = " / ".join(f"{ground.best(limit)[1]:.2f}" for limit in (0, 0.006))
        print(f"  {said}  {EARLIER[number - 1][0] if number else 'the earlier board'}")


def frontier() -> None:
    grounds = [ground_of(fine=fine) for fine in (False, True)]
    print("\nleast energy at a tolerated slowdown, by the truth, change of energy, %")
    print(f"{'slowdown, %':>12}{'grid':>9}{'between':>9}")
    for limit in LIMITS_PERCENT:
        grid, between = (ground.best(limit / 100)[1] for ground in grounds)
        print(f"{limit:>12}{grid:>9.2f}{between:>9.2f}")
    print("the paper: -15.64 at 0 (claimed), -14.6 at +0.6 (measured again)")


def less_backward(setup: Setup, factor: float) -> Setup:
    """The setup with the energy of the backward pass's products, and of nothing else, times a factor."""
    kernels = dict(setup.targets["kernel"])
    for name, _ in setup.targets["pass"]["backward"]:
        work = Work(*kernels[name]["work"])
        if work.tensor_flop:
            kernels[name] = kernels[name] | {"work": [*work._replace(energy_factor=factor)]}
    return setup._replace(targets=setup.targets | {"kernel": kernels})


def hypothesis() -> None:
    setup, pairs = setup_of()
    ground = ground_of()
    print("\nif backward products took this share of the energy (the paper's grid, by the truth; change, %):")
    heads = ("pairs in square", "their energy", "backward 1890/9251", "each pass", "both passes", "kernels")
    print(f"{'share':>7}" + "".join(f"{head:>20}" for head in heads))
    near = pairs.index(Pair(1890, 9251))
    for factor in BACKWARD_FACTORS:
        own = less_backward(setup, factor)
        passes = np.array([of_pass(own, name, pairs) for name in ("forward", "backward")])  # (2, [s, J], C)
        time, energy = (100 * (passes[:, i] / passes[:, i, :1] - 1) for i in (0, 1))
        inside = energy[0][(time[0] <= 0) & (energy[0] < 0)]
        best = np.where(time <= 0, energy, np.inf).argmin(axis=1)
        each = sum(passes[i, :, place] for i, place in enumerate(best))
        both = passes[0][:, :, None] + passes[1][:, None, :]  # ([s, J], forward at, backward at)
        kept = np.where(both[0] <= both[0, 0, 0], both[1], np.inf)
        together = both[:, *np.unravel_index(kept.argmin(), kept.shape)]
        kernels = replace(ground, known=truth(own, pairs)).best(0.0)
        cells = [f"{len(inside)}", spread(inside, ".1f"), f"{energy[1, near]:.1f} / {time[1, near]:+.2f}"]
        for change in (*(100 * (found / both[:, 0, 0] - 1) for found in (each, together)), kernels):
            cells.append(f"{change[1]:.1f} / {change[0]:+.2f}")
        print(f"{factor:>7.2f}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


def of_pass(setup: Setup, name: str, pairs: list[Pair]) -> np.ndarray:
    """(2, C): s and J of a pass without noise."""
    bench = Bench(setup, Target("pass", name), exact=True)
    return np.array([per_launch(bench.point(pair)) for pair in pairs]).T


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", help="measured table of the RTX 3080 Ti, as `kernel-dvfs import` takes it")
    parser.add_argument("--seeds", type=int, default=40, help="studies of the paper's way at each energy (default: 40)")
    parts: dict[str, Callable[[argparse.Namespace], None]] = {
        "readings": lambda _: readings(specs.resolve(GPU)),
        "scatter": lambda asked: scatter(asked.table) if asked.table else None,
        "exponents": lambda asked: exponents(asked.table) if asked.table else None,
        "products": lambda _: at_auto(),
        "ways": lambda asked: ways(asked.seeds),
        "repeats": lambda asked: repeats(5 * asked.seeds),
        "steps": lambda _: steps(),
        "frontier": lambda _: frontier(),
        "hypothesis": lambda _: hypothesis(),
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
