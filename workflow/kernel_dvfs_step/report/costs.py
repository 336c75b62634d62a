"""What a captured step costs at auto, kernel by kernel: the numbers behind the tables and cards of its page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.kernel import LaunchWork
from kernel_dvfs.report.measured_tables import auto_records, cap_share
from kernel_dvfs.workload.step import paced_kernel
from kernel_dvfs.workload.workload import WHOLE

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.report.results import Results

# a kernel runs as long alone as in the step where the two are within so many percent
ALIKE_PERCENT = 3.0
MOST_PERCENT = 80.0  # what "most" of the energy or the saving means


def per_kernel(results: Results) -> pd.DataFrame:
    """Return a row a kernel, the costliest in energy first: id, what it is, launches, and of one launch at auto
    time_us, energy_mj, power_w, core_mhz: at its clock of the step where it was measured so (is_paced), else as it runs
    alone; of the whole step energy_j, time_ms. alone_us, alone_core_mhz, power_cap_share: repeated alone; step_time_us,
    step_core_mhz: within the step, NaN where that is not known. is_power_modelled: of a forecast, nobody has measured
    its power. work: of one launch, as the capture counts it (gpu.kernel.LaunchWork), None where nothing is known;
    tflop_per_s, j_per_pflop: of its matrix products, NaN where there are none."""
    import pandas as pd

    about, paced = results.workload["kernels"], paced_rows(results)
    rows = list(results.profile.query("study == 'kernel' and is_baseline").itertuples())
    costs = pd.DataFrame([_cost(row, paced.get(row.target, row), about[row.target]) for row in rows])
    known = works(results)
    costs["work"] = pd.Series([known.get(row.target) for row in rows], dtype=object)
    flop = pd.Series([work.tensor_flop if work else 0.0 for work in costs.work]).where(lambda flops: flops > 0)
    costs["tflop_per_s"] = 1e-6 * flop / costs.time_us
    costs["j_per_pflop"] = 1e12 * costs.energy_mj / flop
    costs["power_cap_share"] = [cap_share(auto_records(results.folder, "kernel", row.target)) for row in rows]
    return costs.sort_values("energy_j", ascending=False, kind="stable").reset_index(drop=True)


def _setup(results: Results) -> Setup | None:
    """Return what the step was measured by; None of a profile that came without, as that of the shipped step."""
    digest = results.workload.get("setup")
    return results.setup(digest) if digest else None


def works(results: Results) -> dict[str, LaunchWork]:
    """Return {kernel: its work}, of those of which the setup, or the profile itself, says it."""
    setup = _setup(results)
    kernels = setup.targets["kernel"] if setup else results.workload["kernels"]
    return {name: LaunchWork(*about["work"]) for name, about in kernels.items() if about.get("work")}


def spec_of(results: Results) -> dict[str, Any] | None:
    """Return the spec of the simulated board that the step runs on, or that is of the type of the real one; None: there
    is none."""
    setup = _setup(results)
    if setup and (spec := setup.gpu.get("spec")):
        return {**spec}
    name = gpu_spec.of_board(results.gpu["name"])
    return gpu_spec.resolve(name) if name else None


def power_limit_w(results: Results) -> float | None:
    """Return the power limit of the board, as it was when the step was measured; None where nothing says it."""
    setup = _setup(results)
    gpu = setup.gpu if setup else results.gpu
    if limit_mw := gpu.get("power_limit_mw"):
        return 1e-3 * float(limit_mw)
    return float(gpu["spec"]["governor"]["cap_w"]) if "spec" in gpu else None


def summed(results: Results, costs: pd.DataFrame) -> dict[str, float]:
    """Return time_ms, energy_j and power_w of all kernels together. costs: per_kernel's.

    What rests between its launches draws more than the power limit for a moment, which the board makes up for
    elsewhere in the step; a total above the limit is none. So where the sum would be, kernels that were paced are
    scaled to what their sections leave them, or the whole step where one of these was not measured:
    residual_time_percent, residual_energy_percent say by how much.
    """
    time_ms, energy_j = float(costs.time_ms.sum()), float(costs.energy_j.sum())
    limit_w = power_limit_w(results)
    if not costs.is_paced.any() or limit_w is None or 1e3 * energy_j / time_ms <= limit_w:
        return {"time_ms": time_ms, "energy_j": energy_j, "power_w": 1e3 * energy_j / time_ms}
    profile = results.profile
    points = profile[(profile.study != "kernel") & profile.is_baseline].set_index("target")
    within = set(costs.section[costs.is_paced])
    within = within if within <= set(points.index) else {WHOLE} & set(points.index)
    paced, beside = costs[costs.is_paced], costs[~costs.is_paced]
    if WHOLE not in within:
        beside = beside[beside.section.isin(within)]
    left_ms = 1e3 * points.time_s[[*within]].sum() - beside.time_ms.sum()
    left_j = points.energy_j[[*within]].sum() - beside.energy_j.sum()
    residual = {}
    if left_ms > 0 and left_j > 0:
        residual["residual_time_percent"] = 100 * (left_ms / paced.time_ms.sum() - 1)
        residual["residual_energy_percent"] = 100 * (left_j / paced.energy_j.sum() - 1)
        time_ms += left_ms - paced.time_ms.sum()
        energy_j += left_j - paced.energy_j.sum()
    # sections that add up to more than the step may still be above it
    energy_j = min(energy_j, 1e-3 * limit_w * time_ms)
    return {"time_ms": time_ms, "energy_j": energy_j, "power_w": 1e3 * energy_j / time_ms} | residual


def paced_rows(results: Results) -> dict[str, Any]:
    """Return {kernel: its row of the profile where it was repeated with rests, at its clock of the step}: those that
    did rest, not those whose clock is as high alone."""
    rows = results.profile.query("study == @WHOLE and is_baseline").itertuples()
    paced = {kernel: row for row in rows if (kernel := paced_kernel(row.target))}
    records = {kernel: auto_records(results.folder, WHOLE, row.target) for kernel, row in paced.items()}
    return {
        kernel: row
        for kernel, row in paced.items()
        if any(record["kernel"].get("rest_us") for record in records[kernel])
    }


def _cost(alone: Any, in_step: Any, about: dict[str, Any]) -> dict[str, Any]:
    """Return a kernel's row of per_kernel. in_step: the row of the profile that says what a launch takes within the
    step best."""
    launches, step_time_s = alone.launches_per_iteration, about["step_time_s"]
    return {
        "id": alone.target,
        **{key: about[key] for key in ("name", "module", "operation", "section")},
        "launches": launches,
        "energy_j": launches * in_step.energy_j,
        "time_ms": 1e3 * launches * in_step.time_s,
        "time_us": 1e6 * in_step.time_s,
        "energy_mj": 1e3 * in_step.energy_j,
        "power_w": in_step.energy_j / in_step.time_s,
        "core_mhz": in_step.reached_core_mhz,
        "step_core_mhz": math.nan if about.get("step_core_mhz") is None else about["step_core_mhz"],
        # the records of the step that ships are not kept: its profile says it
        "is_paced": in_step is not alone or about.get("is_paced", False),
        "alone_us": 1e6 * alone.time_s,
        "alone_core_mhz": alone.reached_core_mhz,
        "step_time_us": math.nan if step_time_s is None else 1e6 * step_time_s,
        "is_power_modelled": about.get("is_power_modelled", False),
        "verdict": in_step.verdict,
    }


def whole(results: Results) -> dict | None:
    """Return time_ms, energy_j, power_w, power_cap_share of the step as one, at auto; None where it cannot be
    repeated."""
    profile = results.profile
    # sections may be of that study too, where they do not make up the step
    points = profile[(profile.study == WHOLE) & (profile.target == WHOLE) & profile.is_baseline]
    if points.empty:
        return None
    row = points.iloc[0]
    return {
        "time_ms": 1e3 * row.time_s,
        "energy_j": row.energy_j,
        "power_w": row.energy_j / row.time_s,
        "power_cap_share": cap_share(auto_records(results.folder, WHOLE, WHOLE)),
    }


def tail(results: Results) -> dict[str, Any] | None:
    """Return what was not measured for want of time, together: kernels, time_ms, energy_j; None where all was.

    Its energy is its time in the step at the power that is left of its section (of the step where the section was not
    measured) once what was measured is taken off; held between the least and the most power of a measured kernel, since
    what is left is a small difference.
    """
    rest = results.workload.get("tail") or []
    if not rest:
        return None
    costs, profile = per_kernel(results), results.profile
    points = profile[(profile.study != "kernel") & profile.is_baseline].set_index("target")
    energy_j = 0.0
    for section in dict.fromkeys(kernel[2] for kernel in rest):
        time_ms = sum(kernel[3] for kernel in rest if kernel[2] == section)
        measured = costs[costs.section == section] if section in points.index else costs
        at = section if section in points.index else WHOLE
        row = (
            points.loc[at] if at in points.index else None
        )  # the step is no pass where a node of it cannot be repeated
        power_w = costs.energy_j.sum() / costs.time_ms.sum() * 1e3
        if row is not None and (left_ms := 1e3 * row.time_s - measured.time_ms.sum()) > 0:
            power_w = 1e3 * (row.energy_j - measured.energy_j.sum()) / left_ms
        least_w, most_w = measured_powers_w(results, costs)
        power_w = min(max(power_w, least_w), most_w)
        energy_j += 1e-3 * power_w * time_ms
    return {"kernels": len(rest), "time_ms": sum(kernel[3] for kernel in rest), "energy_j": energy_j}


def measured_powers_w(results: Results, costs: pd.DataFrame | None = None) -> tuple[float, float]:
    """Return the least and the most power of a measured kernel, at most the board's limit, which a mean of many kernels
    cannot be above. costs: per_kernel's."""
    costs = per_kernel(results) if costs is None else costs
    most_w = min(costs.power_w.max(), power_limit_w(results) or math.inf)
    return min(costs.power_w.min(), most_w), most_w


def how_many_make(values: pd.Series, percent: float = MOST_PERCENT) -> int:
    """Return how many of the largest of these (not negative) numbers make so many percent of their sum; 0 of
    nothing."""
    ordered = values.sort_values(ascending=False)
    total = ordered.sum()
    if not total > 0:
        return 0
    return int((ordered.cumsum() < percent / 100 * total * (1 - 1e-12)).sum()) + 1
