"""Tables of what was chosen: the paper's Tables 1 and 2, what measuring again found, what the headline rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_dvfs.layout import (
    PASS_STRICT,
    PUBLISHED,
    RELIED_ON,
    STRICT,
    published,
    shortest,
)
from kernel_dvfs.limit_verdict import verdict
from kernel_dvfs.outputs import MEASURED, Outputs
from kernel_dvfs.report import carried, measured_tables, remeasured
from kernel_dvfs.report.words import against, another_minute_pp, time_bound_percent

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results
    from kernel_dvfs.student import Change

# all tables of a study
OUTPUTS = Outputs(measured_tables.OUTPUTS)


_EACH = "The strict schedule: all kernels together lose no time, so a kernel may lose time that another one gains. "
_ROWS = (
    "Share: of an iteration at the baseline, all launches counted. Part of the saving: what the kernel contributes to "
    "the total by its claimed change, in percent of the iteration's energy. Ran at: the clocks that the GPU really ran."
)


@OUTPUTS.table(
    "Best clocks per kernel (waste, global, strict): change of each kernel's time and energy against auto, or a "
    "table's reference",
    title="Best clocks of each kernel (Table 1 of the paper)",
    text=_EACH + _ROWS,
    section="published",
    place=1,
    procedure=PUBLISHED,
    of_choice=True,
    inputs=carried.strict_and_repeats,
    options=lambda plan: {"repeats": plan.repeats} if plan.headline else {},
)
def kernel_clocks(results: Results, repeats: int = 0) -> pd.DataFrame:
    """See clocks_by_kernel."""
    return clocks_by_kernel(results, repeats)


@OUTPUTS.table(
    "Clocks of each kernel in the strict schedule: change of each kernel's time and energy against auto, or a table's "
    "reference",
    title="The chosen clocks of each kernel",
    text=_EACH + "These are the clocks to deploy. " + _ROWS,
    section="kernels",
    place=1,
    procedure=RELIED_ON,
    of_choice=True,
    inputs=lambda plan: [plan.schedule(STRICT), *plan.validation(plan.headline[:1])],
    options=lambda plan: {"repeats": plan.repeats} if plan.headline else {},
)
def chosen_clocks(results: Results, repeats: int = 0) -> pd.DataFrame:
    """See clocks_by_kernel."""
    return clocks_by_kernel(results, repeats)


def clocks_by_kernel(results: Results, repeats: int) -> pd.DataFrame:
    """Return rows in the order of the iteration; columns of the contract, changes in percent, negative = less.

    Clocks are those asked for; beside them, where it is known, what the GPU ran (reached_*, MHz). A table's further
    settings, such as a power cap, are columns after the clocks.

    repeats: of the validation, whose mean change of each kernel is given too; 0: there was none.
    """
    import pandas as pd

    from kernel_dvfs.profile.store import CLOCKS
    from kernel_dvfs.report.results import is_chosen

    validated = {}
    if repeats:
        validated = remeasured.kernel_changes(results.measured_again(STRICT, repeats))
    chosen = results.schedule(STRICT)["targets"]
    profile = results.profile.query("study == 'kernel'")
    best_of = profile[is_chosen(profile, chosen)].set_index("target")
    about = results.workload.get("kernels", {})
    rows = []
    for number, (name, points) in enumerate(profile.groupby("target", sort=False), 1):
        auto = points[points.is_baseline].iloc[0]
        pair = chosen[name]
        best = best_of.loc[name]
        label = about.get(name, {"row": number, "section": "", "name": name})
        rows.append(
            {
                "row": label["row"],
                "section": label["section"],
                "name": label["name"],
                "id": name,
                "mem_mhz": pair["mem_mhz"],
                "core_mhz": pair["core_mhz"],
                "reached_mem_mhz": best.reached_mem_mhz,
                "reached_core_mhz": best.reached_core_mhz,
                **{name: value for name, value in pair.items() if name not in CLOCKS},
                "time_change_percent": 100 * (best.time_s / auto.time_s - 1),
                "energy_change_percent": 100 * (best.energy_j / auto.energy_j - 1),
            }
            | {
                f"fresh_{quantity}_change_percent": change.mean
                for quantity, change in zip(("time", "energy"), validated.get(name, ()))
            }
        )
    reached = ["reached_mem_mhz", "reached_core_mhz"]
    frame = pd.DataFrame(rows).astype({"row": "Int64"} | dict.fromkeys(reached, float))
    frame[reached] = frame[reached].round().astype("Int64")
    return frame.drop(columns=[name for name in reached if frame[name].isna().all()])


def _strategies_options(plan: Any) -> dict:
    options = {"schedules": plan.schedules}
    if plan.headline and STRICT in plan.schedules:
        options |= {"validated": [STRICT], "repeats": plan.repeats}
    return options


_ORDER = {"pass": 0, "kernel": 1, "single": 0, "local": 1, "global": 2, "waste": 0, "edp": 1, "energy": 2}


@OUTPUTS.table(
    "Strategies of choosing clocks: an iteration's time and energy against auto, or a table's reference, claimed and, "
    "where it was, measured again; the waste left (Eq. 2)",
    title="Ways of choosing (Table 2 of the paper)",
    text="One clock pair for all, each by itself (local) or all together under one limit on the total time (global); "
    "for passes and for kernels. Waste: least energy at no loss of time. EDP: least energy times time, which gives "
    "time away. Energy: least energy at any time. Waste left (Eq. 2) could still be saved at that speed. Claimed: by "
    "the data that chose. There are two baselines, as in the paper, so compare passes with kernels by joules: passes "
    "are against passes at auto, kernels against the sum of kernels that ran alone at auto, each at the clock that it "
    "reaches alone. What is relied on has one, the whole iteration at auto.",
    section="published",
    place=2,
    procedure=PUBLISHED,
    of_choice=True,
    inputs=lambda plan: [*plan.published_files(), *carried.strict_and_repeats(plan)[1:]],
    options=_strategies_options,
)
def strategies(
    results: Results, schedules: list[str], validated: list[str] | None = None, repeats: int = 1
) -> pd.DataFrame:
    """Return one row a schedule of those named, after one row a granularity for the baseline itself.

    time_change_percent, energy_change_percent: claimed. validated: those schedules that were measured again, whose mean
    change is given too (fresh_*; empty elsewhere).

    Columns of the contract, then weights, the schedule's name, the baseline that its changes are against and what was
    validated. J and s for weights that count launches, else in the unit of the weighted energy and time.
    """
    import pandas as pd

    by_name = {name: results.schedule(name) for name in schedules}
    rows = []
    for granularity in ("pass", "kernel"):
        of_level = {name: schedule for name, schedule in by_name.items() if schedule["granularity"] == granularity}
        if not of_level:
            continue
        ranked = sorted(of_level, key=lambda name: _rank(by_name[name]))
        rows.append(_baseline_row(of_level[ranked[0]], against(results.workload)))
        rows += [_strategy(name, of_level[name]) for name in ranked]
    columns = ["fresh_time_change_percent", "fresh_energy_change_percent"]
    changes_by_schedule = {name: remeasured.changes(results.measured_again(name, repeats)) for name in validated or ()}
    for row in rows:
        changes = changes_by_schedule.get(row["schedule"])
        row |= {column: changes[place].mean if changes else None for place, column in enumerate(columns)}
    return pd.DataFrame(rows).astype(dict.fromkeys(columns, float))


def _rank(schedule: dict) -> tuple:
    return _ORDER[schedule["objective"]], schedule["slack_percent"] or 0, _ORDER[schedule["scope"]]


def _baseline_row(schedule: dict, called: str) -> dict:
    return {
        "granularity": schedule["granularity"],
        "scope": "-",
        "objective": called,
        "slack_percent": None,
        "time_change_percent": 0.0,
        "energy_change_percent": 0.0,
        "waste_j": schedule["baseline_waste_j"],
        "status": "measured",
        "weights": schedule["weights"],
        "schedule": None,
    } | _baseline(schedule)


def _strategy(name: str, schedule: dict) -> dict:
    columns = ("granularity", "scope", "objective", "slack_percent", "time_change_percent", "energy_change_percent")
    row = {column: schedule[column] for column in (*columns, "waste_j", "status", "weights")}
    return row | {"schedule": name} | _baseline(schedule)


def _baseline(schedule: dict) -> dict:
    return {"baseline_time_s": schedule["baseline_time"], "baseline_energy_j": schedule["baseline_energy"]}


def status(schedule: dict) -> str:
    """Return `optimal`, `shown by a walk` where one has shown that it keeps its limit, `infeasible`."""
    solver_status: str = schedule["status"]
    return "shown by a walk" if solver_status == "optimal" and schedule.get("walk") else solver_status


@OUTPUTS.table(
    "Relaxed waste: least energy at each tolerated slowdown, kernel level",
    title="Energy against tolerated slowdown, as numbers",
    text="The least energy at each slowdown that is allowed; the numbers of Figure 6.",
    section="published",
    place=3,
    procedure=PUBLISHED,
    of_choice=True,
    inputs=lambda plan: [plan.schedule(published("frontier"))],
)
def relaxed(results: Results) -> pd.DataFrame:
    """Return rows by scope and slack; a slack that a scope cannot keep (local, below its largest saving) has no row.

    The first row of each scope is its largest time saving; changes in percent, negative = less.
    """
    import pandas as pd

    columns = ("slack_percent", "scope", "time_change_percent", "energy_change_percent")
    return pd.DataFrame(results.frontier, columns=columns)


@OUTPUTS.table(
    "The strict global schedule, claimed and measured again: changes, 95 % interval and what it is over",
    title="The strict choice, measured again",
    text="Claimed is what the measurements that chose the clocks promised. Measured again is what new ones found: "
    "each repeat runs every kernel at auto, chosen, chosen, auto. An interval over sessions holds what changes from "
    "one measuring session to the next; one within a session does not. Trust it: a choice among "
    "noisy points prefers the lucky ones, so it claims too much. The verdict is on the time limit: it keeps its limit "
    "where the whole interval does, and breaks it where the whole interval is above. Otherwise it is not shown to keep "
    "its limit.",
    section="published",
    place=4,
    procedure=PUBLISHED,
    kinds=MEASURED,
    of_choice=True,
    when=lambda plan: plan.is_compared,
    inputs=carried.strict_and_repeats,
    options=lambda plan: {"repeats": plan.repeats},
)
def validation(results: Results, repeats: int) -> pd.DataFrame:
    """Return two rows, time and energy; `optimism_pp` = fresh - claimed; the verdict is on the time limit.

    interval: what the 95 % interval is over.
    """
    import pandas as pd

    schedule = results.schedule(STRICT)
    comparisons = results.measured_again(STRICT, repeats)
    rows = []
    for quantity, change in zip(("time", "energy"), remeasured.changes(comparisons)):
        claimed = schedule[f"{quantity}_change_percent"]
        rows.append(
            {
                "quantity": quantity,
                "claimed_change_percent": claimed,
                "fresh_change_percent": change.mean,
                "fresh_low_percent": change.low,
                "fresh_high_percent": change.high,
                "optimism_pp": change.mean - claimed,
                "repeats": change.repeats,
                "interval": change.basis,
                "verdict": _verdict(change, schedule) if quantity == "time" else None,
            }
        )
    return pd.DataFrame(rows)


def _verdict(time: Change, schedule: dict) -> str:
    """Return the verdict of measuring a schedule again."""
    return verdict(time, schedule["slack_percent"], bool(schedule["walk"]))


@OUTPUTS.table(
    "Headline schedules, claimed and measured again: changes, 95 % interval, verdict on the time limit",
    title="The schedules of the headline, measured again",
    text="What each schedule claimed, and what measuring it again gave, with 95 % intervals: changes of clocks count "
    "as free, and all are against the whole iteration at auto. Over sessions "
    "they hold what changes from one to the next; within one session they do not. Time at most, as shown: the bound of "
    "the walk, with its confidence (90 % by default), by data that did not choose the clocks. The verdict is what "
    "measuring again says of it: it contradicts where the whole interval of the time is above the limit. What no walk "
    "has shown breaks its limit there; it keeps its limit where the whole interval does.",
    section="choosing",
    place=1,
    procedure=RELIED_ON,
    kinds=MEASURED,
    of_choice=True,
    when=lambda plan: plan.is_compared,
    inputs=lambda plan: [*map(plan.schedule, plan.headline), *plan.validation(plan.headline)],
    options=lambda plan: {"schedules": plan.headline, "repeats": plan.repeats},
)
def headline(results: Results, schedules: list[str], repeats: int) -> pd.DataFrame:
    """Return one row a schedule of those named. Changes in percent; optimism_pp = fresh - claimed.

    time_bound_percent: the change of time is at most this, with the confidence of the walk. verdict: of measuring again
    (limit_verdict). another_minute_pp: energy that another minute of measuring may save at most.
    """
    import pandas as pd

    rows = []
    for name in schedules:
        schedule = results.schedule(name)
        changes = remeasured.changes(results.measured_again(name, repeats))
        row = {"schedule": name, "slack_percent": schedule["slack_percent"]}
        for quantity, change in zip(("time", "energy"), changes):
            claimed = schedule[f"{quantity}_change_percent"]
            row |= {
                f"claimed_{quantity}_change_percent": claimed,
                f"fresh_{quantity}_change_percent": change.mean,
                f"fresh_{quantity}_low_percent": change.low,
                f"fresh_{quantity}_high_percent": change.high,
                f"{quantity}_optimism_pp": change.mean - claimed,
            }
        rows.append(
            row
            | {"repeats": repeats, "interval": changes[0].basis, "verdict": _verdict(changes[0], schedule)}
            | {"time_bound_percent": time_bound_percent(schedule), "another_minute_pp": another_minute_pp(schedule)}
            | {"status": status(schedule)}
        )
    return pd.DataFrame(rows).astype(dict.fromkeys(["time_bound_percent", "another_minute_pp"], float))


@OUTPUTS.table(
    "Data parallelism: the schedule carried to other batches, and clocks chosen there",
    title="The schedule at other batches",
    text="The same clocks with fewer sequences per GPU and, with reoptimise, a choice made there likewise. Brackets: "
    "95 % interval over the repeats. Loss from reusing clocks: against a choice made there, percentage points.",
    section="published",
    place=5,
    procedure=PUBLISHED,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=lambda plan: plan.is_compared and bool(plan.batches),
    inputs=lambda plan: carried.inputs(plan, "batch"),
    options=lambda plan: carried.options(plan, "batch", plan.batches),
)
def data_parallelism(
    results: Results, values: list[float], repeats: int, reoptimised: bool, setups: dict[str, str], sessions: int
) -> pd.DataFrame:
    """See carried.table."""
    batch = results.workload["batch"]
    return carried.table(results, "batch", values, batch, repeats, reoptimised, setups, sessions)


@OUTPUTS.table(
    "Tensor parallelism, one rank, no communication: the schedule carried to other degrees, and chosen there",
    title="The schedule at other tensor-parallel degrees",
    text="The same clocks on one rank of a larger tensor-parallel group, without communication and, with reoptimise, "
    "a choice made there likewise. Brackets: 95 % interval over the repeats.",
    section="published",
    place=6,
    procedure=PUBLISHED,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=lambda plan: plan.is_compared and bool(plan.degrees),
    inputs=lambda plan: carried.inputs(plan, "tp"),
    options=lambda plan: carried.options(plan, "tp", plan.degrees),
)
def tensor_parallelism(
    results: Results, values: list[float], repeats: int, reoptimised: bool, setups: dict[str, str], sessions: int
) -> pd.DataFrame:
    """See carried.table."""
    return carried.table(
        results, "tp", values, results.workload["tensor_parallel"], repeats, reoptimised, setups, sessions
    )


_TENSOR_ENERGY = "tensor-energy"  # of variants


@OUTPUTS.table(
    "The strict choice (waste) at other energies of a tensor-core FLOP; passes claimed, kernels also measured again",
    title="The strict choice at other tensor-core energies",
    text="Nobody has measured the energy of a tensor-core operation of this GPU, so the study is repeated at the "
    "least and the most that the data allow. Each row is chosen from one sweep, so it may run late: compare the "
    "time measured again before the energy.",
    section="published",
    place=7,
    procedure=PUBLISHED,
    kinds=("simulated",),
    workload="model",
    of_choice=True,
    inputs=lambda plan: [
        *carried.strict_and_repeats(plan),
        *(plan.schedule(published(name)) for name in plan.pass_schedules),
        *plan.chosen_again(_TENSOR_ENERGY),
    ],
    options=lambda plan: {
        "repeats": plan.repeats,
        "values": plan.tensor_energies_pj,
        "default": plan.tensor_energy_pj,
    },
)
def tensor_energy(results: Results, values: list[float], default: float, repeats: int) -> pd.DataFrame:
    """Return one row an energy, pJ per FLOP at V0, ascending; `default` is the spec's own. Changes in percent."""
    import pandas as pd

    rows = []
    for value in sorted({*values, default}):
        if value == default:
            coarse = results.schedule(PASS_STRICT)
            fine = results.schedule(STRICT)
            comparisons = results.measured_again(STRICT, repeats)
        else:
            variant = results.variant(f"{_TENSOR_ENERGY}-{shortest(value)}")
            coarse = variant.pass_schedule
            fine = variant.own_schedule
            comparisons = variant.validation
        time, energy = remeasured.changes(comparisons)
        rows.append(
            {
                "tensor_energy_pj_per_flop": value,
                "is_default": value == default,
                "pass_time_change_percent": coarse["time_change_percent"],
                "pass_energy_change_percent": coarse["energy_change_percent"],
                "kernel_claimed_time_change_percent": fine["time_change_percent"],
                "kernel_claimed_energy_change_percent": fine["energy_change_percent"],
                "kernel_fresh_time_change_percent": time.mean,
                "kernel_fresh_time_low_percent": time.low,
                "kernel_fresh_time_high_percent": time.high,
                "kernel_fresh_energy_change_percent": energy.mean,
                "kernel_fresh_energy_low_percent": energy.low,
                "kernel_fresh_energy_high_percent": energy.high,
            }
        )
    return pd.DataFrame(rows)
