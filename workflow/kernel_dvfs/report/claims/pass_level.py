"""Claims on clocks per pass (the paper's section 5): what each pair does to forward and backward."""

from __future__ import annotations

from typing import Any

from kernel_dvfs.layout import PASS_STRICT
from kernel_dvfs.report.claims import evidence
from kernel_dvfs.report.claims.claim import Finding, NotTestable, change, claim, count, pair, percent, span
from kernel_dvfs.report.results import Results

# The paper counts six pairs in the forward pass's square; pairs on its edge come and go with the scatter.
PAIRS_IN_SQUARE = 6
EDGE_PAIRS = 2
# "Small": not more than half as much again as the 2 % that the paper's best pass-level choice saves.
SMALL_GAIN_PERCENT = 3.0
# "Similar": the gains differ by less than a small gain itself.
SIMILAR_PP = 2.0
# "A small delay": a slowdown limit as users of tools with one set it (EAR: 5 %).
SMALL_DELAY_PERCENT = 5.0
LOWEST_MEMORY_MHZ = (405, 810)
FOLD = {"mem_mhz": 405, "above_core_mhz": 420, "becomes_mhz": 810}


@claim(
    2,
    "Six clock pairs fall into the forward pass's waste square, all with similar small gains",
    "5",
    "6 pairs; gains not known",
)
def square(results: Results) -> Finding:
    rows = evidence.one_pass(results, "forward")
    inside = rows[~rows.is_baseline & (rows.time_change <= 0) & (rows.energy_change < 0)]
    if inside.empty:
        return Finding("no pair", False, "in the profile (Fig. 3) every pair loses time or energy against auto")
    gains = -inside.energy_change
    twins = int(inside.like_auto.sum())
    if twins == len(inside):
        why = (
            "in the profile (Fig. 3) each of them ran at the clocks that auto itself runs at, so the square"
            " holds the scatter around auto and no truly lower clock"
        )
    else:
        why = f"in the profile (Fig. 3) {twins} of them ran at auto's own clocks, the others did not"
    return Finding(
        f"{count(len(inside), 'pair')}, energy {span(-gains)}",
        abs(len(inside) - PAIRS_IN_SQUARE) <= EDGE_PAIRS
        and gains.max() <= SMALL_GAIN_PERCENT
        and gains.max() - gains.min() <= SIMILAR_PP,
        why,
    )


@claim(3, "In the backward pass every lower clock loses time, so strict keeps auto", "5")
def backward_keeps_auto(results: Results) -> Finding:
    rows = evidence.one_pass(results, "backward")
    lower = rows[rows.lower_core | rows.lower_mem]
    if lower.empty:
        raise NotTestable("no pair of the backward pass ran at a lower clock than auto; widen the grid")
    first = lower.loc[lower.time_change.idxmin()]
    strict = evidence.chosen(results, PASS_STRICT, "pass").loc[["backward"]]
    taken = strict.iloc[0]
    keeps = not (taken.lower_core or taken.lower_mem)
    name = pair(taken.core_mhz, taken.mem_mhz)
    ours = (
        f"{count(len(lower), 'pair')} with a lower clock, time {percent(first.time_change)} or more"
        f" ({pair(first.core_mhz, first.mem_mhz)} the fastest); strict takes {name}"
    )
    if taken.is_baseline:
        why = f"the schedule {PASS_STRICT} keeps auto"
    elif keeps:
        why = (
            f"{name}, which the schedule {PASS_STRICT} takes, ran at"
            f" {taken.core:.0f}/{taken.mem:.0f} MHz, auto itself at"
            f" {taken.auto_core:.0f}/{taken.auto_mem:.0f}: auto by another name, picked for its lucky scatter"
        )
    else:
        why = (
            f"the schedule {PASS_STRICT} takes {taken.core:.0f}/{taken.mem:.0f} MHz against auto's"
            f" {taken.auto_core:.0f}/{taken.auto_mem:.0f}{evidence.power_left(strict)}"
        )
    return Finding(ours, bool(first.time_change > 0 and keeps), why)


