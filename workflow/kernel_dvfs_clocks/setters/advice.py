"""What to know about setting the clocks of this machine's GPUs: which ways work, why others do not, what to ask for."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.lease import user
from kernel_dvfs_clocks.setters.choice import WAYS, obstacle, working
from kernel_dvfs_clocks.setters.tools import sudoers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
_ROOTS_OWN = "/opt/kernel-dvfs"  # root must not run what users can change


@dataclass(frozen=True, slots=True)
class Way:
    """A way to set clocks."""

    name: str
    obstacle: str | None  # why it would not work here; null: it works
    needs: str  # in words
    limits: str | None  # what it can do less than the others


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """What an administrator can be asked for."""

    what: str
    lines: list[str]  # commands or lines of a file, ready to paste


@dataclass(frozen=True, slots=True)
class Advice:
    """Which way of setting clocks works for GPUs here, why another does not, and what to ask for."""

    ways: list[Way]
    slurm: str  # whether Slurm sets clocks, in words
    through: str | None  # the way that `through: auto` takes; null: none works
    watch: str | None  # a command that frees clocks after a killed job, where that way gives nothing back by itself
    requests: list[AdminRequest]  # where none works, the safest first


def advice(uuids: Sequence[str]) -> Advice:
    """Return what to know about setting the clocks of GPUs of this machine. Sets no clock."""
    taken = working(*uuids)
    watched = taken and not WAYS[taken].capabilities.survives
    return Advice(
        [_way(name, uuids) for name in WAYS],
        _slurm(),
        taken or None,
        f"kernel-dvfs reset --all --stale --watch --through {taken}" if watched else None,
        [] if taken else list(_requests(uuids)),
    )


def _way(name: str, uuids: Sequence[str]) -> Way:
    capabilities = WAYS[name].capabilities
    limits = (
        None if capabilities.alone else "both clocks at once, each to one value: configure through: dcgm, lock: exact"
    )
    return Way(name, obstacle(name, *uuids) or None, capabilities.needs, limits)


def _slurm() -> str:
    asked = os.environ.get("SLURM_GPU_FREQ")
    if "SLURM_JOB_ID" in os.environ and asked:
        return f"yes, for this job's pair: it asked for {asked}; configure clocks: external, which verifies the pair"
    if "SLURM_JOB_ID" in os.environ or shutil.which("sbatch"):
        return "perhaps, one job a pair: clocks: external asks for each with --gpu-freq, and verifies it"
    return "no: neither a job of Slurm nor a machine that submits them"


def in_container() -> bool:
    """Return whether this process runs in a container, as far as container runtimes tell."""
    container = os.environ.get("container")  # noqa: SIM112 - the runtimes write it like that
    return bool(container) or any(map(os.path.exists, _CONTAINERS))


def _requests(uuids: Sequence[str]) -> Iterator[AdminRequest]:
    """Yield what to ask for, the safest first."""
    me = user()
    if in_container():
        yield AdminRequest(
            "this container with the broker of its host (below), and with its leases:",
            ["--volume /run/kernel-dvfs:/run/kernel-dvfs:ro --volume /run/lock:/run/lock"],
        )
    unit = "/etc/systemd/system/kernel-dvfs-broker.service"
    yield AdminRequest(
        "a broker, which gives clocks back whatever happens to a job; as root, from a copy of this repository:",
        [
            f"python3 -m venv {_ROOTS_OWN} && {_ROOTS_OWN}/bin/pip install --require-hashes -r envs/broker.lock",
            f"cp -rL workflow/kernel_dvfs workflow/kernel_dvfs_clocks {_ROOTS_OWN}/lib/python3*/site-packages/",
            f"{_ROOTS_OWN}/bin/python -P -m kernel_dvfs broker --allow {me} --unit > {unit}",
            "systemctl enable --now kernel-dvfs-broker",
        ],
    )
    if not in_container():
        yield from _sudoers(me, uuids)
    if "SLURM_JOB_ID" in os.environ or shutil.which("sbatch"):
        yield AdminRequest(
            "Slurm's own way: AutoDetect=nvml in gres.conf. This tells whether it sets clocks:",
            ["srun --gpus=1 --gpu-freq=low,memory=low,verbose true"],
        )
    yield AdminRequest(
        "zeusd, if the site has it; it gives nothing back by itself, so leave this running outside of your jobs:",
        [
            "zeusd serve --socket-path /run/zeusd/zeusd.sock --socket-permissions 666",
            "kernel-dvfs reset --all --stale --watch --through zeusd",
        ],
    )
    if in_container():
        yield AdminRequest(
            "this container with root's right, which is much wider: root inside, and", ["--cap-add=SYS_ADMIN"]
        )


def _sudoers(me: str, uuids: Sequence[str]) -> Iterator[AdminRequest]:
    try:
        lines = sudoers(f"#{me}" if me.isdecimal() else me, uuids).splitlines()
    except InputError:
        return  # a name that sudoers cannot hold
    yield AdminRequest(
        "these lines as /etc/sudoers.d/kernel-dvfs (sudo 1.9.10 or newer; visudo -cf checks them):", lines
    )
