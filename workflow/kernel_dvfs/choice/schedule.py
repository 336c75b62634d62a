"""From a profile to a schedule: the chosen clocks per target with totals, bounds and proof, ready for JSON.

It does not know how an optimum is found (scopes.py), nor where schedules are written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs.choice.from_profile import NEEDED, problem_of
from kernel_dvfs.choice.global_waste import compute_waste
from kernel_dvfs.choice.margin import Guarded, decide
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.relaxation import lower_bound
from kernel_dvfs.choice.schedule_file import Clocks, Margin, Schedule, Totals
from kernel_dvfs.choice.scopes import Answer, solve
from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import SCHEDULE

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    # a path to Parquet, a pyarrow Table, or a mapping of columns that may carry its metadata under the key "metadata"
    Profile: TypeAlias = str | os.PathLike[str] | pa.Table | Mapping[str, Any]

GRANULARITIES = ("kernel", "pass")


def profile_columns(profile: Profile) -> tuple[dict[str, Any], dict[str, Any], str]:
    """({column: values}, metadata, what messages call it) of a profile. Raises InputError where it is not a profile."""
    if isinstance(profile, Mapping):
        columns = {name: values for name, values in profile.items() if name != "metadata"}
        return columns, dict(profile.get("metadata", {})), "profile"
    where = "profile"
    if isinstance(profile, (str, os.PathLike)):
        from kernel_dvfs.profile.store import read_profile

        where = os.fspath(profile)
        table, metadata = read_profile(profile)
    else:
        table = profile
        try:
            metadata = json.loads((table.schema.metadata or {})[b"kernel_dvfs"])
        except (KeyError, ValueError):
            raise InputError(f"{where}: no kernel_dvfs metadata in its schema; is it a profile?") from None
    # lists: to_numpy would import pandas
    wanted = {*NEEDED, "replicate_group", "time_se_s", "energy_se_j", "is_checked", *metadata.get("settings", ())}
    return {name: table[name].to_pylist() for name in table.column_names if name in wanted}, metadata, where


def problem_from(
    profile: Profile, granularity: str = "kernel", weights: str | None = None, ties: str = "tied"
) -> Problem:
    """The choice problem of a profile, options as in `choose`. Raises InputError on bad input."""
    return _problem(profile, granularity, weights, ties)[0]


def _problem(profile: Profile, granularity: str, weights: str | None, ties: str) -> tuple[Problem, dict[str, Any]]:
    if granularity not in GRANULARITIES:
        raise InputError(f"choice: granularity {granularity!r}; use one of {', '.join(GRANULARITIES)}")
    columns, metadata, where = profile_columns(profile)
    settings = metadata.get("settings", ["core_mhz", "mem_mhz"])
    weights = weights or ("raw" if metadata.get("gpu", {}).get("kind") == "table" else "counts")
    return problem_of(columns, settings, granularity, weights, ties, where), metadata


def choose(
    profile: Profile,
    granularity: str = "kernel",
    scope: str = "global",
    objective: str = "waste",
    slack_percent: float = 0.0,
    weights: str | None = None,
    ties: str = "tied",
    margin_z: float | None = None,
) -> Schedule:
    """The optimal schedule of a profile, JSON-ready.

    granularity: "kernel" or "pass". scope, objective: see scopes.py. slack_percent: tolerated slowdown of waste, in
    percent of the baseline time. weights: "counts", "raw", "equal-time"; default: raw for tables, else counts.
    ties: "tied" = replicates share data and choice, or "untied". margin_z: only for global waste: choose among options
    that were checked (without a check: measured more than once), and keep the time limit by a margin of so many
    standard errors of the total, and by what choosing among checked options flatters (margin.py); None: the optimum
    of the profile as it is. Raises InputError on bad input.
    """
    problem, metadata = _problem(profile, granularity, weights, ties)
    margin: Margin | None = None
    if margin_z is None:
        answer = solve(problem, scope, objective, slack_percent / 100)
    else:
        if (scope, objective) != ("global", "waste"):
            raise InputError(f"choice: a margin belongs to scope global and objective waste, not {scope} {objective}")
        answer, margin = _with_margin(problem, slack_percent / 100, margin_z)
    return {
        "schema": SCHEDULE,
        "gpu": metadata.get("gpu", {}),
        "workload": metadata.get("workload", {}),
        "granularity": granularity,
        "scope": scope,
        "objective": objective,
        "slack_percent": slack_percent if objective == "waste" else None,
        "weights": problem.weights,
        "ties": ties,
        **summary(problem, answer, scope, objective, slack_percent, plain=margin is None),
        "margin": margin,
        "pooled": [list(members) for members in problem.members if len(members) > 1],
        "apart": [asdict(each) for each in problem.apart],
        "targets": clocks(problem, answer),
    }


def _with_margin(problem: Problem, slack: float, z: float) -> tuple[Answer, Margin]:
    """(answer, what the schedule says of its margin: time_percent = z x sd_percent + bias_percent of the baseline)."""
    if problem.time_se is None or np.isnan(problem.time_se[problem.baseline]).any():
        raise InputError(
            "choice: a margin needs standard errors of the times; measure auto more than once, or choose without margin"
        )
    found = decide(problem, slack, z)
    if found is None:
        return Answer("infeasible", "every target's fastest option together takes longer than the limit"), {"z": z}
    percent = 100 / problem.baseline_time
    checked = problem.is_checked is not None and bool(problem.is_checked.any())
    # time: the distance that was kept from the limit; bias: its part that was taken off as choosing flatters
    about: Margin = {
        "z": z,
        "sd_percent": found.sd * percent,
        "bias_percent": found.bias * percent,
        "time_percent": (z * found.sd + found.bias) * percent,
        "options": found.options,
        "checked": checked,  # the claim rests on data that proposed nothing
    }
    return _answer(problem, slack, z, found), about


def _answer(problem: Problem, slack: float, z: float, found: Guarded) -> Answer:
    time, energy = (float(values[found.option].sum()) for values in (problem.time, problem.energy))
    if found.optimum is None:
        proof = f"no other choice of {found.options} options keeps a margin of {z:g} standard errors: all stay at auto"
    else:
        proof = f"{found.optimum.proof}; margin of {z:g} standard errors of the total on the time limit"
    bound = lower_bound(problem, max((1 + slack) * problem.baseline_time, time))
    return Answer("optimal", proof, found.option, time, energy, bound)


def summary(
    problem: Problem, answer: Answer, scope: str, objective: str, slack_percent: float, plain: bool = True
) -> Totals:
    """Totals, changes against the baseline in percent, lower bound, compute waste (Eq. 2), as a schedule has them.

    plain: whether the answer is the optimum itself, without a margin.
    """
    base_time, base_energy = problem.baseline_time, problem.baseline_energy
    time, energy = answer.time, answer.energy
    found = answer.status == "optimal"
    is_optimum = plain and found and scope == "global" and objective == "waste"  # which has no waste, by definition
    if is_optimum and slack_percent == 0 and energy is not None:
        base_waste = max(0.0, base_energy - energy)
    else:
        base_waste = compute_waste(problem, base_time, base_energy)
    waste = time_change = energy_change = edp_change = None
    if found and time is not None and energy is not None:
        waste = 0.0 if is_optimum else compute_waste(problem, time, energy)
        time_change, energy_change, edp_change = (
            100 * (now / base - 1)
            for now, base in ((time, base_time), (energy, base_energy), (time * energy, base_time * base_energy))
        )

    return {
        "status": answer.status,
        "proof": answer.proof,
        "baseline_time": base_time,
        "baseline_energy": base_energy,
        "time": time,
        "energy": energy,
        "time_change_percent": time_change,
        "energy_change_percent": energy_change,
        "edp_change_percent": edp_change,
        "lower_bound_energy": answer.lower_bound_energy,
        "waste_j": waste,
        "baseline_waste_j": base_waste,
    }


def clocks(problem: Problem, answer: Answer) -> dict[str, Clocks]:
    """Target -> {setting: number or "auto"}, every member of a tied class included; empty if infeasible."""
    if answer.option is None:
        return {}
    chosen: dict[str, Clocks] = {}
    for k, option in enumerate(answer.option):
        key = problem.keys[problem.key[option]]
        setting: Clocks = {name: _plain(value) for name, value in zip(problem.settings, key)}
        for member in problem.members[k]:
            chosen[member] = dict(setting)
    return chosen


def _plain(value: float | str | None) -> float | str:
    """1470.0 -> 1470, None -> "auto"."""
    if value is None:
        return "auto"
    return int(value) if isinstance(value, float) and value.is_integer() else value
