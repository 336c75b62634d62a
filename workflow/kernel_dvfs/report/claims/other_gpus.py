"""Claims on another GPU (the paper's section 9): what it saves by itself, and at clocks found elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from kernel_dvfs.report.claims import evidence
from kernel_dvfs.report.claims.claim import Finding, NotTestable, change, claim, mhz, percent
from kernel_dvfs.report.results import Results

# The paper's second GPU, by the names of the specs.
FIRST, SECOND = "RTX 3080 Ti", "RTX A4000"
# "The same kind of clock": two kernels in three lower the same domain on both.
SAME_KIND_SHARE = 2 / 3
# "Lowered less": mean clocks that differ by less than this are lowered alike: one kernel in six, one step of
# 12 %.
ALIKE_PP = 2.0
# Clocks "cannot be applied" where the strict limit breaks by more than an iteration scatters, or a third is
# lost.
BROKEN_LIMIT_PERCENT = 1.0
LOST_SHARE = 1 / 3


@claim(
    26,
    "On an RTX A4000 the same method saves less; kernels prefer the same kind of clock, lowered less",
    "9",
)
def second_gpu(results: Results) -> Finding:
    by_name = {each.gpu["name"]: each for each in evidence.siblings(results)} | {results.gpu["name"]: results}
    if results.gpu["name"] not in (FIRST, SECOND) or not {FIRST, SECOND} <= set(by_name):
        raise NotTestable(f"it needs the same workload on {FIRST} and {SECOND}; run both (config: gpu)")
    first, second = by_name[FIRST], by_name[SECOND]
    saved, kind = _saved(first, second)
    one, other = evidence.strict(first), evidence.strict(second)
    common = one.index.intersection(other.index)
    one, other = one.loc[common], other.loc[common]
    same = ((one.lower_core == other.lower_core) & (one.lower_mem == other.lower_mem)).mean()
    lowered = {
        domain: tuple(100 * (rows[domain] / rows[f"auto_{domain}"] - 1).mean() for rows in (one, other))
        for domain in ("core", "mem")
    }
    rise = [there - here for here, there in lowered.values()]
    less = max(rise) >= ALIKE_PP and min(rise) > -ALIKE_PP
    return Finding(
        f"strict global, {kind}: energy {percent(saved[1])} on the {SECOND}, {percent(saved[0])} on the"
        f" {FIRST}; {100 * same:.0f} % of {len(common)} kernels lower the same clocks on both; mean core"
        f" clock {percent(lowered['core'][1])} against {percent(lowered['core'][0])}, memory clock"
        f" {percent(lowered['mem'][1])} against {percent(lowered['mem'][0])}",
        bool(saved[1] > saved[0] and same >= SAME_KIND_SHARE and less),
        f"the profiles of both (clocks that ran against auto's): auto itself runs at {mhz(other.auto_core)}"
        f" on the {SECOND} and at {mhz(one.auto_core)} on the {FIRST}; power figures of the {SECOND} are"
        " inferred, not measured",
    )


def _saved(*of: Results) -> tuple[list[float], str]:
    """(change of energy of each by its strict schedule, "validated" where all were validated, else "claimed")."""
    try:
        tables = [evidence.table(each, "validation").set_index("quantity") for each in of]
        return [rows.fresh_change_percent.energy for rows in tables], "validated"
    except NotTestable:
        return [evidence.schedule(each, evidence.STRICT)["energy_change_percent"] for each in of], "claimed"


@claim(27, "Clocks found on one GPU type cannot be applied to another; re-measure for another specimen", "9")
def carried_to_another(results: Results) -> Finding:
    others = [each for each in evidence.siblings(results) if each.gpu["name"] != results.gpu["name"]]
    if not others:
        raise NotTestable("it needs the same kernels on another GPU; run one (config: gpu)")
    parts, fails, cores = [], [], [f"{_auto_core(results):.0f} MHz here"]
    for other in others:
        time, energy = transfer(evidence.schedule(results, evidence.STRICT)["targets"], other)
        own = evidence.schedule(other, evidence.STRICT)
        lost = 1 - energy / own["energy_change_percent"] if own["energy_change_percent"] else 0.0
        fails.append(time > BROKEN_LIMIT_PERCENT or lost > LOST_SHARE)
        parts.append(
            f"on the {other.gpu['name']} our clocks give {change(time, energy)}, its own"
            f" {change(own['time_change_percent'], own['energy_change_percent'])}"
        )
        cores.append(f"{_auto_core(other):.0f} on the {other.gpu['name']}")
    return Finding(
        "; ".join(parts),
        all(fails),
        "our strict schedule, each clock taken to the nearest that the other has, summed over the other's"
        " profile: a core clock binds only below what auto runs at, on average over its time"
        f" {', '.join(cores)}; another specimen of one type is not modelled",
    )


def _auto_core(results: Results) -> float:
    """Core clock that auto runs at, MHz, mean over the time of an iteration."""
    rows = evidence.points(results, "kernel")
    rows = rows[rows.is_baseline]
    return float(np.average(rows.core, weights=rows.launches_per_iteration * rows.time_s))


def transfer(targets: dict[str, dict], other: Results) -> tuple[float, float]:
    """(time change, energy change) of an iteration on another GPU at these clocks, percent."""
    rows = evidence.points(other, "kernel")
    at = []
    for name, own in rows.groupby("target", sort=False):
        wanted = targets.get(name, {"core_mhz": "auto", "mem_mhz": "auto"})
        distance = sum(_distance(own[domain], wanted[domain]) for domain in ("core_mhz", "mem_mhz"))
        at.append(distance.idxmin())
    taken = rows.loc[at]
    launches = taken.launches_per_iteration
    time, energy = (
        float(100 * ((launches * taken[name]).sum() / (launches * taken[f"auto_{name}"]).sum() - 1))
        for name in ("time_s", "energy_j")
    )
    return time, energy


def _distance(clocks: pd.Series, wanted: Any) -> pd.Series:
    """How far clocks are from a wanted one, by ratio; auto is near auto only."""
    if wanted == "auto":
        return clocks.isna().map({True: 0.0, False: 10.0})
    return np.log(clocks / float(wanted)).abs().fillna(10.0)


CLAIMS = (second_gpu, carried_to_another)
