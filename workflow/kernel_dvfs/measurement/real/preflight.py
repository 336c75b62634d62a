"""What must hold before anything is set or measured on a GPU, whichever command does it.

`check` is all of it, in the order in which least is changed: nothing is locked on a board that somebody shares, or that
could not tell what came of it. A session of `measure` makes the same checks one by one, since it opens its loads in
between. Each refuses with its remedy, and leaves the GPU as it found it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernel_dvfs.measurement.counter import EnergyCounter
from kernel_dvfs_clocks.clocks import AUTO, BASELINE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.library import Unsupported

if TYPE_CHECKING:
    from kernel_dvfs_clocks.clocks import Clock
    from kernel_dvfs_clocks.guard import Guard
    from kernel_dvfs_clocks.nvml.board import Board

# a window must hold this many periods of the counter
LEAST_PERIODS = 20
_EDGES = 2  # of the counter, that show that it moves, and how often about
CORE_ONLY = "--config 'grid={core_mhz: {step: 210}, mem_mhz: [], auto: true}'"


def check(
    guard: Guard,
    clocks: dict[str, Any],
    share: bool,
    say: Callable[[str], object],
    pairs: Sequence[tuple[Clock, Clock]] | None = None,
    own_processes: int | None = 0,
) -> tuple[dict[str, Any], EnergyCounter]:
    """Return (clocks that can be locked, the energy counter) of a guarded board that is whole, nobody else's, counts
    its energy, and lets its clocks be set. Raises InputError, library.Denied.

    clocks: of its facts. pairs: that will be asked for; none: nothing is set, so no right is needed; None: what can be
    locked will be, the core clock at least. share, own_processes: as of check_board.
    """
    check_board(guard.board, share, say, own_processes=own_processes)
    counter = check_counter(guard.board, time.monotonic, time.sleep, _EDGES)
    if pairs is None or any(tuple(pair) != tuple(BASELINE) for pair in pairs):
        guard.announce("a probe of all clocks")
        needs_mem = pairs is not None and any(mem_mhz != AUTO for _, mem_mhz in pairs)
        if not check_permission(guard, clocks, needs_mem):
            say(f"GPU {guard.board.uuid}: memory clocks are listed, and the driver locks none: the core clock alone")
            clocks = clocks | {"mem_mhz": []}
    return clocks, counter


def check_whole(board: Board) -> None:
    """Raise InputError where the board is divided: energy and clocks are those of the whole board."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if board.uuid.startswith("MIG-") or board.mig() or "MIG-" in visible:
        raise InputError(
            f"GPU {board.uuid}: MIG is on, and energy is counted per board, not per slice; an administrator can turn "
            "it off (nvidia-smi -mig 0)"
        )


def check_board(
    board: Board, share: bool, say: Callable[[str], object], patience_s: float = 0.0, own_processes: int | None = 0
) -> None:
    """Check MIG, other processes and persistence mode; `say` is told in a line what is worth knowing.

    share: measure beside other processes. patience_s: how long to wait for one that is just ending. own_processes: how
    many of them are the caller's; None: nobody can tell. Raises InputError.
    """
    check_whole(board)
    end_s = time.monotonic() + patience_s

    def foreign() -> int | None:
        processes = board.compute_processes()
        return 0 if own_processes is None else processes and max(0, processes - own_processes)

    while (others := foreign()) and not share and time.monotonic() < end_s:
        time.sleep(0.1)
    if others is None:
        say(f"GPU {board.uuid}: its driver does not tell who computes on it; make sure that nobody else does")
    if others and not share:
        raise InputError(
            f"GPU {board.uuid}: {others} other process(es) compute on it, and time and energy would be theirs too; "
            "wait for them, or share it all the same: --share (a study: share: true, every point then disturbed)"
        )
    graphics = board.graphics_processes()
    if graphics:
        say(f"GPU {board.uuid}: {graphics} graphics process(es), a desktop perhaps; leave it alone while it measures")
    if board.persistence() is False:
        say(f"GPU {board.uuid}: persistence mode is off; it is kept awake by holding NVML open (nvidia-smi -pm 1)")


def check_counter(
    board: Board, now_s: Callable[[], float], sleep: Callable[[float], None], edges: int = 5
) -> EnergyCounter:
    """Return the energy counter, with its period, over `edges` of them, and the time of a read measured. Raises
    InputError where there is none."""
    try:
        board.energy_mj()
    except Unsupported:
        raise InputError(
            f"GPU {board.uuid} has no energy counter (GPUs before Volta), so nothing can be measured; use a newer "
            "one, or configure a simulated GPU"
        ) from None
    counter = EnergyCounter(board.energy_mj, now_s, sleep, lambda: None)
    counter.calibrate(edges)
    return counter


def check_window(uuid: str, period_s: float, window_s: float, least_periods: int = LEAST_PERIODS) -> None:
    """Raise InputError unless a window holds so many periods of the energy counter. A look of some minutes asks for
    fewer: both ends lie on edges, which are seen within some ms."""
    least_s = least_periods * period_s
    if window_s < least_s * 0.98:
        raise InputError(
            f"GPU {uuid}: its energy counter moves every {1000 * period_s:.0f} ms, so window_s = {window_s:g} is too "
            f"short; configure window_s: {least_s:.1f} or more"
        )


def check_permission(guard: Guard, clocks: dict[str, Any], needs_mem: bool = True) -> bool:
    """Lock each domain to the whole range that it has, which changes nothing, and reset it: may we, and can the GPU?
    Where a way locks single clocks only, to the highest. Returns whether the memory clock can be locked, if one is
    listed.

    Raises library.Denied where we may not, InputError where this GPU cannot lock its core clock, or the memory clock
    that is needed. What has been locked by then is the guard's to reset.
    """
    uuid = guard.board.uuid
    every_core = [mhz for cores in clocks["core_mhz"]["listed"].values() for mhz in cores]
    if not every_core:
        raise InputError(f"GPU {uuid}: the driver lists no clocks of it, so none can be locked; leave it at auto")
    core = min(every_core), max(every_core)
    mem = (min(clocks["mem_mhz"]), max(clocks["mem_mhz"])) if clocks["mem_mhz"] else None
    if not guard.capabilities.ranges:
        # one value each: the highest
        core, mem = (core[1], core[1]), mem and (mem[1], mem[1])
    has_mem = bool(mem)
    if mem and guard.capabilities.alone:
        try:
            guard.lock(None, mem)
        except Unsupported:
            if needs_mem:
                raise InputError(
                    f"GPU {uuid}: memory clocks cannot be locked here; set the core clock alone (a study: {CORE_ONLY})"
                ) from None
            has_mem = False
        mem = None
    try:
        guard.lock(core, mem)
    except Unsupported:
        raise InputError(
            f"GPU {uuid}: core clocks cannot be locked here; leave them at auto (a study: --config clocks=auto-only)"
        ) from None
    if has_mem:
        guard.reset_mem()
    guard.reset_core()
    return has_mem or not clocks["mem_mhz"]