@claim(4, "Some backward pairs save energy at a small delay: relaxed is wiser there", "5")
def relaxed_is_wiser(results: Results) -> Finding:
    rows = evidence.one_pass(results, "backward")
    # a pair that runs at auto's own clocks differs from it by scatter only
    lower = rows[rows.lower_core | rows.lower_mem]
    saving = lower[(lower.time_change > 0) & (lower.energy_change <= -evidence.VISIBLE_PERCENT)]
    if saving.empty:
        return Finding("no such pair", False, "in the profile (Fig. 4) no slower pair saves a visible amount of energy")
    small = saving[saving.time_change <= SMALL_DELAY_PERCENT]
    shown = small.loc[small.energy_change.idxmin()] if len(small) else saving.loc[saving.time_change.idxmin()]
    step = saving.loc[(saving.energy_change / saving.time_change).idxmin()]
    ours = (
        f"{count(len(small), 'pair')} within a delay of {SMALL_DELAY_PERCENT:g} %;"
        f" {'best' if len(small) else 'first'}: {_describe(shown)}; most energy per time: {_describe(step)}"
    )
    why = (
        f"in the profile (Fig. 4) {pair(step.core_mhz, step.mem_mhz)} ran at {step.core:.0f}/{step.mem:.0f}"
        f" MHz, auto at {step.auto_core:.0f}/{step.auto_mem:.0f}"
    )
    if step.lower_core:
        drop = percent(100 * (step.core / step.auto_core - 1), 0)
        why += f": most energy per time needs {drop} of core clock, which the pass's time follows"
    elif step.lower_mem:
        why += ": what it saves is memory clock, and the pass waits for memory meanwhile"
    return Finding(ours, bool(len(small)), why)


def _describe(row: Any) -> str:
    return f"{pair(row.core_mhz, row.mem_mhz)}, {change(row.time_change, row.energy_change)}"


@claim(
    5,
    "Memory 405 MHz exists only with core <= 420 MHz; above it becomes 810 MHz",
    "5",
    "405 MHz only with core <= 420 MHz",
)
def lowest_memory_folds(results: Results) -> Finding:
    if FOLD["mem_mhz"] not in evidence.memory_clocks(results):
        raise NotTestable(f"this GPU was not measured at memory {FOLD['mem_mhz']} MHz; use one that has it")
    if results.profile.reached_mem_mhz.isna().all():
        raise NotTestable("the table does not tell the memory clock that ran, only the one asked for; record it")
    fold = evidence.simulated_spec(results, "the rule that folds clocks")["clocks"].get("fold")
    asked = results.profile[lambda rows: rows.mem_mhz == FOLD["mem_mhz"]]
    above = asked[asked.core_mhz.isna() | (asked.core_mhz > FOLD["above_core_mhz"])]
    below = asked.drop(above.index)
    kept = bool((below.reached_mem_mhz == FOLD["mem_mhz"]).all())
    folded = bool((above.reached_mem_mhz == FOLD["becomes_mhz"]).all()) and fold == FOLD
    said = (
        f"the GPU's spec folds {fold['mem_mhz']} to {fold['becomes_mhz']} MHz above core {fold['above_core_mhz']} MHz"
        if fold
        else "the GPU's spec folds nothing"
    )
    return Finding(
        f"{said}; {count(len(below), 'point')} at core <= {FOLD['above_core_mhz']} MHz, at {FOLD['mem_mhz']}"
        f" MHz: {'all' if kept else 'not all'}; {count(len(above), 'point')} above",
        kept and folded,
        "built in, not found: the rule in the simulated GPU's spec is the paper's own statement, by which the"
        " pairs of omitted_pairs were left out of the sweep"
        if folded
        else "the points of the profile and the spec's rule do not agree with the paper's",
    )


