"""The steps of a pipeline study: its stages, then what is solved for each number of microbatches, as files.

`make_study` writes what is asked; each of PARTS writes records of its own into `mb<M>/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kernel_dvfs.layout import shortest
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_sealed
from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.bracket import Solved
from kernel_dvfs_pipeline.curve import TICKS_PER_S, UW_PER_W, duration_ticks
from kernel_dvfs_pipeline.planner import Planner, write_plan
from kernel_dvfs_pipeline.published import FILTERS
from kernel_dvfs_pipeline.slow_changes import with_switches
from kernel_dvfs_pipeline.solver import Solver, check
from kernel_dvfs_pipeline.stage_profile import read_stage_profile, write_stage_profile
from kernel_dvfs_pipeline.stages_from_kernels import pass_level, read_kernels
from kernel_dvfs_pipeline.study import (
    BLOAT_RATIO,
    KERNELS_IN_PIPELINE,
    KINDS,
    ONE_CLOCK,
    ONE_CLOCK_EACH,
    SCHEMA,
    SPLIT,
    Check,
    Corner,
    LevelEnergy,
    Method,
    PublishedPoint,
    RunnablePlan,
    SlowChange,
    check_options,
    slow_level,
    write_records,
)

# T'/T of the levels of choice
LEVEL_RATIOS = (1.0, 1.05, 1.2)


def make_study(
    source: Path | str,
    folder: Path | str,
    options: dict,
    scale_time: float = 1.0,
    scale_energy: float = 1.0,
    columns: Mapping[str, str] | None = None,
) -> list[str]:
    """Write stages.csv and study.json into `folder`; returns what of the source was left out or pooled, a line each.

    source: a CSV of stages (scaled by the two factors, its columns named where no heading says them) or a kernel
    profile, `.parquet`, from which stages are made.
    options: the keys of study.OPTIONS and `name`. Raises InputError.
    """
    check_options("pipeline study", options)
    needed = options["stages"] * options["chunks"]
    if str(source).endswith(".parquet"):
        kernels = read_kernels(source)
        if kernels.ranks != options["tensor_parallel"]:
            raise InputError(
                f"{source}: kernels of tensor-parallel degree {kernels.ranks}, asked for {options['tensor_parallel']}"
            )
        profile, subject = pass_level(kernels, needed), kernels.source
    else:
        profile = read_stage_profile(source, scale_time, scale_energy, columns=columns)
        subject = "stages from a table"
    if profile.stages != needed:
        raise InputError(
            f"{source}: {profile.stages} stages, the schedule needs {needed}; change the rows, or ask for other stages"
        )
    study = {"schema": SCHEMA, "subject": subject, "source": str(source)} | options
    stages = Path(folder) / "stages.csv"
    write_stage_profile(stages, profile)
    write_sealed(Path(folder) / "study.json", study, {"source": source, "stages": stages})
    return profile.notices


def corners(planner: Planner) -> Iterator[Corner]:
    """Yield the frontier's corners, slowest first; energy with that of transfers."""
    frontier = planner.frontier
    energy_j, price_w = frontier.energy_j + planner.transfer_j, frontier.records.price_uw / UW_PER_W
    columns = (frontier.time_s, energy_j, frontier.cost_j, price_w)
    return (Corner(*row) for row in zip(*(column.tolist() for column in columns)))


def solve_frontier_part(solver: Solver, microbatches: int, part: int, parts: int) -> None:
    """Write bounds-<part>of<parts>.csv."""
    path = solver.study.solved(microbatches) / f"bounds-{part}of{parts}.csv"
    records = solver.planner(microbatches).part_of_frontier(part, parts)
    write_records(path, Solved, records, solver.study.made_of)


