"""Targets, which are what is measured: `kernel/<id>` or `pass/<name>`; and kernels that stand for all of a workload."""

from __future__ import annotations

from typing import NamedTuple

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement.setup import Setup

# places in a setup's work: [family, tensor_flop, fp32_flop, sfu_op, byte]
_TENSOR, _BYTE = 1, 4


class Target(NamedTuple):
    """What is measured: one kernel or one pass of a setup."""

    study: str  # `kernel` or `pass`
    name: str  # a kernel's id or a pass


def parse(setup: Setup, text: str) -> Target:
    """The target that `text` (`kernel/<id>`, `pass/<name>` or a bare kernel id) names. Raises InputError."""
    study, slash, name = text.partition("/")
    if not slash:
        study, name = "kernel", text
    known = setup.targets.get(study, {})
    if name not in known:
        names = ", ".join(f"{study}/{name}" for study, names in setup.targets.items() for name in names)
        raise InputError(f"target '{text}': not in workload {setup.workload['name']}; it has {names}")
    return Target(study, name)


def hottest(setup: Setup) -> Target:
    """The kernel that heats the board: the one with the most tensor FLOP, among equals the one with the most bytes."""
    return Target("kernel", _hottest({name: kernel["work"] for name, kernel in setup.targets["kernel"].items()}))


def _hottest(works: dict[str, list]) -> str:
    return max(works, key=lambda name: (works[name][_TENSOR], works[name][_BYTE]))


def representatives(works: dict[str, list]) -> list[str]:
    """Names of three kernels that show what a setting does to a workload. works: {kernel: work, as in a setup}.

    The heaviest matrix product, and of the kernels without one those that move the most and the median bytes.
    """
    others = [name for name, work in works.items() if not work[_TENSOR]]
    others.sort(key=lambda name: works[name][_BYTE])
    return list(dict.fromkeys([_hottest(works), others[-1], others[len(others) // 2]]))
