"""How the frontier grows: stages x microbatches, CPU time and memory, each size in a process of its own.

Each size is solved whole; then its stored frontier is asked for plans of a straggler's time; and one iteration time is
solved alone by the compiled core (`kernel-dvfs build --pipeline on`).
Stages are like those of a large model: all equal but the last, which has the logits and the loss. Their curves come
from the simulated A100 (GPT-3 175B, tensor-parallel 8), so no data are needed.

    python experiments/benchmarks/pipeline_scale.py [--sizes 8x12 ...] [--limit SECONDS]

Prints the growth law: the exponent of operations from each size to the next.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

SIZES = ("8x12", "8x96", "16x64", "25x128", "50x256", "100x512")
TARGET_S, ONE_TARGET_S, TARGET_GIB = 120, 20, 1
BLOCKING_W = 632.0
STRAGGLERS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.3)


def solve(stages: int, microbatches: int, what: str, kernels_path: str) -> dict:
    """CPU seconds of graph and frontier, or of graph and one linear programme; GiB at most; the slowest plan(T')."""
    from kernel_dvfs_pipeline.graph import pipeline_graph
    from kernel_dvfs_pipeline.planner import Planner
    from kernel_dvfs_pipeline.stage_profile import StageProfile
    from kernel_dvfs_pipeline.stages_from_kernels import pass_level, read_kernels

    measured = pass_level(read_kernels(kernels_path), 8).settings
    names = ("forward", "backward")
    # stage 1 stands for all but the last
    settings = {
        (stage, name): measured[7 if stage == stages - 1 else 1, name] for stage in range(stages) for name in names
    }
    began = time.process_time()
    graph = pipeline_graph("1f1b", stages, microbatches)
    planner = Planner(StageProfile(settings, "simulated"), graph, BLOCKING_W)
    made: dict = {"operations": len(graph)}
    if what == "one":
        fastest, slowest = planner.ends_ticks
        planner._planned(fastest + (slowest - fastest) // 10, thorough=True)
        made["s"] = time.process_time() - began
    else:
        frontier = planner.frontier
        made |= {"s": time.process_time() - began, "corners": len(frontier.cost_j)}
        plans = []
        for ratio in STRAGGLERS:
            began = time.process_time()
            planner.plan_for_straggler(ratio * frontier.fastest_ticks * 1e-12)
            plans.append(time.process_time() - began)
        made["plan_s"] = max(plans[1:])  # the first also lays out the options
    return made | {"gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def sweep(path: str) -> None:
    """A kernel profile of the simulated A100, at `path`."""
    from kernel_dvfs.gpu.clocks import sweep_pairs
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.plan.config import load
    from kernel_dvfs.plan.study import plan
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
    parser.add_argument("--one", nargs=4, metavar=("S", "M", "WHAT", "KERNELS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        stages, microbatches, what, path = options.one
        print(json.dumps(solve(int(stages), int(microbatches), what, path)))
        return 0
    print(
        f"{'stages x microbatches':>21} {'operations':>10} {'corners':>8} {'frontier, CPU s':>15} {'GiB':>5}"
        f" {'exponent':>8} {'one T alone, CPU s':>18} {'exponent':>8}  plan(T') of the stored frontier, CPU ms"
    )
    before: dict[str, dict] = {}
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        kernels = f"{folder}/kernels.parquet"
        sweep(kernels)
        for size in options.sizes:
            found: dict[str, dict] = {}
            for what in ("frontier", "one"):
                command = [sys.executable, __file__, "--one", *size.split("x"), what, kernels]
                try:
                    ran = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, check=True)
                except subprocess.TimeoutExpired:
                    print(f"{size:>21} {what}: not done after {options.limit:g} s")
                    missed = True
                    continue
                found[what] = json.loads(ran.stdout)
            growth = dict.fromkeys(found, "")
            for what in found.keys() & before.keys():
                longer, more = (found[what][key] / before[what][key] for key in ("s", "operations"))
                growth[what] = f"{math.log(longer) / math.log(more):.2f}"
            before |= found
            if len(found) < 2:
                continue
            whole, one = found["frontier"], found["one"]
            good = whole["s"] <= TARGET_S and whole["gib"] <= TARGET_GIB and one["s"] <= ONE_TARGET_S
            missed |= not good
            line = f"{size:>21} {whole['operations']:10} {whole['corners']:8} {whole['s']:15.2f} {whole['gib']:5.2f}"
            line += f" {growth['frontier']:>8} {one['s']:18.2f} {growth['one']:>8} {1e3 * whole['plan_s']:8.0f}"
            print(line + ("" if good else "   MISSED"), flush=True)
    target = f"each frontier in <= {TARGET_S} CPU s and <= {TARGET_GIB} GiB, one plan in <= {ONE_TARGET_S} CPU s"
    print(f"target: {target}: {'MISSED' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
