"""Clocks through a tool of the system: `sudo -k -n nvidia-smi`, or DCGM's host engine through dcgmi.

sudo: an entry in sudoers that allows four options for named GPUs, no more. nvidia-smi's exit codes are NVML's error
codes (nvidia-smi(1), "RETURN VALUE"). It also ends with 0 after "not supported ... Treating as warning and moving on",
so what it prints is read too.

DCGM: `dcgmi config --set -a <memory>,<core>`, asked of a group of this one GPU. What it does:
https://docs.nvidia.com/datacenter/dcgm, "dcgmi config", and modules/config/DcgmConfigManager.cpp of
https://github.com/NVIDIA/DCGM. Both clocks are set at once, each to one value; 0,0 frees both. It is the host engine
that needs root, not who asks it. The engine keeps the pair as its target and sets it again after a reset of the GPU.
Older versions set application clocks, which some drivers ignore: whether a pair was reached is for the records to say.
"""

from __future__ import annotations

import os
import re
import shutil
from functools import partial
from typing import TYPE_CHECKING

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.library import NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, NvmlError, refused
from kernel_dvfs_clocks.setters.setter import Capabilities, Domain, Range, Setter, run_tool
from kernel_dvfs_clocks.trust import is_roots_own

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernel_dvfs_clocks.nvml.board import Board

_LOCK: dict[Domain, str] = {"core": "-lgc", "mem": "-lmc"}
_RESET: dict[Domain, str] = {"core": "-rgc", "mem": "-rmc"}
# exit codes of nvidia-smi that NVML has too; 1 is sudo's own refusal
_CODES = (2, 3, 4, 6, 9, 12, 15)
# no question, and no answer that was given a while ago: what works now must still work when the clocks are given back
_SUDO = ("sudo", "-k", "-n")
_ALLOW = "have the lines that kernel-dvfs devices prints put into /etc/sudoers.d/kernel-dvfs"
_DCGM_REMEDY = "kernel-dvfs devices says what DCGM needs"
_DCGM_SET = "Configuration successfully set"


class Sudo(Setter):
    """A GPU through nvidia-smi, called by sudo, which never asks for a password."""

    name = "sudo"
    capabilities = Capabilities(needs="an entry in sudoers for nvidia-smi -lgc, -lmc, -rgc and -rmc")

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        self._run(_LOCK[domain], f"{lowest_mhz},{highest_mhz}")

    def _reset(self, domain: Domain) -> None:
        self._run(_RESET[domain])

    def _run(self, *option: str) -> None:
        code, output = run_tool([*_SUDO, tool(), "-i", self.uuid, *option], self.uuid)
        call = f"sudo nvidia-smi {option[0]}"
        if re.search("not supported", output, re.IGNORECASE):
            raise refused(call, self.uuid, output, "kernel-dvfs devices shows what the GPU can do", NOT_SUPPORTED)
        if code == 0:
            return
        if code == 1 or code == NO_PERMISSION:
            raise refused(call, self.uuid, output, _ALLOW, NO_PERMISSION)
        raise refused(call, self.uuid, output, "see dmesg for Xid messages", code if code in _CODES else UNKNOWN)


def tool() -> str:
    """Return nvidia-smi's path, as sudoers must name it: one that only root can change, since sudo runs it as root.
    Without links, so that what was looked at is what is run."""
    paths = (shutil.which("nvidia-smi", path=folder) for folder in os.get_exec_path() if os.path.isabs(folder))
    return next((os.path.realpath(path) for path in paths if path and is_roots_own(path)), "/usr/bin/nvidia-smi")


def allowed(uuids: Sequence[str]) -> str:
    """Return why this user may not set clocks of all these GPUs by sudo; "" where he may. Nothing is run but
    `sudo -ll`.

    From 1.9.15 on it names the rule that matches, and so whether that asks for a password. Before, it repeats the
    command alone, and a rule that does ask shows when the first clock is set.
    """
    if not shutil.which("sudo"):
        return "sudo is not on PATH"
    if not os.path.exists(tool()):
        return "no nvidia-smi on PATH that only root can change"
    wanted = [*((option, "300,300") for option in _LOCK.values()), *((option,) for option in _RESET.values())]
    for uuid in uuids:
        for words in wanted:
            try:
                code, output = run_tool([*_SUDO, "-ll", tool(), "-i", uuid, *words], uuid)
            except NvmlError as error:
                return str(error)
            if code or not (output.startswith(tool()) or "!authenticate" in output):
                return f"sudo does not let you run {tool()} -i {uuid} {words[0]} without a password"
    return ""


