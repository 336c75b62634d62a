"""How the exact frontier grows: stages x microbatches, CPU time and memory, each size in a process of its own.

Stages are like those of a large model: all equal but the last, which has the logits and the loss. Their curves come
from the simulated A100 (GPT-3 175B, tensor-parallel 8), so no data are needed.

    PYTHONPATH=workflow python benchmarks/pipeline_scale.py [--sizes 8x12 ...] [--limit SECONDS]

Prints the ratio of each size to the one before, beside the ratio of operations: the growth law.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time

SIZES = ("8x12", "8x96", "16x64", "25x128", "50x256", "100x512")
TARGET_S, TARGET_GIB = 600, 2


def solve(stages: int, microbatches: int, kernels_path: str) -> dict:
    """CPU seconds of graph and frontier; records; GiB at most."""
    from kernel_dvfs.pipeline.curve import curve_of, options_of
    from kernel_dvfs.pipeline.graph import pipeline_graph
    from kernel_dvfs.pipeline.parametric import parametric_frontier
    from kernel_dvfs.pipeline.stages_from_kernels import pass_level, read_kernels

    profile = pass_level(read_kernels(kernels_path), 8)
    began = time.process_time()
    graph = pipeline_graph("1f1b", stages, microbatches)
    curves = {key: curve_of(options_of(own.time_s, own.energy_j, 632.0)) for key, own in profile.settings.items()}
    # stage 1 stands for all but the last
    own = [curves[7 if each.stage == stages - 1 else 1, each.instruction] for each in graph.operations]
    records = parametric_frontier(graph, own)
    taken = time.process_time() - began
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"operations": len(graph), "records": len(records.ticks), "s": taken, "gib": gib}


def sweep(path: str) -> None:
    """A kernel profile of the simulated A100, at `path`."""
    from kernel_dvfs.gpu.clocks import sweep_pairs
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.plan.study import load, plan
    from kernel_dvfs.profile import aggregate

    quick = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}
    model = {"gpu": "a100_sxm", "model": "gpt3-175b", "batch": 1, "tensor_parallel": 8}
    with tempfile.TemporaryDirectory() as folder:
        setup = read(plan(load("config.yaml") | quick | model, folder).setup.write())
        grid = {"core_mhz": {"step": 45}, "mem_mhz": "all", "auto": False}
        pairs, _ = sweep_pairs(setup.gpu["spec"]["clocks"], grid)
        aggregate.from_bench(setup, pairs, 1, path, ("kernel",))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="SxM", help=f"default: {' '.join(SIZES)}")
    parser.add_argument("--limit", type=float, default=3600, metavar="S", help="wall time of one size (default: 3600)")
    parser.add_argument("--one", nargs=3, metavar=("S", "M", "KERNELS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(solve(int(options.one[0]), int(options.one[1]), options.one[2])))
        return 0
    print(
        f"{'stages x microbatches':>21} {'operations':>10} {'corners':>8} {'CPU s':>8} {'ms a corner':>11} {'GiB':>5}"
        "   ratios to the size before: operations, CPU; exponent"
    )
    before, missed = None, False
    with tempfile.TemporaryDirectory() as folder:
        kernels = f"{folder}/kernels.parquet"
        sweep(kernels)
        for size in options.sizes:
            command = [sys.executable, __file__, "--one", *size.split("x"), kernels]
            try:
                ran = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, check=True)
            except subprocess.TimeoutExpired:
                print(f"{size:>21} not done after {options.limit:g} s")
                missed = True
                continue
            found = json.loads(ran.stdout)
            line = f"{size:>21} {found['operations']:10} {found['records']:8} {found['s']:8.2f}"
            line += f" {1e3 * found['s'] / found['records']:11.2f} {found['gib']:5.2f}"
            if before:
                more, longer = found["operations"] / before["operations"], found["s"] / before["s"]
                line += f"   {more:.1f}, {longer:.1f}; {math.log(longer) / math.log(more):.2f}"
            good = found["s"] <= TARGET_S and found["gib"] <= TARGET_GIB
            missed |= not good
            print(line + ("" if good else "   MISSED"), flush=True)
            before = found
    print(f"target: each in <= {TARGET_S} CPU s and <= {TARGET_GIB} GiB: {'MISSED' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
