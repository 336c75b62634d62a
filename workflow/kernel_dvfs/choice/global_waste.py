"""Least total energy within a total time: the multiple-choice knapsack of "waste, global", with proof.

    integer grid without loss          grid.py         rounding below 3e-11 of the totals
    LP relaxation by a price of time   relaxation.py   lower bound, first choice
    best pairs of changes              meet_in_the_middle.py      better choice, so a small gap
    reduced-cost fixing, dominance     core.py         most targets are decided
    exact search of the core           programme.py    Pareto dynamic programme with LP-bound pruning, and
                                       meet_in_the_middle.py      meet in the middle, in turns of growing effort
    witness                            certificate.py  OR-Tools CP-SAT: "no choice with less energy exists"

What proves what: nothing left after fixing -> the bound alone. Otherwise the exact search, which ends only
when every choice is enumerated or excluded by a bound; CP-SAT confirms it wherever it decides within its
(deterministic) effort, and the result says whether it did. Only when millions of states have not sufficed, as
with options on one straight line, the last turn excludes what is better by less than 1e-9 (relative), and the
result says so too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_dvfs.choice import certificate, meet_in_the_middle, programme
from kernel_dvfs.choice.integer_grid import Grid, grid_of
from kernel_dvfs.choice.problem import TOLERANCE, Problem
from kernel_dvfs.choice.relaxation import Relaxation, lower_bound, relax
from kernel_dvfs.choice.undecided import Core, core_of

# states of run, beam of meet, and how many partial choices meet may make (its time, as states are run's)
TURNS = (
    (20_000, 2_000, 1_000_000),
    (100_000, 16_000, 2_000_000),
    (400_000, 32_000, 4_000_000),
    (3_200_000, 64_000, 20_000_000),
)
LEAST_BEAM = 200
EFFORT = 0.01  # deterministic seconds for CP-SAT, so that 46 targets stay within 50 ms in all
TOO_HARD = 20_000  # states of the search above which CP-SAT rarely decides within that


@dataclass(frozen=True, eq=False)
class Optimum:
    """option: (K,) flat indices into the problem. bound: LP lower bound, in the problem's units. proof: text.

    core_targets, core_options, states: what reduced costs left open, and the size of the search.
    by: what ended it, "bound", "search" or "gap". confirmed: True/False by CP-SAT, None if it was not asked.
    """

    option: np.ndarray
    bound: float
    proof: str
    core_targets: int
    core_options: int
    states: int
    by: str
    confirmed: bool | None


def least_energy(problem: Problem, limit: float, effort: float | None = None) -> Optimum | None:
    """Least energy (then least time) with total time <= limit * (1 + 1e-9); None if there is none.

    effort: deterministic seconds for CP-SAT as witness, 0 = do not ask it; default: EFFORT where it has a
    chance.
    """
    grid = grid_of(problem, limit)
    if grid is None:
        return None
    relaxation = relax(grid)
    choice = meet_in_the_middle.swap(grid, relaxation, relaxation.choice)
    choice, states, by = _search(grid, relaxation, choice)
    energy = float(grid.e[choice].sum())
    core = core_of(grid, relaxation, energy)
    if not core.groups:
        by = "bound"
    if effort is None:
        scale = max(1.0, len(problem.targets) / 100)  # large problems may take longer
        effort = EFFORT * scale if states <= TOO_HARD * scale else 0
    ask = effort > 0 and by == "search"
    confirmed = certificate.no_better(core, energy, effort) if ask else None
    option = grid.option[choice]
    tight = relaxation.bound * grid.energy_unit
    return Optimum(
        option=option,
        bound=lower_bound(problem, limit, relaxation.price * grid.energy_unit / grid.time_unit),
        proof=_proof(problem, option, tight, core, states, by, confirmed),
        core_targets=len(core.groups),
        core_options=core.options,
        states=states,
        by=by,
        confirmed=confirmed,
    )


def _search(grid: Grid, relaxation: Relaxation, choice: np.ndarray) -> tuple[np.ndarray, int, str]:
    """The best choice (positions), the states looked at, and what ended the search: "search" or "gap"."""
    bound, margin = relaxation.bound, relaxation.margin
    total = 0

    def known() -> tuple[float, float]:
        return float(grid.e[choice].sum()), float(grid.t[choice].sum())

    def ends(search: programme.Search) -> bool:
        nonlocal choice, total
        total += search.states
        if search.picks is not None:
            choice = core.choice(search.picks, grid.target)
        return search.complete

    core = core_of(grid, relaxation, known()[0])
    for states, beam, most in TURNS:
        if known()[0] - bound < 0.8 * core.gap:
            core = core_of(grid, relaxation, known()[0])
        if not core.groups:
            return core.fastest, total, "search"
        if ends(programme.run(core, *known(), bound, margin, states)):
            return choice, total, "search"
        # with many options the lists are long and cut early: slow, and no proof
        beam = min(beam, most // core.options)
        if beam >= LEAST_BEAM and ends(meet_in_the_middle.meet(core, *known(), bound, margin, beam)):
            return choice, total, "search"
    ends(programme.run(core, *known(), bound, margin, float("inf"), TOLERANCE))
    return choice, total, "gap"


def _proof(
    problem: Problem,
    option: np.ndarray,
    bound: float,
    core: Core,
    states: int,
    by: str,
    confirmed: bool | None,
) -> str:
    """One sentence on what proves the choice, and within what."""
    energy = float(problem.energy[option].sum())
    below = 100 * max(0.0, 1 - bound / energy)
    parts = [f"LP bound {bound:.9g} over the options that fit, {below:.3g} % below the choice"]
    if by == "bound":
        parts.append("reduced costs exclude every other option of every target: the bound itself is the proof")
    else:
        parts.append(
            f"reduced costs leave {core.options} options of {len(core.groups)} of {len(problem.targets)} targets"
        )
        parts.append(
            f"exact search of {states} states "
            + ("found none better" if by == "search" else f"found none better by more than {TOLERANCE:g} (relative)")
        )
        if confirmed:
            parts.append(f"{certificate.solver_name()}: a choice with less energy is INFEASIBLE")
        else:
            parts.append(
                "OR-Tools CP-SAT "
                + ("was not asked" if confirmed is None else "did not decide within its effort")
                + ", the search is the proof"
            )
    parts.append("integer grid with rounding below 3e-11 of the totals, time limit kept within 1e-9")
    return "; ".join(parts)
