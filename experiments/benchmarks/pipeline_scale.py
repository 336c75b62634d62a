"""How pipelines grow: stages x microbatches, CPU time and memory, each number in a process of its own.

Each size is solved whole, as `pipeline frontier` does it (exact up to 4,000 operations; beyond, between two bounds)
and, up to 30,000 operations, by the exact solver for all: the ratio is of these two. Then one plan of one clock an
operation is made from nothing, graph and rounding and all, and its linear programme alone is solved. The compiled core
must be built (`kernel-dvfs build --pipeline on`). Stages are like those of a large model: all equal but the last, which
has the logits and the loss. Their curves come from the simulated A100 (GPT-3 175B, tensor-parallel 8), so no data are
needed.

Beside them runs lowtime 0.3.0, its authors' published implementation, where a Python that has it is named; it is
stopped after --limit, and what it had not reached by then is told.

    python experiments/benchmarks/pipeline_scale.py [--sizes 8x12 ...] [--limit SECONDS] [--lowtime-python PYTHON]
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

SIZES = ("8x12", "8x96", "25x128", "50x256", "100x512")
TARGET_S, ONE_TARGET_S, TARGET_GIB = 60, 5, 0.5
BLOCKING_W = 632.0
MOST_EXACT = 30_000  # operations: beyond, the exact solver takes many minutes
LATER = 1.05  # T of the one plan, relative to the fastest
WAYS = ("frontier", "exact", "plan", "interior")


def profile_of(stages: int, kernels_path: str):
    """The StageProfile of so many stages."""
    from kernel_dvfs_pipeline.stage_profile import StageProfile
    from kernel_dvfs_pipeline.stages_from_kernels import pass_level, read_kernels

    measured = pass_level(read_kernels(kernels_path), 8).settings
    names = ("forward", "backward")
    # stage 1 stands for all but the last
    settings = {
        (stage, name): measured[7 if stage == stages - 1 else 1, name] for stage in range(stages) for name in names
    }
    return StageProfile(settings, "simulated")


def solve(stages: int, microbatches: int, way: str, kernels_path: str) -> dict:
    """CPU and wall seconds of one of WAYS, GiB at most, and the proven error in %. The graph is not counted, except in
    the plan."""
    from kernel_dvfs_pipeline import rounding
    from kernel_dvfs_pipeline.bracket import Bracket, Programme
    from kernel_dvfs_pipeline.frontier import parametric_frontier
    from kernel_dvfs_pipeline.graph import pipeline_graph
    from kernel_dvfs_pipeline.planner import Planner

    module = rounding.core()
    if module is None:
        raise SystemExit("no compiled core in results/: kernel-dvfs build --pipeline on")
    profile = profile_of(stages, kernels_path)
    began = time.process_time(), time.perf_counter()
    planner = Planner(profile, pipeline_graph("1f1b", stages, microbatches), BLOCKING_W)
    curves, ticks = [planner.curves[key] for key in planner.keys], int(LATER * planner.ends_ticks[0])
    if way != "plan":
        began = time.process_time(), time.perf_counter()
    error = 0.0
    if way == "frontier":
        found = planner.frontier
        error = found.error if isinstance(found, Bracket) else 0.0
    elif way == "exact":
        parametric_frontier(planner.graph, curves)
    elif way == "plan":
        error = planner.plan_ticks(ticks).gap
    else:
        interior = Programme(rounding.interior(module, planner.graph, curves), curves, planner.blocking_w)
        own = interior.bounds(ticks)
        error = (own.cost_j - own.least_j) / (own.least_j + planner.blocking_w * ticks * 1e-12)
    made = {"s": time.process_time() - began[0], "wall_s": time.perf_counter() - began[1], "error": 100 * error}
    return made | {"gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def beside_lowtime(stages: int, microbatches: int, kernels_path: str, python: str, limit_s: float) -> str:
    """A line of what lowtime took, and how far it came towards the fastest iteration."""
    from pipeline_frontier import lowtime

    from kernel_dvfs_pipeline.graph import pipeline_graph
    from kernel_dvfs_pipeline.planner import Planner

    planner = Planner(profile_of(stages, kernels_path), pipeline_graph("1f1b", stages, microbatches), BLOCKING_W)
    made = lowtime(python, planner.profile, planner.graph, BLOCKING_W, limit_s)
    fastest_s, slowest_s = (own * 1e-12 for own in planner.ends_ticks)
    share = (slowest_s - made["last"][0]) / (slowest_s - fastest_s)
    ended = "ended" if made["solve_s"] <= limit_s else f"NOT ended, {100 * share:.1f} % of the way to the fastest time"
    return f"   lowtime: {made['solve_s']:8.2f} CPU s, {made['points']} points, {ended}"


def sweep(path: str) -> None:
    """A kernel profile of the simulated A100, at `path`."""
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.plan.config import load
    from kernel_dvfs.plan.study import plan
    from kernel_dvfs.profile import aggregate
    from kernel_dvfs_clocks.clocks import sweep_pairs

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
    parser.add_argument("--lowtime-python", metavar="PYTHON", help="one that has lowtime 0.3.0")
    parser.add_argument("--one", nargs=4, metavar=("S", "M", "WHAT", "KERNELS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        stages, microbatches, what, path = options.one
        print(json.dumps(solve(int(stages), int(microbatches), what, path)))
        return 0
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        kernels = f"{folder}/kernels.parquet"
        sweep(kernels)
        for size in options.sizes:
            stages, microbatches = map(int, size.split("x"))
            many = 2 * stages * microbatches
            print(f"{size}: {many} operations", flush=True)
            found: dict[str, dict] = {}
            for way in WAYS:
                if way == "exact" and many > MOST_EXACT:
                    continue
                command = [sys.executable, __file__, "--one", *size.split("x"), way, kernels]
                try:
                    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=options.limit, check=True)
                except subprocess.TimeoutExpired:
                    print(f"  {way:>8}: not done after {options.limit:g} s", flush=True)
                    continue
                own = found[way] = json.loads(ran.stdout)
                target = {"frontier": TARGET_S, "plan": ONE_TARGET_S}.get(way, math.inf)
                good = own["s"] <= target and (target == math.inf or own["gib"] <= TARGET_GIB)
                missed |= not good
                line = f"  {way:>8}: {own['s']:8.2f} CPU s {own['wall_s']:8.2f} s {own['gib']:5.2f} GiB"
                print(f"{line}, proven within {own['error']:.4f} %" + ("" if good else "   MISSED"), flush=True)
            if options.lowtime_python:
                asked = stages, microbatches, kernels, options.lowtime_python, options.limit
                print(beside_lowtime(*map(int, asked[:2]), *asked[2:]), flush=True)
            missed |= not {"frontier", "plan"} <= found.keys()
            if {"exact", "frontier"} <= found.keys():
                print(f"  exact / frontier: {found['exact']['s'] / found['frontier']['s']:.1f}", flush=True)
    target = f"each frontier in <= {TARGET_S} CPU s, each plan in <= {ONE_TARGET_S}, both in <= {TARGET_GIB} GiB"
    print(f"target: {target}: {'MISSED' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
