"""What verdicts are computed from: tables, schedules, points against auto, validations, other GPUs.

Here a thing that is absent becomes NotTestable; a file that is there but bad stays an InputError.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pandas as pd

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.schedule import problem_from
from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import STRICT, fresh_repeats
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.profile.store import CLOCKS, COLUMNS
from kernel_dvfs.report.claims.claim import NotTestable, mhz
from kernel_dvfs.report.results import Comparisons, Results, is_chosen

# A clock counts as lower from 5 % below auto's: the 15 MHz steps on which clocks land and the two highest
# memory clocks of the RTX 3080 Ti (9251, 9501: the same bandwidth) are one clock, a step of any sweep is
# more.
LOWER_SHARE = 0.05

# A saving that a single run can show: its energy scatters by 0.55 %, its campaign by 0.3 % more.
VISIBLE_PERCENT = 1.0


def is_table(results: Results) -> bool:
    """Whether the GPU is a table of measurements, of unknown kernels, rather than a workload's."""
    return results.gpu["kind"] == "table"


def table(results: Results, name: str) -> pd.DataFrame:
    """A finished table."""
    if not (results.folder / "tables" / f"{name}.csv").is_file():
        raise NotTestable(f"there is no table {name} for this GPU; {_remedy(results)}")
    return results.table(name)


def _remedy(results: Results) -> str:
    if is_table(results):
        return "a table of measurements cannot be measured again; use a simulated or a real GPU"
    return "configure that study and run snakemake report"


def schedule(results: Results, name: str) -> dict:
    """A feasible schedule."""
    if not (results.folder / "schedules" / f"{name}.json").is_file():
        raise NotTestable(f"there is no schedule {name}; run snakemake choose on a profile with such targets")
    found = results.schedule(name)
    if found["status"] != "optimal":
        raise NotTestable(f"schedule {name} is {found['status']}; no choice keeps its limit")
    return found


def validated_changes(results: Results, name: str) -> tuple[float, float] | None:
    """(time, energy) change of a schedule of the headline in its validation, percent; None where there is none."""
    try:
        rows = table(results, "headline")
    except NotTestable:
        return None
    row = rows[rows.schedule == name]
    return None if row.empty else (row.fresh_time_change_percent.iloc[0], row.fresh_energy_change_percent.iloc[0])


def strategy(results: Results, granularity: str, scope: str, objective: str) -> dict:
    """A row of Table 2 as the schedule behind it, strict where it is waste."""
    rows = table(results, "strategies")
    found = rows[
        (rows.granularity == granularity)
        & (rows.scope == scope)
        & (rows.objective == objective)
        & (rows.slack_percent.fillna(0) == 0)
        & rows.status.str.startswith("optimal")
    ]
    if found.empty:
        raise NotTestable(f"Table 2 (strategies) has no {granularity} {scope} {objective}; have it chosen")
    return results.schedule(found.schedule.iloc[0])


def levels(results: Results) -> list[str]:
    """Granularities that clocks were chosen at: pass, kernel or one of them."""
    have = set(table(results, "strategies").granularity)
    return [level for level in ("pass", "kernel") if level in have]


def points(results: Results, study: str) -> pd.DataFrame:
    """Usable rows of the profile in a study, with what changes against each target's own auto.

    Further columns: time_change, energy_change (percent); core, mem (MHz: reached where known, else
    asked for, auto = the highest of the target); auto_core, auto_mem (the same of auto); auto_time_s,
    auto_energy_j; lower_core, lower_mem (bool, LOWER_SHARE below auto's); like_auto (neither differs).
    """
    rows = results.profile
    rows = rows[(rows.study == study) & ~rows.verdict.isin(UNUSABLE)].reset_index(drop=True)
    for name in CLOCKS:
        clock = rows[f"reached_{name}"].fillna(rows[name])
        rows[name.removesuffix("_mhz")] = clock.fillna(clock.groupby(rows.target).transform("max"))
    auto = rows[rows.is_baseline].set_index("target")
    for name in ("core", "mem", "time_s", "energy_j"):
        rows[f"auto_{name}"] = auto[name].reindex(rows.target).to_numpy()
    rows["time_change"] = 100 * (rows.time_s / rows.auto_time_s - 1)
    rows["energy_change"] = 100 * (rows.energy_j / rows.auto_energy_j - 1)
    same: bool | pd.Series = True
    for name in ("core", "mem"):
        ratio = (rows[name] / rows[f"auto_{name}"]).fillna(1)  # a table may know a single memory clock, unnamed
        rows[f"lower_{name}"] = ratio < 1 - LOWER_SHARE
        same &= (ratio - 1).abs() <= LOWER_SHARE
    rows["like_auto"] = same
    return rows


def passes(results: Results) -> dict[str, pd.DataFrame]:
    """{pass: its points}, in order of execution."""
    rows = points(results, "pass")
    if rows.empty:
        raise NotTestable("no pass was measured, a table of measurements holds kernels only; measure whole passes")
    order = sorted(rows.target.unique(), key=lambda name: (name != "forward", name == "backward"))
    return {name: rows[rows.target == name] for name in order}


