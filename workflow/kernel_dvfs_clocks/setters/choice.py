"""Which way sets the clocks: as configured, or the first that works here; why another does not."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.setters import broker
from kernel_dvfs_clocks.setters.broker import Broker
from kernel_dvfs_clocks.setters.setter import Capabilities, Nvml, Setter, may_set_clocks
from kernel_dvfs_clocks.setters.tools import Dcgm, Sudo, allowed, engine_id
from kernel_dvfs_clocks.setters.zeusd import PLACES, Zeusd, offer, socket_path, why_not_by_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernel_dvfs_clocks.nvml.board import Board

AUTO = "auto"
WAYS: dict[str, type[Setter]] = {way.name: way for way in (Nvml, Broker, Zeusd, Sudo, Dcgm)}


def can(through: str) -> Capabilities:
    """Return what a way can do; for `auto`, which takes only ways that can do everything, that."""
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
    capabilities = can(through)
    if ranges and not capabilities.ranges:
        raise InputError(
            f"through: {through} locks each clock to one value, not to a range; configure lock: exact, or name another "
            "way"
        )
    if one_clock_alone and not capabilities.alone:
        raise InputError(
            f"through: {through} locks both clocks or none, and here one is locked alone; name another way"
        )
    asked = [mhz for mhz in (after.get("core"), after.get("mem")) if mhz]
    if not capabilities.alone and len(asked) == 1:
        raise InputError(f"through: {through} locks both clocks or none, so after must name both core and mem, or none")
    if not capabilities.ranges and any(lowest != highest for lowest, highest in asked):
        raise InputError(
            f"through: {through} locks each clock to one value, so the lowest and highest of after must be equal"
        )


def resolve(through: str, uuid: str) -> str:
    """Return the way that `through` means for a GPU: itself, or for `auto` the first that works: broker, NVML with its
    right, zeusd, sudo. Where none does, NVML, whose refusal says what to do. DCGM is not among them: it locks
    otherwise.

    Sets no clock. Raises InputError for a word that is no way.
    """
    check(through, {})
    if through != AUTO:
        return through
    return working(uuid) or Nvml.name


def working(*uuids: str) -> str:
    """Return the way that `auto` takes for GPUs here; "" where none would set their clocks."""
    return next((name for name in (Broker.name, Nvml.name, Zeusd.name, Sudo.name) if not obstacle(name, *uuids)), "")


def obstacle(way: str, *uuids: str) -> str:
    """Return why a way would not set the clocks of GPUs here, as far as can be told without setting any; "" where
    nothing speaks against it."""
    try:
        if way == Nvml.name:
            may, why = may_set_clocks()
            return "" if may else why
        if way == Broker.name:
            return broker.obstacle()
        if way == Zeusd.name:
            return _zeusd_obstacle()
        if way == Sudo.name:
            return allowed(uuids)
        if way == Dcgm.name:
            if not shutil.which("dcgmi"):
                return "dcgmi is not on PATH"
            for uuid in uuids:
                engine_id(uuid)
        return ""
    except InputError as error:
        return str(error)


def lacking(through: str, uuid: str) -> str:
    """Return in a line that nothing here would set the clocks of a GPU, and why; "" where something may. Sets none."""
    if through == AUTO and working(uuid):
        return ""
    why = obstacle(resolve(through, uuid), uuid)
    return why and (
        f"nothing here may set the clocks of GPU {uuid} ({why}): kernel-dvfs devices says what to ask for; "
        "clocks=auto-only needs no right"
    )


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


def opened(way: str, board: Board) -> Setter:
    """Return the setter of a way (see `resolve`) for a board. Raises NvmlError where it cannot be reached."""
    return WAYS[way](board)


def only_slurm(uuids: Sequence[str]) -> str:
    """Return why nothing can change the clocks of a job step of Slurm while it runs, and what can be done; "" where
    something can, or this is no job of Slurm."""
    if "SLURM_JOB_ID" not in os.environ or working(*uuids):
        return ""
    return (
        "nothing but Slurm sets clocks here, and it sets them for a whole job step (srun --gpu-freq=CORE,memory=MEM), "
        "not within one: --dry-run measures at auto, `clocks: external` compares pairs by a job each, and "
        "kernel-dvfs devices says what to ask for"
    )
