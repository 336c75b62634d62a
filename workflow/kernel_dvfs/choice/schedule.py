"""From a profile to a schedule: the chosen clocks per target with totals, bounds and proof, ready for JSON.

It does not know how an optimum is found (scopes.py), nor where schedules are written.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs.choice.from_profile import NEEDED, problem_of
from kernel_dvfs.choice.global_waste import compute_waste
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.relaxation import lower_bound
from kernel_dvfs.choice.schedule_file import Clocks, Schedule, Totals, Walk, Walked
from kernel_dvfs.choice.scopes import ScopeOptimum, solve
from kernel_dvfs.layout import SCHEDULE
from kernel_dvfs.student import t_quantile
from kernel_dvfs_clocks.clocks import key_of, label
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    from kernel_dvfs.profile import store

    # a path to Parquet, what was read of it, a pyarrow Table, or a mapping of columns that may carry its metadata under
    # the key "metadata"
    Profile: TypeAlias = str | os.PathLike[str] | store.Profile | pa.Table | Mapping[str, Any]

GRANULARITIES = ("kernel", "pass")


def profile_columns(profile: Profile) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return ({column: values}, metadata, what messages call it) of a profile. Raises InputError where it is not a
    profile."""
    if isinstance(profile, Mapping):
        columns = {name: values for name, values in profile.items() if name != "metadata"}
        return columns, dict(profile.get("metadata", {})), "profile"
    where = "profile"
    if isinstance(profile, (str, os.PathLike)):
        from kernel_dvfs.profile.store import read_profile  # pyarrow, which columns in memory do without

        profile = read_profile(profile)
    if isinstance(profile, tuple):
        table, metadata, where = profile
    else:
        table = profile
        try:
            metadata = json.loads((table.schema.metadata or {})[b"kernel_dvfs"])
        except (KeyError, ValueError):
            raise InputError(f"{where}: no kernel_dvfs metadata in its schema; is it a profile?") from None
    # lists: to_numpy would import pandas
    wanted = {*NEEDED, "replicate_group", "time_se_s", "energy_se_j", *metadata.get("settings", ())}
    return {name: table[name].to_pylist() for name in table.column_names if name in wanted}, metadata, where


def problem_from(
    profile: Profile, granularity: str = "kernel", weights: str | None = None, ties: str = "tied"
) -> Problem:
    """Return the choice problem of a profile, options as in `choose`. Raises InputError on bad input."""
    return _problem(profile, granularity, weights, ties)[0]


def _problem(profile: Profile, granularity: str, weights: str | None, ties: str) -> tuple[Problem, dict[str, Any]]:
    if granularity not in GRANULARITIES:
        raise InputError(f"choice: granularity {granularity!r}; use one of {', '.join(GRANULARITIES)}")
    columns, metadata, where = profile_columns(profile)
    settings = metadata.get("settings", ["core_mhz", "mem_mhz"])
    weights = weights or default_weights(metadata)
    return problem_of(columns, settings, granularity, weights, ties, where), metadata


def default_weights(metadata: Mapping[str, Any]) -> str:
    """Return how the targets of a profile are weighed where nobody says: a table tells no number of launches."""
    return "raw" if metadata.get("gpu", {}).get("kind") == "table" else "counts"


def _check_slack(slack_percent: object) -> None:
    """Raise InputError unless it is a number; warn where it looks like a fraction."""
    if not isinstance(slack_percent, (int, float)) or isinstance(slack_percent, bool):
        raise InputError(f"choice: slack_percent = {slack_percent!r}: expected a number of percent, such as 2")
    if 0 < abs(slack_percent) < 0.1:
        warnings.warn(
            f"a slack of {slack_percent:g} is {slack_percent:g} percent of the time; for {100 * slack_percent:g} % "
            f"give {100 * slack_percent:g}",
            stacklevel=3,
        )


def choose(
    profile: Profile,
    granularity: str = "kernel",
    scope: str = "global",
    objective: str = "waste",
    slack_percent: float = 0.0,
    weights: str | None = None,
    ties: str = "tied",
    walked: Walked | None = None,
) -> Schedule:
    """Return the optimal schedule of a profile, JSON-ready.

    granularity: "kernel" or "pass". scope, objective: see scopes.py. slack_percent: tolerated slowdown of waste, in
    percent of the baseline time. weights: "counts", "raw", "equal-time"; default: raw for tables, else counts.
    ties: "tied" = replicates share data and choice, or "untied". walked: only for global waste: the schedule that a
    walk has shown to keep this limit, with the time that the walk measured and the energy that it estimates; None: the
    optimum of the profile as it is. Warns of a slack that looks like a fraction. Raises InputError on bad input.
    """
    _check_slack(slack_percent)
    problem, metadata = _problem(profile, granularity, weights, ties)
    walk: Walk | None = None
    if walked is None:
        answer = solve(problem, scope, objective, slack_percent / 100)
    else:
        asked = scope, objective, problem.weights
        if asked != ("global", "waste", "counts"):
            raise InputError(f"choice: a walk belongs to global waste weighted by counts, not {' '.join(asked)}")
        answer, walk = _as_walked(problem, slack_percent, walked)
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
        **summary(problem, answer, scope, objective, slack_percent, walked=walk is not None),
        "walk": walk,
        "pooled": [list(members) for members in problem.members if len(members) > 1],
        "apart": [asdict(target) for target in problem.apart],
        "targets": clocks(problem, answer),
    }


