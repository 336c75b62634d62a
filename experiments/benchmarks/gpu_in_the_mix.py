"""Is a kernel by itself, at a GPU's own clocks, the kernel in the iteration? And how far do short windows scatter?

Visits at auto of the native GPT-3-xl iteration, by the code that a study measures with: passes with a mark of time
between kernels, then a window of power of each kernel by itself. Time, power and core clock of both, kernel by kernel;
the iteration's own energy beside the sum of its kernels'. Two lengths of windows, several visits. Sets nothing on the
GPU, and asks for no right to.

    python experiments/benchmarks/gpu_in_the_mix.py --results results -o experiments/results/gpu_in_the_mix_h200
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "workflow"))

from kernel_dvfs.measurement.real.session import Session  # noqa: E402
from kernel_dvfs.measurement.setup import read  # noqa: E402
from kernel_dvfs.measurement.visit import AUTO_PASS_S, AUTO_WINDOW_S, WINDOW_S, Visit  # noqa: E402
from kernel_dvfs.plan.config import load  # noqa: E402
from kernel_dvfs.plan.study import ALONE, plan  # noqa: E402
from kernel_dvfs_clocks.clocks import BASELINE  # noqa: E402
from kernel_dvfs_clocks.errors import InputError  # noqa: E402 - of this checkout
from kernel_dvfs_clocks.files import write_text  # noqa: E402

FIELDS = ("window_s", "visit", "kernel", "launches", "pass_us", "pass_mhz", "alone_us", "alone_mhz", "alone_w")


def measured(options: argparse.Namespace) -> tuple[dict[str, Any], list[tuple], list[tuple]]:
    """(device, rows of FIELDS, (window_s, visit, pass s, pass W, pass MHz, alone s, alone J) of each visit)."""
    asked = {"gpu": "nvml", "clocks": "auto-only", "model": options.model, "batch": options.batch}
    planned = plan(load(str(ROOT / "config.yaml")) | ALONE | asked, options.results).setup
    assert planned, "only tables have no setup"
    path = planned.write()
    setup = read(path)
    launches = {name: about["launches_per_iteration"] for name, about in setup.targets["kernel"].items()}
    rows, totals = [], []
    with Session(setup, lambda line: print(line, file=sys.stderr, flush=True)) as session:
        place = 0
        for window_s, count in ((AUTO_WINDOW_S, options.visits), (WINDOW_S, options.visits)):
            for number in range(count):
                each = tuple((name,) for name in launches)
                found, _ = session.visit(setup, Visit(0, place, BASELINE, AUTO_PASS_S, window_s, each))
                place += 1
                passes, mhz = found["passes"], found["reached"]["core_mhz"]
                for (name, count_of), power in zip(launches.items(), found["powers"]):
                    alone = power["time_us"], power["core_mhz"], power["power_mw"] / 1000
                    rows.append((window_s, number, name, count_of, passes["time_us"][name], mhz, *alone))
                own = [row for row in rows if row[:2] == (window_s, number)]
                alone_s = 1e-6 * sum(row[3] * row[6] for row in own)
                alone_j = 1e-6 * sum(row[3] * row[6] * row[8] for row in own)
                whole = 1e-6 * passes["iteration_us"], passes["power_mw"] / 1000, mhz, passes["is_capped"]
                totals.append((window_s, number, *whole, alone_s, alone_j))
                print(f"visit {place}: {found['verdict']} {found['reasons']}", file=sys.stderr, flush=True)
        return dict(session.device), rows, totals


def report(rows: list[tuple], totals: list[tuple]) -> list[str]:
    """Lines of the report."""
    lines = []
    for window_s in dict.fromkeys(row[0] for row in rows):
        own = defaultdict(list)
        for row in rows:
            if row[0] == window_s:
                own[row[2]].append(row)
        lines.append(f"windows of {window_s:g} s: medians over visits; scatter over visits, % (standard deviation)")
        lines.append(
            f"{'kernel':34} {'in passes':>10} {'MHz':>6} {'alone':>10} {'MHz':>6} {'alone - in':>10} {'W alone':>8} "
            f"{'sd pass':>8} {'sd alone':>8} {'sd W':>6}"
        )
        for name, found in own.items():
            in_us, in_mhz, us, mhz, watt = (statistics.median(row[at] for row in found) for at in range(4, 9))
            sds = [_sd([row[at] for row in found]) for at in (4, 6, 8)]
            lines.append(
                f"{name:34} {in_us:10.1f} {in_mhz:6.0f} {us:10.1f} {mhz:6.0f} {100 * (us / in_us - 1):+9.1f}% "
                f"{watt:8.1f} " + " ".join(f"{each:{width}.2f}" for each, width in zip(sds, (8, 8, 6)))
            )
        mine = [row for row in totals if row[0] == window_s]
        whole_s, whole_w, mhz, alone_s, alone_j = (statistics.median(row[at] for row in mine) for at in (2, 3, 4, 6, 7))
        capped = sum(row[5] for row in mine)
        whole_j = whole_s * whole_w
        lines.append(
            f"iteration: {whole_s:.4f} s, {whole_w:.1f} W, {whole_j:.2f} J at {mhz:.0f} MHz, capped in {capped} of "
            f"{len(mine)} visits; sum of kernels alone: {alone_s:.4f} s ({100 * (alone_s / whole_s - 1):+.2f} %), "
            f"{alone_j:.2f} J ({100 * (alone_j / whole_j - 1):+.2f} %)"
        )
        lines.append("")
    return lines


def _sd(values: list[float]) -> float:
    return 100 * statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else float("nan")


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="folder with native/cuda")
    parser.add_argument("--model", default="gpt3-xl")
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--visits", type=int, default=3, help="of each length of windows")
    parser.add_argument("-o", "--output", required=True, help="path without suffix: .txt and .csv are written")
    options = parser.parse_args()
    device, rows, totals = measured(options)
    head = f"{device['name']}, default clocks, nothing set; {datetime.date.today().isoformat()}"
    about = f"{options.model}, batch {options.batch}; driver {device['driver']}, board {device['uuid'][4:12]}"
    lines = [head, about, "", *report(rows, totals)]
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows([*row[:4], *(f"{value:.6g}" for value in row[4:])] for row in rows)
    write_text(f"{options.output}.csv", table.getvalue())
    write_text(f"{options.output}.txt", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
