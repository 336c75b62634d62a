"""Clocks through DCGM's host engine: `dcgmi config --set -a <memory>,<core>`, asked of a group of this one GPU.

What it does: https://docs.nvidia.com/datacenter/dcgm, "dcgmi config", and modules/config/DcgmConfigManager.cpp of
https://github.com/NVIDIA/DCGM. Both clocks are set at once, each to one value; 0,0 frees both. It is the host engine
that needs root, not who asks it. The engine keeps the pair as its target and sets it again after a reset of the GPU.
Older versions set application clocks, which some drivers ignore: whether a pair was reached is for the records to say.
"""

from __future__ import annotations

import re
import shutil
from functools import partial
from typing import TYPE_CHECKING

from kernel_dvfs.gpu.nvml.errors import NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, NvmlError, refused
from kernel_dvfs.gpu.setters.setter import Capabilities, Domain, Range, Setter, run_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_dvfs.gpu.nvml.board import Board

_REMEDY = "kernel-dvfs devices says what DCGM needs"
_SET = "Configuration successfully set"


class Dcgm(Setter):
    """The GPU of `board` through the host engine that dcgmi reaches. Raises NvmlError where none answers."""

    name = "dcgm"
    capabilities = Capabilities(needs="dcgmi, and a DCGM host engine that runs as root", alone=False, ranges=False)

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._group = _group_of(board.uuid)

    def locks(self, core: Range | None, mem: Range | None) -> list[Callable[[], None]]:
        """See Setter. Raises Unsupported for one clock alone and for a range."""
        if core is None and mem is None:
            return []
        if core is None or mem is None or core[0] != core[1] or mem[0] != mem[1]:
            said = "sets both clocks at once, each to one value"
            raise refused("dcgmi config", self.uuid, said, "configure lock: exact, and pairs of MHz", NOT_SUPPORTED)
        return [partial(self._set, mem[1], core[1])]

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        raise AssertionError("locks() sets both at once")

    def _reset(self, domain: Domain) -> None:
        self._set(0, 0)

    def _set(self, mem_mhz: int, core_mhz: int) -> None:
        code, said = run_tool(["dcgmi", "config", "--set", "-g", self._group, "-a", f"{mem_mhz},{core_mhz}"], self.uuid)
        if code == 0 and _SET in said:
            return
        raise _refusal("dcgmi config --set", self.uuid, said)


def _refusal(call: str, uuid: str, said: str) -> NvmlError:
    if re.search("non-root|root privilege|permission", said, re.IGNORECASE):
        return refused(call, uuid, said, "have nv-hostengine run as root", NO_PERMISSION)
    if re.search("not supported|unsupported", said, re.IGNORECASE):
        return refused(call, uuid, said, "kernel-dvfs devices shows what the GPU can do", NOT_SUPPORTED)
    return refused(call, uuid, said, _REMEDY, UNKNOWN)


def _group_of(uuid: str) -> str:
    """The number of the engine's group that holds this GPU alone; made where there is none yet, and kept: a killed run
    could not remove it."""
    name = f"kernel-dvfs-{uuid}"
    _, said = run_tool(["dcgmi", "group", "-l"], uuid)
    for number, known in re.findall(r"Group ID *\| (\d+) .*?Group Name *\| (\S+)", said):
        if known == name:
            return number
    code, said = run_tool(["dcgmi", "group", "-c", name, "-a", engine_id(uuid)], uuid)
    made = re.search(r"group ID of (\d+)", said)
    if code or not made:
        raise _refusal("dcgmi group -c", uuid, said)
    return made[1]


def engine_id(uuid: str) -> str:
    """The engine's number of a GPU. Raises NvmlError where no engine answers or it does not have the GPU."""
    if not shutil.which("dcgmi"):
        raise refused("dcgmi", uuid, "is not on PATH", _REMEDY)
    code, said = run_tool(["dcgmi", "discovery", "-l"], uuid)
    for number, known in re.findall(r"\| (\d+) \| Name: .*?Device UUID: (\S+)", said):
        if known == uuid:
            return number
    if code:
        raise _refusal("dcgmi discovery -l", uuid, said)
    raise refused("dcgmi discovery -l", uuid, "does not list it", "the host engine serves other GPUs")
