"""Tables of what was measured: auto clocks, passes, locks, pairs left out; a captured step kernel by kernel."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Any

from kernel_dvfs import layout
from kernel_dvfs.layout import RELIED_ON
from kernel_dvfs.measurement.record import read_any
from kernel_dvfs.outputs import MEASURED, Outputs
from kernel_dvfs.report import remeasured
from kernel_dvfs.workload.workload import study_of
from kernel_dvfs_clocks.clocks import AUTO, label
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUTS = Outputs()


# over a shorter run the slope per hour would be noise
_LEAST_HOURS = 0.25


@OUTPUTS.table(
    "Kernels and passes at auto clocks, per launch: time, energy, power, the clocks that the GPU ran, the "
    "share of time under its power cap, and the drift of the energy over the run",
    title="Every kernel and pass at auto clocks",
    text="Per launch and per iteration, with clocks left to the GPU: time, energy, power, the clocks that it ran, "
    "the share of time under its power cap, and the drift over the run. The last row is an iteration as the "
    "sum of its kernels.",
    section="kernels",
    place=2,
    kinds=("nvml",),
)
def baseline(results: Results) -> pd.DataFrame:
    """Return rows in the order of the iteration, then passes, then the iteration as a sum; times in us, energies in mJ,
    powers in W, clocks in MHz."""
    import pandas as pd

    about = results.workload.get("kernels", {})
    points = results.profile[results.profile.is_baseline]
    launches = points.launches_per_iteration
    repeats = [auto_records(results.folder, study, name) for study, name in zip(points.study, points.target)]
    table = pd.DataFrame(
        {
            "study": points.study,
            "id": points.target,
            "name": [about.get(name, {}).get("name", name) for name in points.target],
            "launches": launches,
            "time_us": 1e6 * points.time_s,
            "time_sd_us": 1e6 * points.time_sd_s,
            "energy_mj": 1e3 * points.energy_j,
            "energy_sd_mj": 1e3 * points.energy_sd_j,
            "power_w": points.energy_j / points.time_s,
            "time_per_iteration_us": 1e6 * launches * points.time_s,
            "energy_per_iteration_mj": 1e3 * launches * points.energy_j,
            "core_mhz": points.reached_core_mhz,
            "mem_mhz": points.reached_mem_mhz,
            "power_cap_share": [cap_share(records) for records in repeats],
            "energy_drift_percent_per_h": [_drift(records) for records in repeats],
            "n": points.n,
            "verdict": points.verdict,
        }
    )
    # whole numbers stay whole beside the last row, which has none
    table = table.astype({"launches": "Int64", "n": "Int64"})
    return pd.concat([table, pd.DataFrame([_total(table)])], ignore_index=True)


def _total(rows: pd.DataFrame) -> dict[str, object]:
    """Return the row of an iteration as the sum of its kernels, each measured alone."""
    kernels = rows[rows.study == "kernel"]
    time_us, energy_mj = kernels.time_per_iteration_us.sum(), kernels.energy_per_iteration_mj.sum()
    return {
        "study": "iteration",
        "id": "iteration",
        "name": "sum of its kernels",
        "power_w": 1e3 * energy_mj / time_us,
        "time_per_iteration_us": time_us,
        "energy_per_iteration_mj": energy_mj,
    }


def _drift(records: list[dict]) -> float | None:
    """Return the slope of the energy over the run, percent per hour; None for a run too short to have one."""
    hours = [datetime.fromisoformat(record["run"]["started_utc"]).timestamp() / 3600 for record in records]
    if len(hours) < 3 or max(hours) - min(hours) < _LEAST_HOURS:
        return None
    energies = [record["summary"]["energy_mj"] for record in records]
    return 100 * linear_regression(hours, energies).slope / fmean(energies)


@OUTPUTS.table(
    "Passes compared with the sums of their kernels, each measured alone at the same clocks: at auto, and at "
    "those that are best for the whole pass",
    title="Passes",
    text="Each pass as it ran, compared with the sum of its kernels measured alone at the same clocks. A power "
    "limit acts on them differently, so the two need not agree.",
    section="kernels",
    place=3,
    procedure=RELIED_ON,
    kinds=("nvml",),
    inputs=lambda plan: [*map(plan.schedule, plan.pass_schedules)],
    options=lambda plan: {"schedules": plan.pass_schedules},
)
def passes(results: Results, schedules: list[str]) -> pd.DataFrame:
    """Return two rows a pass, one where `schedules` names none; times in ms, energies in J, differences in percent."""
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
            schedule: (pairs[name]["core_mhz"], pairs[name]["mem_mhz"])
            for schedule, pairs in chosen.items()
            if name in pairs
        }
        rows += [
            {"pass": name, "chosen_by": how} | compared(points, study_of(about, "pass", name), name, steps[name], at)
            for how, at in clocks.items()
        ]
    return pd.DataFrame(rows)


def points_of(profile: pd.DataFrame) -> dict[tuple, Any]:
    """Return {(study, target, core, mem): its row}."""
    import pandas as pd

    return {
        (row.study, row.target, *(AUTO if pd.isna(clock) else int(clock) for clock in (row.core_mhz, row.mem_mhz))): row
        for row in profile.itertuples()
    }


def compared(points: dict[tuple, Any], study: str, name: str, steps: list, clocks: tuple) -> dict:
    """Return a pass (its rows are of `study` in the profile) beside the sum of its kernels `steps`, both at these
    clocks."""
    ran = points[study, name, *clocks]
    alone = [(_kernels_alone(points, name, kernel, clocks), count) for kernel, count in steps]
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


def _kernels_alone(points: dict[tuple, Any], name: str, kernel: str, clocks: tuple) -> Any:
    """Return a kernel's row at these clocks."""
    if ("kernel", kernel, *clocks) not in points:
        raise InputError(f"pass {name} at {label(clocks)}: the profile lacks {kernel} there")
    return points["kernel", kernel, *clocks]


