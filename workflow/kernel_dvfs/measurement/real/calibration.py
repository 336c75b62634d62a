"""Two probes of memory that fit a simulated GPU to one real board: energy of a DRAM byte, share of the bandwidth.

Boards of one type differ most there (and boards that share a chip, such as an H100 and an H200, in little else). All
other figures stay those of the spec. Nothing is set: the probes run at default clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs.gpu.model import clock_w, relative_voltage, static_w
from kernel_dvfs.measurement.real import loads, preflight
from kernel_dvfs.measurement.real.gpu import RealGpu
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.measurement.window import Window
    from kernel_dvfs_clocks.guard import Guard

COPY, READ = "dram_copy", "dram_read"
_WARMUP_S, _WINDOW_S = 5.0, 25.0  # of each probe
_DIGITS = 3


class CalibrationProbe(NamedTuple):
    """A probe as it was measured."""

    byte: int  # DRAM bytes of one run, read and written
    window: Window


def measure(guard: Guard, about: dict[str, Any], say: Callable[[str], None]) -> dict[str, CalibrationProbe]:
    """Return {COPY, READ: CalibrationProbe} of the GPU of a guard that sets nothing. about: its facts. Raises
    InputError where it cannot be measured, and where something else ran on it meanwhile or holds its clocks."""
    board = guard.board
    preflight.check_board(board, False, say)
    before = board.compute_processes()
    probing = loads.open_probing(guard.nvml, about["uuid"])
    now = board.compute_processes()
    own_processes = None if before is None or now is None else now - before
    counter = preflight.check_counter(board, probing.now_s, probing.sleep)
    preflight.check_window(board.uuid, counter.period_s, _WINDOW_S)
    settings = {"clocks": "auto-only", "after": {}}
    gpu = RealGpu(guard, about, settings, probing, counter, own_processes, lambda: True, say)
    probes = {}
    for kind in (COPY, READ):
        load, byte = probing.probe(kind)
        with gpu.locked(BASELINE, (kind,)):
            gpu.warm_up(load, _WARMUP_S)
            window = gpu.window(load, _WINDOW_S, (kind,), 0)
        load.check()
        gpu.check_free([window])
        if disturbed := gpu.disturbances([window]):
            raise InputError(f"GPU {board.uuid}: {kind} was disturbed: {'; '.join(disturbed)}; run it again")
        probes[kind] = CalibrationProbe(byte, window)
    return probes


def overrides(spec: dict[str, Any], probes: dict[str, CalibrationProbe]) -> dict[str, Any]:
    """Return the figures of a spec (gpu.spec.resolve) that the probes replace, as its overrides: pJ of a DRAM byte, and
    the share of the nominal bandwidth that is reached: by kernels that copy, and by those that only read. Raises
    InputError where the board cannot be of the spec's type."""
    for kind, probe in probes.items():
        mem_mhz = probe.window["mem_mhz"][1]
        if mem_mhz != spec["clocks"]["auto_mem_mhz"]:
            raise InputError(
                f"{kind}: the memory ran at {mem_mhz:g} MHz, that of {spec['name']} at "
                f"{spec['clocks']['auto_mem_mhz']}: another type of GPU; name its spec (--like)"
            )
        if (share := dram_efficiency(spec, probe)) > 1:
            raise InputError(
                f"{kind}: {share:.2f} of the bandwidth of {spec['name']}: another type of GPU; name its spec (--like)"
            )
    return {
        "energy_pj": {"dram_byte": _rounded(dram_byte_pj(spec, probes[COPY]))},
        "families": {
            "default": {"dram_efficiency": _rounded(dram_efficiency(spec, probes[COPY]))},
            "bias": {"dram_efficiency": _rounded(dram_efficiency(spec, probes[READ]))},
        },
    }


def dram_efficiency(spec: dict[str, Any], probe: CalibrationProbe) -> float:
    """Return the share of the DRAM's nominal bandwidth that a probe would reach if its way through the SMs took no
    time: M of t^p = (C/f)^p + M^p (gpu.model)."""
    stream, time_s = _stream(spec), 1e-6 * probe.window["time_us"]
    core_s = probe.byte / (stream["sm_byte_per_clock"] * spec["sm_count"] * 1e6 * probe.window["core_mhz"][1])
    p = stream["overlap"]
    # a probe as fast as its way through the SMs shows no more than that it is not slower
    memory_s = time_s * max(1 - (core_s / time_s) ** p, 1e-3) ** (1 / p)
    return probe.byte / memory_s / (1e9 * spec["memory"]["gb_per_s"])


def dram_byte_pj(spec: dict[str, Any], probe: CalibrationProbe) -> float:
    """Return the energy of a byte in DRAM, pJ: the board's power above standing, less what a byte costs on its way
    through the core (gpu.model, gpu.kernel)."""
    window, energy = probe.window, spec["energy_pj"]
    core_mhz, temperature_c = window["core_mhz"][1], sum(window["temp_c"]) / 2
    standing_w = static_w(spec, spec["clocks"]["auto_mem_mhz"], temperature_c) + clock_w(spec["core"], core_mhz)
    power_w = window["energy_mj"] / 1e3 / window["duration_s"]
    core_pj = energy["stream_byte"] + energy["sm_cycle"] / _stream(spec)["sm_byte_per_clock"]
    own_pj = 1e12 * (power_w - standing_w) * 1e-6 * window["time_us"] / probe.byte
    return own_pj - core_pj * relative_voltage(spec["core"], core_mhz) ** 2


def _stream(spec: dict[str, Any]) -> dict[str, float]:
    """Return the family that has nothing of its own in what decides a copy."""
    return spec["families"]["residual"]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
