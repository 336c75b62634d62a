"""What must hold before the first point. Each check refuses with its remedy, and leaves the GPU as it found it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.library import Unsupported
from kernel_dvfs.measurement.counter import EnergyCounter

if TYPE_CHECKING:
    from kernel_dvfs.gpu.guard import Guard
    from kernel_dvfs.gpu.nvml.board import Board

# a window must hold this many periods of the counter
LEAST_PERIODS = 20
CORE_ONLY = "--config 'grid={core_mhz: {step: 210}, mem_mhz: [], auto: true}'"


def check_board(board: Board, share: bool, say: Callable[[str], None], patience_s: float = 0.0) -> None:
    """Check MIG, other processes and persistence mode; `say` is told in a line what is worth knowing.

    share: measure beside other processes. patience_s: how long to wait for one that is just ending. Raises InputError.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if board.mig() or "MIG-" in visible:
        raise InputError(
            f"GPU {board.uuid}: MIG is on, and energy is counted per board, not per slice; an administrator can turn "
            "it off (nvidia-smi -mig 0)"
        )
    end_s = time.monotonic() + patience_s
    while (others := board.compute_processes()) and not share and time.monotonic() < end_s:
        time.sleep(0.1)
    if others is None:
        say(f"GPU {board.uuid}: its driver does not tell who computes on it; make sure that nobody else does")
    if others and not share:
        raise InputError(
            f"GPU {board.uuid}: {others} other process(es) compute on it; wait for them, or configure share: true "
            "(every point is then marked disturbed)"
        )
    graphics = board.graphics_processes()
    if graphics:
        say(f"GPU {board.uuid}: {graphics} graphics process(es), a desktop perhaps; leave it alone while it measures")
    if board.persistence() is False:
        say(f"GPU {board.uuid}: persistence mode is off; it is kept awake by holding NVML open (nvidia-smi -pm 1)")


def check_counter(board: Board, now_s: Callable[[], float], sleep: Callable[[float], None]) -> EnergyCounter:
    """The energy counter, with its period and the time of a read measured. Raises InputError where there is none."""
    try:
        board.energy_mj()
    except Unsupported:
        raise InputError(
            f"GPU {board.uuid} has no energy counter (GPUs before Volta), so nothing can be measured; use a newer "
            "one, or configure a simulated GPU"
        ) from None
    counter = EnergyCounter(board.energy_mj, now_s, sleep, lambda: None)
    counter.calibrate()
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


def check_permission(guard: Guard, clocks: dict[str, Any]) -> None:
    """Lock each domain to the whole range that it has, which changes nothing, and reset it: may we, and can the GPU?
    Where a way locks single clocks only, to the highest.

    Raises library.Denied where we may not, InputError where this GPU cannot lock a domain that the study wants locked.
    What has been locked by then is the guard's to reset.
    """
    uuid = guard.board.uuid
    every_core = [mhz for cores in clocks["core_mhz"]["listed"].values() for mhz in cores]
    core = min(every_core), max(every_core)
    mem = (min(clocks["mem_mhz"]), max(clocks["mem_mhz"])) if clocks["mem_mhz"] else None
    if not guard.setter.capabilities.ranges:
        # one value each: the highest
        core, mem = (core[1], core[1]), mem and (mem[1], mem[1])
    if mem and guard.setter.capabilities.alone:
        try:
            guard.lock(None, mem)
        except Unsupported:
            raise InputError(
                f"GPU {uuid}: memory clocks cannot be locked here; measure the core clock alone: {CORE_ONLY}"
            ) from None
        mem = None
    try:
        guard.lock(core, mem)
    except Unsupported:
        raise InputError(
            f"GPU {uuid}: core clocks cannot be locked here; measure at auto alone: --config clocks=auto-only"
        ) from None
    if clocks["mem_mhz"]:
        guard.reset_mem()
    guard.reset_core()
