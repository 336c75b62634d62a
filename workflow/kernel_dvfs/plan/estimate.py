"""What a study on a real GPU takes at least, before it is begun.

Passes and windows are the measurement; the rest is overhead.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernel_dvfs.layout import LOCKING_REPEATS
from kernel_dvfs.measurement import visit
from kernel_dvfs.measurement.point import least_s
from kernel_dvfs.measurement.real import loads
from kernel_dvfs.measurement.real.inventory import AGAIN, BY_CLOCK, CAPTURE, OTHER_SIZES, Estimate
from kernel_dvfs.measurement.stopping import COMPARED
from kernel_dvfs.native.build import lacks_cuda
from kernel_dvfs.plan.asked import Study
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import CAPTURE_S, plan, planned_s
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import parse_json

_POINTS_COMPARED = 4  # auto, chosen, chosen, auto
# of all limits' choices: pairs of clocks, windows of a kernel at them (some more where the power cap holds it), and the
# share of kernels with a window each
_PAIRS, _CELLS, _METERED_SHARE = 8, 3, 0.6


def estimates(uuid: str, config: str, can_lock: bool, keys: Mapping[str, Any]) -> tuple[list[Estimate], list[str]]:
    """Return (what would be measured of a GPU and for how long, what is missing for it), the shortest first. config:
    file; one that is not there is told of, not refused. can_lock: whether its clocks can be locked. keys: in place of
    the configuration's."""
    if not Path(config).is_file():
        return [], [f"no {config} here: give another --config to see what a study would take"]
    # minutes before days: what needs no permission is where to begin; a look of some minutes leaves clocks alone
    ways = [{**keys, "clocks": "auto-only"}, *([{**keys, "minutes": None}] if can_lock else [])]
    shortest_first: list[Estimate] = []
    for changed in ways:
        estimate = _estimate(uuid, config, changed)
        if estimate not in shortest_first:  # a configuration may be for auto-only already
            shortest_first.append(estimate)
    if Path(loads.record()).is_file():
        return shortest_first, []
    lacking = lacks_cuda() or "snakemake builds them, or: kernel-dvfs build --cuda on"
    return shortest_first, [f"missing: the CUDA kernels; {lacking}"]


def study_s(study: Study, measurement: dict[str, Any], validation_repeats: int) -> dict[str, float]:
    """Return {part of the study: seconds}.

    The parts are the study by clock, at its budget; measuring again what it chose; the paper's sweep; and, where clocks
    can be changed within a job, its choice measured again kernel by kernel, auto against the highest clocks, and the
    choice at other sizes.
    """
    targets = len(study.kernels) + len(study.passes)
    if study.setup and study.clocks == "auto-only":
        return {"sweep": targets * len(study.points) * least_s(measurement)}
    parts: dict[str, float] = {}
    if study.is_by_clock:
        parts[BY_CLOCK] = 60 * study.options["by_clock"]["minutes"]
    if study.headline:
        parts[AGAIN] = validation_repeats * block_s(len(study.kernels))
    if study.setup is None:  # a step that has yet to be captured: so much is known
        return {CAPTURE: CAPTURE_S} | parts
    parts["sweep"] = sum(
        visit.least_s(Pair(*pair), visit.PASS_S, targets, visit.AUTO_WINDOW_S if pair == BASELINE else visit.WINDOW_S)
        for pair, _ in study.points
    )
    if study.is_compared:
        compared_s = comparison_s(measurement)
        repeats_s = validation_repeats * compared_s
        parts["locking"] = len(study.contracts) * len(study.locked) * LOCKING_REPEATS * compared_s
        parts["measuring again, as published"] = len(study.kernels) * bool(study.headline) * repeats_s
        parts[OTHER_SIZES] = sum(len(variant.kernels) for variant in (study.variants or {}).values()) * repeats_s
    return parts


def block_s(kernels: int) -> float:
    """Return what measuring choices again takes for each repeat, s. kernels: of the workload."""
    auto_s = visit.least_s(BASELINE, visit.AUTO_PASS_S, 0, 0.0)
    locked_s = visit.least_s(Pair(1, 1), visit.PASS_S, 0, 0.0)
    window_s = visit.KERNEL_S + visit.WINDOW_S
    metered = _METERED_SHARE * kernels
    return visit.OPENING_S + 2 * auto_s + _PAIRS * locked_s + metered * (1 + _CELLS) * window_s


def comparison_s(measurement: dict[str, Any]) -> float:
    """Return what one repeat of one kernel's comparison takes at least, s."""
    return _POINTS_COMPARED * least_s(measurement | COMPARED)


def _estimate(uuid: str, config: str, changed: Mapping[str, Any]) -> Estimate:
    """Return what would be measured and for how long. changed: keys of the configuration."""
    with TemporaryDirectory() as folder:
        try:
            content = load(config) | {"gpu": f"nvml:{uuid}", **changed}
            study = plan(content, folder, runs=False)
            measurement = parse_json(study.setup.text)["measurement"] if study.setup else {}
        except (InputError, KeyError) as error:
            return Estimate(config, changed.get("clocks"), str(error))
    targets = len(study.kernels) + len(study.passes)
    if in_minutes_s := planned_s(study, targets):
        parts = {"sweep": in_minutes_s}
    else:
        parts = study_s(study, measurement, content["validation_repeats"])
    return Estimate(config, content["clocks"], None, targets, len(study.pairs), {k: s for k, s in parts.items() if s})
