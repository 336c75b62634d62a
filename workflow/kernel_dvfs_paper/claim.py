"""What a claim of the paper is, how it is judged, and what verdicts are computed from.

A judge yields numbers. A claim holds where each keeps its rule and differs where one does not. What is absent makes it
not testable; a file that is there but bad stays an InputError. Where a rule is more than a limit, the judge reads files
and a function of frames or arrays decides: an experiment can ask it of a board without a study.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.schedule import problem_from
from kernel_dvfs.layout import PUBLISHED, STRICT, fresh_repeats, published
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.profile.store import CLOCKS
from kernel_dvfs.report.results import Comparisons, Results, is_chosen
from kernel_dvfs_clocks.errors import InputError

HOLDS, DIFFERS, NOT_TESTABLE = "holds", "differs", "not testable"

# A clock counts as lower from 5 % below auto's: the 15 MHz steps on which clocks land and the two highest
# memory clocks of the RTX 3080 Ti (9251, 9501: the same bandwidth) are one clock, a step of any sweep is
# more.
LOWER_SHARE = 0.05

# A saving that a single run can show: its energy scatters by 0.55 %, its campaign by 0.3 % more.
VISIBLE_PERCENT = 1.0

# A change of time is real beyond this: two points of one pair scatter by 0.3 % of campaign offset each.
BEYOND_SCATTER_PERCENT = 0.5

_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq}


class NotTestable(Exception):
    """Something is absent: one sentence, what it is and what would make the claim testable."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number that a verdict rests on."""

    name: str
    value: Any  # a number; where there is no rule also an interval (low, high), or words
    unit: str = ""  # "%" of a change, "points" between changes, MHz, ...
    rule: dict[str, float] = field(default_factory=dict)  # {sign: limit}, such as {">=": 4, "<=": 8}

    @property
    def kept(self) -> bool:
        """Return whether the rule is kept. What is NaN keeps none."""
        return all(_SIGNS[sign](self.value, limit) for sign, limit in self.rule.items())

    @property
    def ruled(self) -> str:
        """The rule in words: `>= 0.5`, `4 to 8`."""
        if self.rule.keys() == {">=", "<="}:
            return f"{self.rule['>=']:.4g} to {self.rule['<=']:.4g}"
        return " and ".join(f"{sign} {limit:.4g}" for sign, limit in self.rule.items())

    def __str__(self) -> str:
        """Return `time +0.314 % (<= 0.5)`."""
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        shown = " to ".join(value if isinstance(value, str) else self._shown(float(value)) for value in values)
        return f"{self.name} {shown} {self.unit}".rstrip() + (f" ({self.ruled})" if self.rule else "")

    def _shown(self, value: float) -> str:
        if abs(value) < 1e-4:  # what sums of equal numbers differ by, and what no measurement tells from 0
            return "0"
        sign = "+" if self.unit in ("%", "points") else ""
        return f"{value:{sign}.2f}" if sign and abs(value) >= 1 else f"{value:{sign}.{3 if sign else 4}g}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper (arXiv 2601.08539) and who judges it."""

    number: int  # 1..30
    text: str
    source: str  # section of the paper
    judge: Callable[[Results], Iterator[Number]]  # raises NotTestable
    paper: str = "not known"  # its value
    cause: str = ""  # why it differs, where that is known whatever the numbers are

    def row(self, results: Results) -> dict[str, Any]:
        """Return its row of the table."""
        try:
            numbers = list(self.judge(results))
        except NotTestable as missing:
            ours, verdict, why = "not computed", NOT_TESTABLE, str(missing)
        else:
            ours = "; ".join(map(str, numbers))
            faults = [f"{number.name}: not {number.ruled}" for number in numbers if not number.kept]
            verdict = DIFFERS if faults else HOLDS
            why = "; ".join([*faults, self.cause] if faults and self.cause else faults)
        about = {"number": self.number, "claim": self.text, "source": self.source, "paper": self.paper}
        return about | {"ours": ours, "verdict": verdict, "why": why}


def claim(number: int, text: str, source: str, **more: str) -> Callable[[Callable[[Results], Iterator[Number]]], Claim]:
    """Decorator: the function below is the judge of this claim. more: further fields of a Claim."""
    return lambda judge: Claim(number, text, source, judge, **more)


# --- what verdicts are computed from ----------------------------------------------------------------------------------


def table(results: Results, name: str) -> pd.DataFrame:
    """Return a finished table."""
    if not results.has(f"tables/{name}.json"):
        raise NotTestable(f"there is no table {name} for this GPU; configure that study and run snakemake report")
    return results.table(name)


def schedule(results: Results, name: str = STRICT) -> dict[str, Any]:
    """Return a feasible schedule, as published."""
    if not results.has(f"schedules/{results.named(name)}.json"):
        raise NotTestable(f"there is no schedule {name}; run snakemake choose on a profile with such targets")
    document = results.schedule(name)
    if document["status"] != "optimal":
        raise NotTestable(f"schedule {name} is {document['status']}; no choice keeps its limit")
    return document


