"""Tables of a captured step: what its kernels take at auto, what the strict schedule saves, what locks would do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernel_dvfs.gpu.forecast import peak_tflop_per_s
from kernel_dvfs.layout import RELIED_ON, STRICT
from kernel_dvfs.outputs import MEASURED, Outputs
from kernel_dvfs.report.measured_tables import compared, points_of
from kernel_dvfs.workload.step import WHOLE, paced_kernel
from kernel_dvfs.workload.workload import study_of
from kernel_dvfs_clocks.clocks import AUTO
from kernel_dvfs_step.report import costs as step_costs
from kernel_dvfs_step.report import forecast as step_forecast
from kernel_dvfs_step.report.costs import ALIKE_PERCENT, measured_powers_w, paced_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUTS = Outputs()


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
    """Return one row for the step as a whole (none where it cannot be repeated), one for the sum of its kernels."""
    import pandas as pd

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
    text="Energy and time of a step: all launches of the kernel; shares are of all kernels' sum. Time, "
    "energy, power and core clock: of one launch, repeated alone at auto clocks. "
    "Alone, the power cap may hold a kernel lower than within the step, where "
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
    """Return one row a kernel; energies in J a step and mJ a launch, times in ms a step and us a launch, clocks in
    MHz."""
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
    """Return why a kernel takes another time alone than within the step, as far as its own record tells."""
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
    """Return one row a kernel: change of a step's energy (J) and time (ms), negative = less, and the share of all
    savings."""
    import pandas as pd

    from kernel_dvfs.report.results import is_chosen  # which loads numpy

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
    "how much of the sum these kernels are. With the others (studies in minutes): the same sum and, of kernels that "
    "were not measured, their time in the step at a power between the least and the most of a measured kernel, the one "
    "that brings the sum nearest to the section. Adds up: the sum, paced where that was measured, with the others, is "
    f"within {TIME_PERCENT:g} % of time and {ENERGY_PERCENT:g} % of energy. It is not told only where the others may "
    f"take any energy, {ENERGY_PERCENT:g} % more or less.",
    section="step",
    place=3,
    kinds=("nvml",),
    workload="step",
)
def step_check(results: Results) -> pd.DataFrame:
    """Return one row a section, and one for the step; times in ms, energies in J, differences in percent of the sums.
    within_step_ms: NaN where a kernel was not traced."""
    import pandas as pd

    steps = results.setup(results.workload["setup"]).targets["pass"]
    points = points_of(results.profile)
    paced = paced_rows(results)
    powers_w = measured_powers_w(results) if results.workload.get("tail") else (0.0, 0.0)
    rows = []
    for name, launches in steps.items():
        if paced_kernel(name):
            continue
        row = compared(points, study_of(results.workload, "pass", name), name, launches, (AUTO, AUTO))
        del row["clocks"], row["core_mhz"], row["verdict"]
        left_out = [kernel for kernel in results.workload.get("tail", ()) if name in (kernel[2], WHOLE)]
        left_out_ms = math.fsum(kernel[3] for kernel in left_out)
        within_ms = _within_step_ms(results, launches) + left_out_ms
        row |= {"within_step_ms": within_ms, "within_step_difference_percent": 100 * (row["time_ms"] / within_ms - 1)}
        which = ""
        if paced:
            row, which = row | _with_paced(row, paced, points, launches), "paced_"
        apart_percent = 0.0
        if powers_w[1]:
            more, apart_percent = _with_others(row, which, left_out_ms, powers_w)
            row, which = row | more, "with_others_"
        time, energy = (row[f"{which}{quantity}_difference_percent"] for quantity in ("time", "energy"))
        adds_up: bool | str = abs(time) <= TIME_PERCENT and abs(energy) <= ENERGY_PERCENT
        if adds_up and apart_percent > ENERGY_PERCENT:
            adds_up = f"not told: {len(left_out)} kernels were not measured"
        rows.append({"section": name, "launches": sum(count for _, count in launches)} | row | {"adds_up": adds_up})
    return pd.DataFrame(rows)


def _within_step_ms(results: Results, launches: Sequence[tuple[str, int]]) -> float:
    """Return the time of these launches within the step; NaN where one was not traced."""
    kernels = results.workload["kernels"]
    times_s = [(kernels[name]["step_time_s"], count) for name, count in launches]
    return 1e3 * sum(math.nan if time_s is None else count * time_s for time_s, count in times_s)


def _with_others(
    row: dict[str, Any], which: str, left_out_ms: float, powers_w: tuple[float, float]
) -> tuple[dict[str, float], float]:
    """Return (the sums of a row with kernels that were not measured, how far apart their energy may be, percent of the
    row's). powers_w: the least and the most that these may draw."""
    sum_ms, sum_j = (
        row[what] / (1 + row[f"{which}{quantity}_difference_percent"] / 100)
        for what, quantity in (("time_ms", "time"), ("energy_j", "energy"))
    )
    least_j, most_j = (sum_j + 1e-3 * left_out_ms * power_w for power_w in powers_w)
    nearest_j = min(max(row["energy_j"], least_j), most_j)
    return {
        "not_measured_ms": left_out_ms,
        "with_others_time_difference_percent": 100 * (row["time_ms"] / (sum_ms + left_out_ms) - 1),
        "with_others_energy_difference_percent": 100 * (row["energy_j"] / nearest_j - 1),
    }, 100 * (most_j - least_j) / row["energy_j"]


def _with_paced(
    row: dict[str, Any], paced: dict[str, Any], points: dict[tuple, Any], launches: Sequence
) -> dict[str, float]:
    """Return the sums with the hot kernels at their clocks of the step."""
    sum_s = sum_j = share_s = 0.0
    for name, count in launches:
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
    """Return a row a lock or limit; changes in percent of auto, negative = less."""
    import pandas as pd

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
    """Return a row a board, this one first; times in ms, energies in J, changes in percent of this board."""
    import pandas as pd

    rows = step_forecast.boards(results)
    return pd.DataFrame(rows, columns=None if rows else step_forecast.BOARD_COLUMNS)
