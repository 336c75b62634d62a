"""The exact frontier against lowtime 0.3.0, its authors' published implementation, both timed in one run.

CPU seconds of one process each, whole frontier, imports not timed; of lowtime the solver alone counts, of ours all.
Needs a Python with lowtime (a benchmark dependency):

    python -m venv lowtime && lowtime/bin/pip install lowtime==0.3.0
    python experiments/benchmarks/pipeline_frontier.py STAGES.csv \
        --lowtime-python lowtime/bin/python

STAGES.csv: stages in the layout of the Perseus artifact (stage, instruction, frequency, time, energy of one GPU), in
the artifact's own scale: lowtime's unit of time is 0.001 s.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

import numpy as np

from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.published import published_frontier, unit_curve
from kernel_dvfs_pipeline.stage_profile import read_stage_profile

# ratios that the project set itself: lowtime's CPU time over ours
TARGETS = {12: 8, 24: 15, 48: 30}
PLAN_TARGET_MS = 50
UNIT_S = 0.001

# Runs under the other Python. lowtime's own solver on the same graph and options: nothing of ours is imported there.
LOWTIME = """
import json, sys, time
import networkx as nx
from lowtime.cost_model import ExponentialModel
from lowtime.operation import CandidateExecutionOptions, DummyOperation, ExecutionOption, Operation, OperationSpec
from lowtime.solver import PhillipsDessouky

problem = json.load(sys.stdin)

began = time.process_time()
specs, classes = {}, {}
for name, (options, blocking_w) in problem["options"].items():
    for noise_factor in (1.0, 0.95):
        candidates = CandidateExecutionOptions(
            options=[ExecutionOption(real_time=t, unit_time=problem["unit_s"], cost=e, knob=k) for t, e, k in options],
            noise_factor=noise_factor,
        )
        if len(candidates.options) > 3:
            break
    for option in candidates.options:
        option.cost -= blocking_w * option.quant_time * option.unit_time
    specs[name] = OperationSpec(options=candidates, cost_model=ExponentialModel(candidates, search_strategy="best"))
graph = nx.DiGraph()
count = len(problem["operations"])
graph.add_node(0, op=DummyOperation())
for number, name in enumerate(problem["operations"]):
    graph.add_node(number + 1, op=Operation(spec=specs[name]))
graph.add_node(count + 1, op=DummyOperation())
graph.add_edges_from((tail + 1, head + 1) for tail, head in problem["edges"])
graph.add_edges_from((0, number + 1) for number in problem["first"])
graph.add_edges_from((number + 1, count + 1) for number in problem["last"])
graph.graph["source_node"], graph.graph["sink_node"] = 0, count + 1
fitted = time.process_time()
points, last, limit_s = 0, None, problem["limit_s"]
for result in PhillipsDessouky(graph).run():
    points, last = points + 1, (result.real_time, result.cost)
    if limit_s and time.process_time() - fitted > limit_s:
        break
print(json.dumps({"fit_s": fitted - began, "solve_s": time.process_time() - fitted, "points": points, "last": last}))
"""


def lowtime(python: str, profile, graph, blocking_w: float, limit_s: float) -> dict:
    """CPU seconds of lowtime's fit and frontier; its points."""
    keys = [(operation.virtual_stage, operation.instruction) for operation in graph.operations]
    options = {}
    for key in dict.fromkeys(keys):
        own = profile.of(*key)
        options[str(key)] = (
            [(float(t), float(e), float(mhz)) for t, e, mhz in zip(own.time_s, own.energy_j, own.core_mhz)],
            blocking_w,
        )
    problem = {
        "unit_s": UNIT_S,
        "limit_s": limit_s,
        "options": options,
        "operations": [str(key) for key in keys],
        "edges": list(zip(graph.tail.tolist(), graph.head.tolist())),
        "first": [number for number in range(len(graph)) if not graph.before[number]],
        "last": [number for number in range(len(graph)) if not graph.after[number]],
    }
    ran = subprocess.run([python, "-c", LOWTIME], input=json.dumps(problem), capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"error: {python}: {ran.stderr.strip().splitlines()[-1]}; is lowtime 0.3.0 installed there?")
    return json.loads(ran.stdout.splitlines()[-1])


