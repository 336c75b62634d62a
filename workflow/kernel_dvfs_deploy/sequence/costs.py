"""What a change of clocks costs: as assumed, or as `kernel-dvfs latency` measured it on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_dvfs.measurement.latency_file import ASSUMED, read
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from os import PathLike

    from kernel_dvfs.measurement.latency_file import Latency

# How long a GPU stands still as one of its clocks changes, s: assumed, since nobody has published it. That it does so
# has a source for older boards, whose open driver halts all engines first (nouveau, nvkm/subdev/clk/gt215.c).
ASSUMED_STALL_S = 1e-4


@dataclass(frozen=True, slots=True)
class Stalls:
    """How long the GPU stands still as a clock changes."""

    core_s: float
    mem_s: float
    source: str  # "assumed", or "measured on NVIDIA H200 (..., 2026-11-22)"

    @property
    def both_s(self) -> tuple[float, float]:
        return self.core_s, self.mem_s


def read_latency(path: str | PathLike[str], gpu: dict[str, object] | None = None) -> Latency:
    """Return what a file of `kernel-dvfs latency` says, for clocks of `gpu` (the `gpu` group of a profile), where that
    is a real one.

    Raises InputError, also where the file is of another type of GPU.
    """
    latency = read(path)
    if gpu is not None and gpu["kind"] == "nvml" and gpu["name"] != latency.gpu_name:
        raise InputError(f"{path}: {latency.about}, but these clocks are chosen for {gpu['name']}; measure it there")
    return latency


def stalls(core_s: float | None, mem_s: float | None, measured: Latency | None) -> Stalls:
    """Return how long each stall is: what is told (core_s, mem_s) comes first, as an assumption; then what was
    measured; then ASSUMED_STALL_S."""
    by_domain = {"core": (core_s, ASSUMED), "mem": (mem_s, ASSUMED)}
    for domain, (given_s, _) in by_domain.items():
        measured_s = measured.stall_s(domain) if measured else None
        if given_s is None and measured and measured_s is not None:
            by_domain[domain] = measured_s, measured.about
        elif given_s is None:
            by_domain[domain] = ASSUMED_STALL_S, ASSUMED
    (core, core_source), (mem, mem_source) = by_domain["core"], by_domain["mem"]
    assert core is not None and mem is not None
    return Stalls(core, mem, in_words(core=core_source, memory=mem_source))


def in_words(**sources: str) -> str:
    """Return where numbers are from: `assumed` where all are, else each of them."""
    if len(set(sources.values())) == 1:
        return next(iter(sources.values()))
    return ", ".join(f"{what} {source}" for what, source in sources.items())