def _as_walked(problem: Problem, slack_percent: float, walked: Walked) -> tuple[ScopeOptimum, Walk]:
    """Return (the schedule of a walk with its changes of time and energy, what the schedule says of that walk)."""
    option = _option_of(problem, walked["pairs"])
    passed, blocks = walked["passed"], len(walked["time_percent"])
    if passed and blocks < 2:
        raise InputError("choice: a walk has at least two blocks; run snakemake again")
    # all at the baseline change nothing, and need no block to show it
    time = time_se = bound = energy = energy_se = 0.0
    if passed:
        time, time_se = fmean(walked["time_percent"]), stdev(walked["time_percent"]) / math.sqrt(blocks)
        bound = time + t_quantile(blocks - 1, 1 - walked["over_percent"] / 100) * time_se
        energy, energy_se = walked["energy_percent"], walked["energy_se_percent"]
    limit = (1 + slack_percent / 100) * problem.baseline_time
    by_profile, energy_by_profile = _by_profile(problem, option)
    about: Walk = {
        "over_percent": walked["over_percent"],
        "blocks": blocks,
        "schedules": walked["schedules"],
        "passed": passed,
        "time_bound_percent": bound,
        "time_se_percent": time_se,
        "energy_se_percent": energy_se,
        "reserve_percent": 100 * max(0.0, limit - by_profile) / problem.baseline_time,
        "proposed_energy_percent": 100 * (energy_by_profile / problem.baseline_energy - 1),
        "another_minute": walked["another_minute"],
    }
    confidence = f"with a confidence of {100 - walked['over_percent']:g} %, over {blocks} blocks of sessions"
    proof = f"{passed} of {walked['schedules']} schedules, from the fastest on, keep the limit {confidence}"
    proof += "; the last of them is chosen" if passed else ": all stay at the baseline"
    whole_time = problem.baseline_time * (1 + time / 100)
    whole_energy = problem.baseline_energy * (1 + energy / 100)
    bound_energy = lower_bound(problem, max(limit, by_profile))
    return ScopeOptimum("optimal", proof, option, whole_time, whole_energy, bound_energy), about


def _option_of(problem: Problem, pairs: Mapping[str, Sequence[Any]]) -> np.ndarray:
    """Return (K,) the options with these clocks. Raises InputError where the problem has none."""
    option = problem.baseline.copy()
    for target, members in enumerate(problem.members):
        pair = pairs.get(members[0])
        if pair is None or any(pairs.get(member) != pair for member in members):
            raise InputError(f"choice: the walk has no one pair of clocks for {members[0]}; run snakemake again")
        options = np.flatnonzero(problem.target == target)
        at = [place for place in options.tolist() if problem.keys[problem.key[place]] == key_of(pair)]
        if not at:
            raise InputError(f"choice: {members[0]} at {label(tuple(pair))} is not in the profile; run snakemake again")
        option[target] = at[0]
    return option


def summary(
    problem: Problem, answer: ScopeOptimum, scope: str, objective: str, slack_percent: float, walked: bool = False
) -> Totals:
    """Return totals, changes against the baseline in percent, lower bound, compute waste (Eq. 2), as a schedule has
    them.

    walked: whether the answer is that of a walk, whose totals are its own: what waste it leaves is told by the profile.
    """
    base_time, base_energy = problem.baseline_time, problem.baseline_energy
    time, energy = answer.time, answer.energy
    is_optimal = answer.status == "optimal"
    # which has no waste, by definition
    is_optimum = not walked and is_optimal and scope == "global" and objective == "waste"
    if is_optimum and slack_percent == 0 and energy is not None:
        base_waste = max(0.0, base_energy - energy)
    else:
        base_waste = compute_waste(problem, base_time, base_energy)
    waste = time_change = energy_change = edp_change = None
    if answer.option is not None and time is not None and energy is not None:
        waste = 0.0 if is_optimum else compute_waste(problem, *_by_profile(problem, answer.option))
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


def _by_profile(problem: Problem, option: np.ndarray) -> tuple[float, float]:
    """Return (time, energy) of a choice (K,) by the problem's own numbers."""
    return float(problem.time[option].sum()), float(problem.energy[option].sum())


def clocks(problem: Problem, answer: ScopeOptimum) -> dict[str, Clocks]:
    """Return target -> {setting: number or "auto"}, every member of a tied class included; empty if infeasible."""
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
    """Return a setting as a schedule has it: 1470.0 -> 1470, None -> "auto"."""
    if value is None:
        return "auto"
    return int(value) if isinstance(value, float) and value.is_integer() else value
