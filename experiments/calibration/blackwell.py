"""Large products of B200 and GB200 at auto, by precision: what public tables say, and what the simulated boards do.

    python experiments/calibration/blackwell.py FOLDER     # experiments/results/blackwell.txt

FOLDER: aic-core/src/aiconfigurator_core/systems/data of ai-dynamo/aiconfigurator (Apache-2.0, commit 095f58a); its
tables stay there. Of each (board, backend, precision) the medians of its large products (m, n >= 4096, k >= 2048)
count: TFLOP/s and, where the collector read power, W and pJ a FLOP of the whole board. It watches a product for a
second at most, so power is that of products it watched as long, with weights that are no fresh memory (products.py).

Of the B200, vLLM's table gives the energy of a FLOP in bf16 and nvfp4 (by pJ), SGLang's that in fp8 (by TFLOP/s: at
the cap a rate is a power; vLLM has no fp8 there). They are copied into gpu/specs/b200_sxm.yaml by hand. TensorRT-LLM
is left out and judges, as does all of the GB200. The power that TensorRT-LLM's collector read does not go with its
rates (800 W and 1170 W at the same TFLOP/s), so its rates judge. Nothing here is by clock: savings are not judged.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import brentq

from experiments.calibration.products import FRESH, MOST_REPLAYS, PRODUCTS_AT_ONCE
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import LaunchWork, parameters
from kernel_dvfs.workload.formulas import Gemm, gemm
from kernel_dvfs.workload.traffic import tensor_share
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

REPORT = Path(__file__).parents[1] / "results" / "blackwell.txt"
LARGE = 4096, 4096, 2048  # m, n, k from which a product is large
PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8", "nvfp4": "nvfp4"}
# (board, backend, version, precisions that its table gives): all else is left out
TABLES = (
    ("b200_sxm", "vllm", "0.22.0", ("bf16", "nvfp4")),
    ("b200_sxm", "sglang", "0.5.14", ("fp8",)),
    ("b200_sxm", "trtllm", "1.3.0rc20", ()),
    ("gb200", "vllm", "0.22.0", ()),
    ("gb200", "sglang", "0.5.14", ()),
    ("gb200", "trtllm", "1.3.0rc17", ()),
    ("gb200", "trtllm", "1.3.0rc20", ()),
)
_DIGITS = 3  # of a figure in a spec


class Large(NamedTuple):
    """Large products of a table in a precision: (N,) arrays."""

    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    time_s: np.ndarray
    power_w: np.ndarray  # NaN: not read, or not over a second

    @property
    def flop(self) -> np.ndarray:
        return 2.0 * self.m * self.n * self.k


def read(folder: Path, board: str, backend: str, version: str, precision: str) -> Large:
    path = folder / board / "gemm" / backend / version / "gemm_perf.parquet"
    try:
        table = pq.read_table(path).to_pydict()
        is_it = np.array(table["gemm_dtype"]) == PRECISIONS[precision]
        m, n, k, time_ms = (np.array(table[name], float) for name in ("m", "n", "k", "latency"))
        power_w = np.array(table.get("power", [None] * len(m)), float)
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror or error}; name the folder of the tables of aiconfigurator"
        ) from None
    except (KeyError, ValueError) as error:
        raise InputError(f"{path}: needs gemm_dtype, m, n, k and latency as numbers ({error!r})") from None
    is_it &= (m >= LARGE[0]) & (n >= LARGE[1]) & (k >= LARGE[2])
    is_watched = (PRODUCTS_AT_ONCE * MOST_REPLAYS * time_ms >= 1000) & (n * k < FRESH)
    power_w = np.where(is_watched, power_w, np.nan)
    return Large(m[is_it], n[is_it], k[is_it], 1e-3 * time_ms[is_it], power_w[is_it])


def simulate(spec: dict, large: Large) -> tuple[np.ndarray, np.ndarray]:
    """(s, W) of each on the warm simulated board at auto."""
    found = []
    byte = spec["precisions"][precision]["byte"] if (precision := spec["families"]["gemm"].get("precision")) else 2
    for m, n, k in zip(large.m, large.n, large.k, strict=True):
        g = Gemm(1, int(m), int(n), int(k), "TN", False, 0)
        share = tensor_share(g, spec["sm_count"], spec["rates"])
        work = LaunchWork("gemm", gemm(g).tensor_flop, 0, 0, byte * (m * k + n * k) + 2 * m * n, share)
        state = settle(spec, [(parameters(spec, work), 1)], BASELINE, spec["thermal"]["reference_c"])
        found.append((state.time_s, state.power_w))
    time_s, power_w = np.array(found).T
    return time_s, power_w


def in_precision(board: str, precision: str, figures: dict) -> dict:
    """The spec of a board that computes dense products in a precision. figures: of `fit`, or none."""
    over = {} if precision == "bf16" else {"families": {"gemm": {"precision": precision}}}
    return specs.merge(specs.resolve(board, over), figures)


def figure(precision: str, value: float) -> dict:
    """The energy of a FLOP as a spec has it: pJ of bf16, of others relative to that."""
    if precision == "bf16":
        return {"energy_pj": {"tensor_bf16_flop": value}}
    return {"precisions": {precision: {"energy": value}}}


def medians(large: Large, time_s: np.ndarray, power_w: np.ndarray) -> tuple[float, float, float]:
    """(TFLOP/s, W, pJ a FLOP); the last two NaN where the table has no power."""
    rate = 1e-12 * large.flop / time_s
    known = np.isfinite(large.power_w)
    if not known.any():
        return float(np.median(rate)), np.nan, np.nan
    watt, pj = np.median(power_w[known]), np.median((power_w / rate)[known])
    return float(np.median(rate)), float(watt), float(pj)


def fit(folder: Path) -> dict:
    """The figures of a spec that the tables give, to rounding: each such that a median of large products is met."""
    found: dict = {}
    for precision in PRECISIONS:  # bf16 first: the others are relative to it
        ((board, backend, version, _),) = (table for table in TABLES if precision in table[3])
        large = read(folder, board, backend, version, precision)
        rate, _, pj = medians(large, large.time_s, large.power_w)

        def off(value: float, large=large, at=(board, precision), known=found, rate=rate, pj=pj) -> float:
            spec = in_precision(*at, specs.merge(known, figure(at[1], value)))
            own_rate, _, own_pj = medians(large, *simulate(spec, large))
            return own_pj - pj if np.isfinite(pj) else rate / own_rate - 1

        value = float(f"{brentq(off, 0.1, 1.5, xtol=1e-3):.{_DIGITS}g}")
        found = specs.merge(found, figure(precision, value))
    return found


def report(folder: Path) -> str:
    figures = fit(folder)
    lines = [
        "figures of b200_sxm that the fitted tables give",
        f"  tensor_bf16_flop {figures['energy_pj']['tensor_bf16_flop']:g} pJ; relative to it "
        + ", ".join(f"{name} {own['energy']:g}" for name, own in figures["precisions"].items()),
        "",
        "medians of large products at auto: measured (ai-dynamo/aiconfigurator, Apache-2.0), simulated, off by %",
        f"{'':25}{'':10}{'':11}{'n':>6}{'TFLOP/s':>18}{'':8}{'W':>12}{'':8}{'pJ a FLOP':>14}",
    ]
    for board, backend, version, fitted in TABLES:
        for precision in PRECISIONS:
            large = read(folder, board, backend, version, precision)
            if not len(large.m):
                continue  # none in this precision
            known = "fitted" if precision in fitted else "left out"
            line = f"{f'{board} {backend} {version}':25}{precision:>10}{known:>11}{len(large.m):>6}"
            seen = medians(large, large.time_s, large.power_w)
            own = medians(large, *simulate(in_precision(board, precision, {}), large))
            for one, other, digits in zip(seen, own, (0, 0, 3), strict=True):
                if np.isfinite(one):
                    line += f"{one:>9.{digits}f}{other:>9.{digits}f}{100 * (other / one - 1):>+8.1f}"
            lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the tables of aiconfigurator, by board")
    parser.add_argument("-o", "--output", default=str(REPORT))
    options = parser.parse_args()
    text = report(options.folder)
    write_text(options.output, text)
    print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
