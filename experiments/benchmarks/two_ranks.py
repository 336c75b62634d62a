"""What one rank of a world of one runs, which is what is captured, beside what each of two ranks runs: on two GPUs.

A step of data parallel training is traced by torch's profiler in a world of one and in both ranks of a world of two:
launches and microseconds a step of each kernel, NCCL's apart. Each loop is also timed. Then each rank asks for a
capture, which has to be refused in one line. Sets nothing on the GPUs.

    PYTHONPATH=workflow python3 experiments/benchmarks/two_ranks.py -o two_ranks_h100
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2] / "workflow"))
STEPS, WARM_UPS, CALLS = 10, 12, 1000
WORLDS = {"one": 1, "two": 2}


def training(rank):
    """A step of four wide layers under DistributedDataParallel, AdamW, gradients clipped."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    torch.cuda.set_device(rank)
    layers = [layer for _ in range(4) for layer in (nn.Linear(2048, 2048), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(2048, 1000)).cuda().bfloat16()
    with torch.cuda.stream(torch.cuda.Stream()):  # as torch's notes on CUDA graphs ask
        model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    x = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16)
    y = torch.randint(0, 1000, (4096,), device="cuda")

    def step():
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def traced(step):
    """{kernel: [launches a step, us a step]}"""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    count, time_us = Counter(), Counter()
    for event in seen.events():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        count[event.name] += 1
        time_us[event.name] += event.time_range.elapsed_us()
    return {name: [count[name] / STEPS, time_us[name] / STEPS] for name in count}


def looped_ms(step):
    """One call, back to back; all ranks make as many, since each waits for the others in each."""
    import torch

    torch.cuda.synchronize()
    begin_s = time.perf_counter()
    for _ in range(CALLS):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin_s) / CALLS


def one(rank, world, store, results):
    import torch
    import torch.distributed as dist

    import kernel_dvfs
    from kernel_dvfs_clocks.errors import InputError

    dist.init_process_group("nccl", store=dist.FileStore(store, world), rank=rank, world_size=world)
    step = training(rank)
    for _ in range(WARM_UPS):
        step()
    found = {"device": torch.cuda.get_device_name(), "loop_ms": looped_ms(step), "kernels": traced(step)}
    if world > 1:
        try:
            kernel_dvfs.capture(step, results_dir=results)
            found["capture"] = "taken"
        except InputError as error:
            found["capture"] = str(error)
    print("RESULT " + json.dumps(found), flush=True)
    os._exit(0)  # without waiting for the other rank's communicator


def run(world, results):
    """What each rank found."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, str(HERE), "--world", str(world), "--store", f"{folder}/store", "--results", results]
        ranks = [
            subprocess.Popen([*words, "--rank", str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(world)
        ]
        said = [rank.communicate(timeout=120)[0] for rank in ranks]
    lines = [[line for line in text.splitlines() if line.startswith("RESULT ")] for text in said]
    return [json.loads(each[-1].removeprefix("RESULT ")) for each in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="the folder with the native layer (default: results)")
    parser.add_argument("-o", "--output", default="two_ranks", help="write OUTPUT.csv and OUTPUT.txt")
    for word, kind in (("--rank", int), ("--world", int), ("--store", str)):
        parser.add_argument(word, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.world:
        one(options.rank, options.world, options.store, options.results)
    import torch

    if torch.cuda.device_count() < 2:
        sys.exit(f"two_ranks: {torch.cuda.device_count()} GPU(s) here; it needs two")
    found = {
        (name, rank): each for name, world in WORLDS.items() for rank, each in enumerate(run(world, options.results))
    }
    names = sorted({name for each in found.values() for name in each["kernels"]})
    with open(f"{options.output}.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["kernel", *(f"{word}_{name}_{rank}" for name, rank in found for word in ("launches", "time_us"))]
        )
        for name in names:
            cells = [each["kernels"].get(name, [0, 0]) for each in found.values()]
            table.writerow([name, *(f"{value:.6g}" for cell in cells for value in cell)])
    text = summary(found, names)
    Path(f"{options.output}.txt").write_text(text, encoding="utf-8")
    print(text)


def summary(found, names):
    lines = []
    alone = found["one", 0]["kernels"]
    for (name, rank), each in found.items():
        kernels = each["kernels"]
        own = {kernel: cell for kernel, cell in kernels.items() if "nccl" not in kernel.lower()}
        nccl_us = sum(cell[1] for kernel, cell in kernels.items() if kernel not in own)
        other = [kernel for kernel in names if "nccl" not in kernel.lower()]
        other = [kernel for kernel in other if kernels.get(kernel, [0])[0] != alone.get(kernel, [0])[0]]
        lines += [
            f"world of {name}, rank {rank}: {each['device']}, {each['loop_ms']:.3f} ms a step; "
            f"{sum(cell[0] for cell in own.values()):g} launches of {len(own)} kernels, "
            f"{sum(cell[1] for cell in own.values()):.1f} us; NCCL {nccl_us:.1f} us; "
            f"kernels launched another number of times than in a world of one: {len(other)}"
        ]
        lines += [f"    {kernel[:100]}" for kernel in other]
        if "capture" in each:
            lines += [f"    capture: {each['capture']}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
