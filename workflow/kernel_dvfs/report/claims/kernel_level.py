"""Claims on kernels (the paper's sections 2, 5, 6 and 9, its Table 1): which clocks they take, how power rises with the
clock, and what changing clocks between them costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_dvfs.gpu.model import relative_voltage
from kernel_dvfs.report import remeasured
from kernel_dvfs.report.claims import evidence
from kernel_dvfs.report.claims.claim import Finding, NotTestable, change, claim, count, mhz, percent, span
from kernel_dvfs.report.results import Results
from kernel_dvfs.workload.passes import launch_order as workload_order

# A kernel's change of time is real beyond this: two points of one pair scatter by 0.3 % of campaign offset
# each.
BEYOND_SCATTER_PERCENT = 0.5
# "Differ strongly": clocks that are further apart than one step of the paper's grid among all kernels.
STRONGLY_MHZ = 210
# "Prefer": four kernels in five of those that lower a clock at all.
MOST_SHARE = 0.8
# Power bends upwards where its slope in the upper half of the clocks exceeds that of the lower half by this.
STEEPER = 1.1
# Nearly all: scatter may hide the bend of a few targets.
NEARLY_ALL = 0.9
# Latency worsens the potential once a tenth of the time runs at clocks that were chosen for another kernel.
WRONG_CLOCKS_SHARE = 0.1


# --- clocks of Table 1 ------------------------------------------------------------------------------------------------


@claim(
    10,
    "Best clocks differ strongly between kernels, even between GEMMs; some save energy and time",
    "6",
)
def clocks_differ(results: Results) -> Finding:
    rows = evidence.strict(results)
    gemm = rows[rows.kind == "gemm"]
    both, of = _save_both(results, rows)
    ours = [_spread("all kernels", rows)]
    differ = _differ(rows)
    if len(gemm):
        ours.append(_spread("GEMMs", gemm))
        differ &= _differ(gemm)
    else:
        ours.append("which of them are GEMMs is not known")
    ours.append(f"{count(len(both), 'kernel')} save energy and time ({of})")
    why = "in Table 1 (kernel_clocks), by the clocks that ran (profile), "
    if len(both):
        why += f"those that save both change time by {span(both.time_change)}"
        if both.lower_mem.any():
            why += f", {both.lower_mem.sum()} at a lower memory clock{evidence.power_left(both)}"
    else:
        why += "auto is already as fast as any pair that saves energy"
    return Finding("; ".join(ours), bool(differ and len(both)), why)


def _spread(name: str, rows: pd.DataFrame) -> str:
    clocks = {(round(row.core), row.mem if row.mem == row.mem else 0) for row in rows.itertuples()}
    return f"{name}: {count(len(clocks), 'pair')} that ran, core {mhz(rows.core)}"


def _differ(rows: pd.DataFrame) -> bool:
    return rows.core.max() - rows.core.min() > STRONGLY_MHZ or (
        rows.lower_mem.nunique() > 1 and rows.core.nunique() > 1
    )


def _save_both(results: Results, rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Kernels of the strict choice that save energy and time beyond scatter, and by which data."""
    try:
        validated = remeasured.kernel_changes(evidence.validation(results))
    except NotTestable:
        return rows[(rows.time_change < -BEYOND_SCATTER_PERCENT) & (rows.energy_change < 0)], "claimed"
    names = [
        name
        for name, (time, energy) in validated.items()
        if time.mean < -BEYOND_SCATTER_PERCENT and time.high < 0 and energy.high < 0
    ]
    both = rows.loc[[name for name in rows.index if name in names]].copy()
    both["time_change"] = [validated[name][0].mean for name in both.index]
    return both, "validated"


@claim(11, "Kernels prefer a lower memory clock or a lower core clock, not both", "6")
def one_or_the_other(results: Results) -> Finding:
    rows = evidence.strict(results)
    if not rows.lower_mem.any() and len(evidence.memory_clocks(results)) < 2:
        raise NotTestable("this GPU was measured at one memory clock only; measure more")
    time = rows.launches_per_iteration * rows.auto_time_s
    kinds = {
        "lower memory only": rows.lower_mem & ~rows.lower_core,
        "lower core only": rows.lower_core & ~rows.lower_mem,
        "both": rows.lower_core & rows.lower_mem,
        "neither": ~rows.lower_core & ~rows.lower_mem,
    }
    parts = [f"{name}: {member.sum()}" for name, member in kinds.items()]
    both = kinds["both"]
    names = evidence.labels(results)
    why = "in Table 1 (kernel_clocks) against the clocks that auto ran at"
    if both.any():
        shown = ", ".join(
            f"{names.get(name, name)} {row.core:.0f}/{row.mem:.0f} MHz" for name, row in rows[both].head(6).iterrows()
        )
        why += (
            f", both are lower for {shown}{' and others' if both.sum() > 6 else ''}"
            f" ({100 * time[both].sum() / time.sum():.1f} % of auto's time)"
        )
    else:
        why += ", a kernel bound by the core gives up memory clock, one bound by memory gives up core clock"
    one = (kinds["lower memory only"] | kinds["lower core only"]).sum()
    any_ = len(rows) - kinds["neither"].sum()
    return Finding(f"{', '.join(parts)} of {len(rows)} kernels", bool(any_ and one >= MOST_SHARE * any_), why)


