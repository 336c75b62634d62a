"""Least total energy within a total time: the multiple-choice knapsack of "waste, global", with proof.

    whole numbers without loss         integer_grid.py        rounding below 3e-11 of the totals
    LP relaxation by a price of time   relaxation.py          lower bound, first choice
    best pairs of changes              meet_in_the_middle.py  a better choice, so a small gap
    reduced-cost fixing, dominance     undecided.py           most targets are decided
    exact search of the undecided      programme.py           Pareto dynamic programme with LP-bound pruning, and
                                       meet_in_the_middle.py  meet in the middle, in turns of growing effort
    witness                            certificate.py         OR-Tools CP-SAT: "no choice with less energy exists"

What proves a choice: where fixing leaves nothing undecided, the bound alone. Otherwise the exact search, which ends
only when every choice is enumerated or excluded by a bound; CP-SAT confirms it wherever it decides within its
(deterministic) effort, and the result says whether it did. Only where millions of states have not sufficed, as
with options on one straight line (no reduced cost tells them apart, so there is nothing to prune by), the search stops
as soon as the choice is within GAP of the LP bound. Where it is not, a last turn excludes what is better by more than
1e-9 (relative), and gives up after LAST states. The result holds the gap that is left in either case.

Compute waste, Eq. 2 of the paper (arXiv 2601.08539), follows from it: W(t, e) = e - min {E(c) : T(c) <= t}, the energy
used beyond the least with which any choice, one option per target, is at least as fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_dvfs.choice import certificate, meet_in_the_middle, programme
from kernel_dvfs.choice.integer_grid import IntegerGrid, integer_grid_of
from kernel_dvfs.choice.problem import TOLERANCE, Problem
from kernel_dvfs.choice.relaxation import Relaxation, lower_bound, relax
from kernel_dvfs.choice.undecided import Undecided, undecided_of

# states of programme.run, beam of meet_in_the_middle.meet, and how many partial choices the latter may make (its
# effort, as states are that of run)
TURNS = (
    (20_000, 2_000, 1_000_000),
    (100_000, 16_000, 2_000_000),
    (400_000, 32_000, 4_000_000),
    (3_200_000, 64_000, 20_000_000),
)
LEAST_BEAM = 200
GAP = 1e-7  # of energy to the LP bound, relative, that is near enough once all turns have been spent
LAST = 30_000_000  # states of the last turn, some seconds
EFFORT = 0.01  # deterministic seconds for CP-SAT, so that 46 targets stay within 50 ms in all
TOO_HARD = 20_000  # states of the search above which CP-SAT rarely decides within that


@dataclass(frozen=True, eq=False, slots=True)
class Optimum:
    """The optimum of a global waste problem, and what proves it."""

    option: np.ndarray  # (K,) flat indices into the problem
    bound: float | None  # LP lower bound of the energy, in the problem's unit
    proof: str  # one sentence
    undecided_targets: int  # how many targets reduced costs left undecided
    undecided_options: int  # and how many options these had together
    states: int  # size of the search
    by: str  # what ended the search: "bound", "search" or "gap"
    gap: float  # by how much of its energy a choice might be better still, relative; 0 where nothing is left open
    confirmed: bool | None  # whether CP-SAT confirmed it; None: it was not asked


def least_energy(problem: Problem, limit: float, effort: float | None = None) -> Optimum | None:
    """Return the least energy (then least time) with total time <= limit * (1 + 1e-9); None if there is none.

    effort: deterministic seconds for CP-SAT as witness, 0 = do not ask it; default: EFFORT where it has a
    chance to decide.
    """
    integer_grid = integer_grid_of(problem, limit)
    if integer_grid is None:
        return None
    relaxation = relax(integer_grid)
    choice = meet_in_the_middle.swap(integer_grid, relaxation, relaxation.choice)
    choice, states, by, gap = _search(integer_grid, relaxation, choice)
    energy = float(integer_grid.e[choice].sum())
    undecided = undecided_of(integer_grid, relaxation, energy)
    if not undecided.groups:
        by, gap = "bound", 0.0
    if effort is None:
        scale = max(1.0, len(problem.targets) / 100)  # large problems may take longer
        effort = EFFORT * scale if states <= TOO_HARD * scale else 0
    ask = effort > 0 and by == "search" and certificate.is_there()
    confirmed = certificate.no_better(undecided, energy, effort) if ask else None
    option = integer_grid.option[choice]
    tight = relaxation.bound * integer_grid.energy_unit
    return Optimum(
        option=option,
        bound=lower_bound(problem, limit, relaxation.price * integer_grid.energy_unit / integer_grid.time_unit),
        proof=_proof(problem, option, tight, undecided, states, by, gap, confirmed),
        undecided_targets=len(undecided.groups),
        undecided_options=undecided.options,
        states=states,
        by=by,
        gap=gap,
        confirmed=confirmed,
    )


def compute_waste(problem: Problem, time: float, energy: float) -> float:
    """Return W of a choice with these totals (Eq. 2), in the problem's unit of energy; >= 0 for any of its choices.

    Raises ValueError if no choice at all is as fast.
    """
    best = least_energy(problem, time, effort=0)
    if best is None:
        raise ValueError(f"no choice takes a total time of {time} or less")
    # rounding to whole numbers (3e-11) must not show as negative waste
    return max(0.0, energy - float(problem.energy[best.option].sum()))


def _search(
    integer_grid: IntegerGrid, relaxation: Relaxation, choice: np.ndarray
) -> tuple[np.ndarray, int, str, float]:
    """Return the best choice (positions), the states looked at, what ended the search ("search" or "gap"), and the
    gap."""
    bound, margin = relaxation.bound, relaxation.margin
    total = 0

    def known() -> tuple[float, float]:
        return float(integer_grid.e[choice].sum()), float(integer_grid.t[choice].sum())

    def ends(search: programme.Search) -> bool:
        nonlocal choice, total
        total += search.states
        if search.picks is not None:
            choice = undecided.choice(search.picks, integer_grid.target)
        return search.complete

    undecided = undecided_of(integer_grid, relaxation, known()[0])
    for states, beam, most in TURNS:
        if known()[0] - bound < 0.8 * undecided.gap:
            undecided = undecided_of(integer_grid, relaxation, known()[0])
        if not undecided.groups:
            return undecided.fastest, total, "search", 0.0
        if ends(programme.run(undecided, *known(), bound, margin, states)):
            return choice, total, "search", 0.0
        # with many options the lists are long and cut early, which is slow and proves nothing
        beam = min(beam, most // undecided.options)
        if beam >= LEAST_BEAM and ends(meet_in_the_middle.meet(undecided, *known(), bound, margin, beam)):
            return choice, total, "search", 0.0

    def gap() -> float:
        return max(0.0, 1 - bound / known()[0])

    if gap() > GAP and ends(programme.run(undecided, *known(), bound, margin, LAST, TOLERANCE)):
        return choice, total, "gap", min(gap(), TOLERANCE)
    return choice, total, "gap", gap()


def _proof(
    problem: Problem,
    option: np.ndarray,
    bound: float,
    undecided: Undecided,
    states: int,
    by: str,
    gap: float,
    confirmed: bool | None,
) -> str:
    """Return one sentence on what proves the choice, and within what."""
    energy = float(problem.energy[option].sum())
    below = 100 * max(0.0, 1 - bound / energy)
    parts = [f"LP bound {bound:.9g} over the options that fit, {below:.3g} % below the choice"]
    if by == "bound":
        parts.append("reduced costs exclude every other option of every target: the bound itself is the proof")
    else:
        some, every = len(undecided.groups), len(problem.targets)
        parts.append(f"reduced costs leave {undecided.options} options of {some} of {every} targets")
        parts.append(
            f"exact search of {states} states "
            + ("found none better" if by == "search" else f"stopped: none is better by more than {gap:.1e} (relative)")
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