def timed(make, runs: int) -> tuple:
    """(median CPU seconds, last result)."""
    taken = []
    for _ in range(runs):
        began = time.process_time()
        made = make()
        taken.append(time.process_time() - began)
    return statistics.median(taken), made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", metavar="STAGES.csv")
    parser.add_argument("--lowtime-python", required=True, metavar="PYTHON", help="one that has lowtime 0.3.0")
    parser.add_argument("--microbatches", type=int, nargs="+", default=[12, 24, 48], metavar="M")
    parser.add_argument("--blocking-w", type=float, default=83.64, metavar="W", help="default: 83.64, an A100")
    parser.add_argument("--runs", type=int, default=5, help="of ours, the median counts (default: 5)")
    parser.add_argument(
        "--limit", type=float, default=0, metavar="S", help="stop lowtime after so long (default: never)"
    )
    options = parser.parse_args()
    profile = read_stage_profile(options.stages)
    stages = profile.stages
    warm = Planner(profile, pipeline_graph("1f1b", stages, 2), options.blocking_w)
    warm.plan_ticks(warm.frontier.slowest_ticks)  # imports are not timed

    met = True
    name = options.stages.rpartition("/")[2]
    print(f"{name}, {stages} stages; CPU s of a whole frontier; ours: median of {options.runs}")
    print(
        f"{'microbatches':>12} {'lowtime (fit + solve)':>23} {'points':>7} {'ours':>7} {'corners':>8} {'ratio':>7}"
        f" {'target':>7}  {'published, our code':>20} {'ratio':>6}  plan(T') ms: one clock (max)  split (max)"
    )
    for microbatches in options.microbatches:
        graph = pipeline_graph("1f1b", stages, microbatches)
        theirs = lowtime(options.lowtime_python, profile, graph, options.blocking_w, options.limit)
        their_s = theirs["solve_s"]  # its search for the best fit, 54 starts a curve, is left out

        def ours(graph=graph):
            planner = Planner(profile, graph, options.blocking_w)
            return planner, planner.frontier

        def rewritten(graph=graph):
            curves = {
                key: unit_curve(own.time_s, own.energy_j, options.blocking_w, UNIT_S)
                for key, own in profile.settings.items()
            }
            own = [curves[operation.virtual_stage, operation.instruction] for operation in graph.operations]
            return published_frontier(graph, own, options.blocking_w, UNIT_S)

        our_s, (planner, frontier) = timed(ours, options.runs)
        published_s, published = timed(rewritten, 1)
        plans = [plan_ms(planner, kind) for kind in ("one clock", "split")]
        ratio, target = their_s / our_s, TARGETS.get(microbatches)
        good = target is None or ratio >= target
        met &= good and (microbatches != 12 or plans[0][1] <= PLAN_TARGET_MS)
        cut = ">" if options.limit and theirs["solve_s"] > options.limit else ""
        print(
            f"{microbatches:12} {cut:>5}{theirs['fit_s']:7.2f} + {theirs['solve_s']:8.2f} {theirs['points']:7}"
            f" {our_s:7.3f} {len(frontier.cost_j):8} {cut}{ratio:7.0f} {target or '-':>7} {'' if good else 'MISSED'}"
            f" {published_s:16.2f} ({len(published.time_s)}) {their_s / published_s:5.0f}"
            f"  {plans[0][0]:10.1f} ({plans[0][1]:.1f}) {plans[1][0]:17.1f} ({plans[1][1]:.1f})",
            flush=True,
        )
        if not cut and len(published.time_s) != theirs["points"]:
            print(f"  NOT EQUAL: {len(published.time_s)} points by our code of the published algorithm")
            met = False
    print(f"plan(T') at 12 microbatches: target <= {PLAN_TARGET_MS} ms; every target {'met' if met else 'NOT met'}")
    return 0 if met else 1


def plan_ms(planner: Planner, kind: str) -> tuple:
    """(median, max) CPU milliseconds of a plan for a straggler, T'/T from 1 to 1.5; the frontier is solved."""
    base_s = all_max(planner).time_s
    planner.plan_for_straggler(base_s, kind)
    taken = [
        1e3 * timed(lambda ratio=ratio: planner.plan_for_straggler(ratio * base_s, kind), 1)[0] for ratio in RATIOS
    ]
    return statistics.median(taken), max(taken)


RATIOS = np.linspace(1, 1.5, 21)

if __name__ == "__main__":
    sys.exit(main())
