"""A captured step's record of what a fixture has grouped."""

from kernel_dvfs.workload.step import SavedMemory
from kernel_dvfs_step import assembly
from kernel_dvfs_step.trial import Tried

DEVICE = {"name": "NVIDIA H200", "uuid": "GPU-0", "compute_capability": "9.0", "sm_count": 132}


def record(outline, tried=None, **more):
    """The record of an outline."""
    tried = tried or [Tried(10.0, min(4, len(each)), "yes", "", 0) for each in outline.classes]
    about = {"name": "mine", "source": "train.py:make", "date_utc": "2026-11-22T10:00:00Z"} | more
    return assembly.step(
        **about,
        device=DEVICE,
        versions={"torch": "2.11.0"},
        outline=outline,
        tried=tried,
        clocks_mhz=None,
        whole=assembly.whole_of([]),
        state=SavedMemory(1, 1, "device", ""),
        by_difference={},
        not_repeated={},
    )