LOCKING_WAYS = {"core": "core alone", "mem": "memory alone", "both": "both"}


DIFFERS = "differs"


# smaller differences are not worth a warning: of eighteen intervals, one leaves out zero by chance
_LEAST_PERCENT = 0.5


@OUTPUTS.table(
    "Locked at the highest clocks, compared with auto (auto, locked, locked, auto in turn): core clock alone, "
    "memory clock alone, both; change with its 95 % interval over repeats, within one measuring session "
    "unless it says otherwise, and the core clocks reached",
    title="Locking",
    text="Three kernels ran at auto and locked at the highest clocks, in turn: the core locked alone, the memory "
    "alone, and both. At auto, the baseline of every percentage, both locks are reset. If the two differ, a "
    "lock by itself changes how the GPU controls its power, and every saving includes that difference. "
    "Differs: the interval excludes zero, and the change is at least 0.5 %.",
    kinds=("nvml",),
    of_choice=True,
    when=lambda plan: plan.clocks == "lock",
    inputs=lambda plan: plan.locking(),
    options=lambda plan: {"targets": plan.locked, "ways": tuple(plan.contracts), "sessions": plan.sessions},
)
def locking(results: Results, targets: list[str], ways: list[str], sessions: int) -> pd.DataFrame:
    """Return a row a way of locking and kernel of `targets`, measured in so many sessions; changes in percent, clocks
    in MHz."""
    import pandas as pd

    return pd.DataFrame([row for way in ways for row in _compared_rows(results, targets, way, sessions)])


def _compared_rows(results: Results, targets: list[str], way: str, sessions: int) -> list[dict[str, object]]:
    comparisons = results.comparisons(*(path for name in targets for path in layout.locking(way, name, sessions)))
    changes = remeasured.kernel_changes(comparisons)
    rows = []
    for name in targets:
        repeats = [points for target, _, points in comparisons.points if target == name]
        request = repeats[0][1]["request"]
        clocks = label((request["core_mhz"], request["mem_mhz"]))
        row: dict[str, object] = {"id": name, "way": LOCKING_WAYS[way], "locked": clocks}
        for quantity, change in zip(("time", "energy"), changes[name]):
            row |= {
                f"{quantity}_change_percent": change.mean,
                f"{quantity}_low_percent": change.low,
                f"{quantity}_high_percent": change.high,
            }
        reached = [[point["reached"]["core_mhz"] for point in points] for points in repeats]
        row["auto_core_mhz"] = sum(core[0] + core[3] for core in reached) / (2 * len(reached))
        row["locked_core_mhz"] = sum(core[1] + core[2] for core in reached) / (2 * len(reached))
        differs = any(
            (change.low > 0 or change.high < 0) and abs(change.mean) >= _LEAST_PERCENT for change in changes[name]
        )
        row["verdict"] = DIFFERS if differs else "as auto"
        rows.append(row | {"repeats": len(repeats), "interval": changes[name][0].basis})
    return rows


@OUTPUTS.table(
    "Clock pairs left out of the sweep",
    title="Clock pairs that were left out",
    text="Pairs of the grid that the GPU cannot run, and why.",
    kinds=MEASURED,
    of_choice=True,
    options=lambda plan: {"omitted": [[*pair, reason] for pair, reason in plan.omitted]},
)
def omitted_pairs(results: Results, omitted: list[tuple[str, str, str]]) -> pd.DataFrame:
    """Return the pairs that were left out. omitted: [[core_mhz, mem_mhz, reason]]."""
    import pandas as pd

    rows = [{"target": "all", "core_mhz": core, "mem_mhz": mem, "reason": reason} for core, mem, reason in omitted]
    return pd.DataFrame(rows, columns=["core_mhz", "mem_mhz", "reason", "target"])


def auto_records(folder: Path, study: str, target: str) -> list[dict]:
    """Return the records of a target at auto. study: as the profile has it."""
    kind = "kernel" if study == "kernel" else "pass"
    return [read_any(path) for path in sorted((folder / f"measurements/{kind}/{target}/auto-auto").glob("r*.json"))]


def cap_share(records: list[dict]) -> float | None:
    """Share of the time under the power cap, 0 to 1, over all windows; None where there are none."""
    windows = [window for record in records for window in record["windows"]]
    return fmean(window["cap_ns"] / 1e9 / window["duration_s"] for window in windows) if windows else None
