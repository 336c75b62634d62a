"""Is a GPU's core clock free? A light load shows it: one thread on each SM counts cycles against the GPU's own timer.

A clock that nobody has locked comes to the board's top under it: the load draws next to nothing, so neither the power
limit nor heat holds the clock, whatever has run before. A lock below the top does. NVML cannot tell of locks, and a
kernel that is measured may be held by its own power, so nothing else shows one at 80 to 98 % of the top.

The top is the highest core clock that the driver lists. V100, A100, H100 and H200 come to it. Boards that also draw
list clocks that they never boost to, and boost by temperature: of them, as of what is not known, a lock is seen only
far below the top.

The load needs the driver alone: PTX that the driver compiles, through its C interface (libcuda.so.1). It sets nothing.
probing.py is the program that prints the clock in a process of its own.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from kernel_dvfs.measurement.window import ClockProbe
from kernel_dvfs_clocks.errors import InputError

# more than this below the top, and something holds the clock; a free one comes within 1 % of it
_HELD_SHARE = 0.02
# the compute capability of chips that list no clock which they do not come to
_COME_TO_THE_TOP = ("7.0", "8.0", "9.0")
# of all others: an RTX 3080 Ti lists 2100 MHz, and boosts to 1905 to 1965 (public data)
_HELD_SHARE_OTHERWISE = 0.12
_REACHED_SHARE = 0.01
_SLICE_S = 0.05
# until a clock that rises from idle, or after a hot load, is at the top
_LIMIT_S = 3.0
_CHILD_S = 60.0  # for a process to open CUDA on a driver that is not kept loaded, and to probe
_PTX = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 to, .param .u64 ns)
{
  .reg .u64 %r<10>;
  .reg .pred %p;
  .reg .u32 %block;
  ld.param.u64 %r1, [to];
  cvta.to.global.u64 %r1, %r1;
  ld.param.u64 %r2, [ns];
  mov.u64 %r3, %globaltimer;
  mov.u64 %r4, %clock64;
LOOP:
  mov.u64 %r5, %globaltimer;
  sub.u64 %r6, %r5, %r3;
  setp.lt.u64 %p, %r6, %r2;
  @%p bra LOOP;
  mov.u64 %r7, %clock64;
  sub.u64 %r8, %r7, %r4;
  mov.u32 %block, %ctaid.x;
  setp.ne.u32 %p, %block, 0;
  @%p bra DONE;
  st.global.u64 [%r1], %r6;
  st.global.u64 [%r1+8], %r8;
DONE:
  ret;
}
"""
_SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT of cuda.h


def top_mhz(clocks: dict[str, Any], after: dict[str, Any] | None = None) -> float:
    """Return the clock that a free board comes to, MHz; 0 where the driver lists none. clocks: of its facts. after:
    what its site leaves locked, of the settings."""
    listed = [mhz for cores in clocks["core_mhz"].get("listed", {}).values() for mhz in cores]
    site = (after or {}).get("core")
    return float(min(max(listed), site[1] if site else max(listed))) if listed else 0.0


def held(probe: ClockProbe, compute_capability: str) -> str:
    """Return why a board is not free, in words; "" where it is."""
    share = _HELD_SHARE if compute_capability in _COME_TO_THE_TOP else _HELD_SHARE_OTHERWISE
    if probe["core_mhz"] >= (1 - share) * probe["top_mhz"]:
        return ""
    return (
        f"under next to no load its core clock stays at {probe['core_mhz']:.0f} of {probe['top_mhz']:.0f} MHz: another "
        "tool or a killed run has left it locked"
    )


def remedy(uuid: str) -> str:
    """Return what to do about a board that is not free."""
    return f"reset it (kernel-dvfs reset --uuid {uuid}), or name the site's own lock in `after`"


def highest(slice_mhz: Callable[[], float], now_s: Callable[[], float], until_mhz: float) -> float:
    """Return the highest clock that slices of the light load ran at, MHz: until one is at `until_mhz`, or the time is
    over."""
    end_s, highest_mhz = now_s() + _LIMIT_S, 0.0
    while True:
        highest_mhz = max(highest_mhz, slice_mhz())
        if highest_mhz >= (1 - _REACHED_SHARE) * until_mhz or now_s() > end_s:
            return round(highest_mhz, 1)


def probe_mhz(until_mhz: float) -> float:
    """Return the clock of the light load on the first GPU that CUDA sees in this process, in its primary context, MHz.

    until_mhz: at which it need not be looked at any longer. Raises InputError where CUDA cannot run it.
    """
    with _Counter() as counter:
        return highest(counter.slice_mhz, time.monotonic, until_mhz)


def probe_apart(uuid: str, until_mhz: float) -> float:
    """Return what probe_mhz does, of the GPU `uuid`, in a process that is over when this returns: nothing of it stays
    on the GPU."""
    words = [sys.executable, "-m", "kernel_dvfs.measurement.real.probing", uuid, repr(until_mhz)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_CHILD_S)
        clock_mhz: float = json.loads(done.stdout)
        return clock_mhz
    except (OSError, subprocess.TimeoutExpired, ValueError):
        raise InputError(f"GPU {uuid}: its clock could not be probed; nvidia-smi says whether CUDA works") from None


class _Counter:
    """The light load, compiled and ready; a context."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise InputError(f"the clock cannot be probed: {error}; install NVIDIA's driver") from None
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._module, self._function, self._to = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self._blocks = ctypes.c_int()

    def __enter__(self) -> _Counter:
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        self._call("cuDeviceGetAttribute", ctypes.byref(self._blocks), _SM_COUNT, self._device)
        # the one that CUDA's runtime, and so torch, uses too: no memory for another
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self._call("cuCtxPushCurrent_v2", self._context)
        self._call("cuModuleLoadData", ctypes.byref(self._module), _PTX)
        self._call("cuModuleGetFunction", ctypes.byref(self._function), self._module, b"count")
        self._call("cuMemAlloc_v2", ctypes.byref(self._to), ctypes.c_size_t(16))
        return self

    def slice_mhz(self) -> float:
        """Return the clock over one slice."""
        ns = ctypes.c_uint64(round(1e9 * _SLICE_S))
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self._to), ctypes.addressof(ns))
        self._call("cuLaunchKernel", self._function, self._blocks, 1, 1, 1, 1, 1, 0, None, arguments, None)
        seen = (ctypes.c_uint64 * 2)()
        self._call("cuMemcpyDtoH_v2", seen, self._to, ctypes.c_size_t(16))  # waits for it
        return 1e3 * seen[1] / seen[0]

    def __exit__(self, *_: object) -> None:
        for name, what in (("cuMemFree_v2", self._to), ("cuModuleUnload", self._module)):
            if what.value:
                self._call(name, what)
        if self._context.value:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
            self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise InputError(
                f"the clock cannot be probed: {name}: CUDA error {code}; nvidia-smi says whether CUDA works"
            )
