"""Claims on the GPU itself: another GPU, clocks taken to it, latency of a clock change, power against clock (2, 5, 9)."""

from collections import namedtuple

import numpy as np
import pandas as pd

from kernel_dvfs.report.claims import evidence
from kernel_dvfs.report.claims.claim import Finding, NotTestable, change, claim, mhz, percent

# The paper's second GPU, by the names of the specs.
FIRST, SECOND = "RTX 3080 Ti", "RTX A4000"
# "The same kind of clock": two kernels in three lower the same domain on both.
SAME_KIND_SHARE = 2 / 3
# Clocks "cannot be applied" where the strict limit breaks by more than an iteration scatters, or a third is lost.
BROKEN_LIMIT_PERCENT = 1.0
LOST_SHARE = 1 / 3
# Latency worsens the potential once a tenth of the time runs at clocks that were chosen for another kernel.
WRONG_CLOCKS_SHARE = 0.1
# Power bends upwards where its slope in the upper half of the clocks exceeds that of the lower half by this.
STEEPER = 1.1
# Nearly all: scatter may hide the bend of a few targets.
NEARLY_ALL = 0.9
# A highest clock is inefficient if it costs this much more than the best one: more than a point scatters.
VISIBLE_PERCENT = 1.0

Latency = namedtuple("Latency", "launches changes core_changes mem_changes waiting_s own_s total_s shorter kernels")
Latency.__doc__ = """An iteration in order of its launches: their number; clock changes, of core, of memory; sum of the
median latencies, s; time at its own clocks, s; time, s; kernels shorter than the latency of their change; kernels."""


@claim(
    26,
    "On an RTX A4000 the same method saves less; kernels prefer the same kind of clock, lowered less",
    "9",
)
def second_gpu(results) -> Finding:
    by_name = {each.gpu["name"]: each for each in evidence.siblings(results)} | {results.gpu["name"]: results}
    if results.gpu["name"] not in (FIRST, SECOND) or not {FIRST, SECOND} <= set(by_name):
        raise NotTestable(f"it needs the same workload on {FIRST} and {SECOND}; run both (config: gpu)")
    first, second = by_name[FIRST], by_name[SECOND]
    saved = {each: evidence.schedule(each, evidence.STRICT)["energy_change_percent"] for each in (first, second)}
    one, other = evidence.strict(first), evidence.strict(second)
    common = one.index.intersection(other.index)
    one, other = one.loc[common], other.loc[common]
    same = ((one.lower_core == other.lower_core) & (one.lower_mem == other.lower_mem)).mean()
    lowered = {
        domain: tuple(100 * (rows[domain] / rows[f"auto_{domain}"] - 1).mean() for rows in (one, other))
        for domain in ("core", "mem")
    }
    less = all(there >= here for here, there in lowered.values())
    return Finding(
        f"strict global, claimed: {percent(saved[second])} on the {SECOND}, {percent(saved[first])} on the {FIRST};"
        f" {100 * same:.0f} % of {len(common)} kernels lower the same clocks on both; mean core clock"
        f" {percent(lowered['core'][1])} against {percent(lowered['core'][0])}, memory clock"
        f" {percent(lowered['mem'][1])} against {percent(lowered['mem'][0])}",
        bool(saved[second] > saved[first] and same >= SAME_KIND_SHARE and less),
        f"the profiles of both (clocks that ran against auto's): auto itself runs at {mhz(other.auto_core)} on the"
        f" {SECOND} and at {mhz(one.auto_core)} on the {FIRST}; power figures of the {SECOND} are inferred, not measured",
    )


@claim(27, "Clocks found on one GPU type cannot be applied to another; re-measure for another specimen", "9")
def carried_to_another(results) -> Finding:
    others = [each for each in evidence.siblings(results) if each.gpu["name"] != results.gpu["name"]]
    if not others:
        raise NotTestable("it needs the same workload on another GPU; run one (config: gpu)")
    parts, fails = [], []
    for other in others:
        time, energy = transfer(evidence.schedule(results, evidence.STRICT)["targets"], other)
        own = evidence.schedule(other, evidence.STRICT)
        lost = 1 - energy / own["energy_change_percent"] if own["energy_change_percent"] else 0.0
        fails.append(time > BROKEN_LIMIT_PERCENT or lost > LOST_SHARE)
        parts.append(
            f"on the {other.gpu['name']} our clocks give {change(time, energy)}, its own"
            f" {change(own['time_change_percent'], own['energy_change_percent'])}"
        )
    return Finding(
        "; ".join(parts),
        all(fails),
        "the strict schedule of this GPU, each clock taken to the nearest that the other has, summed over the other's"
        " profile: what a clock costs depends on where each board meets its power cap and its bandwidth; another"
        " specimen of one type is not modelled",
    )


def transfer(targets: dict, other) -> tuple:
    """(time change, energy change) of an iteration on another GPU at these clocks, percent; absent kernels stay at auto."""
    rows = evidence.points(other, "kernel")
    at = []
    for name, own in rows.groupby("target", sort=False):
        wanted = targets.get(name, {"core_mhz": "auto", "mem_mhz": "auto"})
        distance = sum(_distance(own[domain], wanted[domain]) for domain in ("core_mhz", "mem_mhz"))
        at.append(distance.idxmin())
    taken = rows.loc[at]
    launches = taken.launches_per_iteration
    return tuple(
        100 * ((launches * taken[name]).sum() / (launches * taken[f"auto_{name}"]).sum() - 1)
        for name in ("time_s", "energy_j")
    )


