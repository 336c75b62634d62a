"""Compute waste, Eq. 2 of the paper (arXiv 2601.08539): W(t, e) = e - min {E(c) : T(c) <= t}.

The energy used beyond the least energy with which any choice, one option per target, gives the same
performance or
better: so a strategy's waste is measured against the fine global choice of the same problem.
"""

from __future__ import annotations

from kernel_dvfs.choice.global_waste import least_energy
from kernel_dvfs.choice.problem import Problem


def compute_waste(problem: Problem, time: float, energy: float) -> float:
    """W of a choice with these totals, in the problem's units of energy; >= 0 for any of its choices.

    Raises ValueError if no choice at all is as fast.
    """
    best = least_energy(problem, time, effort=0)
    if best is None:
        raise ValueError(f"no choice takes a total time of {time} or less")
    # the grid's rounding (3e-11) must not show as negative waste
    return max(0.0, energy - float(problem.energy[best.option].sum()))
