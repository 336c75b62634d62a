"""Claims on ways of choosing (section 6): local or global, waste or EDP, pass or kernel, and slack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernel_dvfs.choice.frontier import frontier, largest_time_saving_percent
from kernel_dvfs.report.claims import evidence
from kernel_dvfs.report.claims.claim import Finding, NotTestable, change, claim, pair, percent
from kernel_dvfs.report.results import Results

# A difference of a point of energy is visible above what repeats scatter by; half a point is not.
MATTERS_PP = 1.0
NEGLIGIBLE_PP = 0.5
# "Almost the whole budget": a twentieth of it may stay unused, and of no budget as much as an iteration
# scatters by.
UNUSED_SHARE = 0.05
UNUSED_PP = 0.25
# Diminishing: the last tenth of the slacks earns less than half of what the first tenth does.
TENTH, HALF = 0.1, 0.5
# "A large slowdown": beyond a tenth, which no deadline overlooks.
LARGE_SLOWDOWN_PERCENT = 10.0
# "Little": a tenth of the largest slack studied (30 %).
LITTLE_TIME_PERCENT = 3.0
# A plateau: successive slacks of half a percent that each earn less than a fifth of what they earn on
# average, on the way to 95 % of all that the slacks can earn (beyond, every curve is flat).
SLACKS_PERCENT = [0.5 * step for step in range(61)]
FLAT_SHARE = 0.2
NEARLY_ALL = 0.95
# "Far more": at least twice, and by a visible difference.
FAR_MORE = 2.0


def _describe(schedule: dict) -> str:
    return change(schedule["time_change_percent"], schedule["energy_change_percent"])


@claim(13, "Global is never worse than local; with waste the difference matters, with EDP it is negligible", "6")
def global_against_local(results: Results) -> Finding:
    local, all_in = (evidence.strategy(results, "kernel", scope, "waste") for scope in ("local", "global"))
    gain = local["energy_change_percent"] - all_in["energy_change_percent"]
    edp = [evidence.strategy(results, "kernel", scope, "edp")["edp_change_percent"] for scope in ("local", "global")]
    edp_gain = edp[0] - edp[1]
    never_worse = min(gain, edp_gain) >= -1e-6  # what rounding may turn round
    return Finding(
        f"waste: local {_describe(local)}, global {_describe(all_in)}: {gain:.1f} points; EDP: local"
        f" {percent(edp[0])}, global {percent(edp[1])}: {edp_gain:.2f} points",
        bool(never_worse and gain >= MATTERS_PP and edp_gain <= NEGLIGIBLE_PP),
        f"in Table 2 (strategies) the local limit leaves {-local['time_change_percent']:.1f} % of the time"
        " unused, which only the global choice can spend on other kernels; EDP has no limit to share",
    )


@claim(14, "Global uses almost the whole time budget", "6")
def global_uses_budget(results: Results) -> Finding:
    rows = evidence.table(results, "relaxed").dropna()
    # past the least energy more time buys nothing
    useful = evidence.strategy(results, "kernel", "global", "energy")["time_change_percent"]
    rows = rows[(rows.scope == "global") & (rows.slack_percent >= 0) & (rows.slack_percent <= useful)]
    if rows.empty:
        raise NotTestable("table relaxed has no global row with a slack below that of the least energy; add slacks")
    left = rows.slack_percent - rows.time_change_percent
    worst = rows.loc[left.idxmax()]
    holds = bool((left <= (UNUSED_SHARE * rows.slack_percent).clip(lower=UNUSED_PP)).all())
    return Finding(
        f"at {len(rows)} slacks from {rows.slack_percent.min():g} to {rows.slack_percent.max():g} % at most"
        f" {left.max():.2f} points of time stay unused (at {worst.slack_percent:g} %), in the median"
        f" {left.median():.3f}",
        holds,
        "in table relaxed (Fig. 6) the kernels together have so many totals that one lies just below nearly any limit"
        if holds
        else "in table relaxed (Fig. 6) a few kernels with wide gaps between their pairs leave gaps between the totals",
    )


@claim(15, "Diminishing returns with slack; the least energy costs a large slowdown", "6")
def diminishing_returns(results: Results) -> Finding:
    rows = evidence.table(results, "relaxed").dropna()
    rows = rows[(rows.scope == "global") & (rows.slack_percent >= 0)].sort_values("slack_percent")
    if len(rows) < 3:
        raise NotTestable("table relaxed has fewer than three global slacks; add slacks")
    least = evidence.strategy(results, "kernel", "global", "energy")
    slack, saved = rows.slack_percent.to_numpy(), -rows.energy_change_percent.to_numpy()
    tenth = TENTH * (slack[-1] - slack[0])
    at = np.interp([slack[0] + tenth, slack[-1] - tenth], slack, saved)
    first, last = (at[0] - saved[0]) / tenth, (saved[-1] - at[1]) / tenth
    return Finding(
        f"a percent of slack saves {first:.2f} points of energy at first, {last:.2f} near {slack[-1]:g} %;"
        f" least energy: {_describe(least)}",
        bool(last < HALF * first and least["time_change_percent"] >= LARGE_SLOWDOWN_PERCENT),
        f"in table relaxed (Fig. 6) the cheapest savings go first, and {percent(-saved[-1])} is already"
        f" reached at {slack[-1]:g} % of slack; the least energy is that of Table 2 (strategies)",
    )


@claim(16, "Little time can be gained by any choice", "6")
def little_time(results: Results) -> Finding:
    problem = evidence.problem(results)
    gain = largest_time_saving_percent(problem)
    auto = problem.time[problem.baseline]
    saved = auto - np.minimum.reduceat(problem.time, problem.first)
    top = int(np.argmax(saved))
    own = np.flatnonzero(problem.target == top)
    fastest = own[np.argmin(problem.time[own])]
    clocks = dict(zip(problem.settings, problem.keys[problem.key[fastest]]))
    first = problem.members[top][0]
    ran = _ran(results, first, clocks)
    return Finding(
        f"every kernel at its fastest: time {percent(-gain)}",
        bool(gain <= LITTLE_TIME_PERCENT),
        f"in the profile half of the kernels can gain no more than {100 * np.median(saved / auto):.1f} % of"
        f" their own time, part of it the luck of the fastest of {np.bincount(problem.target).max()} points;"
        f" most is gained in {evidence.labels(results).get(first, first)},"
        f" {100 * saved[top] / auto[top]:.1f} %{ran}",
    )


def _ran(results: Results, target: str, clocks: dict) -> str:
    """At which pair, and by which clocks, as the end of a sentence."""
    rows = evidence.points(results, "kernel")
    rows = rows[rows.target == target]
    for name, value in clocks.items():
        rows = rows[rows[name].isna() if value is None else rows[name] == value]
    row = rows.iloc[0]
    return f" at {pair(row.core_mhz, row.mem_mhz)}{evidence.power_left(rows)}"


@claim(17, "Local plateaus come from the 210 MHz grid", "6", "210 MHz")
def plateaus_from_grid(results: Results) -> Finding:
    problem = evidence.problem(results)
    core = problem.settings.index("core_mhz")
    clocks = sorted({key[core] for key in problem.keys} - {None})
    if len(clocks) < 4:
        raise NotTestable(
            f"the profile has {len(clocks)} core clocks, too few to leave out every other; widen the grid"
        )
    left_out = set(clocks[-2::-2])  # every other, the highest stays
    stays = np.array([key[core] not in left_out for key in problem.keys])[problem.key] | problem.is_baseline
    coarse = problem.subset(np.flatnonzero(stays))
    local, local_coarse, all_in = (
        longest_plateau([-(each.energy_change_percent or 0) for each in frontier(of, SLACKS_PERCENT, scope)])
        for of, scope in ((problem, "local"), (coarse, "local"), (problem, "global"))
    )
    step = float(np.median(np.diff(clocks)))
    return Finding(
        f"longest plateau: local {local:g} % of slack, local with every other core clock left out"
        f" {local_coarse:g} %, global {all_in:g} %",
        bool(local > all_in and local_coarse > local),
        f"chosen again from the profile (core clocks {step:g} MHz apart) and from a half of its core clocks:"
        " a kernel by itself can spend slack only once it covers a whole step of the grid",
    )


def longest_plateau(saved: Sequence[float]) -> float:
    """Percent of slack over which the savings at SLACKS_PERCENT (points of energy) hardly rise."""
    energy = np.asarray(saved)
    rise = np.diff(energy)
    on_the_way = energy[:-1] < energy[0] + NEARLY_ALL * (energy[-1] - energy[0])
    if not on_the_way.any():
        return 0.0
    flat = rise < FLAT_SHARE * NEARLY_ALL * (energy[-1] - energy[0]) / on_the_way.sum()
    longest = run = 0
    for each in flat[on_the_way]:
        run = run + 1 if each else 0
        longest = max(longest, run)
    return longest * SLACKS_PERCENT[1]


@claim(18, "EDP saves more energy than waste, but loses time, at both levels", "6")
def edp_trades_time(results: Results) -> Finding:
    parts, holds = [], True
    for level in evidence.levels(results):
        waste, edp = (evidence.strategy(results, level, "global", objective) for objective in ("waste", "edp"))
        holds &= edp["energy_change_percent"] < waste["energy_change_percent"] and edp["time_change_percent"] > 0
        parts.append(f"{level}: EDP {_describe(edp)}, waste {_describe(waste)}")
    missing = "; no pass was measured" if len(parts) == 1 else ""
    return Finding(
        "; ".join(parts) + missing,
        holds,
        "in Table 2 (strategies, global) EDP may pay for energy with time as long as the product falls, waste may not"
        if holds
        else "in Table 2 (strategies, global) the least product of time and energy lies where time falls too,"
        " so EDP does not trade it for energy",
    )


@claim(19, "Fine clocks save far more than coarse ones", "6")
def fine_against_coarse(results: Results) -> Finding:
    fine = evidence.strategy(results, "kernel", "global", "waste")
    if "pass" in evidence.levels(results):
        coarse, name = evidence.strategy(results, "pass", "global", "waste"), "a pair per pass"
    else:
        coarse, name = evidence.strategy(results, "kernel", "single", "waste"), "one pair for all kernels"
    saved, saved_coarse = -fine["energy_change_percent"], -coarse["energy_change_percent"]
    return Finding(
        f"strict: a pair per kernel {_describe(fine)}, {name} {_describe(coarse)}: {saved - saved_coarse:.1f} points",
        saved >= FAR_MORE * saved_coarse and saved - saved_coarse >= MATTERS_PP,
        "in Table 2 (strategies) one pair must suit kernels that need the core and kernels that need the"
        " memory, a pair per kernel suits each",
    )


CLAIMS = (
    global_against_local,
    global_uses_budget,
    diminishing_returns,
    little_time,
    plateaus_from_grid,
    edp_trades_time,
    fine_against_coarse,
)
