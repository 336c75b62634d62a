"""Targets, which are what is measured: `kernel/<id>` or `pass/<name>`; and kernels that stand for all of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs_clocks.errors import InputError

# places in a setup's work: [family, tensor_flop, fp32_flop, sfu_op, byte]
_TENSOR, _BYTE = 1, 4


class MeasurementTarget(NamedTuple):
    """What is measured: one kernel or one pass of a setup."""

    study: str  # `kernel` or `pass`
    name: str  # a kernel's id or a pass


def parse(setup: Setup, text: str) -> MeasurementTarget:
    """Return the target that `text` (`kernel/<id>`, `pass/<name>` or a bare kernel id) names. Raises InputError."""
    study, slash, name = text.partition("/")
    if not slash:
        study, name = "kernel", text
    known = setup.targets.get(study, {})
    if name not in known:
        names = ", ".join(f"{study}/{name}" for study, names in setup.targets.items() for name in names)
        raise InputError(f"target '{text}': not in workload {setup.workload['name']}; it has {names}")
    return MeasurementTarget(study, name)


def iteration(setup: Setup) -> list[tuple[str, int]]:
    """Return [(kernel, repeat)] of a whole iteration, in order; neighbours with the same repeat are one layer, which is
    run through as often."""
    kernels = setup.targets["kernel"]
    if "launches" in setup.workload:
        names = list(kernels)
        return [(names[number], 1) for number in setup.workload["launches"]]
    steps = [(name, count) for part in setup.targets["pass"].values() for name, count in part]
    return steps or [(name, about["launches_per_iteration"]) for name, about in kernels.items()]


def kernels_of(setup: Setup, target: MeasurementTarget) -> dict[str, int]:
    """Return {kernel: launches} of one run of a target."""
    if target.study == "kernel":
        return {target.name: 1}
    counts: dict[str, int] = {}
    for name, count in setup.targets["pass"][target.name]:
        counts[name] = counts.get(name, 0) + count
    return counts


def _hottest(kernels: Mapping[str, Mapping[str, Any]]) -> str:
    return max(kernels, key=lambda name: (kernels[name]["work"][_TENSOR], _weight(kernels[name])))


def _weight(kernel: Mapping[str, Any]) -> tuple[float, float]:
    """Return the bytes; of a captured kernel whose bytes nobody counted, its time in the step."""
    return kernel["work"][_BYTE], kernel.get("step_time_s") or 0.0


def representatives(kernels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of up to three kernels that show what a setting does to a workload. kernels: as in a setup.

    The heaviest matrix product, and of the kernels without one those that move the most and the median bytes.
    """
    others = sorted(
        (name for name in kernels if not kernels[name]["work"][_TENSOR]), key=lambda name: _weight(kernels[name])
    )
    light = [others[-1], others[len(others) // 2]] if others else []
    return list(dict.fromkeys([_hottest(kernels), *light]))
