"""Are the CUDA kernels right, and how fast: every row of an iteration on this GPU, beside PyTorch in the same run.

1. Every row at small shapes against the C reference (tensor parallelism, both bias splits, all models' widths).
   Allocating and failing 1,000 times leaks nothing.
2. Every distinct row at full size against PyTorch in float32 and float64, each element of each output.
3. Every row at full size: ours, PyTorch eager and torch.compile in turn, medians of windows; bytes per second
   against the device-to-device copy of the same run, GEMM FLOP per second against the tensor peak at the SM clock
   that was really reached; results unchanged by all that repetition.
4. Each way of layernorm_backward to read its rows, wherever it fits, in turn: the one that is taken should be the
   fastest.
5. Launch-bound rows through CUDA graphs.

Sets nothing on the GPU. Needs PyTorch for 2 and for the comparison in 3.

    python experiments/benchmarks/gpu_kernels.py --results results -o experiments/results/gpu_kernels
"""

import argparse
import csv
import datetime
import io
import math
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs.measurement.real.gemm_algorithms import GemmAlgorithms
from kernel_dvfs.native import check
from kernel_dvfs.native.load import library_sha256, load
from kernel_dvfs.native.plans import row_plan
from kernel_dvfs.workload.models import model as model_named
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

TENSOR_FLOP_PER_CYCLE_PER_SM = {"9.0": 4096, "8.0": 2048, "8.6": 512}  # dense bf16, fp32 accumulate
WINDOW_S, WINDOWS, WARMUP_S = 0.12, 5, 0.25
MEMORY_BOUND_BYTE = 50e6  # rows that move less are cached or launch-bound
LAUNCH_BOUND_BYTE = 5e6


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="folder with native/cpu and native/cuda")
    parser.add_argument("--model", default="gpt3-xl")
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--algorithm", default="timed", choices=("timed", "heuristic"))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--only", help="rows whose id contains this")
    parser.add_argument("--parts", default="12345", help="which of the above (default: 12345)")
    parser.add_argument("--kept", help="file of GEMM algorithms to take and to add to (default: of this run alone)")
    parser.add_argument("-o", "--output", required=True, help="path without suffix: .txt and .csv are written")
    return parser.parse_args()


class Report:
    """Lines for people, on the terminal and in the file."""

    def __init__(self):
        self.lines = []

    def __call__(self, line=""):
        print(line, flush=True)
        self.lines.append(line)


def check_small(say, cuda, cpu, device, about):
    """Point 1; returns the number of failures."""
    start = time.monotonic()
    worst, count, failed = {}, 0, 0
    for model, batch, degree, split, row in check.cases(
        about["sm_count"], about["threads_per_sm"], cuda.HAS_FUSED_ATTENTION
    ):
        for variant in check.variants(row):
            where = f"{row.id} ({model.name}, batch {batch}, tp {degree}, {split}, {variant})"
            try:
                deviations = check.check_row(cuda, cpu, cuda.Arena(device), row, model, variant)
            except InputError as error:
                failed += 1
                say(f"  WRONG {where}: {error}")
                continue
            for deviation in deviations:
                count += 1
                worst[row.op] = max(worst.get(row.op, 0.0), deviation.excess)
                if not deviation.excess <= 1:
                    failed += 1
                    say(f"  WRONG {where}: {deviation.tensor} deviates {deviation.excess:.3g} times the allowed")
    say(f"Correctness: {count} outputs against the C reference, {failed} wrong, {time.monotonic() - start:.0f} s.")
    say("Largest deviation as a share of the allowed (2^-7 relative + 2^-12 of the typical value; permutes exact):")
    say("  " + ", ".join(f"{op} {excess:.2g}" for op, excess in sorted(worst.items())))
    return failed + leaks(say, cuda, device)


