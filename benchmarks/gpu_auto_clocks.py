"""Measure every kernel of an iteration on a real GPU as it is: time, energy by the board's counter, SM clock.

Sets nothing on the GPU: no clock, no power limit. Each row: warm-up, then windows cut at the edges of the energy
counter while the row's plan runs without a gap. Writes a table that `kernel-dvfs import` and the workflow read
(`gpu: {kind: table, path: ...}`), every point at auto clocks.

    python benchmarks/gpu_auto_clocks.py --results results -o benchmarks/results/auto_clocks.csv
"""

import argparse
import csv
import datetime
import io
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workflow"))

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
from kernel_dvfs.gpu.nvml.board import Board
from kernel_dvfs.gpu.nvml.library import Library
from kernel_dvfs.measurement.counter import EnergyCounter
from kernel_dvfs.native.load import library_sha256, load
from kernel_dvfs.native.plans import row_plan
from kernel_dvfs.native.steady import Steady
from kernel_dvfs.workload.models import model as model_named
from kernel_dvfs.workload.rows import kernel_rows

# fmt: off
COLUMNS = (
    "gpu", "kernel", "core_mhz", "mem_mhz", "is_auto", "time_us", "time_sd_us", "energy_mj", "energy_sd_mj", "power_w",
    "sm_mhz", "mem_clock_mhz", "temp_c", "power_cap_share",
    "counter_period_ms", "windows", "window_s", "launches", "by_graph", "algorithm",
    "date", "driver", "cuda", "library_sha256",
)
# fmt: on
POWER_CAP = 0x4  # nvmlClocksEventReasonSwPowerCap


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="folder with native/cuda (default: results)")
    parser.add_argument("--model", default="gpt3-xl")
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--warmup-s", type=float, default=1.0)
    parser.add_argument("--window-s", type=float, default=2.0)
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--algorithm", default="timed", choices=("timed", "heuristic"))
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    if options.windows < 1 or options.window_s <= 0 or options.warmup_s < 0:
        parser.error("at least one window, of more than 0 s, after a warm-up of at least 0 s")
    return options


def measure(cuda, device, board, row, model, options) -> dict:
    """One line of the table."""
    plan = row_plan(cuda, cuda.Arena(device), row, model, algorithm=options.algorithm)
    plan.run(1)
    before = plan.checksum()
    steady = Steady(cuda, device, plan)
    capped = []  # whether the power cap was at work, at each read of the counter: around the edges

    def energy_mj():
        capped.append(bool(board.event_reasons() & POWER_CAP))
        return board.energy_mj()

    counter = EnergyCounter(energy_mj, time.monotonic, time.sleep, steady.feed)
    steady.run_for(options.warmup_s)
    counter.calibrate()
    points = []
    capped.clear()
    for _ in range(options.windows):
        window = counter.window(options.window_s)
        duration_s = window.end_s - window.start_s
        points.append(steady.between(window.start_s, window.end_s) | {"power_w": window.energy_mj / 1e3 / duration_s})
    memory_mhz, temperature_c = board.mem_mhz(), board.temperature_c()
    steady.stop()
    if plan.checksum() != before:
        raise InputError(f"{row.id}: its results changed while it was measured; the numbers mean nothing")
    info = plan.info()
    times = [point["time_us"] for point in points]
    energies = [point["power_w"] * point["time_us"] * 1e-3 for point in points]

    def spread(values):
        return round(statistics.stdev(values), 4) if len(values) > 1 else ""

    return {
        "kernel": row.id,
        "core_mhz": "auto",
        "mem_mhz": "auto",
        "is_auto": 1,
        "time_us": round(statistics.fmean(times), 4),
        "time_sd_us": spread(times),
        "energy_mj": round(statistics.fmean(energies), 5),
        "energy_sd_mj": spread(energies),
        "power_w": round(statistics.fmean(point["power_w"] for point in points), 2),
        "sm_mhz": round(statistics.fmean(point["sm_mhz"] for point in points), 1),
        "mem_clock_mhz": memory_mhz,
        "temp_c": temperature_c,
        "power_cap_share": round(sum(capped) / len(capped), 3),
        "counter_period_ms": round(1e3 * counter.period_s, 2),
        "windows": options.windows,
        "window_s": options.window_s,
        "launches": sum(point["launches"] for point in points),
        "by_graph": int(steady.by_graph),
        "algorithm": info.get("algorithm_id", ""),
    }


def main():
    options = arguments()
    cuda = load("cuda", options.results)
    device = cuda.Device(0)
    about = device.info()
    nvml = Library().__enter__()  # open to the end of the process
    board = Board(nvml, about["uuid"])
    common = {
        "gpu": about["name"],
        "date": datetime.date.today().isoformat(),
        "driver": nvml.versions["driver"],
        "cuda": f"{about['runtime'] // 1000}.{about['runtime'] % 1000 // 10}",
        "library_sha256": library_sha256("cuda", options.results)[:12],
    }
    model = model_named(options.model)
    lines = io.StringIO()
    table = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
    table.writeheader()
    for row in kernel_rows(model, options.batch):
        line = common | measure(cuda, device, board, row, model, options)
        table.writerow(line)
        print(
            f"{row.id:32} {line['time_us']:10.2f} us {line['energy_mj']:10.3f} mJ {line['power_w']:6.1f} W "
            f"{line['sm_mhz']:7.1f} MHz {line['temp_c']} C",
            flush=True,
        )
    write_text(options.output, lines.getvalue())
    print(f"written: {options.output}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
