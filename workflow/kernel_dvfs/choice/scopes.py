"""One question, one answer: a scope (single, local, global) and an objective (waste, edp, energy).

single  one option key for all targets, among the keys that every target has
local   each target by itself keeps the limit, or has the least energy, or the least e*t
global  only the totals count

waste   least energy with time <= (1 + slack) x baseline time (negative slack: time must fall)
edp     least energy x time, no limit
energy  least energy, no limit

Equal scores are decided by less time, then for the baseline, then by order.

Why walking one hull finds the least global E*T. On the positive quadrant E*T has convex superlevel sets {E*T >= c},
that is, it is quasi-concave; over a polytope such a function is least at an extreme point. The totals (T, E) of all
combinations are the Minkowski sum of the targets' options, so the least E*T over the sum's convex hull is at one of
its vertices, which is itself a combination. E*T grows in both totals, so the vertex lies on the lower-left part of
the hull: it minimises E + m*T for some m > 0, and then each target by itself minimises e + m*t, a vertex of its own
lower hull. Merging the targets' hull edges by slope and walking them from everyone's fastest option therefore meets
the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_dvfs.choice.dominance import Edges, pareto_per_target
from kernel_dvfs.choice.global_waste import least_energy
from kernel_dvfs.choice.problem import TOLERANCE, Problem, best_per_target
from kernel_dvfs.choice.relaxation import lower_bound
from kernel_dvfs_clocks.errors import InputError

SCOPES = ("single", "local", "global")
OBJECTIVES = ("waste", "edp", "energy")


@dataclass(frozen=True, eq=False, slots=True)
class ScopeOptimum:
    """The optimum of a question; where it is infeasible, everything after `proof` is None."""

    status: str  # "optimal" or "infeasible"
    proof: str  # what makes it the optimum, or why there is none
    option: np.ndarray | None = None  # (K,) flat indices into the problem
    time: float | None = None  # weighted totals
    energy: float | None = None
    # no global choice can use less (LP relaxation) within the limit (waste), in the time of this answer (edp), in any
    # time (energy)
    lower_bound_energy: float | None = None


def solve(
    problem: Problem, scope: str, objective: str, slack: float = 0.0, effort: float | None = None
) -> ScopeOptimum:
    """Return the optimum of `objective` within `scope`.

    slack: fraction of the baseline time, only for waste; > -1. effort: for OR-Tools as witness of the global waste
    optimum, see global_waste.py; 0 = without it.
    Raises InputError for an unknown scope or objective, or a slack that is not a number above -1.
    """
    if scope not in SCOPES or objective not in OBJECTIVES:
        raise InputError(
            f"choice: scope {scope!r}, objective {objective!r}; use one of {', '.join(SCOPES)} and one of"
            f" {', '.join(OBJECTIVES)}"
        )
    if objective == "waste" and not (np.isfinite(slack) and slack > -1):
        raise InputError(f"choice: slack {slack!r} (as a fraction); use a number above -1")
    option: np.ndarray | None
    if scope == "single":
        option, proof = _single(problem, objective, slack)
    elif scope == "local" or objective == "energy":
        option, proof = _local(problem, objective, slack)
    elif objective == "edp":
        option, vertices = least_product(problem)
        proof = (
            f"E*T is quasi-concave, so its least value is at a vertex of the lower hull of all totals:"
            f" all {vertices} compared"
        )
    else:
        return _global_waste(problem, slack, effort)
    if option is None:
        return ScopeOptimum("infeasible", proof)
    time, energy = float(problem.time[option].sum()), float(problem.energy[option].sum())
    limit = max((1 + slack) * problem.baseline_time, time) if objective == "waste" else time
    bound = (
        float(np.minimum.reduceat(problem.energy, problem.first).sum())
        if objective == "energy"
        else lower_bound(problem, limit)
    )
    return ScopeOptimum("optimal", proof, option, time, energy, bound)


def least_product(problem: Problem) -> tuple[np.ndarray, int]:
    """Return (option, vertices): (K,) flat indices of least E*T (then least T), exact, without a solver; vertices
    compared."""
    fronts = pareto_per_target(problem)
    edges = Edges([(problem.time[front], problem.energy[front]) for front in fronts])
    fastest = np.array([front[0] for front in fronts])
    dt, de = edges.walk()
    product = (problem.time[fastest].sum() + dt) * (problem.energy[fastest].sum() + de)
    picks = edges.options_after(int(product.argmin()), len(fronts))
    return np.array([front[pick] for front, pick in zip(fronts, picks)]), len(product)


def _global_waste(problem: Problem, slack: float, effort: float | None) -> ScopeOptimum:
    optimum = least_energy(problem, (1 + slack) * problem.baseline_time, effort)
    if optimum is None:
        return ScopeOptimum("infeasible", "every target's fastest option together takes longer than the limit")
    return ScopeOptimum(
        "optimal",
        optimum.proof,
        optimum.option,
        float(problem.time[optimum.option].sum()),
        float(problem.energy[optimum.option].sum()),
        optimum.bound,
    )


def _score(time: np.ndarray, energy: np.ndarray, objective: str, limit: np.ndarray | float) -> np.ndarray:
    """Return what the objective minimises; infinite where a limit is broken."""
    if objective == "edp":
        return energy * time
    if objective == "energy":
        return energy
    return np.where(time <= limit * (1 + TOLERANCE), energy, np.inf)


def _local(problem: Problem, objective: str, slack: float) -> tuple[np.ndarray | None, str]:
    limit = (1 + slack) * problem.time[problem.baseline][problem.target]
    score = _score(problem.time, problem.energy, objective, limit)
    option = best_per_target(score, problem.target, problem.first, problem.time, ~problem.is_baseline)
    late = np.flatnonzero(np.isinf(score[option]))
    if len(late):
        return (
            None,
            f"no option of target {problem.targets[late[0]]} keeps its limit ({len(late)} such targets)",
        )
    return option, f"every option of every target compared ({len(problem.time)} in all)"


def _single(problem: Problem, objective: str, slack: float) -> tuple[np.ndarray | None, str]:
    count = len(problem.targets)
    shared = np.flatnonzero(np.bincount(problem.key, minlength=len(problem.keys)) == count)
    if not len(shared):
        return None, "no setting is known for every target"
    column = np.full(len(problem.keys), -1)
    column[shared] = np.arange(len(shared))
    common = np.flatnonzero(column[problem.key] >= 0)
    option = np.empty((count, len(shared)), dtype=np.intp)
    option[problem.target[common], column[problem.key[common]]] = common
    time, energy = problem.time[option].sum(axis=0), problem.energy[option].sum(axis=0)
    score = _score(time, energy, objective, (1 + slack) * problem.baseline_time)
    is_baseline = (option == problem.baseline[:, None]).all(axis=0)
    best = np.lexsort((~is_baseline, time, score))[0]
    if np.isinf(score[best]):
        return None, f"none of the {len(shared)} settings known for every target keeps the limit"
    return option[:, best], f"all {len(shared)} settings known for every target compared"
