"""How long products of all sizes take on an H200 at auto, and what the board draws: fitted and judged by folds.

    python experiments/calibration/products.py h200_gemm_auto.csv     # experiments/results/products_h200.txt

Reads 3,000 bf16 products of ai-dynamo/aiconfigurator (Apache-2.0), vLLM 0.22 on an H200 at its own clocks: m, n, k,
time_ms, power_w. Four figures of gpu/specs/h200_sxm.yaml come from their *times*, none from their power: gemm_start_k,
gemm_split_k and the gemm family's latency and share of the DRAM bandwidth. Folds leave out whole (n, k).

What the table's power is: its collector replays six products at most 3,000 times and averages NVML's reading, sampled
every 0.1 s, over that. A product of 10 us is watched for 0.18 s, less than the reading itself averages over, so its
power says how long it was watched. Only products of 50 us and more are watched for a second: their power judges the
spec. The weights are memory as it was allocated: large ones are zeros, which cost a third of random operands.
Our own products (benchmarks/gpu_products.py) were watched for 3 s each, on random operands; nothing is fitted to them.
"""

import argparse
import csv
import os
import sys
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np
from scipy.optimize import least_squares

from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.forecast import standing_power_w
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import LaunchWork, parameters
from kernel_dvfs.workload.formulas import Gemm, gemm
from kernel_dvfs.workload.traffic import tensor_share
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

GPU = "h200_sxm"
OWN = Path(__file__).parents[1] / "results" / "gpu_products_h200.csv"
REPORT = Path(__file__).parents[1] / "results" / "products_h200.txt"
FOLDS = 5
CLASSES = (0, 1e9, 1e10, 1e11, 1e12, np.inf)  # FLOP of a product
FITTED_FROM = 1e8
# figure: where it stands in a spec
FIGURES = {
    "start of a tile, in k": ("rates", "gemm_start_k"),
    "sharing of k, in k": ("rates", "gemm_split_k"),
    "latency, us": ("families", "gemm", "latency_us"),
    "share of the DRAM bandwidth": ("families", "gemm", "dram_efficiency"),
}
_ROBUST = 0.1  # an error of time from which a product pulls less: a library may have taken another way
WATCHED_MS = 0.05  # products that the collector watches for a second
PRODUCTS_AT_ONCE, MOST_REPLAYS = 6, 3000
FRESH = 1.3e8  # elements of weights from which their memory was never written before


