"""Clocks through `sudo -k -n nvidia-smi`: an entry in sudoers that allows four options for named GPUs, no more.

nvidia-smi's exit codes are NVML's error codes (nvidia-smi(1), "RETURN VALUE"). It also ends with 0 after "not
supported ... Treating as warning and moving on", so what it prints is read too.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import is_roots_own
from kernel_dvfs.gpu.nvml.errors import NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, NvmlError, refused
from kernel_dvfs.gpu.setters.setter import Capabilities, Domain, Setter, run_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOCK: dict[Domain, str] = {"core": "-lgc", "mem": "-lmc"}
_RESET: dict[Domain, str] = {"core": "-rgc", "mem": "-rmc"}
# exit codes of nvidia-smi that NVML has too; 1 is sudo's own refusal
_CODES = (2, 3, 4, 6, 9, 12, 15)
# no question, and no answer that was given a while ago: what works now must still work when the clocks are given back
_SUDO = ("sudo", "-k", "-n")
_ALLOW = "have the lines that kernel-dvfs devices prints put into /etc/sudoers.d/kernel-dvfs"


class Sudo(Setter):
    """A GPU through nvidia-smi, called by sudo, which never asks for a password."""

    name = "sudo"
    capabilities = Capabilities(needs="an entry in sudoers for nvidia-smi -lgc, -lmc, -rgc and -rmc")

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        self._run(_LOCK[domain], f"{lowest_mhz},{highest_mhz}")

    def _reset(self, domain: Domain) -> None:
        self._run(_RESET[domain])

    def _run(self, *option: str) -> None:
        code, said = run_tool([*_SUDO, tool(), "-i", self.uuid, *option], self.uuid)
        call = f"sudo nvidia-smi {option[0]}"
        if re.search("not supported", said, re.IGNORECASE):
            raise refused(call, self.uuid, said, "kernel-dvfs devices shows what the GPU can do", NOT_SUPPORTED)
        if code == 0:
            return
        if code == 1 or code == NO_PERMISSION:
            raise refused(call, self.uuid, said, _ALLOW, NO_PERMISSION)
        raise refused(call, self.uuid, said, "see dmesg for Xid messages", code if code in _CODES else UNKNOWN)


def tool() -> str:
    """nvidia-smi's path, as sudoers must name it: one that only root can change, since sudo runs it as root. Without
    links, so that what was looked at is what is run."""
    found = (shutil.which("nvidia-smi", path=folder) for folder in os.get_exec_path() if os.path.isabs(folder))
    return next((os.path.realpath(path) for path in found if path and is_roots_own(path)), "/usr/bin/nvidia-smi")


def allowed(uuids: Sequence[str]) -> str:
    """Why this user may not set clocks of all these GPUs by sudo; "" where he may. Nothing is run but `sudo -ll`.

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
                code, said = run_tool([*_SUDO, "-ll", tool(), "-i", uuid, *words], uuid)
            except NvmlError as error:
                return str(error)
            if code or not (said.startswith(tool()) or "!authenticate" in said):
                return f"sudo does not let you run {tool()} -i {uuid} {words[0]} without a password"
    return ""


def sudoers(user: str, uuids: Sequence[str]) -> str:
    """The lines for sudoers (sudo 1.9.10 or newer) that let `user` lock and free the clocks of these GPUs, and nothing
    else: the whole command line must match. user: a name, or #number. Raises InputError for what sudoers would read as
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
