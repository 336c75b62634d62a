"""How long a serving engine's host lets its GPUs wait: fitted to a few published rows, judged by all the others.

    python experiments/calibration/serving_host.py -o experiments/results/serving_host.txt

The rows are ML.ENERGY's, of kernel_dvfs_serving.anchors, where they are cited; those that are used are named there. Two
figures are fitted: the host's time for a step (system.HOST_S) and for each of its sequences (steps.SEQUENCE_S). What is
minimised is the sum of squared logarithms of ours over published, of tokens/s and of the median gap between tokens. No
power and no energy has a part in it.

The rows used are of the 8B model: it runs on one GPU without an all-reduce, and its steps are the shortest, so the host
is most of what is not known. Both 70B models are left out whole. Fits to other rows, and to prompts of other lengths,
which are not published, stand below for comparison; nobody chose the rows blindly.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

import numpy as np
from scipy.optimize import minimize

from kernel_dvfs_clocks.files import parse_yaml, write_text
from kernel_dvfs_serving.anchors import (
    GPU,
    ML_ENERGY_PROMPT_TOKENS,
    ML_ENERGY_ROWS,
    ML_ENERGY_USED,
    Load,
    Measured,
    Served,
    closed_loop,
)
from kernel_dvfs_serving.steps import SEQUENCE_S, StepModel
from kernel_dvfs_serving.system import HOST_S

# what `kernel-dvfs calibrate` measured on an H100 in two minutes, far from any serving
MEASURED_MEMORY = Path(__file__).parents[1] / "results" / "calibrate_h100.yaml"
START = (0.5, 50.0)  # ms a step, us a sequence
TO_MS, TO_US = 0.1, 5.0  # rounded to
PROMPTS = (200, 500)  # tokens, beside those that are assumed
COMPARED = ("Llama 3.1 70B",)  # what else would be fitted to, at the same numbers of sequences
# of a row, by place in closed_loop's answer: the first two are fitted
QUANTITIES = {1: "tokens/s", 2: "gap", 0: "power", 3: "J/token"}
FITTED = (1, 2)

Rows = dict[Served, dict[Load, Measured]]


def of_sequences(chosen: dict[str, tuple[int, ...]]) -> Rows:
    """Return the rows of these models with these numbers of sequences."""
    return {
        served: {load: row for load, row in loads.items() if load.sequences in chosen[served.name]}
        for served, loads in ML_ENERGY_ROWS.items()
        if served.name in chosen
    }


def errors(
    rows: Rows,
    host_s: float = HOST_S,
    sequence_s: float = SEQUENCE_S,
    prompt_tokens: float = ML_ENERGY_PROMPT_TOKENS,
    overrides: dict[str, Any] | None = None,
) -> np.ndarray:
    """Return (rows, W | tokens/s | gap | J a token): ours over published, less one. overrides: of the GPU's spec."""
    by_row = []
    for served, loads in rows.items():
        model = StepModel(GPU, served.shapes, served.tp, overrides, host_s, sequence_s)
        by_row += [np.divide(closed_loop(model, load, prompt_tokens), row) - 1 for load, row in loads.items()]
    return np.array(by_row)


def fit(rows: Rows, prompt_tokens: float = ML_ENERGY_PROMPT_TOKENS) -> tuple[float, float, float]:
    """Return (ms a step, us a sequence, what is left of the sum), neither below zero."""

    def cost(figures: np.ndarray) -> float:
        by_row = errors(rows, 1e-3 * figures[0], 1e-6 * figures[1], prompt_tokens)
        return float((np.log1p(by_row[:, FITTED]) ** 2).sum())

    around = [START, (2 * START[0], START[1]), (START[0], 1.2 * START[1])]
    options = {"xatol": 0.01, "fatol": 1e-6, "initial_simplex": around}
    best = minimize(cost, START, method="Nelder-Mead", bounds=[(0, None), (0, None)], options=options)
    return float(best.x[0]), float(best.x[1]), float(best.fun)


def table(rows: Rows, by_row: np.ndarray) -> list[str]:
    """Return lines: each row's errors, and their absolute means by model."""
    lines, start = [], 0
    for served, loads in rows.items():
        percents = 100 * by_row[start : start + len(loads)]
        start += len(loads)
        lines += [
            f"{served.name:14s} {load.sequences:5d}  " + "  ".join(f"{percent[place]:+8.1f}" for place in QUANTITIES)
            for load, percent in zip(loads, percents)
        ]
        means = "  ".join(f"{np.abs(percents[:, place]).mean():8.1f}" for place in QUANTITIES)
        lines.append(f"{served.name:14s}  mean  {means}")
    return lines


