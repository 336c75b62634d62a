"""Tables of what was measured: auto clocks, passes, locks, pairs left out; a captured step kernel by kernel."""

from __future__ import annotations

import math
from datetime import datetime
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Any

from kernel_dvfs import layout
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO, label
from kernel_dvfs.gpu.forecast import peak_tflop_per_s
from kernel_dvfs.layout import RELIED_ON, STRICT
from kernel_dvfs.outputs import MEASURED, Outputs
from kernel_dvfs.report.step_costs import auto_records, cap_share
from kernel_dvfs.workload.step import WHOLE, paced_kernel
from kernel_dvfs.workload.workload import study_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Rows in the order of the iteration, then passes, then the iteration as a sum; times in us, energies in mJ, powers
    in W, clocks in MHz."""
    import pandas as pd

    about = results.workload.get("kernels", {})
    points = results.profile[results.profile.is_baseline]
    launches = points.launches_per_iteration
    repeats = [auto_records(results.folder, study, name) for study, name in zip(points.study, points.target)]
    found = pd.DataFrame(
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
    found = found.astype({"launches": "Int64", "n": "Int64"})
    return pd.concat([found, pd.DataFrame([_total(found)])], ignore_index=True)


def _total(rows: pd.DataFrame) -> dict[str, object]:
    """The row of an iteration as the sum of its kernels, each measured alone."""
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
    """Slope of the energy over the run, percent per hour; None for a run too short to have one."""
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
    """A kernel's row at these clocks."""
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
    """A row a way of locking and kernel of `targets`, measured in so many sessions; changes in percent, clocks in
    MHz."""
    import pandas as pd

    return pd.DataFrame([row for way in ways for row in _compared_rows(results, targets, way, sessions)])


def _compared_rows(results: Results, targets: list[str], way: str, sessions: int) -> list[dict[str, object]]:
    from kernel_dvfs.report import remeasured

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
    """omitted: [[core_mhz, mem_mhz, reason]]."""
    import pandas as pd

    rows = [{"target": "all", "core_mhz": core, "mem_mhz": mem, "reason": reason} for core, mem, reason in omitted]
    return pd.DataFrame(rows, columns=["core_mhz", "mem_mhz", "reason", "target"])


@OUTPUTS.table(
    "One step at auto clocks: time, energy, mean power and share of the time under the power cap, as a whole "
    "and as the sum of its kernels, each repeated by itself; how many kernels take 80 % of the energy",
    title="One step",
    text="As a whole: the captured step, repeated. Sum: its kernels, each repeated by itself, hot ones with rests that "
    "give them their clock of the step where the study has measured that, times their launches. What rests draws more "
    "than the power limit for a moment, and a board cannot do so for a step: where the sum would lie above the limit, "
    "these kernels are scaled to what their section leaves them, and the residual says by how much. "
    "The others, not measured: kernels left out for the minutes that were asked for; their time is that in the step, "
    "their power what is left of their sections, held between the least and the most of a measured kernel. "
    "energy_least_j and energy_most_j limit the energy in a forecast of kernels whose power nobody has "
    "measured: a board that only waits, and one at its power limit.",
    kinds=MEASURED,
    workload="step",
)
def step_totals(results: Results) -> pd.DataFrame:
    """One row for the step as a whole (none where it cannot be repeated), one for the sum of its kernels."""
    import pandas as pd

    from kernel_dvfs.report import step_costs

    costs = step_costs.per_kernel(results)
    # what rested was under the cap for another share of its time than alone
    capped = math.nan if costs.is_paced.any() else (costs.power_cap_share * costs.time_ms).sum() / costs.time_ms.sum()
    summed = step_costs.summed(results, costs) | {"power_cap_share": capped}
    shared = {
        "kernels": len(costs),
        "launches": int(costs.launches.sum()),
        "kernels_of_80_percent": step_costs.how_many_make(costs.energy_j),
    }
    if bounds_w := results.workload.get("modelled_power_w"):
        known_j = costs.energy_j[~costs.is_power_modelled].sum()
        modelled_s = 1e-3 * costs.time_ms[costs.is_power_modelled].sum()
        least_j, most_j = (known_j + modelled_s * power_w for power_w in bounds_w)
        shared |= {"energy_least_j": least_j, "energy_most_j": most_j}
    rows = [{"step": "sum of its kernels"} | summed | shared]
    if rest := step_costs.tail(results):
        power_w = 1e3 * rest["energy_j"] / rest["time_ms"] if rest["time_ms"] else math.nan
        rows.append({"step": "the others, not measured"} | rest | {"power_w": power_w})
    if whole := step_costs.whole(results):
        rows.insert(0, {"step": "as a whole"} | whole | shared)
    # whole numbers, also where a row has none
    return pd.DataFrame(rows).astype(dict.fromkeys(("kernels", "launches", "kernels_of_80_percent"), "Int64"))


