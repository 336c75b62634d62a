"""How well a simulated Hopper board predicts a real one: time, energy and SM clock of every kernel at auto clocks.

The simulated GPU without noise, as warm as the load makes it, beside the measured rows of auto_only_<board>.csv. The
H200's spec is calibrated on energy probes, none of which is one of these kernels, and has no parameter of any one
kernel; the H100's is the H200's with the H100's published memory, so of an H100 its data sheet is in it, and what three
power limits tell of its governor.

    python experiments/benchmarks/gpu_prediction.py h200 h100  # prediction_<board>.csv, and what they come to
    python experiments/benchmarks/gpu_prediction.py h100 --before ../old   # and prediction_h100_before.csv by another
                                                               # checkout of this project, in the same call
    python docs/make_figures.py prediction_h200                # the figure, from the result file
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import statistics
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if "PYTHONPATH" not in os.environ:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.kernel import LaunchWork, clock_share, parameters
from kernel_dvfs.measurement.simulated import SimulatedGpu
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs.workload.traffic import dense_products
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
CAPTION = "Errors of the simulated H200 against a measured one at auto clocks, by family of kernels"
MODEL, BATCH = "gpt3-xl", 40
# mean absolute error, percent
GOALS = {
    "h200": {"time": 5.0, "energy": 5.0, "clock": 3.0},
    "h100": {"time": 6.0, "energy": 10.0, "clock": 3.0},
}
PANELS = {"time": "time", "energy": "energy", "clock": "SM clock"}
# what the figure calls a family whose name is shorthand
WORDS = {
    "gemm": "matrix product",
    "attention_gemm": "attention product",
    "bias": "bias gradient",
    "bias_reduce": "bias gradient, sum",
    "residual": "residual + layernorm",
    "gelu": "GELU",
}
QUANTITIES = ("time_us", "energy_mj", "sm_mhz")
COLUMNS = ("kernel", "family", *(f"{which}_{name}" for name in QUANTITIES for which in ("measured", "predicted")))
Errors = namedtuple("Errors", "time energy clock")
Errors.__doc__ = "Predicted over measured, less 1, in percent: lists of one figure a kernel."


def predict(spec: dict, row) -> dict:
    """{"time_us", "energy_mj", "sm_mhz"} of one launch at auto clocks on the simulated GPU, warm and without noise.

    sm_mhz: what is counted on the SMs, as the measured one is; the window has the clock that the driver reports.
    """
    gpu = SimulatedGpu(spec, seed=0, exact=True)
    byte, share = dense_products([row], spec).get(row.id, (row.read_byte + row.write_byte, 1.0))
    work = LaunchWork(row.family, row.tensor_flop, row.fp32_flop, row.sfu_op, byte, share)
    load = [(parameters(spec, work), 1)]
    with gpu.locked(BASELINE, ("prediction",)):
        gpu.condition(load)
        window = gpu.window(load, 2.0, ("prediction",), 0)
    power_w = window["energy_mj"] / 1e3 / window["duration_s"]
    return {
        "time_us": window["time_us"],
        "energy_mj": power_w * window["time_us"] * 1e-3,
        "sm_mhz": window["core_mhz"][1] * clock_share(spec, work),
    }


def predictions(board: str, overrides: dict | None = None) -> list:
    """The lines of the result table of a board, a key of GOALS. overrides: of its spec."""
    real = {line["kernel"]: line for line in read(RESULTS / f"auto_only_{board}.csv")}
    spec = specs.resolve(f"{board}_sxm", overrides)
    lines = []
    for row in kernel_rows(MODEL, BATCH):
        said = predict(spec, row)
        line = {"kernel": row.id, "family": row.family}
        for name in QUANTITIES:
            line[f"measured_{name}"] = real[row.id][name]
            line[f"predicted_{name}"] = f"{said[name]:.6g}"
        lines.append(line)
    return lines


def result(board: str, before: bool = False) -> Path:
    """The result file of a board, or that of its spec before it was calibrated."""
    return RESULTS / f"prediction_{board}{'_before' if before else ''}.csv"


def read(path) -> list:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def errors(lines) -> Errors:
    def of(name):
        return [100 * (float(line[f"predicted_{name}"]) / float(line[f"measured_{name}"]) - 1) for line in lines]

    return Errors(*map(of, QUANTITIES))


def mape(values) -> float:
    return statistics.fmean(map(abs, values))


def comparison() -> str:
    """Mean absolute errors of each board by family of kernels, as Markdown."""
    tables = [read(result(board)) for board in GOALS]
    names = [f"{board.upper()}: {name}, %" for board in GOALS for name in PANELS]
    text = [f"| family | kernels | {' | '.join(names)} |", "|---" + "|--:" * (1 + len(names)) + "|"]
    for family in (*dict.fromkeys(line["family"] for line in tables[0]), None):
        chosen = [[line for line in lines if family in (None, line["family"])] for lines in tables]
        cells = [f"{mape(values):.1f}" for lines in chosen for values in errors(lines)]
        text.append(f"| {family or '**all**'} | {len(chosen[0])} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def summary(board: str, lines) -> str:
    said = []
    for name, values in errors(lines)._asdict().items():
        goal = GOALS[board][name]
        met = "met" if mape(values) <= goal else "MISSED"
        said.append(f"{name} {mape(values):.1f} % (goal {goal:g} %: {met}; largest {max(map(abs, values)):.1f} %)")
    return "mean absolute error over " + f"{len(lines)} kernels: " + ", ".join(said)


def ratios(board: str) -> str:
    """Mean absolute errors over those of the spec before, from the result files."""
    after, before = (errors(read(result(board, which)))._asdict() for which in (False, True))
    said = [f"{name} {mape(values) / mape(before[name]):.2f}" for name, values in after.items()]
    return f"mean absolute error over that before: {', '.join(said)}"


def families(lines) -> str:
    text = []
    for family in dict.fromkeys(line["family"] for line in lines):
        off = errors([line for line in lines if line["family"] == family])
        means = ", ".join(f"{name} {statistics.fmean(values):+.1f} %" for name, values in off._asdict().items())
        text.append(f"  {family:15} {means}")
    return "\n".join(text)


def off_by_family(lines) -> pd.DataFrame:
    """A row a kernel and quantity: quantity, family (a category, that of the largest error on top), error_percent."""
    import pandas as pd

    frames = [
        pd.DataFrame({"quantity": PANELS[name], "family": [line["family"] for line in lines], "error_percent": values})
        for name, values in errors(lines)._asdict().items()
    ]
    frame = pd.concat(frames, ignore_index=True)
    worst = frame.error_percent.abs().groupby(frame.family).max().sort_values()
    words = {family: WORDS.get(family, family) for family in worst.index}
    return frame.assign(
        quantity=pd.Categorical(frame.quantity, list(PANELS.values())),
        family=pd.Categorical(frame.family.map(words), list(words.values())),
    )


def draw(lines) -> p9.ggplot:
    """Errors of the simulated H200, a row a family of kernels: a ring a kernel, a bar for the family's mean."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = off_by_family(lines)
    means = frame.groupby(["quantity", "family"], observed=True).error_percent.mean().reset_index()
    goals = pd.DataFrame({"quantity": list(PANELS.values()), "goal": list(GOALS["h200"].values())})
    goals = goals.assign(quantity=pd.Categorical(goals.quantity, list(PANELS.values())), low=-goals.goal)
    count = len(frame) // len(PANELS)
    return (
        p9.ggplot(frame, p9.aes("error_percent", "family"))
        + p9.geom_rect(
            p9.aes(xmin="low", xmax="goal", ymin=-np.inf, ymax=np.inf),
            goals,
            inherit_aes=False,
            fill=style.SERIES[0],
            alpha=0.1,
        )
        + p9.geom_vline(xintercept=0, size=0.4, color=style.FRAME)
        + p9.geom_point(color=style.SERIES[0], fill="none", shape="o", size=1.5, stroke=0.5)
        + p9.geom_point(data=means, color=style.SERIES[1], shape="|", size=4, stroke=1.2)
        + p9.facet_wrap("quantity", nrow=1)
        + p9.labs(
            title="How far the simulated H200 is off, by family of kernels",
            subtitle=f"simulated and measured H200, {count} kernels of GPT-3 XL at auto clocks; better: nearer to 0",
            x="predicted against measured, % (negative: predicted too low)",
            y="",
            caption="Ring: a kernel. Upright bar: mean of the family. Shaded: the goal for the mean absolute error.",
        )
        + style.theme(3.0, style.WIDE)
    )


def write(board: str, path: Path) -> list:
    """Write the result file of a board; returns its lines."""
    lines = predictions(board)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    write_text(path, text.getvalue())
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("boards", nargs="+", choices=list(GOALS))
    parser.add_argument("--before", metavar="CHECKOUT", help="also predict by the spec of another checkout")
    parser.add_argument("--as-before", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for board in options.boards:
        print(f"{board}: {summary(board, write(board, result(board, options.as_before)))}", flush=True)
        if options.before:
            path = {"PYTHONPATH": str(Path(options.before) / "workflow")}
            command = [sys.executable, __file__, board, "--as-before"]
            subprocess.run(command, env=os.environ | path, check=True)
            print(ratios(board))
        print(families(read(result(board, options.as_before))))
    if not options.as_before:
        print(comparison())


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
