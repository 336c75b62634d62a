"""The last choice of a refined profile: among what was measured more than once, with a margin on the total time."""

from dataclasses import replace

import numpy as np

from kernel_dvfs.choice.margin import Guarded, guarded
from kernel_dvfs.choice.problem import Problem


def decide(problem: Problem, slack: float, z: float, effort: float | None = None) -> Guarded | None:
    """As margin.guarded, of the options measured again (and the baselines): one lucky measurement makes no choice.

    Of all options where none was measured again. Its `option` counts in `problem`.
    """
    again = problem.repeated & ~problem.is_baseline
    if not again.any():
        return guarded(problem, slack, z, effort)
    option = np.flatnonzero(again | problem.is_baseline)
    found = guarded(problem.subset(option), slack, z, effort)
    return found and replace(found, option=option[found.option])