def _distance(clocks: pd.Series, wanted) -> pd.Series:
    """How far clocks are from a wanted one, by ratio; auto is near auto only."""
    if wanted == "auto":
        return clocks.isna().map({True: 0.0, False: 10.0})
    return np.log(clocks / float(wanted)).abs().fillna(10.0)


@claim(28, "Switching latency longer than kernels worsens the potential", "9")
def switching(results) -> Finding:
    spec = evidence.simulated_spec(results)
    found = latency(results, spec["switching"])
    own = found.own_s / found.total_s
    saved = evidence.schedule(results, evidence.STRICT)["energy_change_percent"]
    core, mem = (1e3 * spec["switching"][domain]["median_s"] for domain in ("core", "mem"))
    return Finding(
        f"{found.changes} clock changes ({found.core_changes} of core, {found.mem_changes} of memory) in"
        f" {found.launches} launches; at the median latency {found.waiting_s:.1f} s of waiting beside an iteration of"
        f" {found.total_s:.1f} s; {found.shorter} of {found.kernels} kernels are shorter than the latency; {own:.0%} of"
        " the time runs at its own clocks",
        bool(found.shorter and own < 1 - WRONG_CLOCKS_SHARE),
        f"schedule {evidence.STRICT} in launch order, layer by layer, with the spec's medians ({core:g} ms core, {mem:g} ms"
        f" memory), which are an assumption, not a measurement: the old clocks rule until a change is through, so that"
        f" the {percent(saved)} claimed are those of a GPU that switches at once",
    )


def latency(results, switching: dict) -> Latency:
    """What changing clocks costs in an iteration of the strict schedule, at median latencies.

    A change is asked for as a kernel starts; the clocks before rule until it is through, or until the next change.
    """
    rows = evidence.strict(results)
    pair = {name: (row.core_mhz, row.mem_mhz) for name, row in rows[["core_mhz", "mem_mhz"]].fillna(-1).iterrows()}
    order = launch_order(evidence.setup(results).targets)
    median = {domain: switching[domain]["median_s"] for domain in ("core", "mem")}
    changes = {"core": 0, "mem": 0}
    total = waiting = own = 0.0
    count_, pending, shorter = 0, 0.0, set()
    for before, name in zip([order[-1], *order], order):  # iterations follow one another
        time_s = rows.time_s[name]
        changed = [domain for domain, old, new in zip(("core", "mem"), pair[before], pair[name]) if old != new]
        if changed:
            pending = max(median[domain] for domain in changed)
            count_ += 1
            waiting += pending
            for domain in changed:
                changes[domain] += 1
            if time_s < pending:
                shorter.add(name)
        total += time_s
        own += max(0.0, time_s - pending)
        pending = max(0.0, pending - time_s)
    return Latency(len(order), count_, changes["core"], changes["mem"], waiting, own, total, len(shorter), len(rows))


def launch_order(targets: dict) -> list:
    """Ids of the kernels in the order of their launches: pass by pass, rows of one repeat as whole layers."""
    rank = {name: number for number, name in enumerate(("forward", "loss", "backward"))}
    order = []
    for _, rows in sorted(targets["pass"].items(), key=lambda each: rank.get(each[0], len(rank))):
        layer, repeat = [], None
        for name, times in [*rows, (None, None)]:
            if times != repeat:
                order += layer * (repeat or 0)
                layer, repeat = [], times
            layer.append(name)
    return order


@claim(29, "Power rises more than linearly in the clock, so the highest clocks are the least efficient", "2, 5")
def power_bends(results) -> Finding:
    curves = {name: curve for name, curve in _full_load(results) if len(curve) >= 4}
    if not curves:
        raise NotTestable("no target has four core clocks at the memory clock that auto uses; widen the grid")
    steeper = {name: _bend(curve) for name, curve in curves.items()}
    above = {name: 100 * (curve.energy_j.iloc[-1] / curve.energy_j.min() - 1) for name, curve in curves.items()}
    best = {name: curve.energy_j.idxmin() for name, curve in curves.items()}
    lowest = [100 * (curve.energy_j.iloc[0] / curve.energy_j.min() - 1) for curve in curves.values()]
    bends = np.mean([value > STEEPER for value in steeper.values()])
    wasteful = np.mean([value > VISIBLE_PERCENT for value in above.values()])
    top = [curve.index[-1] for curve in curves.values()]
    what = "targets at full load (GEMMs and passes)" if len(evidence.kinds(results)) else "kernels"
    return Finding(
        f"{len(curves)} {what}: slope of power over the upper half of the clocks {np.median(list(steeper.values())):.1f}"
        f" times that of the lower half (median), steeper for {bends:.0%}; the highest clock ({mhz(top)}) costs"
        f" {np.median(list(above.values())):.0f} % more energy than the best ({mhz(best.values())}) in the median, visibly"
        f" more for {wasteful:.0%}",
        bool(bends >= NEARLY_ALL and wasteful >= NEARLY_ALL),
        "in the profile, at the memory clock that auto uses, the voltage rises with the highest clocks; but the lowest clock"
        f" ({mhz([curve.index[0] for curve in curves.values()])}) costs {np.median(lowest):.0f} % more than the best as well, by"
        " the static power over a longer time",
    )


def _full_load(results):
    """(target, time and energy by the core clock that ran, MHz, ascending) of GEMMs and passes; of a table, all kernels."""
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


CLAIMS = (second_gpu, carried_to_another, switching, power_bends)
