"""What one pipeline saves by each method at one time, percent of all-max: shared by Tables 3, 4, 6 and the figures."""

from kernel_dvfs.pipeline.baselines import per_stage, uniform
from kernel_dvfs.pipeline.planner import ONE_CLOCK, SPLIT
from kernel_dvfs.pipeline.study import cheapest_within, published_base
from kernel_dvfs.pipeline.ticks import TICKS_PER_S

BOUND, PUBLISHED, REALISED = "bound", "published, as promised", "published, as run"
ORDER = ("uniform clock", "per-stage clock", PUBLISHED, REALISED, ONE_CLOCK, SPLIT, BOUND)


def by_method(study, microbatches: int, ratio: float = 1.0, simple: bool = True) -> dict:
    """{method: (percent saved, slowdown percent)} when the iteration lasts `ratio` x the time of all-max.

    simple: also one clock for all and one clock per stage. The published algorithm twice: as it promises (its own
    floored base), and as its plan runs at measured times; it may then be late.
    """
    planner, base = study.planner(microbatches), study.base(microbatches)
    ticks = int(base.time_ticks * ratio)
    until_s = base.time_s * ratio
    wait_j = base.energy_j(until_s)

    def entry(energy_j, time_s):
        return 100 * (1 - energy_j / wait_j), 100 * (time_s / base.time_s - 1)

    found = {}
    if simple:
        for name, plan in zip(ORDER, (uniform(planner, ticks), per_stage(planner, ticks))):
            found[name] = entry(plan.energy_j(until_s), plan.time_s)
    _, frontier = study.published(microbatches)
    if len(frontier.time_s):
        found |= _published(study, microbatches, ratio, frontier, entry)
    for kind in (ONE_CLOCK, SPLIT):
        plan = planner.plan_ticks(min(ticks, planner.frontier.slowest_ticks), kind)
        found[kind] = entry(plan.energy_j(until_s), plan.time_s)
    bound = float(planner.frontier.cost_at(ticks)) + planner.blocking_w * until_s
    found[BOUND] = entry(bound, min(ticks, planner.frontier.slowest_ticks) / TICKS_PER_S)
    return found


def _published(study, microbatches: int, ratio: float, frontier, entry) -> dict:
    """The artifact's lookup: the point of least energy that promises to end in time."""
    blocking_w = study.planner(microbatches).blocking_w
    time_s, energy_j = published_base(study, microbatches)
    until_s = time_s * ratio
    point = cheapest_within(frontier, until_s)
    promised_j = frontier.energy_j[point] + blocking_w * (until_s - frontier.time_s[point])
    promised = 100 * (1 - promised_j / (energy_j + blocking_w * (until_s - time_s)))
    run = study.realised(microbatches, point)
    lasts_s = max(study.base(microbatches).time_s * ratio, run.time_s)
    return {
        PUBLISHED: (promised, 100 * (frontier.time_s[point] / time_s - 1)),
        REALISED: entry(run.cost_j + blocking_w * lasts_s, run.time_s),
    }
