"""What `devices` says of setting clocks: which way works here, why another does not, and what to ask for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.lease import user
from kernel_dvfs.gpu.setters.choice import WAYS, obstacle, working
from kernel_dvfs.gpu.setters.sudo import sudoers

_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
_ROOTS_OWN = "/opt/kernel-dvfs"  # root must not run what users can change


def said(uuids: Sequence[str]) -> Iterator[str]:
    """The lines for GPUs of this machine. Sets no clock."""
    yield "ways to lock clocks here (docs/clocks-without-root.md):"
    for way in WAYS:
        against = obstacle(way, *uuids)
        about = WAYS[way].capabilities
        limits = "" if about.alone else "; both clocks at once, each to one value: configure through: dcgm, lock: exact"
        yield f"   {way:7} no: {against}; needs {about.needs}" if against else f"   {way:7} yes{limits}"
    yield f"   {'slurm':7} {_slurm()}"
    taken = working(*uuids)
    if taken:
        yield f"   through: auto takes {taken}"
        if not WAYS[taken].capabilities.survives:
            yield (
                "   a job killed with all its processes leaves clocks locked; this, started outside of it, frees them:"
            )
            yield f"        kernel-dvfs reset --all --stale --watch --through {taken}"
        return
    yield "   through: auto finds none of its ways. Your administrator can give you one of these:"
    yield from _requests(uuids)


def _slurm() -> str:
    asked = os.environ.get("SLURM_GPU_FREQ")
    if "SLURM_JOB_ID" in os.environ and asked:
        return f"yes, for this job's pair: it asked for {asked}; configure clocks: external, which verifies the pair"
    if "SLURM_JOB_ID" in os.environ or shutil.which("sbatch"):
        return "perhaps, one job a pair: clocks: external asks for each with --gpu-freq, and verifies it"
    return "no: neither a job of Slurm nor a machine that submits them"


def in_container() -> bool:
    """Whether this process runs in a container, as far as container runtimes tell."""
    told = os.environ.get("container")  # noqa: SIM112 - the runtimes write it like that
    return bool(told) or any(map(os.path.exists, _CONTAINERS))


def _requests(uuids: Sequence[str]) -> Iterator[str]:
    """What to ask for, ready to paste, the safest first."""
    me = user()
    if in_container():
        yield "   - this container with the broker of its host (below), and with its leases:"
        yield "        --volume /run/kernel-dvfs:/run/kernel-dvfs --volume /run/lock:/run/lock"
        yield "     or, which is much wider, with root's right: --cap-add=SYS_ADMIN, and root inside"
    yield "   - a broker, which gives clocks back whatever happens to a job; as root, from a copy of this repository:"
    yield f"        python3 -m venv {_ROOTS_OWN} && {_ROOTS_OWN}/bin/pip install ."
    unit = "/etc/systemd/system/kernel-dvfs-broker.service"
    yield f"        {_ROOTS_OWN}/bin/kernel-dvfs broker --allow {me} --unit > {unit}"
    yield "        systemctl enable --now kernel-dvfs-broker"
    if not in_container():
        yield from _sudoers(me, uuids)
    if "SLURM_JOB_ID" in os.environ or shutil.which("sbatch"):
        yield "   - Slurm's own way: AutoDetect=nvml in gres.conf. This tells whether it sets clocks:"
        yield "        srun --gpus=1 --gpu-freq=low,memory=low,verbose true"
    yield "   - zeusd, if the site has it; it gives nothing back by itself, so leave this running outside of your jobs:"
    yield "        zeusd serve --socket-path /run/zeusd/zeusd.sock --socket-permissions 666"
    yield "        kernel-dvfs reset --all --stale --watch --through zeusd"


def _sudoers(me: str, uuids: Sequence[str]) -> Iterator[str]:
    try:
        lines = sudoers(f"#{me}" if me.isdecimal() else me, uuids).splitlines()
    except InputError:
        return  # a name that sudoers cannot hold
    yield "   - these lines as /etc/sudoers.d/kernel-dvfs (sudo 1.9.10 or newer; visudo -cf checks them):"
    yield from (f"        {line}" for line in lines)