# columns that not every capture knows
IN_THE_STEP = ("step_time_us", "step_core_mhz")


@OUTPUTS.table(
    "Kernels of the step at auto clocks, the costliest first: energy of all launches of a step, its share, and "
    "of one launch time, energy, power, core clock and share of the time under the power cap",
    title="Your step, the costliest kernels first",
    text="Energy and time of a step: all launches of the kernel. Time, energy, power and core clock: of one launch, "
    "repeated alone at auto clocks. Alone, the power cap may hold a kernel lower than within the step, where "
    "cooler ones run beside it. auto-only studies therefore repeat hot kernels with rests in between, so long "
    "that they run at the clock that they have in the step (run: paced), and subtract the rests. For a moment "
    "such a kernel draws more than the cap. Rests cannot lower a clock: kernels that run faster alone are shown "
    "as they run alone. In the step: time by the trace of the capture, clock by marks around each launch. "
    "Power cap: share of the time that it is under the cap without rests. Alone against step: how much longer a "
    "launch takes alone, without rests, than in the step. Matrix products, by the operations that the capture counts: "
    "TFLOP/s, share of the peak of the board's type (dense bfloat16 at the highest clock that it runs by itself; no "
    "column where the type is not known), and joules for 10^15 operations. In a forecast, energy and power marked as "
    "the model's were never measured, and may be far off.",
    section="step",
    place=1,
    kinds=MEASURED,
    workload="step",
)
def step_kernels(results: Results) -> pd.DataFrame:
    """One row a kernel; energies in J a step and mJ a launch, times in ms a step and us a launch, clocks in MHz."""
    from kernel_dvfs.report import step_costs

    costs = step_costs.per_kernel(results)
    costs["alone_change_percent"] = 100 * (costs.alone_us / costs.step_time_us - 1)
    share = 100 * costs.energy_j / costs.energy_j.sum()
    # of a compiled step no module is known
    known = ["name", *(["module"] if costs.module.any() else []), "section", "launches"]
    table = costs[known].copy()
    table["energy_per_step_j"] = costs.energy_j
    table["energy_share_percent"] = share
    table["energy_so_far_percent"] = share.cumsum()
    table["time_per_step_ms"] = costs.time_ms
    if costs.is_paced.any():
        table["run"] = ["paced" if is_paced else "alone" for is_paced in costs.is_paced]
    for column in (
        "time_us",
        "energy_mj",
        "power_w",
        "core_mhz",
        *IN_THE_STEP,
        "power_cap_share",
        "alone_change_percent",
    ):
        if column not in IN_THE_STEP or costs[column].notna().any():
            table[column] = costs[column]
    if costs.tflop_per_s.notna().any():
        table["tflop_per_s"] = costs.tflop_per_s
        if spec := step_costs.spec_of(results):
            table["peak_percent"] = 100 * costs.tflop_per_s / peak_tflop_per_s(spec)
        table["energy_per_pflop_j"] = costs.j_per_pflop
    table["expected"] = [_why(row) for row in costs.itertuples()]
    if costs.is_power_modelled.any():
        table["power_is"] = ["the model's" if modelled else "measured" for modelled in costs.is_power_modelled]
    table["verdict"] = costs.verdict
    table["operation"] = costs.operation
    table["id"] = costs.id
    return table


