"""A whole iteration (forward, loss, backward) of ours and of PyTorch in one session: time and energy, in turn.

ours fused, ours unfused: every launch of the model's rows with fused attention or without, in order, one layer's
buffers used 24 times. torch: GPT of the same shape in bf16, compiled, with flash attention, as people train it: it does
not add to gradients that are there, and its compiler decides what is computed again in backward (ours adds, and does
GELU again). Measured with two numbers of layers; the model's follows by a straight line. Energy is the board's, between
edges of its counter. Sets nothing on the GPU.

    python experiments/benchmarks/gpu_iteration.py --results results -o experiments/results/gpu_iteration_h200
"""

import argparse
import csv
import datetime
import io
import os
import statistics
import sys
import time
from collections import deque

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs.measurement.counter import EnergyCounter
from kernel_dvfs.measurement.real.gemm_algorithms import GemmAlgorithms
from kernel_dvfs.native.load import library_sha256, load
from kernel_dvfs.native.plans import pass_groups, row_plan
from kernel_dvfs.native.steady import Steady
from kernel_dvfs.workload.models import model as model_named
from kernel_dvfs.workload.passes import passes
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text
from kernel_dvfs_clocks.nvml.board import Board
from kernel_dvfs_clocks.nvml.library import Library

QUEUED = 2
LAYERS = (2, 8)


class TorchSteps:
    """A training step of PyTorch launched over and over, two queued: as native.steady.Steady."""

    def __init__(self, torch, step):
        self._torch, self._step = torch, step
        self._ends, self._seen_s = deque(), []
        for _ in range(3):  # compiles, and fills the allocator's pool
            step()
        torch.cuda.synchronize()

    def feed(self):
        while len(self._seen_s) < len(self._ends) and self._ends[len(self._seen_s)].query():
            self._seen_s.append(time.monotonic())
        while len(self._ends) - len(self._seen_s) < QUEUED:
            self._step()
            event = self._torch.cuda.Event(enable_timing=True)
            event.record()
            self._ends.append(event)

    def run_for(self, duration_s):
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            self.feed()
            time.sleep(0.002)

    def between(self, start_s, end_s):
        ended = [number for number, seen_s in enumerate(self._seen_s) if start_s <= seen_s <= end_s]
        if len(ended) < 2:
            raise InputError(f"{len(ended)} steps of PyTorch ended in a window, two are needed: --window-s longer")
        first, last = ended[0], ended[-1]
        return {"time_us": 1e3 * self._ends[first].elapsed_time(self._ends[last]) / (last - first), "sm_mhz": None}

    def stop(self):
        self._torch.cuda.synchronize()
        self._ends, self._seen_s = deque(), []


def iteration_of_ours(cuda, arena, name, batch, kept):
    """The cuda.Pass of a whole iteration of a model."""
    model, rows = model_named(name), kernel_rows(name, batch)
    plans = {row.id: row_plan(cuda, arena, row, model, algorithm="timed", choices=kept) for row in rows}
    groups = [group for steps in passes(rows).values() for group in pass_groups(steps)]
    return cuda.Pass([([plans[row_id] for row_id in ids], repeat) for ids, repeat in groups])