class Products:
    """The table: (N,) arrays."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            rows = [row if "time_us" not in row else row | {"time_ms": float(row["time_us"]) / 1000} for row in rows]
            columns = ([float(row[name]) for row in rows] for name in ("m", "n", "k", "time_ms", "power_w"))
            self.m, self.n, self.k, self.time_ms, self.power_w = map(np.array, columns)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; name the table of products") from None
        except (KeyError, ValueError) as error:
            raise InputError(f"{path}: needs m, n, k, time_ms and power_w as numbers ({error!r})") from None
        self.gemms = [
            Gemm(1, int(m), int(n), int(k), "TN", False, 0) for m, n, k in zip(self.m, self.n, self.k, strict=True)
        ]
        self.flop = np.array([gemm(g).tensor_flop for g in self.gemms])
        self.byte = np.array([gemm(g).read_byte + gemm(g).write_byte for g in self.gemms])
        shapes = {shape: number for number, shape in enumerate(dict.fromkeys(zip(self.n, self.k, strict=True)))}
        mixed = np.random.default_rng(0).permutation(len(shapes))
        self.fold = np.array([mixed[shapes[shape]] % FOLDS for shape in zip(self.n, self.k, strict=True)])
        self.watched_s = np.minimum(1.0, 1e-3 * PRODUCTS_AT_ONCE * MOST_REPLAYS * self.time_ms)


def with_figures(spec: dict, values) -> dict:
    """The spec with other FIGURES."""
    over: dict = {}
    for (*way, last), value in zip(FIGURES.values(), values, strict=True):
        node = over
        for step in way:
            node = node.setdefault(step, {})
        node[last] = float(value)
    return specs.merge(spec, over)


def simulate(spec: dict, products: Products, which) -> tuple[np.ndarray, np.ndarray]:
    """(ms, W) of the products `which` on the warm simulated board at auto."""
    found = []
    for number in which:
        g = products.gemms[number]
        share = tensor_share(g, spec["sm_count"], spec["rates"])
        work = LaunchWork("gemm", products.flop[number], 0, 0, products.byte[number], share)
        state = settle(spec, [(parameters(spec, work), 1)], BASELINE, spec["thermal"]["reference_c"])
        found.append((1e3 * state.time_s, state.power_w))
    time_ms, power_w = np.array(found).T
    return time_ms, power_w


def fit(spec: dict, products: Products, which) -> np.ndarray:
    """FIGURES by the times of the products `which`."""
    start = np.array([_figure(spec, way) for way in FIGURES.values()])

    def error(x: np.ndarray) -> np.ndarray:
        return np.log(simulate(with_figures(spec, x * start), products, which)[0] / products.time_ms[which])

    found = least_squares(error, np.ones(len(start)), loss="soft_l1", f_scale=_ROBUST, diff_step=0.02, max_nfev=12)
    return found.x * start


def _figure(spec: dict, way) -> float:
    for step in way:
        spec = spec[step]
    return float(spec)


def errors(time_ms, power_w, products: Products, which) -> str:
    """Mean, mean absolute and median absolute errors of time and of power, percent, as a line."""
    said = []
    for found, measured in ((time_ms, products.time_ms), (power_w, products.power_w)):
        off = 100 * (found[which] / measured[which] - 1)
        said.append(f"{off.mean():>+7.1f}{np.abs(off).mean():>6.1f}{np.median(np.abs(off)):>6.1f}")
    return f"{len(which):>6}" + "   ".join(said)


def table(time_ms, power_w, products: Products, kept) -> list[str]:
    lines = [f"{'FLOP':>16}{'n':>6}{'time: mean, |mean|, |median|':>20}{'power':>12}"]
    for low, high in pairwise(CLASSES):
        which = np.flatnonzero(kept & (products.flop >= low) & (products.flop < high))
        if len(which):
            lines.append(f"{f'{low:.0e} to {high:.0e}':>16}" + errors(time_ms, power_w, products, which))
    return lines


def report(path: str | os.PathLike[str]) -> str:
    products, spec = Products(path), specs.resolve(GPU)
    every = np.arange(len(products.m))
    large = products.flop >= FITTED_FROM
    time_ms, power_w = simulate(spec, products, every)
    lines = [
        f"{Path(path).name}: {len(every)} bf16 products of an H200 at auto against the simulated {GPU}, errors in %",
        "",
        "as shipped (its four figures of products were fitted to these times)",
        *table(time_ms, power_w, products, every >= 0),
        "",
        f"figures fitted without a fold of (n, k), {FOLDS} folds, and time on what was left out",
        f"{'':10}" + "".join(f"{name:>30}" for name in FIGURES),
        f"{'shipped':10}" + "".join(f"{_figure(spec, way):>30.4g}" for way in FIGURES.values()),
    ]
    left_ms = np.zeros(len(every))
    for fold in range(FOLDS):
        values = fit(spec, products, np.flatnonzero(large & (products.fold != fold)))
        own = np.flatnonzero(products.fold == fold)
        left_ms[own] = simulate(with_figures(spec, values), products, own)[0]
        lines.append(f"{f'fold {fold}':10}" + "".join(f"{value:>30.4g}" for value in values))
    lines += ["", *table(left_ms, power_w, products, every >= 0)]
    long, written = products.time_ms >= WATCHED_MS, products.n * products.k < FRESH
    lines += [
        "",
        f"watched for a second (from {1e3 * WATCHED_MS:.0f} us), weights that are surely random (below {FRESH:.1e})",
        *table(left_ms, power_w, products, long & written),
        "",
        "measured over simulated power, both above a standing board, by the seconds that a product was watched",
        f"{'':>16}{'n':>6}{'10 %':>8}{'median':>8}{'90 %':>8}",
    ]
    standing_w = standing_power_w(spec)
    ratio = (products.power_w - standing_w) / (power_w - standing_w)
    limits = (0, 0.1, 0.2, 0.3, 0.5, 0.8, 1, np.inf)
    for low, high in pairwise(limits):
        some = ratio[large & written & (products.watched_s >= low) & (products.watched_s < high)]
        cells = "".join(f"{value:>8.2f}" for value in np.percentile(some, [10, 50, 90]))
        lines.append(f"{f'{low:g} to {high:g} s':>16}{len(some):>6}{cells}")
    own = Products(OWN)
    watched = simulate(spec, own, np.arange(len(own.m)))
    lines += [
        "",
        f"{OWN.name}: {len(own.m)} products of another H200 at auto, each watched for 3 s, errors in %",
        *table(*watched, own, own.m > 0),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="h200_gemm_auto.csv")
    parser.add_argument("-o", "--output", default=str(REPORT))
    options = parser.parse_args()
    text = report(options.table)
    write_text(options.output, text)
    print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