def check_full_size(say, cuda, device, options):
    """Point 2; returns the number of failures."""
    import torch
    from torch_operations import tensors
    from torch_reference import excess

    start = time.monotonic()
    model, worst, failed, count = model_named(options.model), {}, 0, 0
    rows = [row for row in kernel_rows(model, options.batch) if not options.only or options.only in row.id]
    distinct = {(row.op, str(row.settings)): row for row in reversed(rows)}
    for row in reversed(distinct.values()):
        for variant in check.variants(row):
            chosen = {"algorithm": options.algorithm, "kept": options.kept}
            plan = row_plan(cuda, cuda.Arena(device), row, model, variant=variant, **chosen)
            plan.run(1)
            device.synchronize()
            for tensor, (share, of_norm) in excess(row.op, row.settings, tensors(plan)).items():
                count += 1
                if not share <= 1:
                    failed += 1
                    say(f"  WRONG {row.id} ({variant}): {tensor} deviates {share:.3g} times the allowed")
                if not share <= worst.get(row.op, (0.0, 0.0))[0]:
                    worst[row.op] = share, of_norm
            del plan
            torch.cuda.empty_cache()
    took_s = time.monotonic() - start
    say(f"Full size: {count} outputs of {len(distinct)} distinct rows, every element, {failed} wrong, {took_s:.0f} s.")
    say("Largest deviation as a share of the allowed, and the norm of all deviations relative to that of the output:")
    say("  " + ", ".join(f"{op} {share:.2g} ({of_norm:.1e})" for op, (share, of_norm) in sorted(worst.items())))
    return failed


def leaks(say, cuda, device):
    """Plans refused 1,000 times each: for want of memory, for a shape, for an algorithm; returns 1 if memory went.

    Each would take megabytes, one for a tensor that the arena shares: a leak would show in the free memory.
    """
    product = {"count": 1, "M": 1024, "N": 1024, "K": 1024, "layout": "TN", "has_bias": 0, "accumulate": 0}
    shared = {"inp": {"name": "inp"}}
    refused = (
        ("gelu_forward", {"M": 1 << 28, "C": 8192}, {}),
        ("gelu_forward", {"M": 65536, "C": 1033}, {"tensors": shared}),
        ("gemm", product, {"algorithm": bytes(80)}),
    )
    arena = cuda.Arena(device)
    cuda.Plan(arena, "gemm", product)  # the arena's workspace stays
    free_byte = device.free_byte()
    messages = set()
    for _ in range(1000):
        for op, settings, options in refused:
            try:
                cuda.Plan(arena, op, settings, **options)
            except InputError as error:
                messages.add(f"{type(error).__name__}: {str(error).partition(' bytes of device memory')[0]}")
    lost_byte = free_byte - device.free_byte()
    say(f"{1000 * len(refused)} refused plans: {lost_byte} bytes lost; they said {sorted(messages)}.")
    return int(lost_byte > 0 or len(messages) != len(refused))


class Timer:
    """Times repeated calls in windows of WINDOW_S, with the SM clock of each."""

    def __init__(self, cuda, device):
        self.device = device
        self.probe = cuda.ClockProbe(device, 2)

    def ours(self, plan):
        unit_ms = plan.time(3) / 3
        n = max(3, round(1e3 * WINDOW_S / unit_ms))

        def window():
            self.probe.clear()
            self.probe.mark()
            ms = plan.time(n) / n
            self.probe.mark()
            return ms, self.probe.sm_mhz()[0]

        return window

    def torch(self, call):
        import torch

        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

        def run(n):
            start.record()
            for _ in range(n):
                call()
            stop.record()
            stop.synchronize()
            return start.elapsed_time(stop) / n

        run(3)
        n = max(3, round(1e3 * WINDOW_S / run(5)))
        return lambda: (run(n), None)


def in_turn(windows):
    """Medians (ms, SM MHz or None) of several window functions measured A B C A B C ..., each warmed up before."""
    end = time.monotonic() + WARMUP_S
    while time.monotonic() < end:
        for window in windows:
            window()
    taken = [[window() for window in windows] for _ in range(WINDOWS)]
    result = []
    for column in zip(*taken, strict=True):
        clocks = [clock for _, clock in column if clock is not None]
        result.append((statistics.median(ms for ms, _ in column), statistics.median(clocks) if clocks else None))
    return result


def copy_gb_per_s(device):
    """Device-to-device copy, bytes read and written, sustained as the rows are; the median of windows."""
    byte = 1 << 30
    n = max(3, round(1e3 * WINDOW_S / device.copy_ms(byte, 3) * 3))
    device.copy_ms(byte, 2 * n)
    return 2 * byte / 1e6 / statistics.median(device.copy_ms(byte, n) / n for _ in range(WINDOWS))


def torch_windows(timer, row, plan, compiled):
    """Window functions of eager and, for what is not a GEMM, compiled PyTorch, on the plan's own tensors."""
    import torch
    from torch_operations import operation

    function, operands = operation(row, plan)
    windows = [timer.torch(lambda: function(*operands))]
    if compiled and row.kind == "elementwise_or_reduction":
        torch._dynamo.reset()
        fused = torch.compile(function, dynamic=False)
        windows.append(timer.torch(lambda: fused(*operands)))
    return windows


