"""Whole passes compared with the sums of their kernels measured alone: what adds up, and what does not.

A power limit acts over more than one kernel: one that is capped alone can run faster between cooler ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO, label
from kernel_dvfs.outputs import Output
from kernel_dvfs.workload.workload import study_of

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Passes compared with the sums of their kernels, each measured alone at the same clocks: at auto, and at "
    "those that are best for the whole pass",
    title="Passes",
    text="Each pass as it ran, compared with the sum of its kernels measured alone at the same clocks. A power "
    "limit acts on them differently, so the two need not agree.",
    section="kernels",
    place=3,
    kinds=("nvml",),
    inputs=lambda plan: [*map(plan.schedule, plan.pass_schedules)],
    options=lambda plan: {"schedules": plan.pass_schedules},
)


def make(results: Results, schedules: list[str]) -> pd.DataFrame:
    """Two rows a pass, one where `schedules` names none; times in ms, energies in J, differences in percent."""
    import pandas as pd

    steps = results.setup(results.workload["setup"]).targets["pass"]
    points = points_of(results.profile)
    about = results.workload
    rows = []
    for name in steps:
        auto = (AUTO, AUTO)
        chosen = {schedule: results.schedule(schedule)["targets"] for schedule in schedules}
        # no clocks are chosen for a captured step as a whole, but for its sections
        clocks = {"auto": auto} | {
            schedule: (own[name]["core_mhz"], own[name]["mem_mhz"]) for schedule, own in chosen.items() if name in own
        }
        rows += [
            {"pass": name, "chosen_by": how} | compared(points, study_of(about, "pass", name), name, steps[name], at)
            for how, at in clocks.items()
        ]
    return pd.DataFrame(rows)


def points_of(profile: pd.DataFrame) -> dict[tuple, Any]:
    """{(study, target, core, mem): its row}."""
    import pandas as pd

    return {
        (row.study, row.target, *(AUTO if pd.isna(clock) else int(clock) for clock in (row.core_mhz, row.mem_mhz))): row
        for row in profile.itertuples()
    }


def compared(points: dict[tuple, Any], study: str, name: str, steps: list, clocks: tuple) -> dict:
    """A pass (its rows are of `study` in the profile) beside the sum of its kernels `steps`, both at these clocks."""
    ran = points[study, name, *clocks]
    alone = [(_alone(points, name, kernel, clocks), count) for kernel, count in steps]
    sum_s = sum(count * row.time_s for row, count in alone)
    sum_j = sum(count * row.energy_j for row, count in alone)
    return {
        "clocks": label(clocks),
        "time_ms": 1e3 * ran.time_s,
        "sum_time_ms": 1e3 * sum_s,
        "time_difference_percent": 100 * (ran.time_s / sum_s - 1),
        "energy_j": ran.energy_j,
        "sum_energy_j": sum_j,
        "energy_difference_percent": 100 * (ran.energy_j / sum_j - 1),
        "core_mhz": ran.reached_core_mhz,
        "verdict": ran.verdict,
    }


def _alone(points: dict[tuple, Any], name: str, kernel: str, clocks: tuple) -> Any:
    """A kernel's row at these clocks. Where `skip_capped` left it out, it runs as at the highest lower core clock."""
    found = points.get(("kernel", kernel, *clocks))
    if found is not None:
        return found
    core, mem = clocks
    lower = [
        key[2]
        for key in points
        if key[:2] == ("kernel", kernel) and key[3] == mem and AUTO not in (core, key[2]) and key[2] < core
    ]
    if not lower:
        raise InputError(f"pass {name} at {label(clocks)}: the profile lacks {kernel} there")
    return points["kernel", kernel, max(lower), mem]