@claim(6, "Memory 405 and 810 MHz are never best at pass level, in time, energy, waste or EDP", "5", "never")
def lowest_memory_never_best(results: Results) -> Finding:
    found = evidence.passes(results)
    have = [mhz for mhz in LOWEST_MEMORY_MHZ if mhz in evidence.memory_clocks(results)]
    if not have:
        raise NotTestable("this GPU was measured at neither memory 405 nor 810 MHz; use one that has them")
    strict = evidence.chosen(results, PASS_STRICT, "pass")
    best, lowest = {}, []
    for name, rows in found.items():
        scores = {"time": rows.time_s, "energy": rows.energy_j, "EDP": rows.time_s * rows.energy_j}
        for score, values in scores.items():
            best[name, score] = rows.loc[values.idxmin()]
        best[name, "waste"] = strict.loc[name]
        low = rows[rows.mem_mhz.isin(have)]
        lowest.append((name, low.loc[low.energy_j.idxmin()]))
    losers = [f"{score} of {name}" for (name, score), row in best.items() if row.mem_mhz in LOWEST_MEMORY_MHZ]
    ours = "; ".join(
        f"{name}: "
        + ", ".join(f"{score} {pair(row.core_mhz, row.mem_mhz)}" for (of, score), row in best.items() if of == name)
        for name in found
    )
    name, low = min(lowest, key=lambda each: each[1].energy_change)
    return Finding(
        f"best {ours}",
        not losers,
        f"in the profile the best that they do is {change(low.time_change, low.energy_change)} ({name},"
        f" {pair(low.core_mhz, low.mem_mhz)}): the pass waits for memory while the rest of the board burns on"
        if not losers
        else f"in the profile they are best in {', '.join(losers)}",
    )


@claim(7, "At pass level lower memory clocks are dominated", "5")
def lower_memory_dominated(results: Results) -> Finding:
    found = evidence.passes(results)
    undominated: dict[str, list] = {}
    for name, rows in found.items():
        lower, full = rows[rows.lower_mem], rows[~rows.lower_mem]
        if lower.empty:
            raise NotTestable("no pass was measured at a lower memory clock than auto's; widen the grid")
        for _, row in lower.iterrows():
            rivals = full[full.time_s <= row.time_s]
            # dominated unless it saves visibly more than every pair that is as fast
            lead = rivals.energy_change.min() - row.energy_change if len(rivals) else float("inf")
            if lead > evidence.VISIBLE_PERCENT:
                undominated.setdefault(name, []).append((row, lead))
    if not undominated:
        return Finding(
            f"no pair at a lower memory clock in {', '.join(found)} beats those at full memory clock",
            True,
            "in the profile (Fig. 3, 4) each has a pair at full memory clock that is as fast and uses no more energy",
        )
    parts = []
    for name, leads in undominated.items():
        row, lead = min(leads, key=lambda each: each[0].energy_change)
        parts.append(
            f"{name}: {count(len(leads), 'pair')} not dominated, best {_describe(row)}, {lead:.1f} points of"
            " energy below any pair at full memory clock that is as fast"
        )
    return Finding(
        "; ".join(parts),
        False,
        "in the profile (Fig. 3, 4) the lower memory clock, at the same core clock, changes time by"
        f" {_same_core(found, undominated)} only, and always saves power{_holding(results)}",
    )


def _same_core(found: dict, undominated: dict) -> str:
    """Change of time by the memory clock alone, for the best undominated pair of each pass."""
    changes = []
    for name, leads in undominated.items():
        row, _ = min(leads, key=lambda each: each[0].energy_change)
        full = found[name][~found[name].lower_mem]
        same = full[(full.core_mhz == row.core_mhz) | (full.core_mhz.isna() & (row.core_mhz != row.core_mhz))]
        changes += [100 * (row.time_s / same.time_s.median() - 1)] if len(same) else []
    return span(changes) if changes else "an unknown amount"


def _holding(results: Results) -> str:
    """What the memory clocks cost while nothing is read, from the spec of a simulated GPU."""
    try:
        static = evidence.simulated_spec(results, "static power")["memory"]["static_w"]
    except NotTestable:
        return ""
    held = sorted((int(mhz), watt) for mhz, watt in static.items())
    return " (static power of the board in the spec: " + ", ".join(f"{w:g} W at {mhz} MHz" for mhz, w in held) + ")"


CLAIMS = (
    square,
    backward_keeps_auto,
    relaxed_is_wiser,
    lowest_memory_folds,
    lowest_memory_never_best,
    lower_memory_dominated,
)
