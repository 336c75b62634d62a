"""One clock per operation: how far plans lie above the proven bound, and what a plan takes, before and after.

Before: planned times interpolated linearly between corners, two starts, repair. After: the quick search that answers a
running job, and the thorough one (with the compiled core, `kernel-dvfs build --pipeline on`). All in one run, CPU ms.

    python experiments/benchmarks/pipeline_rounding.py [STAGES.csv ...] [--microbatches 12 ...]

The profile of few useful clocks below a flat top is invented (tests/pipeline/made_up.py). STAGES.csv: further stages in
the layout of the Perseus artifact. Exits with 1 where a plan of the thorough search lies 0.3 % or more above the bound.
"""

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

import numpy as np

from kernel_dvfs_pipeline import rounding
from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import ONE_CLOCK, Planner
from kernel_dvfs_pipeline.rounding import _by_end, _finished
from kernel_dvfs_pipeline.stage_profile import read_stage_profile

RATIOS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.1, 1.15, 1.2)
TARGET = 0.003


def before(planner: Planner, ticks: int) -> float:
    """J of the plan that the earlier rounding found."""
    records = planner.frontier.records
    slower = min(max(int(np.searchsorted(-records.ticks, -ticks, side="right")) - 1, 0), len(records.ticks) - 2)
    rows = records.potential[slower : slower + 2].astype(float)
    share = (records.ticks[slower] - ticks) / (records.ticks[slower] - records.ticks[slower + 1])
    begin, end = np.split(np.floor(rows[0] + share * (rows[1] - rows[0])).astype(np.int64), 2)
    offered = planner._offered(ONE_CLOCK)
    starts = np.maximum(offered.within(end - begin), 0), _by_end(planner.graph, offered, end)
    return min(_finished(planner.graph, offered, start, ticks).cost_j for start in starts)


def timed(make) -> tuple:
    """(result, CPU ms)."""
    began = time.process_time()
    made = make()
    return made, 1e3 * (time.process_time() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGES.csv")
    parser.add_argument("--microbatches", type=int, nargs="+", default=[12, 24, 48, 96], metavar="M")
    parser.add_argument("--blocking-w", type=float, default=83.64, metavar="W", help="default: 83.64, an A100")
    options = parser.parse_args()
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "pipeline"))
    from made_up import few_clocks

    profiles = [few_clocks(8), *(read_stage_profile(path) for path in options.stages)]
    print(f"compiled core: {'built' if rounding.core() else 'NOT built: the thorough search is the quick one'}")
    print(f"% above the bound at T'/T = {', '.join(f'{ratio:g}' for ratio in RATIOS)}; CPU ms, the most of one plan")
    met = True
    for profile in profiles:
        print(f"{os.path.basename(profile.name)}, {profile.stages} stages")
        for microbatches in options.microbatches:
            planner = Planner(profile, pipeline_graph("1f1b", profile.stages, microbatches), options.blocking_w)
            base, frontier = all_max(planner).time_ticks, planner.frontier
            planner.plan_ticks(base, thorough=False)  # the options are laid out once
            lines: dict[str, list[tuple[float, float]]] = {"before": [], "quick": [], "thorough": []}
            for ratio in RATIOS:
                ticks = min(int(base * ratio), frontier.slowest_ticks)
                least, energy = float(frontier.cost_at(ticks)), float(frontier.energy_at(ticks))
                cost, ms = timed(lambda: before(planner, ticks))  # noqa: B023
                lines["before"].append(((cost - least) / energy, ms))
                for name in ("quick", "thorough"):
                    plan, ms = timed(lambda: planner.plan_ticks(ticks, thorough=name == "thorough"))  # noqa: B023
                    if plan.time_ticks > ticks:
                        sys.exit(f"error: {name} at {ratio}: late")
                    lines[name].append((plan.gap, ms))
            for name, found in lines.items():
                gaps = " ".join(f"{100 * gap:6.3f}" for gap, _ in found)
                worst, longest = (max(column) for column in zip(*found))
                print(f"  {microbatches:4} {name:>8}: {gaps}   worst {100 * worst:.3f}   {longest:6.0f} ms", flush=True)
            met &= max(lines["thorough"])[0] < TARGET
    print(f"target: one clock within {100 * TARGET:g} % of the bound everywhere: {'met' if met else 'MISSED'}")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
