"""What a session keeps: how far apart windows, allocations and processes of one kernel are, at default clocks.

A session is to draw what no number of its windows averages anew. Each process allocates all tensors of some kernels
several times over: at the same place three times, then behind memory of other sizes (Arena's offset_byte), and times
windows of each kernel. Standard deviations between windows of an allocation, between allocations of a process and
between processes, each beyond what the one before it explains, in percent; of time, and of cycles (time x SM clock),
in which a power cap does not show. Sets nothing on the GPU.

    python experiments/benchmarks/gpu_sessions.py --results results -o experiments/results/gpu_sessions_h100
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "workflow"))

from kernel_dvfs.native.load import load  # noqa: E402
from kernel_dvfs.native.plans import row_plan  # noqa: E402
from kernel_dvfs.native.steady import Steady  # noqa: E402
from kernel_dvfs.workload.rows import kernel_rows  # noqa: E402
from kernel_dvfs_clocks.files import write_text  # noqa: E402 - of this checkout

KERNELS = (
    *("forward_qkv_gemm", "forward_scores_gemm", "backward_fc_dweight_gemm", "embedding_layernorm", "forward_gelu"),
    *("forward_attention_softmax", "backward_qkv_bias", "backward_attention_layernorm"),
)
MB = 1 << 20
# the same place, then others: odd numbers of the 2 MB that a GPU maps at a time
OFFSETS_BYTE = (0, 0, 0, 2 * MB, 14 * MB, 74 * MB)
WINDOW_S, WINDOWS, WARMUP_S = 0.25, 3, 0.2
MODEL, BATCH = "gpt3-xl", 40
FIELDS = ("process", "allocation", "offset_mb", "kernel", "window", "time_us", "sm_mhz")


def measure(process: int, results: str) -> None:
    """One process: a CSV line a window on stdout."""
    cuda = load("cuda", results)
    device = cuda.Device(0)
    rows = {row.id: row for row in kernel_rows(MODEL, BATCH)}
    for allocation, offset in enumerate(OFFSETS_BYTE):
        arena = cuda.Arena(device, offset_byte=offset)
        plans = {name: row_plan(cuda, arena, rows[name], MODEL) for name in KERNELS}
        for name, plan in plans.items():
            steady = Steady(cuda, device, plan)
            steady.run_for(WARMUP_S)
            for window in range(WINDOWS):
                start_s = time.monotonic()
                while time.monotonic() < start_s + WINDOW_S:
                    steady.feed()
                    time.sleep(0.002)
                seen = steady.between(start_s, time.monotonic())
                about = process, allocation, offset // MB, name, window
                row = (*about, f"{seen['time_us']:.6g}", f"{seen['sm_mhz']:.6g}")
                print(",".join(map(str, row)), flush=True)
            steady.stop()
        del plans, plan, steady, arena


def components(groups: list[list[list[float]]]) -> tuple[float, float, float]:
    """Standard deviations (windows, allocations, processes) of [process][allocation][window], percent of the mean:
    nested analysis of variance, negative estimates as 0. All groups are of one size."""
    windows, allocations = len(groups[0][0]), len(groups[0])
    whole = statistics.fmean(value for process in groups for own in process for value in own)
    means = [[statistics.fmean(own) for own in process] for process in groups]
    within = statistics.fmean(statistics.variance(own) for process in groups for own in process)
    between = statistics.fmean(statistics.variance(process) for process in means)
    apart = statistics.variance(statistics.fmean(process) for process in means)
    parts = within, between - within / windows, apart - between / allocations
    return tuple(100 * max(0.0, part) ** 0.5 / whole for part in parts)  # type: ignore[return-value]


def table(rows: list[dict[str, str]]) -> list[str]:
    """Lines of the report."""
    lines = [
        "standard deviations, percent of the mean: between windows of an allocation; between allocations of a process,",
        "at the same place and behind other offsets; between processes (all by allocations behind other offsets)",
        "",
        f"{'kernel':34} {'of':7} {'window':>7} {'same':>7} {'moved':>7} {'process':>8}",
    ]
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        for what in ("time", "cycles"):
            found: dict[bool, dict[str, dict[str, list[float]]]] = {}
            for row in (row for row in rows if row["kernel"] == kernel):
                value = float(row["time_us"]) * (float(row["sm_mhz"]) if what == "cycles" else 1)
                moved = int(row["allocation"]) >= OFFSETS_BYTE.count(0)
                own = found.setdefault(moved, {}).setdefault(row["process"], defaultdict(list))
                own[row["allocation"]].append(value)
            same, moved_ = ([list(each.values()) for each in found[kind].values()] for kind in (False, True))
            window, place, process = components(moved_)
            lines.append(f"{kernel:34} {what:7} {window:7.3f} {components(same)[1]:7.3f} {place:7.3f} {process:8.3f}")
    return lines


def main() -> None:
    """Measure in processes of their own, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="folder with native/cuda")
    parser.add_argument("--processes", type=int, default=7)
    parser.add_argument("--process", type=int, help="this process alone, to stdout")
    parser.add_argument("-o", "--output", help="path without suffix: .txt and .csv are written")
    options = parser.parse_args()
    if options.process is not None:
        measure(options.process, options.results)
        return
    said = ""
    for number in range(options.processes):
        words = [sys.executable, __file__, "--results", options.results, "--process", str(number)]
        said += subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = list(csv.DictReader(io.StringIO(f"{','.join(FIELDS)}\n{said}")))
    cuda = load("cuda", options.results)
    about = cuda.Device(0).info()
    head = f"{about['name']}, default clocks, nothing set; {datetime.date.today()}; {MODEL}, batch {BATCH}; "
    head += f"{options.processes} processes, {len(OFFSETS_BYTE)} allocations, {WINDOWS} windows of {WINDOW_S} s"
    text = "\n".join([head, "", *table(rows)]) + "\n"
    print(text)
    write_text(f"{options.output}.txt", text)
    write_text(f"{options.output}.csv", f"{','.join(FIELDS)}\n{said}")


if __name__ == "__main__":
    main()