def _why(row: Any) -> str:
    """Why a kernel takes another time alone than within the step, as far as its own record tells."""
    from kernel_dvfs.report.step_costs import ALIKE_PERCENT

    change = row.alone_change_percent
    if not abs(change) > ALIKE_PERCENT:  # also where it is not known
        return ""
    clock_change = 100 * (row.alone_core_mhz / row.step_core_mhz - 1)
    if change > 0:
        # one at the step's clock was not made longer by the cap, however much of the time that acted
        is_held = row.power_cap_share and not clock_change > -ALIKE_PERCENT
        return "power cap" if is_held else "not told by the record"
    if math.isnan(clock_change):
        return "warm caches, a clock of its own"
    return "a higher clock, warm caches" if clock_change > ALIKE_PERCENT else "warm caches"


@OUTPUTS.table(
    "What each kernel adds to the saving of the strict schedule, in J of a step, the largest first",
    title="Which kernels make the saving",
    text="By the claimed change of the strict schedule. If you change clocks only for the first kernels, down to "
    "80 %, you get most of the saving with few clock changes.",
    section="step",
    place=2,
    procedure=RELIED_ON,
    kinds=MEASURED,
    workload="step",
    of_choice=True,
    inputs=lambda plan: [plan.schedule(STRICT)],
)
def step_saving(results: Results) -> pd.DataFrame:
    """One row a kernel: change of a step's energy (J) and time (ms), negative = less, and the share of all savings."""
    import pandas as pd

    from kernel_dvfs.report.results import is_chosen

    chosen = results.schedule(STRICT)["targets"]
    profile = results.profile.query("study == 'kernel'")
    best = profile[is_chosen(profile, chosen)].set_index("target")
    auto = profile[profile.is_baseline].set_index("target")
    about = results.workload["kernels"]
    launches = auto.launches_per_iteration
    change_j = launches * (best.energy_j.reindex(auto.index) - auto.energy_j)
    change_ms = 1e3 * launches * (best.time_s.reindex(auto.index) - auto.time_s)
    saved_j = (-change_j).clip(lower=0)
    share = 100 * saved_j / saved_j.sum() if saved_j.sum() > 0 else 0 * saved_j
    table = pd.DataFrame(
        {
            "name": [about[name]["name"] for name in auto.index],
            "module": [about[name]["module"] for name in auto.index],
            "core_mhz": [chosen[name]["core_mhz"] for name in auto.index],
            "mem_mhz": [chosen[name]["mem_mhz"] for name in auto.index],
            "energy_change_j": change_j,
            "time_change_ms": change_ms,
            "saving_share_percent": share,
            "id": auto.index,
        }
    ).sort_values("energy_change_j", kind="stable")
    table.insert(7, "saving_so_far_percent", table.saving_share_percent.cumsum())
    return table.reset_index(drop=True)


# goals of the check, percent
TIME_PERCENT, ENERGY_PERCENT = 3.0, 5.0


@OUTPUTS.table(
    "Sections of the step and the whole step at auto, compared with the sums of their kernels in the same "
    "study, alone and with hot ones at their clock of the step; "
    f"good within {TIME_PERCENT:g} % of time and {ENERGY_PERCENT:g} % of energy",
    title="Do the kernels add up to the step?",
    text="Each section as it ran, compared with the sum of its kernels, each repeated alone, at auto clocks. A "
    "difference is how much more (+) or less the section took than that sum. Hot kernels are slower alone, and "
    "take less energy: no cooler neighbours leave them room under the power cap, so it holds their clock lower. "
    "Kernels left at auto are in the section as it ran, not in the sum. Within the step: the sum of the times "
    "that the kernels take in the trace of the capture. If it agrees with the section, no kernel is missing. "
    "Paced (auto-only studies): the same sum, but the hot kernels were repeated with rests in between, so long "
    "that they ran at the clock that they have in the step; what the rests took is subtracted. paced_share says "
    "how much of the sum these kernels are. Adds up: the sum, paced where that was measured, is within "
    f"{TIME_PERCENT:g} % of time and {ENERGY_PERCENT:g} % of energy.",
    section="step",
    place=3,
    kinds=("nvml",),
    workload="step",
)
def step_check(results: Results) -> pd.DataFrame:
    """One row a section, and one for the step; times in ms, energies in J, differences in percent of the sums.
    within_step_ms: NaN where a kernel was not traced."""
    import pandas as pd

    from kernel_dvfs.report.step_costs import paced_rows
    from kernel_dvfs.workload.workload import study_of

    steps = results.setup(results.workload["setup"]).targets["pass"]
    points = points_of(results.profile)
    paced = paced_rows(results)
    rows = []
    for name, own in steps.items():
        if paced_kernel(name):
            continue
        row = compared(points, study_of(results.workload, "pass", name), name, own, (AUTO, AUTO))
        del row["clocks"], row["core_mhz"], row["verdict"]
        left_out = [each for each in results.workload.get("tail", ()) if name in (each[2], WHOLE)]
        within_ms = _within_step_ms(results, own) + sum(each[3] for each in left_out)
        row |= {"within_step_ms": within_ms, "within_step_difference_percent": 100 * (row["time_ms"] / within_ms - 1)}
        which = ""
        if paced:
            row, which = row | _with_paced(row, paced, points, own), "paced_"
        time, energy = (row[f"{which}{each}_difference_percent"] for each in ("time", "energy"))
        adds_up: bool | str = abs(time) <= TIME_PERCENT and abs(energy) <= ENERGY_PERCENT
        if left_out:
            adds_up = f"not told: {len(left_out)} kernels were not measured"
        rows.append({"section": name, "launches": sum(count for _, count in own)} | row | {"adds_up": adds_up})
    return pd.DataFrame(rows)


