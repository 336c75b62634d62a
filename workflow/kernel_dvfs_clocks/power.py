"""The power limit that a GPU had before one of ours: on the disk before it is changed, and given back with the clocks.

NVML tells the limit in force, unlike which clocks were locked. So what comes back is that, not the board's default: an
administrator may have lowered it. It lies beside the lease, in a file of its own, which only its owner can write: a
lease is everybody's to write, and what root sets must not be what another user says.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TypedDict, final

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import parse_json
from kernel_dvfs_clocks.nvml import lease
from kernel_dvfs_clocks.nvml.library import INVALID, NOT_SUPPORTED, Denied, NvmlError, refused
from kernel_dvfs_clocks.setters.setter import NotRestored, leave_as_configured
from kernel_dvfs_clocks.shape import Is, checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_dvfs_clocks.nvml.board import Board
    from kernel_dvfs_clocks.setters.setter import Setter

SCHEMA = "kernel-dvfs/power-limit/1"
_ROUNDED_MW = 1000  # to which a driver may round what it is asked for


@final
class PowerLimitContent(TypedDict):
    """What the file says."""

    schema: str
    boot_id: lease.Line
    limit_mw: Annotated[int, Is("a power limit in mW", lambda value: 0 < value < 1 << 32)]  # else NVML takes another


class PowerLimit:
    """The power limit of a GPU whose lease is held. at: the folder of leases, see nvml.lease.path_of."""

    def __init__(self, uuid: str, at: str = "") -> None:
        self._uuid, self._path = uuid, lease.path_of(uuid, at).removesuffix(".json") + ".power"

    def change(self, board: Board, limit_mw: int) -> None:
        """Set it, once what it is now is on the disk. Raises NvmlError, and is as it was before this call then."""
        check(board, limit_mw)
        is_first = self._before_mw() is None
        if is_first:
            now_mw = board.power_management_limit_mw()
            assert now_mw is not None  # checked
            self._write(now_mw)
        try:
            _limit(board, limit_mw)
        except NvmlError:
            if is_first:
                with suppress(NvmlError):
                    self.give_back(board)
            raise

    def give_back(self, board: Board) -> int | None:
        """Set what it was, where it was changed. Returns that, mW; None where nothing is to be given back. Raises
        NvmlError."""
        before_mw = self._before_mw()
        if before_mw is None:
            return None
        # one who had no right has changed nothing, and cannot set what is there already
        if (now_mw := board.power_management_limit_mw()) != before_mw:
            try:
                _limit(board, before_mw)
            except Denied as denied:
                raise Denied(
                    f"GPU {self._uuid}: a run has left its power limit at {(now_mw or 0) / 1000:g} W, it was "
                    f"{before_mw / 1000:g} W; kernel-dvfs reset --uuid {self._uuid}, as root, gives it back",
                    *(denied.code, denied.call),
                ) from None
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
        except OSError as error:  # of another user's, or of a file system that may only be read
            raise InputError(f"{self._path}: {error.strerror}; the power limit is as it was; root deletes it") from None
        return before_mw

    def leave(self, setter: Setter, after: Mapping[str, list[int] | None], board: Board) -> None:
        """leave_as_configured, and the power limit as it was. Raises NotRestored after trying both."""
        failed: list[Exception] = []
        self._tidy()
        try:
            self.give_back(board)
        except InputError as error:
            failed.append(error)
        try:
            leave_as_configured(setter, after)
        except NotRestored as clocks:
            raise NotRestored(clocks.message, [*clocks.exceptions, *failed]) from None
        if failed:
            raise NotRestored(f"power limit of {self._uuid} not restored", failed)

    def _tidy(self) -> None:
        """Delete what a process killed while it wrote has left beside the file."""
        folder, name = os.path.split(self._path)
        with suppress(OSError):
            for entry in os.listdir(folder):
                if entry.startswith(f"{name}.") and entry.rpartition(".")[2].isdecimal():
                    with suppress(OSError):  # another user's
                        os.unlink(os.path.join(folder, entry))

    def _before_mw(self) -> int | None:
        """Return what it was before it was changed; None where it was not, since the last boot."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None  # none, or what is none of ours
        try:
            status = os.fstat(file)
            is_ours = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o022 and status.st_uid in (0, os.geteuid())
            text = os.read(file, 1 << 12).decode("utf-8", "replace") if is_ours else ""
        finally:
            os.close(file)
        if not text:
            return None
        try:
            content = checked(parse_json(text), PowerLimitContent, "power limit", "delete the file", SCHEMA)
        except ValueError as error:
            raise InputError(f"{self._path}: {error}; look at the power limit, then delete the file") from None
        return content["limit_mw"] if content["boot_id"] == lease.boot_id() else None

    def _write(self, limit_mw: int) -> None:
        # not files.whole, which writes through a pipe or a link to a device: anybody may have put one here
        content: PowerLimitContent = {"schema": SCHEMA, "boot_id": lease.boot_id(), "limit_mw": limit_mw}
        temporary = f"{self._path}.{os.getpid()}"
        try:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                os.fchmod(file, 0o644)
                os.write(file, json.dumps(content).encode())
                os.fsync(file)
            finally:
                os.close(file)
            os.rename(temporary, self._path)
        except OSError as error:
            raise InputError(
                f"{self._path}: {error.strerror}; without it nobody could give the power limit back, so none is set"
            ) from None


def _limit(board: Board, limit_mw: int) -> None:
    """Set it. Raises NvmlError, where the driver says that it has and shows another one too."""
    board.limit_power(limit_mw)
    shown_mw = board.power_management_limit_mw()
    if shown_mw is None or abs(shown_mw - limit_mw) > _ROUNDED_MW:
        shown = "none" if shown_mw is None else f"{shown_mw / 1000:g} W"
        reason = f"the driver took {limit_mw / 1000:g} W without an error, and shows {shown}"
        raise refused("power limit", board.uuid, reason, "look at what is in force: nvidia-smi -q -d POWER")


def check(board: Board, limit_mw: int) -> None:
    """Raise NvmlError where a board has no such power limit."""
    call, possible = "power limit", board.power_limits_mw()
    if possible is None or board.power_management_limit_mw() is None:
        raise refused(call, board.uuid, "this GPU has none that can be set", "leave it out", NOT_SUPPORTED)
    lowest, highest = possible
    if not lowest <= limit_mw <= highest:
        reason = f"{limit_mw / 1000:g} W is not possible; allowed: {lowest / 1000:g} to {highest / 1000:g} W"
        raise refused(call, board.uuid, reason, "choose one of these", INVALID)