@claim(12, "Table 1 holds pairs that lose time, since the choice is global", "6")
def some_lose_time(results: Results) -> Finding:
    rows = evidence.strict(results)
    slower = rows[rows.time_change > BEYOND_SCATTER_PERCENT]
    total = evidence.schedule(results, evidence.STRICT)
    names = evidence.labels(results)
    if slower.empty:
        ours = "no kernel loses time"
        why = "in Table 1 (kernel_clocks) no kernel pays with time for another's gain"
    else:
        most = slower.loc[slower.time_change.idxmax()]
        ours = (
            f"{len(slower)} of {len(rows)} kernels lose time, {span(slower.time_change)}; all together:"
            f" {change(total['time_change_percent'], total['energy_change_percent'])}"
        )
        why = (
            f"in Table 1 (kernel_clocks) the most is lost by {names.get(most.name, most.name)}"
            f" ({change(most.time_change, most.energy_change)}); {int((rows.time_change < 0).sum())} kernels"
            f" that gain time ({percent(float(rows.time_change.min()))} at best) pay for it, which only a"
            " global limit allows"
        )
    return Finding(ours, len(slower) > 0, why)


# --- power against clock ----------------------------------------------------------------------------------------------


@claim(29, "Power rises more than linearly in the clock, so the highest clocks are the least efficient", "2, 5")
def power_bends(results: Results) -> Finding:
    curves = {name: curve for name, curve in _full_load(results) if len(curve) >= 4}
    if not curves:
        raise NotTestable("no target has four core clocks at the memory clock that auto uses; widen the grid")
    steeper = {name: _bend(curve) for name, curve in curves.items()}
    above = {name: 100 * (curve.energy_j.iloc[-1] / curve.energy_j.min() - 1) for name, curve in curves.items()}
    best = {name: curve.energy_j.idxmin() for name, curve in curves.items()}
    lowest = [100 * (curve.energy_j.iloc[0] / curve.energy_j.min() - 1) for curve in curves.values()]
    bends = np.mean([value > STEEPER for value in steeper.values()])
    wasteful = np.mean([value > evidence.VISIBLE_PERCENT for value in above.values()])
    top = [curve.index[-1] for curve in curves.values()]
    what = "targets at full load (GEMMs and passes)" if len(evidence.kinds(results)) else "kernels"
    why = f"by the power in the profile at the memory clock that auto uses{_voltage(results, max(top))}"
    if np.median(lowest) > evidence.VISIBLE_PERCENT:
        why += (
            f"; the lowest clock ({mhz([curve.index[0] for curve in curves.values()])}) costs"
            f" {np.median(lowest):.0f} % more than the best as well, by static power over a longer time"
        )
    return Finding(
        f"{len(curves)} {what}: slope of power over the upper half of the clocks"
        f" {np.median(list(steeper.values())):.1f} times that of the lower half (median), steeper for"
        f" {100 * bends:.0f} %; the highest clock ({mhz(top)}) costs {np.median(list(above.values())):.0f} %"
        f" more energy than the best ({mhz(best.values())}) in the median, visibly more for"
        f" {100 * wasteful:.0f} %",
        bool(bends >= NEARLY_ALL and wasteful >= NEARLY_ALL),
        why,
    )


def _voltage(results: Results, core_mhz: float) -> str:
    """How far the voltage has risen at a clock, from the spec of a simulated GPU."""
    try:
        core = evidence.simulated_spec(results, "the voltage")["core"]
    except NotTestable:
        return ""
    risen = relative_voltage(core, core_mhz)
    return f", where the voltage at {core_mhz:.0f} MHz is {risen:.2f} times its lowest (spec)"


