"""The slow truth: every combination tried. Small instances for the tests that compare with it."""

import itertools

import numpy as np

from kernel_dvfs.choice.problem import TOLERANCE, Problem


def combinations(problem: Problem):
    """(T, E) of every combination of options, one option per target."""
    bounds = np.append(problem.first, len(problem.time))
    ranges = [range(a, b) for a, b in itertools.pairwise(bounds)]
    picks = np.array(list(itertools.product(*ranges)))
    return picks, problem.time[picks].sum(axis=1), problem.energy[picks].sum(axis=1)


def best(problem: Problem, scope: str, objective: str, slack: float):
    """(score, time) of the optimum by trying everything, or None if nothing is feasible."""
    picks, time, energy = combinations(problem)
    base = problem.time[problem.baseline]
    allowed = np.ones(len(picks), dtype=bool)
    if scope == "single":
        allowed &= (problem.key[picks] == problem.key[picks][:, :1]).all(axis=1)
    if objective == "waste":
        if scope == "local":
            allowed &= (problem.time[picks] <= (1 + slack) * base * (1 + TOLERANCE)).all(axis=1)
        else:
            allowed &= time <= (1 + slack) * base.sum() * (1 + TOLERANCE)
    if not allowed.any():
        return None
    if objective == "edp" and scope == "local":
        score = (problem.time[picks] * problem.energy[picks]).sum(axis=1)
    else:
        score = time * energy if objective == "edp" else energy
    score = np.where(allowed, score, np.inf)
    return score.min(), time[score <= score.min() * (1 + 1e-12)].min()


def score(problem: Problem, scope: str, objective: str, option: np.ndarray) -> float:
    """The score of one choice, by the same measure as `best`."""
    time, energy = problem.time[option], problem.energy[option]
    if objective == "edp":
        return float((time * energy).sum() if scope == "local" else time.sum() * energy.sum())
    return float(energy.sum())
