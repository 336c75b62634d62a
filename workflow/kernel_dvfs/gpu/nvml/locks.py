"""Locked clocks of a board: who may set them, how a pair is put in force, and how both locks are given back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kernel_dvfs.gpu.clocks import supported_core_mhz
from kernel_dvfs.gpu.nvml.errors import NvmlError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_dvfs.gpu.clocks import Clock
    from kernel_dvfs.gpu.nvml.guard import Guard
    from kernel_dvfs.gpu.setters.setter import Range, Setter

_SYS_ADMIN = 21  # bit of CAP_SYS_ADMIN


class NotRestored(ExceptionGroup[Exception]):
    """Controls that could not be reset; an error each."""

    @property
    def calls(self) -> str:
        """The calls of NVML that failed, in words."""
        return ", ".join(getattr(each, "call", str(each)) for each in self.exceptions)


def not_restored(failed: NotRestored) -> str:
    """What a lease says of clocks that could not be restored."""
    return f"clocks that could not be restored: {failed.calls} failed"


def may_set_clocks() -> tuple[bool, str]:
    """(whether this process may set clocks, why in words), as far as one can tell without setting any: the driver has
    the last word, when the first clock is set."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            (mask,) = [int(line.split()[1], 16) for line in file if line.startswith("CapEff:")]
    except (OSError, ValueError):
        mask = 0
    who = f"user {os.geteuid()}"
    if mask >> _SYS_ADMIN & 1:
        return True, f"{who} has CAP_SYS_ADMIN"
    return False, f"{who} lacks CAP_SYS_ADMIN"


def ranges(
    clocks: dict[str, Any], pair: tuple[Clock, Clock], exact: bool = False
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """((lowest, highest), (lowest, highest)) of core and memory that a pair asks for, MHz; None where it is left to the
    governor.

    clocks: of the GPU's facts. exact: the target alone, else from the lowest clock up to it.
    """
    core, mem = pair
    core_range = mem_range = None
    if not isinstance(core, str):
        core_range = core if exact else supported_core_mhz(clocks, mem)[0], core
    if not isinstance(mem, str):
        mem_range = mem if exact else min(clocks["mem_mhz"]), mem
    return core_range, mem_range


def lock_pair(guard: Guard, clocks: dict[str, Any], pair: tuple[Clock, Clock], exact: bool = False) -> None:
    """Put a pair in force on a guarded board, memory first: the core clocks that exist depend on it.

    Raises errors.NvmlError; memory may be locked by then, so reset the guard.
    """
    core, mem = ranges(clocks, pair, exact)
    if not mem and clocks["mem_mhz"]:
        guard.reset_mem()
    guard.lock(core, mem)
    if not core:
        guard.reset_core()


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


def _range(given: list[int] | None) -> Range | None:
    return (given[0], given[1]) if given else None
