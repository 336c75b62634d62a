"""What holds a kernel back when nothing is locked: classes by which the model's savings are compared with real ones.

By the mean power of the kernel's auto row, and by how its fitted model splits time and power at auto clocks: no row
that a choice could take instead of auto decides by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_dvfs.gpu.clocks import BASELINE
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.model import launch_time_s

if TYPE_CHECKING:
    from kernel_dvfs.gpu.kernel import Kernel

STREAMING, DEEPLY_CAPPED, NEAR_CAP, CORE_BOUND, LATENCY_BOUND = CLASSES = (
    "streaming",
    "deeply capped",
    "near the cap",
    "core-bound, cool",
    "latency-bound",
)
_DEEP = 1.2  # power that a kernel would draw at auto without a cap, relative to the cap
_NEAR = 0.9  # its mean power at auto, relative to the cap
_BOUND = 0.5  # share of a change of the clock that a launch follows
_STEP = 1.01


def class_of(spec: dict[str, Any], kernel: Kernel, auto_power_w: float) -> str:
    """The class of a kernel; auto_power_w: the mean power of its auto row.

    Deeply capped: without the cap it would draw far more. Streaming: time follows the memory clock. Near the cap: by
    the power of its auto row. What is left is cool, and core-bound where time follows the core clock.
    """
    cap_w, warm_c = spec["governor"]["cap_w"], spec["thermal"]["reference_c"]
    free = spec | {"governor": spec["governor"] | {"cap_w": 10 * cap_w}}
    if settle(free, [(kernel, 1)], BASELINE, warm_c).power_w > _DEEP * cap_w:
        return DEEPLY_CAPPED
    ghz = spec["clocks"]["auto_core_mhz"] / 1000
    time_s = launch_time_s(kernel, ghz, 1.0)
    by_core, by_memory = (
        (slower / time_s - 1) / (_STEP - 1)
        for slower in (launch_time_s(kernel, ghz / _STEP, 1.0), launch_time_s(kernel, ghz, 1 / _STEP))
    )
    if by_memory >= _BOUND:
        return STREAMING
    if auto_power_w >= _NEAR * cap_w:
        return NEAR_CAP
    return CORE_BOUND if by_core >= _BOUND else LATENCY_BOUND