def torch_step(torch, model, batch, layers):
    """A function that does forward and backward of GPT with so many layers."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "own_steps"))
    from steps import Gpt

    torch.manual_seed(1)
    with torch.device("cuda"):
        gpt = Gpt(layers, model.channels, model.heads, model.sequence, model.padded_vocab).bfloat16()
    ids, wanted = (torch.randint(0, model.vocab, (batch, model.sequence), device="cuda") for _ in range(2))
    run = torch.compile(gpt, dynamic=False)

    def step():
        gpt.zero_grad(set_to_none=True)
        run(ids, wanted).backward()

    return step


def measured(board, load, window_s):
    """(ms, J, W, SM MHz) of one launch of a load that runs on, after a short while at it."""
    load.run_for(0.7)
    counter = EnergyCounter(board.energy_mj, time.monotonic, time.sleep, load.feed)
    window = counter.window(window_s)
    ran = load.between(window.start_s, window.end_s)
    watt = 1e-3 * window.energy_mj / (window.end_s - window.start_s)
    load.stop()
    return 1e-3 * ran["time_us"], 1e-6 * ran["time_us"] * watt, watt, ran["sm_mhz"]


def medians(rows):
    return [None if None in column else statistics.median(column) for column in zip(*rows, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="folder with native/cuda")
    parser.add_argument("--model", default="gpt3-xl", help="with attention unfused; -flash is added for the other")
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=3.0)
    parser.add_argument("--kept", help="file of GEMM algorithms to take and to add to")
    parser.add_argument("--warm", action="store_true", help="only compile what PyTorch compiles, into its cache")
    parser.add_argument("-o", "--output", required=True, help="path without suffix: .txt and .csv are written")
    options = parser.parse_args()

    import torch

    model = model_named(options.model)
    if options.warm:
        for layers in LAYERS:
            torch._dynamo.reset()
            torch_step(torch, model, options.batch, layers)()
        return

    cuda = load("cuda", options.results)
    device = cuda.Device(0)
    about = device.info()
    kept = GemmAlgorithms(options.kept, about["cublaslt"]) if options.kept else None
    lines = []

    def say(line):
        print(line, flush=True)
        lines.append(line)

    say(f"{about['name']} ({about['uuid']}), default clocks, nothing set; {datetime.date.today().isoformat()}")
    library = library_sha256("cuda", options.results)[:12]
    say(f"driver CUDA {about['driver']}, cuBLASLt {about['cublaslt']}, library {library}")
    say(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {options.model}, batch {options.batch}")
    arena = cuda.Arena(device)  # the rows that both have share their tensors
    loads = {}
    for name, workload in (("ours fused", f"{options.model}-flash"), ("ours unfused", options.model)):
        loads[name] = Steady(cuda, device, iteration_of_ours(cuda, arena, workload, options.batch, kept))
        loads[name].stop()
    of_torch = [f"torch, {layers} layers" for layers in LAYERS]
    for name, layers in zip(of_torch, LAYERS):
        torch._dynamo.reset()
        start_s = time.monotonic()
        loads[name] = TorchSteps(torch, torch_step(torch, model, options.batch, layers))
        print(f"{name}: compiled in {time.monotonic() - start_s:.0f} s", flush=True)
    with Library() as nvml:
        board = Board(nvml, about["uuid"])
        taken = {name: [] for name in loads}
        for _ in range(options.rounds):
            for name, each in loads.items():
                taken[name].append(measured(board, each, options.window_s))
    found = {name: medians(rows) for name, rows in taken.items()}
    few, many = (found[name] for name in of_torch)
    along = (model.layers - LAYERS[0]) / (LAYERS[1] - LAYERS[0])
    ms, joule = (less + along * (more - less) for less, more in zip(few[:2], many[:2]))
    whole = f"torch, {model.layers} layers by these"
    found[whole] = [ms, joule, 1e3 * joule / ms, None]

    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["what", "time_ms", "energy_j", "power_w", "sm_mhz", "time_ms_of_rounds"])
    for name, (ms, joule, watt, mhz) in found.items():
        rounds = " ".join(f"{row[0]:.2f}" for row in taken.get(name, []))
        writer.writerow([name, f"{ms:.3f}", f"{joule:.3f}", f"{watt:.1f}", "" if mhz is None else f"{mhz:.0f}", rounds])
        say(f"{name:30} {ms:8.2f} ms {joule:8.2f} J {watt:6.1f} W" + (f" {mhz:6.0f} MHz" if mhz else ""))
    ours = found["ours fused"]
    for name in (whole, "ours unfused"):
        other = found[name]
        say(f"ours fused / {name}: time {ours[0] / other[0]:.3f}, energy {ours[1] / other[1]:.3f}")
    write_text(f"{options.output}.csv", table.getvalue())
    write_text(f"{options.output}.txt", "\n".join(lines) + "\n")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