def sudoers(user: str, uuids: Sequence[str]) -> str:
    """Return the lines for sudoers (sudo 1.9.10 or newer) that let `user` lock and free the clocks of these GPUs, and
    nothing else: the whole command line must match, its words joined by spaces. So `-lgc 1,2` as one word matches as
    well; nvidia-smi knows no such option. user: a name, or #number. Raises InputError for what sudoers would read as
    something else.

    Regular expressions, since in sudoers the wildcard * also matches further options.
    """
    if not re.fullmatch(r"#[0-9]+|[A-Za-z0-9_][\w.-]*", user, re.ASCII):
        raise InputError(f"sudoers: '{user}' is no plain user name; give the user's number instead: #1000")
    options = rf"({'|'.join(_LOCK.values())}) [0-9]+,[0-9]+|{'|'.join(_RESET.values())}"
    lines = [rf"    {tool()} ^-i {uuid} ({options})$" for uuid in uuids]
    return "\n".join(
        [
            "Cmnd_Alias KERNEL_DVFS_CLOCKS = \\",
            ", \\\n".join(lines),
            f"{user} ALL=(root) NOPASSWD: KERNEL_DVFS_CLOCKS",
        ]
    )


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
            reason = "sets both clocks at once, each to one value"
            raise refused("dcgmi config", self.uuid, reason, "configure lock: exact, and pairs of MHz", NOT_SUPPORTED)
        return [partial(self._set, mem[1], core[1])]

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        raise AssertionError("locks() sets both at once")

    def _reset(self, domain: Domain) -> None:
        self._set(0, 0)

    def _set(self, mem_mhz: int, core_mhz: int) -> None:
        code, output = run_tool(
            ["dcgmi", "config", "--set", "-g", self._group, "-a", f"{mem_mhz},{core_mhz}"], self.uuid
        )
        if code == 0 and _DCGM_SET in output:
            return
        raise _refusal("dcgmi config --set", self.uuid, output)


def _refusal(call: str, uuid: str, output: str) -> NvmlError:
    if re.search("non-root|root privilege|permission", output, re.IGNORECASE):
        return refused(call, uuid, output, "have nv-hostengine run as root", NO_PERMISSION)
    if re.search("not supported|unsupported", output, re.IGNORECASE):
        return refused(call, uuid, output, "kernel-dvfs devices shows what the GPU can do", NOT_SUPPORTED)
    return refused(call, uuid, output, _DCGM_REMEDY, UNKNOWN)


def _group_of(uuid: str) -> str:
    """Return the number of the engine's group that holds this GPU alone; made where there is none yet, and kept: a
    killed run could not remove it."""
    name = f"kernel-dvfs-{uuid}"
    _, output = run_tool(["dcgmi", "group", "-l"], uuid)
    for number, known in re.findall(r"Group ID *\| (\d+) .*?Group Name *\| (\S+)", output):
        if known == name:
            return number
    code, output = run_tool(["dcgmi", "group", "-c", name, "-a", engine_id(uuid)], uuid)
    match = re.search(r"group ID of (\d+)", output)
    if code or not match:
        raise _refusal("dcgmi group -c", uuid, output)
    return match[1]


def engine_id(uuid: str) -> str:
    """Return the engine's number of a GPU. Raises NvmlError where no engine answers or it does not have the GPU."""
    if not shutil.which("dcgmi"):
        raise refused("dcgmi", uuid, "is not on PATH", _DCGM_REMEDY)
    code, output = run_tool(["dcgmi", "discovery", "-l"], uuid)
    for number, known in re.findall(r"\| (\d+) \| Name: .*?Device UUID: (\S+)", output):
        if known == uuid:
            return number
    if code:
        raise _refusal("dcgmi discovery -l", uuid, output)
    raise refused("dcgmi discovery -l", uuid, "does not list it", "the host engine serves other GPUs")