def _full_load(results: Results) -> Iterator[tuple[str, pd.DataFrame]]:
    """(target, time and energy by the core clock that ran, MHz) of GEMMs and passes; of a table, all."""
    kinds = evidence.kinds(results)
    for study in ("kernel", "pass"):
        rows = evidence.points(results, study)
        if study == "kernel" and len(kinds):
            rows = rows[rows.target.map(kinds) == "gemm"]
        auto = rows[rows.is_baseline].set_index("target")
        extra = evidence.settings(results)[2:]
        for name, own in rows[rows.core_mhz.notna()].groupby("target", sort=False):
            own = own[(own.mem == own.auto_mem) | own.mem.isna()]
            for column in extra:  # such as a power cap: as in the baseline
                own = own[own[column] == auto[column][name]]
            curve = own.groupby(own.core.round())[["time_s", "energy_j"]].mean().sort_index()
            yield name, curve


def _bend(curve: pd.DataFrame) -> float:
    """Slope of power in the upper half of the clocks over that in the lower half."""
    power = curve.energy_j / curve.time_s
    low, high = curve.index[0], curve.index[-1]
    middle = curve.index[1:-1][np.abs(curve.index[1:-1] - (low + high) / 2).argmin()]
    lower = (power[middle] - power[low]) / (middle - low)
    upper = (power[high] - power[middle]) / (high - middle)
    return float(upper / lower) if lower > 0 else float("inf")


# --- latency of clock changes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Latency:
    """What changing clocks costs in an iteration, walked in the order of its launches."""

    launches: int
    changes: int  # of the clocks that run
    core_changes: int
    mem_changes: int
    waiting_s: float  # sum of the median latencies
    own_s: float  # time that launches spend at their own clocks
    total_s: float
    shorter: int  # kernels that are shorter than the latency of their change
    kernels: int


@claim(28, "Switching latency longer than kernels worsens the potential", "9")
def switching(results: Results) -> Finding:
    spec = evidence.simulated_spec(results, "the latency of a clock change")
    found = latency(results, spec["switching"])
    own = found.own_s / found.total_s
    saved = evidence.schedule(results, evidence.STRICT)["energy_change_percent"]
    core, mem = (1e3 * spec["switching"][domain]["median_s"] for domain in ("core", "mem"))
    return Finding(
        f"{found.changes} clock changes ({found.core_changes} of core, {found.mem_changes} of memory) in"
        f" {found.launches} launches, their median latencies together {found.waiting_s:.1f} s beside an"
        f" iteration of {found.total_s:.1f} s; {found.shorter} of {found.kernels} kernels are shorter than"
        f" the latency of their change; {100 * own:.0f} % of the time runs at its own clocks",
        bool(found.shorter and own < 1 - WRONG_CLOCKS_SHARE),
        f"schedule {evidence.STRICT} in launch order, layer by layer, with the spec's medians ({core:g} ms"
        f" core, {mem:g} ms memory), which are an assumption, not a measurement: the old clocks rule until a"
        f" change is through, so that the {percent(saved)} claimed are those of a GPU that switches at once",
    )


def latency(results: Results, switching: dict) -> Latency:
    """What changing clocks costs in an iteration of the strict schedule, at median latencies.

    A change is asked for as a kernel starts; the clocks before rule until it or the next one is through.
    """
    rows = evidence.strict(results)
    pair = {name: (row.core, row.mem) for name, row in rows.iterrows()}
    order = launch_order(evidence.setup(results).targets)
    median = {domain: switching[domain]["median_s"] for domain in ("core", "mem")}
    changes = {"core": 0, "mem": 0}
    total = waiting = own = 0.0
    switched, pending, shorter = 0, 0.0, set()
    for before, name in zip([order[-1], *order], order):  # iterations follow one another
        time_s = rows.time_s[name]
        changed = [domain for domain, old, new in zip(("core", "mem"), pair[before], pair[name]) if _apart(old, new)]
        if changed:
            pending = max(median[domain] for domain in changed)
            switched += 1
            waiting += pending
            for domain in changed:
                changes[domain] += 1
            if time_s < pending:
                shorter.add(name)
        total += time_s
        own += max(0.0, time_s - pending)
        pending = max(0.0, pending - time_s)
    return Latency(len(order), switched, changes["core"], changes["mem"], waiting, own, total, len(shorter), len(rows))


def _apart(one: float, other: float) -> bool:
    return min(one, other) < (1 - evidence.LOWER_SHARE) * max(one, other)


def launch_order(targets: dict) -> list[str]:
    """Ids of the kernels in the order of their launches: pass by pass, rows of one repeat as whole layers."""
    rank = {name: number for number, name in enumerate(("forward", "loss", "backward"))}
    passes = sorted(targets["pass"].items(), key=lambda each: rank.get(each[0], len(rank)))
    return [name for _, rows in passes for name in workload_order(rows)]


CLAIMS = (clocks_differ, one_or_the_other, some_lose_time, power_bends, switching)
