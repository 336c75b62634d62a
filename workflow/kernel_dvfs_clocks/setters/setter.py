"""The one interface behind which every way of setting clocks stands, and what the ways share.

A setter is told what to lock and what to free, for one GPU. Taking the GPU, watching over its owner and deciding when
to restore are not its business: the holder does that for every way alike. How clocks are given back is here.
"""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from kernel_dvfs_clocks.nvml.library import TIMEOUT, NvmlError, Unsupported, patience_s, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernel_dvfs_clocks.nvml.board import Board

Range: TypeAlias = tuple[int, int]  # (lowest, highest), MHz
Domain: TypeAlias = Literal["core", "mem"]

_SYS_ADMIN = 21  # bit of CAP_SYS_ADMIN


class Capabilities(NamedTuple):
    """What a way can do. Every one locks both clocks and frees them. Reading back is NVML's, for all: it needs no
    right."""

    needs: str  # the right or the service, in words
    alone: bool = True  # one clock can be locked and the other left to the GPU
    ranges: bool = True  # a range can be locked, not only one clock
    survives: bool = False  # clocks come back even if every process of the client's job is killed, its holder too
    power: bool = False  # sets a power limit, too


class Setter(ABC):
    """One way to set the clocks of one GPU. Every method may raise nvml.library.NvmlError: Denied where the right is
    missing, Unsupported where the GPU or the way cannot do it. A way that does not answer in time raises too."""

    name: str  # as the configuration's `through` says it
    capabilities: Capabilities

    def __init__(self, board: Board) -> None:
        self.uuid = board.uuid

    def locks(self, core: Range | None, mem: Range | None) -> list[Callable[[], None]]:
        """Return what is to be called, in this order, to keep the given clocks in their ranges, MHz: memory first,
        since the core clocks that exist depend on it. A clock that is not given is left as it is.

        Raises Unsupported where the way cannot lock just that.
        """
        wanted: tuple[tuple[Domain, Range | None], ...] = (("mem", mem), ("core", core))
        return [partial(self._lock, domain, *mhz) for domain, mhz in wanted if mhz]

    def reset_core(self) -> None:
        """Free at least the core clock."""
        self._reset("core")

    def reset_mem(self) -> None:
        """Free at least the memory clock."""
        self._reset("mem")

    @abstractmethod
    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None: ...

    @abstractmethod
    def _reset(self, domain: Domain) -> None: ...


class Nvml(Setter):
    """NVML itself."""

    name = "nvml"
    capabilities = Capabilities(needs="root, or a container with --cap-add=SYS_ADMIN", power=True)

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._board = board

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        control = self._board.lock_core if domain == "core" else self._board.lock_mem
        control(lowest_mhz, highest_mhz)

    def _reset(self, domain: Domain) -> None:
        control = self._board.reset_core if domain == "core" else self._board.reset_mem
        control()


class NotRestored(ExceptionGroup[Exception]):
    """Controls that could not be reset; an error each."""

    @property
    def calls(self) -> str:
        """Return the calls of NVML that failed, in words."""
        return ", ".join(getattr(error, "call", str(error)) for error in self.exceptions)


def not_restored(failed: NotRestored) -> str:
    """Return what a lease says of clocks that could not be restored."""
    return f"clocks that could not be restored: {failed.calls} failed"


def reset(setter: Setter) -> None:
    """Reset both locks. Raises NotRestored after trying both; a lock that the GPU lacks needs no reset."""
    errors = []
    for control in (setter.reset_mem, setter.reset_core):
        try:
            control()
        except Unsupported:
            pass
        except NvmlError as error:
            errors.append(error)
    if errors:
        raise NotRestored(f"clocks of {setter.uuid} not restored", errors)


def leave_as_configured(setter: Setter, after: Mapping[str, list[int] | None]) -> None:
    """Reset both locks, then set what the site wants to find: {"core": [min, max], "mem": [min, max]} in MHz; None or
    nothing for a domain that is to be free.

    Raises NotRestored after trying everything.
    """
    reset(setter)
    errors: list[Exception] = []
    try:
        locks = setter.locks(_range(after.get("core")), _range(after.get("mem")))
    except NvmlError as error:
        locks, errors = [], [error]
    for lock in locks:
        try:
            lock()
        except NvmlError as error:
            errors.append(error)
    if errors:
        raise NotRestored(f"clocks of {setter.uuid} reset, but not set as `after` asks", errors)


def may_set_clocks() -> tuple[bool, str]:
    """Return (whether this process may set clocks, why in words), as far as one can tell without setting any: the
    driver has the last word, when the first clock is set."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            (mask,) = [int(line.split()[1], 16) for line in file if line.startswith("CapEff:")]
    except (OSError, ValueError):
        mask = 0
    who = f"user {os.geteuid()}"
    if mask >> _SYS_ADMIN & 1:
        return True, f"{who} has CAP_SYS_ADMIN"
    return False, f"{who} lacks CAP_SYS_ADMIN"


def run_tool(words: list[str], uuid: str) -> tuple[int, str]:
    """Return (exit code, what it printed in one line) of a tool. Raises NvmlError where it is not there or does not
    end."""
    call, limit_s, pipe = " ".join(words), patience_s(), subprocess.PIPE
    try:
        none = subprocess.DEVNULL
        process = subprocess.Popen(words, stdin=none, stdout=pipe, stderr=pipe, text=True, errors="replace")
    except OSError as error:
        raise refused(call, uuid, error.strerror or str(error), "kernel-dvfs devices says what works here") from None
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        with suppress(OSError):  # what runs as root is not ours to kill
            process.kill()
        late = refused(call, uuid, f"has not ended in {limit_s:g} s", "look what it waits for", TIMEOUT)
        late.wait = partial(process.communicate, timeout=limit_s)  # what it has started has its output too
        raise late from None
    text = " ".join(f"{errors} {output}".split())
    return process.returncode, text or f"exit code {process.returncode}"


def _range(given: list[int] | None) -> Range | None:
    return (given[0], given[1]) if given else None
