"""Which way sets the clocks: as configured, or the first that works here; why another does not, and what to ask for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.lease import user
from kernel_dvfs.gpu.setters.broker import Broker, hello, rules_here
from kernel_dvfs.gpu.setters.broker import socket_path as broker_socket
from kernel_dvfs.gpu.setters.setter import Capabilities, Nvml, Setter, may_set_clocks
from kernel_dvfs.gpu.setters.tools import Dcgm, Sudo, allowed, engine_id, sudoers
from kernel_dvfs.gpu.setters.zeusd import PLACES, Zeusd, offer, socket_path, why_not_by_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_dvfs.gpu.nvml.board import Board

AUTO = "auto"
WAYS: dict[str, type[Setter]] = {each.name: each for each in (Nvml, Broker, Zeusd, Sudo, Dcgm)}
_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
_ROOTS_OWN = "/opt/kernel-dvfs"  # root must not run what users can change


def can(through: str) -> Capabilities:
    """What a way can do; for `auto`, which takes only ways that can do everything, that."""
    return WAYS.get(through, Nvml).capabilities


def check(
    through: str,
    after: Mapping[str, list[int] | None],
    *,
    one_clock_alone: bool = False,
    ranges: bool = False,
) -> None:
    """Raise InputError for a word that is no way, and for what that way could never do, before anything is locked.

    after: clocks to leave behind, see setter.leave_as_configured. one_clock_alone: one clock will be locked while the
    other is left to the GPU. ranges: clocks will be locked to ranges.
    """
    if through != AUTO and through not in WAYS:
        raise InputError(f"through: '{through}' is no way to set clocks; allowed: {', '.join([AUTO, *WAYS])}")
    about = can(through)
    if ranges and not about.ranges:
        raise InputError(
            f"through: {through} locks each clock to one value, not to a range; configure lock: exact, or name another "
            "way"
        )
    if one_clock_alone and not about.alone:
        raise InputError(
            f"through: {through} locks both clocks or none, and here one is locked alone; name another way"
        )
    asked = [mhz for mhz in (after.get("core"), after.get("mem")) if mhz]
    if not about.alone and len(asked) == 1:
        raise InputError(f"through: {through} locks both clocks or none, so after must name both core and mem, or none")
    if not about.ranges and any(lowest != highest for lowest, highest in asked):
        raise InputError(
            f"through: {through} locks each clock to one value, so the lowest and highest of after must be equal"
        )


def resolve(through: str, uuid: str) -> str:
    """The way that `through` means for a GPU: itself, or for `auto` the first that works: broker, NVML with its right,
    zeusd, sudo. Where none does, NVML, whose refusal says what to do. DCGM is not among them: it locks otherwise.

    Sets no clock. Raises InputError for a word that is no way.
    """
    check(through, {})
    if through != AUTO:
        return through
    return working(uuid) or Nvml.name


def working(*uuids: str) -> str:
    """The way that `auto` takes for GPUs here; "" where none would set their clocks."""
    return next((name for name in (Broker.name, Nvml.name, Zeusd.name, Sudo.name) if not obstacle(name, *uuids)), "")


def obstacle(way: str, *uuids: str) -> str:
    """Why a way would not set the clocks of GPUs here, as far as can be told without setting any; "" where nothing
    speaks against it."""
    try:
        if way == Nvml.name:
            may, why = may_set_clocks()
            return "" if may else why
        if way == Broker.name:
            if not rules_here():
                return f"no broker listens at {broker_socket()}"
            hello()
        elif way == Zeusd.name:
            return _zeusd_obstacle()
        elif way == Sudo.name:
            return allowed(uuids)
        elif way == Dcgm.name:
            if not shutil.which("dcgmi"):
                return "dcgmi is not on PATH"
            for uuid in uuids:
                engine_id(uuid)
        return ""
    except InputError as error:
        return str(error)


def _zeusd_obstacle() -> str:
    if not os.path.exists(socket_path()):
        return f"no zeusd listens at {socket_path() or ' or '.join(PLACES)}"
    offered = offer()
    if offered is None:
        return why_not_by_index()
    groups = offered.get("enabled_api_groups")
    if groups is not None and "gpu-control" not in groups:
        return f"zeusd at {socket_path()} runs without the API group gpu-control"
    return ""


def check_after(way: str, after: Mapping[str, list[int] | None]) -> None:
    """Raise InputError where a way (see `resolve`) would not leave behind what `after` asks for."""
    if any(after.values()) and not WAYS[way].capabilities.heeds_after:
        raise InputError(
            f"after: through {way}, whoever runs it says what is left locked (kernel-dvfs {way} --after ...); leave "
            "`after` empty"
        )


def opened(way: str, board: Board) -> Setter:
    """The setter of a way (see `resolve`) for a board. Raises NvmlError where it cannot be reached."""
    return WAYS[way](board)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to set clocks."""

    name: str
    obstacle: str | None  # why it would not work here; null: it works
    needs: str  # in words
    limits: str | None  # what it can do less than the others


