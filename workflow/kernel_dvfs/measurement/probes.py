"""Kernels that stand for all of a workload: the one that heats a board, and three that show what a setting does."""

from __future__ import annotations

from typing import Any

from kernel_dvfs.gpu.clocks import AUTO, Pair, supported_core_mhz
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target

# places in a setup's work: [family, tensor_flop, fp32_flop, sfu_op, byte]
_TENSOR, _BYTE = 1, 4


def hottest(setup: Setup) -> Target:
    """The kernel that heats the board: the one with the most tensor FLOP, among equals the one with the most bytes."""
    return Target("kernel", _hottest({name: about["work"] for name, about in setup.targets["kernel"].items()}))


def _hottest(works: dict[str, list]) -> str:
    return max(works, key=lambda name: (works[name][_TENSOR], works[name][_BYTE]))


def three(works: dict[str, list]) -> list[str]:
    """Names of the heaviest matrix product, and of the kernels without one that move the most and the median bytes.

    works: {kernel: work, as in a setup}.
    """
    others = [name for name, work in works.items() if not work[_TENSOR]]
    others.sort(key=lambda name: works[name][_BYTE])
    return list(dict.fromkeys([_hottest(works), others[-1], others[len(others) // 2]]))


def highest(clocks: dict[str, Any]) -> Pair:
    """The highest memory clock that can be locked, with the highest core clock that goes with it."""
    mem = max(clocks["mem_mhz"], default=AUTO)
    return Pair(supported_core_mhz(clocks, mem)[-1], mem)