def benchmark(say, cuda, device, about, options):
    """Point 3; returns the table's lines."""
    try:
        import torch

        torch.manual_seed(1)
        say(f"PyTorch {torch.__version__}")
    except ImportError:
        torch = None
        say("PyTorch is not installed: ours only")
    model = model_named(options.model)
    copy = copy_gb_per_s(device)
    flop_per_cycle = about["sm_count"] * TENSOR_FLOP_PER_CYCLE_PER_SM.get(about["compute_capability"], math.nan)
    say(f"Device-to-device copy of 1 GiB: {copy:.0f} GB/s read + written")
    heads = "ours us", "eager us", "compiled", "of eager"
    say(f"{'row':32} " + " ".join(f"{head:>10}" for head in heads) + "   GB/s   copy    TF/s    peak    MHz")
    timer = Timer(cuda, device)
    lines = []
    for row in kernel_rows(model, options.batch):
        if options.only and options.only not in row.id:
            continue
        plan = row_plan(cuda, cuda.Arena(device), row, model, algorithm=options.algorithm, choices=options.kept)
        plan.run(1)
        before = plan.checksum()
        windows = [timer.ours(plan)]
        if torch:
            windows += torch_windows(timer, row, plan, not options.no_compile)
        (ms, sm_mhz), *others = in_turn(windows)
        if plan.checksum() != before:
            raise InputError(f"{row.id}: its results changed while it was repeated")
        eager_us, compiled_us = ([1e3 * other_ms for other_ms, _ in others] + [None, None])[:2]
        byte = row.read_byte + row.write_byte
        gb_per_s, tflop_per_s = byte / ms / 1e6, row.tensor_flop / ms / 1e9
        line = {
            "row": row.id,
            "family": row.family,
            "launches_per_iteration": row.multiplicity,
            "time_us": round(1e3 * ms, 3),
            "torch_eager_us": rounded(eager_us, 3),
            "torch_compile_us": rounded(compiled_us, 3),
            "ours_over_eager": rounded(eager_us and 1e3 * ms / eager_us, 4),
            "gb_per_s": round(gb_per_s, 1),
            "of_copy": round(gb_per_s / copy, 4),
            "tflop_per_s": round(tflop_per_s, 2) if row.tensor_flop else "",
            "of_peak_at_clock": round(row.tensor_flop / ms / 1e3 / (flop_per_cycle * sm_mhz), 4)
            if row.tensor_flop
            else "",
            "sm_mhz": round(sm_mhz, 1),
            "algorithm": plan.info().get("algorithm_id", ""),
            "algorithm_rank": plan.info().get("algorithm_rank", ""),
        }
        lines.append(line)
        cells = [f"{row.id:32}", f"{line['time_us']:10.2f}"]
        cells += [f"{line[key]!s:>10}" for key in ("torch_eager_us", "torch_compile_us", "ours_over_eager")]
        cells += [f"{gb_per_s:6.0f} {line['of_copy']:6.3f}"]
        cells += [f"{line['tflop_per_s']!s:>7} {line['of_peak_at_clock']!s:>7} {sm_mhz:6.0f}"]
        say(" ".join(cells))
        del windows, plan
        if torch:
            torch.cuda.empty_cache()
    return lines


def summary(say, lines):
    """The targets, met or missed."""
    ours_ms = total_ms(lines, lambda line: line["time_us"])
    say(f"Sum over the iteration: ours {ours_ms:.1f} ms")
    if lines[0]["torch_eager_us"]:
        eager_ms = total_ms(lines, lambda line: line["torch_eager_us"])
        best_ms = total_ms(lines, lambda line: min(line["torch_eager_us"], line["torch_compile_us"] or math.inf))
        say(f"  PyTorch eager {eager_ms:.1f} ms, ratio {ours_ms / eager_ms:.3f} (target 0.90)")
        say(f"  better of eager and compiled, row by row, {best_ms:.1f} ms, ratio {ours_ms / best_ms:.3f}")
    gemms = [line for line in lines if line["algorithm"] != ""]
    others = [line for line in lines if line["tflop_per_s"] == "" and moved_byte(line) >= MEMORY_BOUND_BYTE]
    if lines[0]["torch_eager_us"]:
        tell(say, "GEMM rows at least as fast as PyTorch", gemms, "ours_over_eager", lambda value: value <= 1)
    tell(say, "Memory-bound rows of 50 MB and more at 0.90 of the copy", others, "of_copy", lambda value: value >= 0.9)