@dataclass(frozen=True, slots=True)
class Request:
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
    requests: list[Request]  # where none works, the safest first


def advice(uuids: Sequence[str]) -> Advice:
    """What to know about setting the clocks of GPUs of this machine. Sets no clock."""
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
    about = WAYS[name].capabilities
    limits = None if about.alone else "both clocks at once, each to one value: configure through: dcgm, lock: exact"
    return Way(name, obstacle(name, *uuids) or None, about.needs, limits)


def _slurm() -> str:
    asked = os.environ.get("SLURM_GPU_FREQ")
    if "SLURM_JOB_ID" in os.environ and asked:
        return f"yes, for this job's pair: it asked for {asked}; configure clocks: external, which verifies the pair"
    if "SLURM_JOB_ID" in os.environ or shutil.which("sbatch"):
        return "perhaps, one job a pair: clocks: external asks for each with --gpu-freq, and verifies it"
    return "no: neither a job of Slurm nor a machine that submits them"


def only_slurm(uuids: Sequence[str]) -> str:
    """Why nothing can change the clocks of a job step of Slurm while it runs, and what can be done; "" where something
    can, or this is no job of Slurm."""
    if "SLURM_JOB_ID" not in os.environ or working(*uuids):
        return ""
    return (
        "nothing but Slurm sets clocks here, and it sets them for a whole job step (srun --gpu-freq=CORE,memory=MEM), "
        "not within one: --dry-run measures at auto, `clocks: external` compares pairs by a job each, and "
        "kernel-dvfs devices says what to ask for"
    )


def in_container() -> bool:
    """Whether this process runs in a container, as far as container runtimes tell."""
    told = os.environ.get("container")  # noqa: SIM112 - the runtimes write it like that
    return bool(told) or any(map(os.path.exists, _CONTAINERS))


def _requests(uuids: Sequence[str]) -> Iterator[Request]:
    """What to ask for, the safest first."""
    me = user()
    if in_container():
        yield Request(
            "this container with the broker of its host (below), and with its leases:",
            ["--volume /run/kernel-dvfs:/run/kernel-dvfs --volume /run/lock:/run/lock"],
        )
    unit = "/etc/systemd/system/kernel-dvfs-broker.service"
    yield Request(
        "a broker, which gives clocks back whatever happens to a job; as root, from a copy of this repository:",
        [
            f"python3 -m venv {_ROOTS_OWN} && {_ROOTS_OWN}/bin/pip install --require-hashes -r envs/broker.lock",
            f"cp -rL workflow/kernel_dvfs {_ROOTS_OWN}/lib/python3*/site-packages/",
            f"{_ROOTS_OWN}/bin/python -P -m kernel_dvfs broker --allow {me} --unit > {unit}",
            "systemctl enable --now kernel-dvfs-broker",
        ],
    )
    if not in_container():
        yield from _sudoers(me, uuids)
    if "SLURM_JOB_ID" in os.environ or shutil.which("sbatch"):
        yield Request(
            "Slurm's own way: AutoDetect=nvml in gres.conf. This tells whether it sets clocks:",
            ["srun --gpus=1 --gpu-freq=low,memory=low,verbose true"],
        )
    yield Request(
        "zeusd, if the site has it; it gives nothing back by itself, so leave this running outside of your jobs:",
        [
            "zeusd serve --socket-path /run/zeusd/zeusd.sock --socket-permissions 666",
            "kernel-dvfs reset --all --stale --watch --through zeusd",
        ],
    )
    if in_container():
        yield Request(
            "this container with root's right, which is much wider: root inside, and", ["--cap-add=SYS_ADMIN"]
        )


def _sudoers(me: str, uuids: Sequence[str]) -> Iterator[Request]:
    try:
        lines = sudoers(f"#{me}" if me.isdecimal() else me, uuids).splitlines()
    except InputError:
        return  # a name that sudoers cannot hold
    yield Request("these lines as /etc/sudoers.d/kernel-dvfs (sudo 1.9.10 or newer; visudo -cf checks them):", lines)
