"""The claim on power against clock (sections 2 and 5). Knows the profile and the spec's voltages only."""

import numpy as np
import pandas as pd

from kernel_dvfs.gpu.model import relative_voltage
from kernel_dvfs.report.claims import evidence
from kernel_dvfs.report.claims.claim import Finding, NotTestable, claim, mhz

# Power bends upwards where its slope in the upper half of the clocks exceeds that of the lower half by this.
STEEPER = 1.1
# Nearly all: scatter may hide the bend of a few targets.
NEARLY_ALL = 0.9


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


def _voltage(results, core_mhz: float) -> str:
    """How far the voltage has risen at a clock, from the spec of a simulated GPU."""
    try:
        core = evidence.simulated_spec(results, "the voltage")["core"]
    except NotTestable:
        return ""
    risen = relative_voltage(core, core_mhz)
    return f", where the voltage at {core_mhz:.0f} MHz is {risen:.2f} times its lowest (spec)"


def _full_load(results):
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


CLAIMS = (power_bends,)