def measured_memory() -> dict[str, Any]:
    """Return overrides of the GPU's spec: the energy of a DRAM byte alone."""
    byte_pj = parse_yaml(MEASURED_MEMORY.read_text("utf-8"))["gpu_overrides"]["energy_pj"]["dram_byte"]
    return {"energy_pj": {"dram_byte": byte_pj}}


def waiting() -> list[str]:
    """Return lines: power of a GPU, and the share of a decode step that the host takes."""
    lines = []
    for served, loads in ML_ENERGY_ROWS.items():
        model = StepModel(GPU, served.shapes, served.tp)
        limit_w = model.cap_w / model.tp
        for load, row in loads.items():
            context = load.sequences * (ML_ENERGY_PROMPT_TOKENS + load.answer_tokens / 2)
            step_s = model.decode(load.sequences, context, model.top_mhz).time_s
            ours_w = closed_loop(model, load).power_w
            host_s = HOST_S + load.sequences * SEQUENCE_S
            lines.append(
                f"{served.name:14s} {load.sequences:5d}  {row.power_w / served.tp:19.0f}  {ours_w / served.tp:5.0f}  "
                f"{100 * row.power_w / served.tp / limit_w:27.0f}  {100 * host_s / step_s:26.0f}"
            )
    return lines


def main() -> None:
    """Print the fit, the errors and the comparisons, and write them where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    used = of_sequences(ML_ENERGY_USED)
    left_out = {
        served: {load: row for load, row in loads.items() if load not in used.get(served, {})}
        for served, loads in ML_ENERGY_ROWS.items()
    }
    names = [f"{served.name} at {', '.join(str(load.sequences) for load in loads)}" for served, loads in used.items()]
    host_ms, sequence_us, cost = fit(used)
    lines = [
        "The host of a serving engine, fitted to rows of ML.ENERGY's leaderboard on H100; simulated against published.",
        "Minimised: sum of squared logarithms of ours over published, tokens/s and median gap between tokens.",
        f"Used: {'; '.join(names)}; prompts of {ML_ENERGY_PROMPT_TOKENS} tokens (assumed)",
        f"Least: {host_ms:.2f} ms a step, {sequence_us:.1f} us a sequence (sum {cost:.4f})",
        f"Rounded: {TO_MS * round(host_ms / TO_MS):.1f} ms, {TO_US * round(sequence_us / TO_US):.0f} us; "
        f"shipped: {1e3 * HOST_S:g} ms, {1e6 * SEQUENCE_S:g} us",
    ]
    head = "model, sequences      " + "  ".join(f"{name:>8s}" for name in QUANTITIES.values())
    for title, rows in (("used", used), ("left out", left_out)):
        lines += ["", f"As shipped, errors in %, {title}:", head, *table(rows, errors(rows))]
    lines += [
        "",
        f"The same, all rows, with a DRAM byte as it was measured on an H100 ({MEASURED_MEMORY.name}):",
        head,
        *table(ML_ENERGY_ROWS, errors(ML_ENERGY_ROWS, overrides=measured_memory())),
        "",
        "Why the 8B's power is too low where the engine holds many sequences: its board is at its limit, ours waits.",
        "model, sequences      W a GPU, published   ours  of the limit, published, %  host, of our decode step, %",
        *waiting(),
    ]
    lines += ["", "Fitted to other rows, or with prompts of another length (ms, us, sum):"]
    sequences = next(iter(ML_ENERGY_USED.values()))
    others = dict.fromkeys(COMPARED, sequences)
    for title, chosen in (("used", ML_ENERGY_USED), (", ".join(COMPARED), others), ("both", ML_ENERGY_USED | others)):
        for prompt_tokens in (ML_ENERGY_PROMPT_TOKENS, *PROMPTS):
            step_ms, each_us, left = fit(of_sequences(chosen), prompt_tokens)
            lines.append(f"{title:14s} {prompt_tokens:4d} tokens  {step_ms:5.2f}  {each_us:5.1f}  {left:.4f}")
    for prompt_tokens in PROMPTS:
        lines += ["", f"As shipped, prompts of {prompt_tokens} tokens, errors in %, left out:", head]
        lines += table(left_out, errors(left_out, prompt_tokens=prompt_tokens))
    print("\n".join(lines))
    if options.output:
        write_text(Path(options.output), "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
