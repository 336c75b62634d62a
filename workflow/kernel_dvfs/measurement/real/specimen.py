"""Which GPU Slurm has given a job, and whether it is the one that a study is about.

Boards of one type differ, so each is a specimen with results of its own: a job that lands on another board must never
add to the results of the first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kernel_dvfs import slurm
from kernel_dvfs.measurement import setup
from kernel_dvfs.measurement.real.allocation import wait
from kernel_dvfs_clocks.clocks import is_number
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text
from kernel_dvfs_clocks.nvml.board import by_index
from kernel_dvfs_clocks.nvml.facts import identify
from kernel_dvfs_clocks.nvml.library import Library

_TELL = ".snakemake/kernel-dvfs-identify.said"
# what makes a setup another one
_IDENTITY = ("name", "uuid", "driver", "vbios", "power_limit_mw", "ecc")


def here(which: str, results: str, tell: str = "") -> str:
    """Return the UUID of the GPU that `which` names here, or that Slurm gave this job; keep the GPU's facts in
    `results`.

    tell: a file into which the UUID is written, or what is wrong. Raises InputError.
    """
    try:
        given = given_by_slurm()
        uuid = identify(which or (given[0] if given else ""), results)["uuid"]
    except InputError as error:
        if tell:
            write_text(tell, f"error: {error}\n")
        raise
    if tell:
        write_text(tell, uuid + "\n")
    return uuid


def elsewhere(options: str, results: str) -> str:
    """Return the UUID of the GPU that a job with these options of sbatch gets. Waits in the queue. Raises
    InputError."""
    slurm.check(options, "slurm_gpu")
    Path(_TELL).parent.mkdir(exist_ok=True)
    Path(_TELL).unlink(missing_ok=True)
    job = slurm.submit(
        options,
        "kernel-dvfs-identify",
        [sys.executable, "-m", "kernel_dvfs", "identify", "--results", results, "--tell", _TELL],
    )
    print(f"Slurm job {job} looks which GPU it gets with '{options}'", file=sys.stderr, flush=True)
    with slurm.cancelled_on_failure(job):
        answer = wait(job, _TELL)[0]
    if not answer.startswith("GPU-"):
        raise InputError(answer.removeprefix("error: "))
    return answer


def given_by_slurm() -> list[str]:
    """Return the UUIDs of the GPUs that Slurm gave this job; none outside of jobs. Raises InputError where a job has
    none."""
    if "SLURM_JOB_ID" not in os.environ:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    with Library() as nvml:
        present = by_index(nvml)
    named = [present.get(int(index)) for index in visible.split(",") if is_number(index)]
    given = [uuid for uuid in named if isinstance(uuid, str)]
    if not given:
        raise InputError(f"Slurm gave this job no GPU (CUDA_VISIBLE_DEVICES = '{visible}'); add --gpus=1 to slurm_gpu")
    return given


def check_is_here(setup_path: str) -> None:
    """Raise InputError unless Slurm gave this job the GPU of a setup, unchanged; keeps the facts as they are now."""
    gpu, results = setup.read(setup_path).gpu, str(Path(setup_path).parents[3])
    given = given_by_slurm()
    if gpu["uuid"] not in given:
        raise InputError(
            f"Slurm gave {', '.join(given)} on node {os.environ.get('SLURMD_NODENAME')}, not {gpu['uuid']}: another "
            "specimen has results of its own (kernel-dvfs identify --slurm=OPTIONS); or let slurm_gpu ask for all "
            "GPUs of the node"
        )
    now = identify(gpu["uuid"], results)
    changed = [f"{key} {gpu[key]} -> {now[key]}" for key in _IDENTITY if now[key] != gpu[key]]
    if changed:
        raise InputError(
            f"GPU {gpu['uuid']} has changed: {', '.join(changed)}; run snakemake again: all is measured anew"
        )