def tell(say, what, lines, key, met):
    missed = [f"{line['row']} {line[key]}" for line in lines if line[key] is None or not met(line[key])]
    say(f"{what}: {len(lines) - len(missed)} of {len(lines)}" + ("; not: " + ", ".join(missed) if missed else ""))


def total_ms(lines, time_us):
    return sum(time_us(line) * line["launches_per_iteration"] for line in lines) / 1e3


def rounded(value, digits):
    return None if value is None else round(value, digits)


def moved_byte(line):
    return line["gb_per_s"] * line["time_us"] * 1e3


def layernorm_reading(say, cuda, device):
    """Point 4, at the widest rows that each way takes and at the model's."""
    say("layernorm_backward of 40,960 rows, us a launch by way of reading them (vector: the one that is taken):")
    timer = Timer(cuda, device)
    for channels in (2048, *check.LAYERNORM_READING.values()):
        ways = ["vector", *(way for way, longest in check.LAYERNORM_READING.items() if channels <= longest)]
        settings = {"M": 40960, "C": channels}
        plans = [cuda.Plan(cuda.Arena(device), "layernorm_backward", settings, variant=way) for way in ways]
        times = dict(zip(ways, (1e3 * ms for ms, _ in in_turn([timer.ours(plan) for plan in plans])), strict=True))
        above = 100 * (times["vector"] / min(times.values()) - 1)
        cells = ", ".join(f"{way} {us:.1f}" for way, us in times.items())
        say(f"  C = {channels}: {cells}; taken is {above:.1f} % above the fastest")


def launch_bound(say, cuda, device, options):
    """Point 5: kernels that move too little to be bound by anything but their launch, one row an operation."""
    say(f"Rows of less than {LAUNCH_BOUND_BYTE / 1e6:.0f} MB, us a launch in a graph of 200 (and from the C++ loop):")
    model = model_named(options.model)
    for batch, degree in ((options.batch, 1), (1, 1), (1, 16)):
        rows = {row.op: row for row in kernel_rows(model, batch, degree) if is_launch_bound(row)}
        cells = []
        for op, row in rows.items():
            plan = row_plan(cuda, cuda.Arena(device), row, model, degree)
            graph = plan.capture(200)
            graph.time(5)
            in_graph_us = 1e3 * statistics.median(graph.time(20) / 20 / 200 for _ in range(WINDOWS))
            in_loop_us = 1e3 * statistics.median(plan.time(2000) / 2000 for _ in range(WINDOWS))
            cells.append(f"{op} {in_graph_us:.2f} ({in_loop_us:.2f})")
        say(f"  batch {batch}, tp {degree}: " + ", ".join(cells))


def is_launch_bound(row):
    return row.gemm is None and row.read_byte + row.write_byte < LAUNCH_BOUND_BYTE


def main():
    options = arguments()
    say = Report()
    cuda, cpu = load("cuda", options.results), load("cpu", options.results)
    device = cuda.Device(0)
    about = device.info()
    say(f"{about['name']}, {about['sm_count']} SMs, default clocks, nothing set; {datetime.date.today().isoformat()}")
    say(f"driver CUDA {about['driver']}, runtime {about['runtime']}, cuBLASLt {about['cublaslt']}")
    say(f"library {library_sha256('cuda', options.results)[:12]}, GEMM algorithms {options.algorithm}")
    say(f"model {options.model}, batch {options.batch}")
    options.kept = GemmAlgorithms(options.kept, about["cublaslt"]) if options.kept else None
    failed = 0
    if "1" in options.parts:
        failed += check_small(say, cuda, cpu, device, about)
    if "2" in options.parts:
        failed += check_full_size(say, cuda, device, options)
    lines = benchmark(say, cuda, device, about, options) if "3" in options.parts else []
    if lines:
        table = io.StringIO()
        writer = csv.DictWriter(table, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        write_text(f"{options.output}.csv", table.getvalue())
        summary(say, lines)
    if "4" in options.parts:
        layernorm_reading(say, cuda, device)
    if "5" in options.parts:
        launch_bound(say, cuda, device, options)
    write_text(f"{options.output}.txt", "\n".join(say.lines) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
