"""Are promises kept? Budgets of energy, time and waiting, each plan simulated again from what its file says.

The simulation knows stages, the order on each, what waits for what, and the rows of the profile; it shares nothing with
the planner but these. A plan keeps its promise where the simulated joules or seconds are within it, up to 1e-9.

    python experiments/benchmarks/pipeline_budgets.py [STAGES.csv ...] [--each 50] [--microbatches 6]

Asked are --each energies, times and stragglers of each profile: one made up, one invented of few useful clocks
(tests/pipeline/made_up.py), and each CSV in the layout of the Perseus artifact. A refused energy is held against what
HiGHS proves of the whole integer programme (tests/pipeline/whole_programme.py, a minute at most for each profile):
refused rightly is what no plan of one clock per operation can keep. Exits with 1 where a promise is broken or a refusal
not proven right.
"""

import argparse
import os
import sys
from collections import deque

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "pipeline"))

import numpy as np
from made_up import few_clocks, profile
from whole_programme import least_energy_j

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.graph import Graph, pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.stage_profile import StageProfile, read_stage_profile

CLOSE = 1 + 1e-9


def simulated(document: dict, stages: StageProfile, graph: Graph, blocking_w: float) -> tuple[float, float]:
    """(s, J) of one iteration in which every stage runs its instructions in order, each as soon as it may."""
    work: dict[tuple, tuple[float, float]] = {}
    queues = []
    for rank in document["ranks"]:
        queue = deque()
        for own in rank["instructions"]:
            name = (rank["stage"], own["virtual_stage"], own["instruction"], own["microbatch"])
            rows = stages.of(own["virtual_stage"], own["instruction"])
            [part] = own["clocks"]
            [row] = np.flatnonzero(rows.core_mhz == part["core_mhz"])
            work[name] = float(rows.time_s[row]), float(rows.energy_j[row])
            queue.append(name)
        queues.append(queue)
    waits: dict[tuple, list[tuple]] = {name: [] for name in work}
    for tail, head in zip(graph.tail.tolist(), graph.head.tolist()):
        waits[tuple(graph.operations[head])].append(tuple(graph.operations[tail]))
    over: dict[tuple, float] = {}
    free = [0.0] * len(queues)
    while any(queues):
        before = len(over)
        for stage, queue in enumerate(queues):
            while queue and all(other in over for other in waits[queue[0]]):
                name = queue.popleft()
                begin = max([free[stage], *(over[other] for other in waits[name])])
                over[name] = free[stage] = begin + work[name][0]
        if len(over) == before:
            sys.exit("error: the plan's order stands still")
    time_s = max(over.values())
    busy_s = sum(own for own, _ in work.values())
    return time_s, sum(own for _, own in work.values()) + blocking_w * (len(queues) * time_s - busy_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGES.csv")
    parser.add_argument("--each", type=int, default=50, metavar="N", help="of each question (default: 50)")
    parser.add_argument("--microbatches", type=int, default=6, metavar="M", help="default: 6")
    parser.add_argument("--blocking-w", type=float, default=83.64, metavar="W", help="default: 83.64, an A100")
    options = parser.parse_args()
    kept = asked = 0
    for own in [profile(4), few_clocks(4), *(read_stage_profile(path) for path in options.stages)]:
        graph = pipeline_graph("1f1b", own.stages, options.microbatches)
        planner = Planner(own, graph, options.blocking_w)
        frontier, base = planner.frontier, all_max(planner)
        energy_j = float(frontier.energy_j.min()), float(frontier.energy_j.max())
        questions = {
            "energy": (planner.plan_for_energy, np.linspace(*energy_j, options.each)),
            "time": (planner.plan, np.linspace(base.time_s, float(frontier.time_s[0]), options.each)),
            "straggler": (planner.plan_for_straggler, np.linspace(base.time_s, 2 * base.time_s, options.each)),
        }
        for name, (ask, budgets) in questions.items():
            within = rightly = 0
            refused = []
            for budget in budgets.tolist():
                try:
                    plan = ask(budget)
                except InputError:
                    refused.append(budget)
                    continue
                time_s, joules = simulated(plan.document(), own, graph, options.blocking_w)
                within += (joules if name == "energy" else time_s) <= budget * CLOSE
            line = f"{os.path.basename(own.name)}, {name}: {within} of {len(budgets)} kept"
            if refused:
                proven_j, best_j = least_energy_j(planner)
                rightly = sum(budget < proven_j for budget in refused)
                found = "none found" if best_j is None else f"the best that HiGHS found takes {best_j:.7g} J"
                line += (
                    f", {len(refused)} refused, {rightly} of them rightly: at most {max(refused):.7g} J were asked, "
                    f"no plan takes less than {proven_j:.7g} J, {found}"
                )
            asked, kept = asked + len(budgets), kept + within + rightly
            print(line, flush=True)
    print(f"{kept} of {asked} kept or rightly refused: {'met' if kept == asked else 'MISSED'}")
    return int(kept != asked)


if __name__ == "__main__":
    sys.exit(main())
