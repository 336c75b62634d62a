"""What a schedule asks of one GPU: the pair of a run, or the pairs of its passes. Those of another GPU are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kernel_dvfs.choice.schedule_file import pairs_of, read_schedule, schema_of
from kernel_dvfs.layout import ITERATION_SCHEDULE
from kernel_dvfs_clocks.clocks import AUTO
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.choice.schedule_file import ScheduleGpu
    from kernel_dvfs_deploy.control import Pair

_BLACKWELL = 10  # major number of its compute capability, and of later ones


def run_pair(path: str, about: Mapping[str, Any]) -> Pair:
    """Return the one pair of a schedule for a whole run. about: the GPU's facts, with its slug. Raises InputError."""
    pairs = set(_pairs(path, about)[1].values())
    if len(pairs) != 1:
        raise InputError(
            f"schedule {path}: targets has {len(pairs)} different pairs; a whole run takes one (--scope single), a "
            "schedule of passes is played with --pass-level"
        )
    return pairs.pop()


def pass_pairs(path: str, about: Mapping[str, Any]) -> Mapping[str, Pair]:
    """Return {pass: pair} of a schedule with granularity `pass`. about: as above. Raises InputError."""
    granularity, pairs = _pairs(path, about)
    if granularity != "pass":
        raise InputError(
            f"schedule {path}: granularity is {granularity!r}; --pass-level plays schedules of passes (kernel-dvfs "
            "choose --granularity pass)"
        )
    return pairs


def check_gpu(path: str, gpu: ScheduleGpu, about: Mapping[str, Any]) -> None:
    """Raise InputError where a schedule was made for another GPU than the one `about`."""
    if gpu["slug"] != about["slug"]:
        raise InputError(
            f"schedule {path}: gpu.slug is {gpu['slug']}, of {gpu['kind']} {gpu['name']}, this GPU is {about['name']} "
            f"({about['slug']}); clocks of one GPU do not fit another: measure this one, or name the pair yourself "
            "with --pair"
        )


def _pairs(path: str, about: Mapping[str, Any]) -> tuple[str, Mapping[str, Pair]]:
    if schema_of(path) == ITERATION_SCHEDULE:
        raise InputError(
            f"schedule {path}: an iteration schedule is played by the program that launches the kernels "
            "(kernel_dvfs_deploy.player), not by apply"
        )
    schedule = read_schedule(path)
    pairs = pairs_of(path, schedule)
    check_gpu(path, schedule["gpu"], about)
    return schedule["granularity"], pairs


def slows(about: Mapping[str, Any], pairs: Iterable[Pair]) -> str:
    """Return what is known of a locked memory clock that slows such a board, in words; "" where nothing is.

    about: the GPU's facts. Source: NVIDIA/open-gpu-kernel-modules, reports 1265 and 1266 (an RTX 5090, one reporter).
    """
    major = int(about["compute_capability"].partition(".")[0])
    if major < _BLACKWELL or all(mem_mhz == AUTO for _, mem_mhz in pairs):
        return ""
    return (
        f"{about['name']} is a Blackwell board: a locked memory clock was reported to slow one by 16 to 32 %, at the "
        "same memory clock too (NVIDIA/open-gpu-kernel-modules 1265, 1266); compare with --baseline, or leave it at "
        "auto: --pair CORE,auto"
    )