def strategy(results: Results, granularity: str, scope: str, objective: str) -> tuple[float, float, float]:
    """Return (energy, time, EDP) change in percent by a row of Table 2, strict where it is waste."""
    rows = table(results, "strategies")
    matching = rows[
        (rows.granularity == granularity)
        & (rows.scope == scope)
        & (rows.objective == objective)
        & (rows.slack_percent.fillna(0) == 0)
        & (rows.status != "infeasible")
    ]
    if matching.empty:
        raise NotTestable(f"Table 2 (strategies) has no {granularity} {scope} {objective}; have it chosen")
    chosen = results.schedule(matching.schedule.iloc[0])
    return chosen["energy_change_percent"], chosen["time_change_percent"], chosen["edp_change_percent"]


def points(results: Results, study: str) -> pd.DataFrame:
    """See compared."""
    return compared(results.profile, study)


def compared(profile: pd.DataFrame, study: str) -> pd.DataFrame:
    """Return the usable rows of a profile in a study, with what changes against each target's own auto.

    Further columns: time_change, energy_change (percent); core, mem (MHz: reached where known, else
    asked for, auto = the highest of the target); auto_core, auto_mem (the same of auto); auto_time_s,
    auto_energy_j; lower_core, lower_mem (bool, LOWER_SHARE below auto's); cool_core (MHz: auto's clock on a cool board,
    the highest that it reaches under any load and at any memory clock; a slow memory leaves the board cool).
    """
    cool_mhz = profile[profile.core_mhz.isna()].reached_core_mhz.max()
    rows = profile[(profile.study == study) & ~profile.verdict.isin(UNUSABLE)].reset_index(drop=True)
    for name in CLOCKS:
        clock = rows[f"reached_{name}"].fillna(rows[name])
        rows[name.removesuffix("_mhz")] = clock.fillna(clock.groupby(rows.target).transform("max"))
    auto = rows[rows.is_baseline].set_index("target")
    for name in ("core", "mem", "time_s", "energy_j"):
        rows[f"auto_{name}"] = auto[name].reindex(rows.target).to_numpy()
    rows["cool_core"] = rows.core.max() if pd.isna(cool_mhz) else cool_mhz
    rows["time_change"] = 100 * (rows.time_s / rows.auto_time_s - 1)
    rows["energy_change"] = 100 * (rows.energy_j / rows.auto_energy_j - 1)
    for name in ("core", "mem"):
        ratio = (rows[name] / rows[f"auto_{name}"]).fillna(1)  # never asked for and never read back: always the same
        rows[f"lower_{name}"] = ratio < 1 - LOWER_SHARE
    return rows


def chosen(results: Results, name: str, study: str) -> pd.DataFrame:
    """Return the point of each target that a schedule chose, as `points`, in the profile's order."""
    targets = schedule(results, name)["targets"]
    rows = points(results, study)
    return rows[is_chosen(rows, targets)].set_index("target")


def strict(results: Results) -> pd.DataFrame:
    """Return the points of Table 1: each kernel at its strict global clocks."""
    return chosen(results, STRICT, "kernel")


def gemms(results: Results) -> list[str]:
    """Return the ids of the kernels that are GEMMs."""
    return [name for name, about in results.workload.get("kernels", {}).items() if about["kind"] == "gemm"]


def problem(results: Results) -> Problem:
    """Return the choice problem that the strict schedule solved: same weights, same ties."""
    solved = schedule(results)
    return problem_from(results.profile_path, solved["granularity"], solved["weights"], solved["ties"])


def validation(results: Results) -> Comparisons:
    """Return the repeats behind the validation table, and none of an earlier study."""
    paths = fresh_repeats(results.named(STRICT), int(table(results, "validation").repeats.iloc[0]))
    missing = [path for path in paths if not results.has(path)]
    if missing:
        raise NotTestable(f"there is no {missing[0]}; configure that study and run snakemake report")
    return results.comparisons(*paths)


def simulated_spec(results: Results, what: str) -> dict[str, Any]:
    """Return the plain spec of a simulated GPU; `what` of it is wanted."""
    if results.gpu["kind"] != "simulated":
        raise NotTestable(f"{what} is known of simulated GPUs only; configure one, or measure it")
    return results.setup(results.workload["setup"]).gpu["spec"]


def siblings(results: Results) -> list[Results]:
    """Return the results of other GPUs with a strict schedule of the same kernels, by folder name; a broken folder is
    named and left out, since it must not stop this GPU's report."""
    our_folder, kernels, others = results.folder.absolute(), set(schedule(results)["targets"]), []
    strict_file = f"schedules/{published(STRICT)}.json"
    for folder in sorted(our_folder.parent.parent.glob(f"*/{our_folder.name}")):
        other = Results(folder, PUBLISHED, results.inputs)
        try:
            is_other = folder != our_folder and other.has(strict_file) and other.gpu
            if is_other and set(other.schedule(STRICT)["targets"]) == kernels:
                others.append(other)
        except InputError as error:
            print(f"note: left out: {error}", file=sys.stderr)
    return others