def one_pass(results: Results, name: str) -> pd.DataFrame:
    """The points of one pass."""
    found = passes(results)
    if name not in found:
        raise NotTestable(f"no {name} pass was measured, only {', '.join(found)}; measure one")
    return found[name]


def memory_clocks(results: Results) -> list[float]:
    """Memory clocks asked for in the profile, MHz, ascending."""
    return sorted(results.profile.mem_mhz.dropna().unique())


def settings(results: Results) -> list[str]:
    """The columns that make a setting."""
    return [*CLOCKS, *(name for name in results.profile.columns if name not in COLUMNS)]


def chosen(results: Results, name: str, study: str) -> pd.DataFrame:
    """The point of each target that a schedule chose, as `points`, in the profile's order."""
    targets = schedule(results, name)["targets"]
    rows = points(results, study)
    return rows[is_chosen(rows, targets)].set_index("target")


def strict(results: Results) -> pd.DataFrame:
    """The points of Table 1: each kernel at its strict global clocks, with its `kind` where it is known."""
    rows = chosen(results, STRICT, "kernel")
    return rows.assign(kind=kinds(results).reindex(rows.index))


def kinds(results: Results) -> pd.Series:
    """Kind of each kernel by id, `gemm` or other; empty for a table of measurements."""
    about = results.workload.get("kernels", {})
    return pd.Series({name: each["kind"] for name, each in about.items()}, dtype=object)


def labels(results: Results) -> dict[str, str]:
    """{id: what a sentence calls it}: name and row of Table 1 where there is one."""
    about = results.workload.get("kernels", {})
    return {name: f"{each['name']} (row {each['row']})" if each["row"] else name for name, each in about.items()}


def problem(results: Results, name: str = STRICT) -> Problem:
    """The choice problem that a schedule of kernels solved: same weights, same ties."""
    solved = schedule(results, name)
    return problem_from(results.folder / "profile.parquet", solved["granularity"], solved["weights"], solved["ties"])


def validation(results: Results) -> Comparisons:
    """The repeats behind the validation table, and none of an earlier study."""
    repeats = int(table(results, "validation").repeats.iloc[0])
    return _comparisons(results, fresh_repeats(STRICT, repeats))


def carried(results: Results, folder: str) -> Comparisons:
    """Repeats of the strict schedule at another batch or degree: `batch-20`, `tp-4`."""
    there = results.variant(folder)
    # rows differ between degrees where the bias split follows llm.c
    kernels = (there if (there.folder / "profile.parquet").is_file() else results).workload["kernels"]
    return _comparisons(results, [f"measurements/{folder}/{name}.json" for name in kernels])


def _comparisons(results: Results, paths: Sequence[str]) -> Comparisons:
    missing = [path for path in paths if not (results.folder / path).is_file()]
    if missing:
        raise NotTestable(f"there is no {missing[0]}; {_remedy(results)}")
    return results.comparisons(*paths)


def setup(results: Results) -> Setup:
    """What the profile was measured under: resolved spec of a simulated GPU, order of the launches."""
    digest = results.workload.get("setup")
    path = results.folder / "setup" / f"{digest}.json"
    if digest is None or not path.is_file():
        raise NotTestable("no setup is known for this profile; measure on a simulated GPU")
    return results.setup(digest)


def simulated_spec(results: Results, what: str) -> dict:
    """The plain spec of a simulated GPU; `what` of it is wanted."""
    if results.gpu["kind"] != "simulated":
        raise NotTestable(f"{what} is known of simulated GPUs only; configure one, or measure it")
    return setup(results).gpu["spec"]


def power_left(rows: pd.DataFrame) -> str:
    """Where core is above auto's while memory is below: what the power cap did; the end of a sentence."""
    risen = rows[rows.lower_mem & (rows.core > rows.auto_core)]
    if risen.empty:
        return ""
    return (
        f": at the power cap the core gets the power that a lower memory clock saves ({mhz(risen.core)}"
        f" against auto's {mhz(risen.auto_core)})"
    )


def siblings(results: Results) -> list[Results]:
    """Results of other GPUs with a strict schedule of the same kernels, by folder name."""
    own = results.folder.resolve()
    kernels = set(schedule(results, STRICT)["targets"])
    found = [
        Results(path.parent.parent) for path in sorted(own.parent.parent.glob(f"*/{own.name}/schedules/{STRICT}.json"))
    ]
    return [each for each in found if each.folder != own and _usable(each, kernels)]


def _usable(results: Results, kernels: set[str]) -> bool:
    """Whether another GPU's folder is whole and of the same kernels; a broken one must not stop this GPU's report."""
    try:
        return results.gpu is not None and set(results.schedule(STRICT)["targets"]) == kernels
    except InputError as error:
        print(f"note: left out: {error}", file=sys.stderr)
        return False