def solve_plans(solver: Solver, microbatches: int) -> None:
    """Write frontier.csv, published.csv, methods.csv, runs.csv and plans/<name>.json.

    Plans: all-max; one-clock and split for its time; straggler-<ratio> for each T'/T of the study.
    """
    study, planner, base = solver.study, solver.planner(microbatches), solver.base(microbatches)
    study.write(microbatches, Corner, corners(planner))
    points = [
        PublishedPoint(filter_on, *point)
        for filter_on in FILTERS
        for _, frontier in [solver.published(microbatches, filter_on)]
        for point in zip(frontier.time_s.tolist(), (frontier.energy_j + planner.transfer_j).tolist())
    ]
    study.write(microbatches, PublishedPoint, points)
    ratios = sorted({1.0, BLOAT_RATIO, *map(float, study["straggler"])})
    rows = [row for ratio in ratios for row in solver.methods(microbatches, ratio, simple=ratio == 1)]
    study.write(microbatches, Method, rows)
    study.write(microbatches, RunnablePlan, solver.runs(microbatches))

    plans = {"all-max": base}
    plans |= {kind.replace(" ", "-"): solver.plan(microbatches, base.time_ticks, kind) for kind in KINDS}
    for ratio in study["straggler"]:
        plans[f"straggler-{shortest(ratio)}"] = planner.plan_for_straggler(ratio * base.time_s)
    about = {"profile": study["name"], "subject": study.subject, "schedule": study["schedule"]}
    for name, plan in plans.items():
        path = study.solved(microbatches) / "plans" / f"{name}.json"
        write_plan(path, plan, about | {"microbatches": microbatches}, study.made_of)


def solve_switching(solver: Solver, microbatches: int) -> None:
    """Write switching.csv: each plan keeps the time of all-max."""
    study, planner, base = solver.study, solver.planner(microbatches), solver.base(microbatches)
    rows = []
    for kind in KINDS:
        for latency_s in study["switch_latency_s"]:
            switched = with_switches(planner, base.time_ticks, latency_s, kind)
            rows.append(
                SlowChange(
                    asked=kind,
                    latency_s=float(latency_s),
                    best_plan=switched.plan.kind,
                    energy_j=switched.plan.energy_j(base.time_s),
                    base_energy_j=base.energy_j(),
                    switches=switched.switches,
                    late_s=max(0.0, (switched.time_ticks - base.time_ticks) / TICKS_PER_S),
                )
            )
    study.write(microbatches, SlowChange, rows)


def solve_certificate(solver: Solver, microbatches: int) -> None:
    """Write certificate.csv."""
    solver.study.write(microbatches, Check, [check(solver, microbatches)])


def solve_levels(solver: Solver, microbatches: int) -> None:
    """Write levels.csv: how much each level of choice adds. Raises InputError where only stages are known.

    kernels alone: every operation keeps its own time at the highest clocks, so the pipeline is left as it is.
    """
    study, passes, kernels = solver.study, solver.planner(microbatches), solver.kernel_planner(microbatches)
    base = solver.base(microbatches)
    slow = {
        latency_s: solver.kernel_planner(microbatches, latency_s)
        for latency_s in study["switch_latency_s"]
        if latency_s
    }
    rows = []
    for ratio in LEVEL_RATIOS:
        until_s, ticks = ratio * base.time_s, int(ratio * base.time_ticks)
        costs = {
            "kernels alone": _kernels_alone(passes, kernels),
            ONE_CLOCK_EACH: passes.plan_ticks(ticks, ONE_CLOCK).cost_j,
            "operations, split": passes.plan_ticks(ticks, SPLIT).cost_j,
            "operations, bound": float(passes.frontier.cost_at(ticks)),
            KERNELS_IN_PIPELINE: kernels.plan_ticks(ticks, ONE_CLOCK).cost_j,
            f"{KERNELS_IN_PIPELINE}, bound": float(kernels.frontier.cost_at(ticks)),
        }
        for latency_s, planner in slow.items():
            costs[slow_level(latency_s)] = planner.plan_ticks(ticks, ONE_CLOCK).cost_j
        wait_j = base.energy_j(until_s)
        rest_j = base.transfer_j + base.blocking_w * until_s
        rows += [LevelEnergy(ratio, level, cost_j + rest_j, wait_j) for level, cost_j in costs.items()]
    study.write(microbatches, LevelEnergy, rows)


def _kernels_alone(passes: Planner, kernels: Planner) -> float:
    """Return effective energy (J) when each operation takes its cheapest kernel-level option in its time at all-max."""
    base = all_max(passes)
    total = 0.0
    for key, begin, end in zip(kernels.keys, base.begin_ticks.tolist(), base.end_ticks.tolist()):
        options = kernels.options[key]
        # one rounding of the sum over kernels
        within = options.ticks <= end - begin + int(duration_ticks(1e-12))
        total += float(options.cost_j[within].min()) if within.any() else float(options.cost_j[0])
    return total


# what can be solved for a number of microbatches, each with files of its own
PARTS: dict[str, Callable[[Solver, int], None]] = {
    "plans": solve_plans,
    "switching": solve_switching,
    "certificate": solve_certificate,
    "levels": solve_levels,
}
