"""What a study on a real GPU takes at least, before it is begun.

Windows and kernel warm-up are the measurement; the rest of a point is overhead.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import parse_json
from kernel_dvfs.layout import LOCKING_REPEATS
from kernel_dvfs.measurement.point import least_s
from kernel_dvfs.measurement.real import loads
from kernel_dvfs.measurement.real.inventory import OTHER_SIZES, Estimate
from kernel_dvfs.measurement.stopping import COMPARED
from kernel_dvfs.plan.asked import Study
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan, planned_s

_POINTS_COMPARED = 4  # auto, chosen, chosen, auto


def estimates(uuid: str, config: str, can_lock: bool, step: str = "") -> tuple[list[Estimate], list[str]]:
    """(what would be measured of a GPU and for how long, what is missing for it), the shortest first. config: file; one
    that is not there is told of, not refused. can_lock: whether the clocks of this GPU can be locked. step: the record
    of a captured step instead of the configuration's workload."""
    if not Path(config).is_file():
        return [], [f"no {config} here: give another --config to see what a study would take"]
    own: dict[str, str | None] = {"workload": f"step:{step}"} if step else {}
    # minutes before days: what needs no permission is where to begin; a look of some minutes leaves clocks alone
    ways = [own | {"clocks": "auto-only"}, *([own | {"minutes": None}] if can_lock else [])]
    found: list[Estimate] = []
    for changed in ways:
        estimate = _estimate(uuid, config, changed)
        if estimate not in found:  # a configuration may be for auto-only already
            found.append(estimate)
    if Path(loads.record()).is_file():
        return found, []
    return found, ["missing: the CUDA kernels; snakemake builds them, or: kernel-dvfs build --cuda on"]


def study_s(study: Study, measurement: dict[str, Any], validation_repeats: int, can_compare: bool) -> dict[str, float]:
    """{part of the study: seconds} with the least number of windows.

    The parts are the sweep, race and walk and, where clocks can be changed within a job
    (can_compare), auto against the highest clocks, measuring each schedule again, and the schedule at other sizes.
    """
    sweep = (len(study.kernels) + len(study.passes)) * len(study.points)
    parts = {"sweep": sweep * least_s(measurement)}
    if study.is_refined:
        refine = study.options["refine"]
        points = (refine["windows"] or 0) // measurement["windows"]
        parts["race and walk"] = 3600 * (refine["hours"] or 0) + points * least_s(measurement)
    if can_compare:
        compared_s = comparison_s(measurement)
        repeats_s = validation_repeats * compared_s
        parts["locking"] = len(study.contracts) * len(study.locked) * LOCKING_REPEATS * compared_s
        targets = sum(len(study.passes if name in study.pass_schedules else study.kernels) for name in study.headline)
        targets += len(study.kernels) * bool(study.headline)  # as published
        parts["measuring again"] = targets * repeats_s
        parts[OTHER_SIZES] = sum(len(variant.kernels) for variant in (study.variants or {}).values()) * repeats_s
    return parts


def comparison_s(measurement: dict[str, Any]) -> float:
    """What one repeat of one kernel's comparison takes at least, s."""
    return _POINTS_COMPARED * least_s(measurement | COMPARED)


def _estimate(uuid: str, config: str, changed: dict[str, str | None]) -> Estimate:
    """What would be measured and for how long. changed: keys of the configuration."""
    with TemporaryDirectory() as folder:
        try:
            content = load(config) | {"gpu": f"nvml:{uuid}"} | changed
            study = plan(content, folder, runs=False)
            assert study.setup, "only tables have no setup"
            measurement = parse_json(study.setup.text)["measurement"]
        except (InputError, KeyError) as error:
            return Estimate(config, changed.get("clocks"), str(error))
    targets = len(study.kernels) + len(study.passes)
    if in_minutes_s := planned_s(study, targets):
        parts = {"sweep": in_minutes_s}
    else:
        parts = study_s(study, measurement, content["validation_repeats"], content["clocks"] == "lock")
    return Estimate(config, content["clocks"], None, targets, len(study.pairs), {k: s for k, s in parts.items() if s})
