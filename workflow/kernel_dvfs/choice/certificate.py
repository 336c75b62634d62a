"""OR-Tools CP-SAT as an independent witness: no choice of the undecided targets uses less energy than the one found.

This is the only module of the package that imports ortools. It trusts the LP bound and the reduced-cost fixing
(undecided.py) but none of our searches. CP-SAT is asked a yes/no question, "is there a choice with energy <= found - 1
unit within the budget?", which it answers far faster than it would minimise.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from kernel_dvfs.choice.undecided import Undecided


def is_there() -> bool:
    """Return whether OR-Tools is installed: the search is exact without its witness."""
    return find_spec("ortools") is not None


def no_better(undecided: Undecided, energy: float, effort: float) -> bool:
    """Return whether CP-SAT proves that no choice has less than `energy` (units of the integer grid); False: it cannot
    tell.

    effort: its deterministic time, roughly in seconds, so that the answer is the same on every machine and at every
    load. Raises RuntimeError if it finds a choice with less energy (a bug of ours).
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    literals, dt, de = [], [], []
    for group in undecided.groups:
        choices = [model.new_bool_var("") for _ in group.position]
        model.add_exactly_one(choices)
        literals += choices
        # against the least of the group, so that every coefficient is >= 0
        dt.append(group.dt.astype(np.int64))
        de.append((group.de - group.de[-1]).astype(np.int64))
    least = int(undecided.e) + sum(int(group.de[-1]) for group in undecided.groups)
    weigh = cp_model.LinearExpr.weighted_sum
    model.add(weigh(literals, np.concatenate(dt).tolist()) <= int(undecided.budget - undecided.t))
    model.add(weigh(literals, np.concatenate(de).tolist()) <= int(energy) - 1 - least)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = effort
    # Presolve of 9.15 can cut off the optimum of exactly such models (google/or-tools#5293). A witness can do without
    # it: the model is small and already reduced.
    solver.parameters.cp_model_presolve = False
    status = int(solver.solve(model))
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise RuntimeError("CP-SAT found a better choice than the exact search: please report this as a bug")
    return status == cp_model.INFEASIBLE


def solver_name() -> str:
    """Return the name and version of CP-SAT, for the text of a proof."""
    import ortools

    return f"OR-Tools CP-SAT {ortools.__version__}"  # type: ignore[attr-defined]
