"""Kernels that stand for the others of a workload: the one that heats a board, three that show what a setting does."""

from kernel_dvfs.gpu.clocks import AUTO, Pair, supported_core_mhz
from kernel_dvfs.measurement.target import Target

# places in a setup's work: [family, tensor_flop, fp32_flop, sfu_op, byte]
_TENSOR, _BYTE = 1, 4


def hottest(setup) -> Target:
    """The kernel that heats the board: the one with the most tensor FLOP, of those the one with the most bytes."""
    return Target("kernel", _hottest({name: about["work"] for name, about in setup.targets["kernel"].items()}))


def _hottest(works: dict) -> str:
    return max(works, key=lambda name: (works[name][_TENSOR], works[name][_BYTE]))


def three(works: dict) -> list:
    """Names of the heaviest matrix product, of the kernel without one that moves the most bytes, and of a middling
    one of those. works: {kernel: work, as in a setup}."""
    others = [name for name, work in works.items() if not work[_TENSOR]]
    others.sort(key=lambda name: works[name][_BYTE])
    return list(dict.fromkeys([_hottest(works), others[-1], others[len(others) // 2]]))


def highest(clocks: dict) -> Pair:
    """The highest memory clock that can be locked and the highest core clock beside it."""
    mem = max(clocks["mem_mhz"], default=AUTO)
    return Pair(supported_core_mhz(clocks, mem)[-1], mem)