def _within_step_ms(results: Results, own: Sequence[tuple[str, int]]) -> float:
    """Time of these launches within the step; NaN where one was not traced."""
    kernels = results.workload["kernels"]
    times_s = [(kernels[name]["step_time_s"], count) for name, count in own]
    return 1e3 * sum(math.nan if time_s is None else count * time_s for time_s, count in times_s)


def _with_paced(
    row: dict[str, Any], paced: dict[str, Any], points: dict[tuple, Any], own: Sequence
) -> dict[str, float]:
    """The sums with the hot kernels at their clocks of the step."""
    sum_s = sum_j = share_s = 0.0
    for name, count in own:
        point = paced.get(name) or points["kernel", name, AUTO, AUTO]
        sum_s += count * point.time_s
        sum_j += count * point.energy_j
        share_s += count * point.time_s if name in paced else 0.0
    return {
        "paced_share": share_s / sum_s,
        "paced_time_difference_percent": 100 * (1e-3 * row["time_ms"] / sum_s - 1),
        "paced_energy_difference_percent": 100 * (row["energy_j"] / sum_j - 1),
    }


@OUTPUTS.table(
    "What a power limit or a lock of the core clock does to the whole step, against auto: change of energy and time, "
    "with the ends that they may have",
    title="What a power limit or a lock would do",
    text="Measured: the step itself at that clock, with 95 % intervals. Between measured points: a power limit holds "
    "a board between two clocks, so its ends are the points on both sides. Forecast, where auto alone was measured: "
    "the simulated board of this type, each kernel held to the time, energy and clock that it has here; its first "
    "row says how far the step at auto is from the measured one. The ends of the band: kernels without matrix "
    "products wait for the core or for the memory, and a fifth more or less of the board's power "
    "stands whatever runs. The forecast has not been held to a board at other clocks.",
    section="step",
    place=4,
    kinds=MEASURED,
    workload="step",
)
def step_limits(results: Results) -> pd.DataFrame:
    """A row a lock or limit; changes in percent of auto, negative = less."""
    import pandas as pd

    from kernel_dvfs.report import step_forecast

    return pd.DataFrame(step_forecast.limits(results), columns=step_forecast.LIMIT_COLUMNS)


@OUTPUTS.table(
    "The step on this board, measured, and on other boards, forecast: time, energy and change against this board, with "
    "the ends that they may have",
    title="This board against others",
    text="At auto clocks. All rows but the first are forecasts: the kernels as they were captured here, each held to "
    "its time, energy and clock on this board, on the simulated board of another type. Another board runs other "
    "kernels for the same products, and its memory may not hold the step. The band is as above.",
    section="step",
    place=5,
    kinds=("nvml",),
    workload="step",
)
def step_boards(results: Results) -> pd.DataFrame:
    """A row a board, this one first; times in ms, energies in J, changes in percent of this board."""
    import pandas as pd

    from kernel_dvfs.report import step_forecast

    rows = step_forecast.boards(results)
    return pd.DataFrame(rows, columns=None if rows else step_forecast.BOARD_COLUMNS)
