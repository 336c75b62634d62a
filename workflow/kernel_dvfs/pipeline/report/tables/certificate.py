"""What holds of the plans and the frontier, checked on this study: against a linear-programme solver, and by replay."""

import numpy as np
import pandas as pd

from kernel_dvfs.pipeline.linear_programme import least_cost_j
from kernel_dvfs.pipeline.planner import KINDS
from kernel_dvfs.pipeline.ticks import TICKS_PER_S

CAPTION = "Checks: the parametric flow against HiGHS, plans against bound and promise, the published plans as run"
POINTS = 20


def make(study) -> pd.DataFrame:
    """One row a number of microbatches; 20 times from the fastest to the slowest iteration each.

    lp_difference: largest relative difference of effective energy from HiGHS. latest_s: largest realised minus
    promised time of all plans (<= 0: kept). gap_*: largest distance from the bound, percent of energy.
    published_latest_percent: the same of the published algorithm's plans, percent of the promise.
    """
    rows = []
    for microbatches in study["microbatches"]:
        planner = study.planner(microbatches)
        frontier, curves = planner.frontier, [planner.curves[key] for key in planner.keys]
        ticks = np.linspace(frontier.fastest_ticks, frontier.slowest_ticks, POINTS).astype(np.int64)
        differences, late, gaps, ordered = [], [], {kind: [] for kind in KINDS}, True
        for own in ticks.tolist():
            # a hair later than the fastest: HiGHS works with tolerances
            truth = least_cost_j(planner.graph, curves, own / TICKS_PER_S * (1 + 1e-9))
            differences.append(abs(float(frontier.cost_at(own * (1 + 1e-9))) / truth - 1))
            plans = [planner.plan_ticks(own, kind) for kind in KINDS]
            late += [(plan.time_ticks - own) / TICKS_PER_S for plan in plans]
            costs = [plan.cost_j for plan in plans]
            ordered &= plans[0].bound_j <= costs[1] * (1 + 1e-9) and costs[1] <= costs[0]
            bound_j = float(frontier.energy_at(own))
            for kind, cost in zip(KINDS, costs):
                gaps[kind].append(100 * (cost - plans[0].bound_j) / bound_j)
        rows.append(
            {
                "microbatches": microbatches,
                "operations": len(planner.graph),
                "records": len(frontier.cost_j),
                "points": POINTS,
                "lp_difference": f"{max(differences):.1e}",
                "latest_s": max(late),
                "ordered": "bound <= split <= one clock" if ordered else "NOT bound <= split <= one clock",
                "gap_one_clock_percent": max(gaps[KINDS[0]]),
                "gap_split_percent": max(gaps[KINDS[1]]),
                "published_latest_percent": _published_latest(study, microbatches),
            }
        )
    return pd.DataFrame(rows)


def _published_latest(study, microbatches: int) -> float | None:
    _, frontier = study.published(microbatches)
    if not len(frontier.time_s):
        return None
    points = np.unique(np.linspace(0, len(frontier.time_s) - 1, POINTS).astype(int))
    found = [study.realised(microbatches, int(point)) for point in points]
    return max(100 * (each.time_s / each.promised_s - 1) for each in found)
