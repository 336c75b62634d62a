"""The energy probes of a GPU: which loads are measured to calibrate its spec, at which intensities.

Pure data: experiments/benchmarks/gpu_energy.py runs the loads, energy.py concludes from them. No probe is a kernel of
the workload. Nothing sets a clock, so the power cap does: the more intense a load, the lower the clock that the cap
leaves it. A ladder of intensities of one load therefore shows the voltage at each of these clocks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Probe:
    """One load at one intensity."""

    name: str  # unique
    load: str  # "idle", a kind of cuda.EnergyProbe, or "gemm"
    # of cuda.EnergyProbe (without iterations); or of the GEMM: count, m, n, k, layout, operands ("random", "zero",
    # "half": one factor zero above its diagonal)
    settings: dict[str, Any]
    duty: float = 1.0  # share of the cycles of the load itself, the rest of them spent spinning


_GIB = 1 << 30
_DRAM = 8 * _GIB
_L2 = 16 << 20  # a part of any data-centre GPU's cache, so that replication between its halves still fits


def _ladder(load: str, sizes: Iterable[int], **settings: Any) -> list[Probe]:
    return [Probe(f"{load}_w{warps}", load, {"warps": warps, **settings}) for warps in sizes]


def _zero(load: str, **settings: Any) -> Probe:
    return Probe(f"{load}_zero", load, {"operands": "zero", **settings})


def _gemm(
    name: str,
    m: int,
    n: int,
    k: int,
    operands: str = "random",
    count: int = 1,
    duty: float = 1.0,
    layout: str = "TN",
) -> Probe:
    settings = {"count": count, "m": m, "n": n, "k": k, "layout": layout, "operands": operands}
    return Probe(name, "gemm", settings, duty)


_SQUARE = 8192
_DUTIES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.25)

# in the order in which they are measured: what the spec needs most comes first, should time run out
PROBES = [
    Probe("idle", "idle", {}),
    *_ladder("spin", (1, 8)),
    Probe("fp32_w32", "fp32", {"warps": 32}),
    Probe("sfu_w32", "sfu", {"warps": 32}),
    Probe("int32_w32", "int32", {"warps": 32}),
    Probe("shared_w32", "shared", {"warps": 32}),
    Probe("l2_read_w32", "l2_read", {"byte": _L2}),
    Probe("dram_read_w32", "dram_read", {"byte": _DRAM}),
    Probe("dram_write_w32", "dram_write", {"byte": _DRAM}),
    Probe("dram_copy_w32", "dram_copy", {"byte": _DRAM}),
    *_ladder("tensor", (32, 16, 12, 8, 4)),
    _zero("tensor"),
    _gemm("gemm", _SQUARE, _SQUARE, _SQUARE),
    _gemm("gemm_zero", _SQUARE, _SQUARE, _SQUARE, "zero"),
    _gemm("gemm_half", _SQUARE, _SQUARE, _SQUARE, "half"),
    *(_gemm(f"gemm_d{round(100 * duty)}", _SQUARE, _SQUARE, _SQUARE, duty=duty) for duty in _DUTIES),
    Probe("spin_w1_hot", "spin", {"warps": 1}),
    Probe("idle_hot", "idle", {}),
    _gemm("gemm_outer", 2048, 2048, 128, count=256),
    _gemm("gemm_inner", 2048, 128, 2048, count=256, layout="NN"),
    _gemm("gemm_outer_zero", 2048, 2048, 128, "zero", count=256),
    *_ladder("fp32", (16, 8, 4)),
    _zero("fp32", warps=32),
    *_ladder("sfu", (8, 4)),
    *_ladder("int32", (8,)),
    *_ladder("shared", (8, 4)),
    _zero("shared", warps=32),
    *_ladder("l2_read", (8, 4), byte=_L2),
    Probe("l2_read_zero", "l2_read", {"byte": _L2, "operands": "zero"}),
    *_ladder("dram_read", (8, 4), byte=_DRAM),
    Probe("dram_read_zero", "dram_read", {"byte": _DRAM, "operands": "zero"}),
    Probe("dram_write_zero", "dram_write", {"byte": _DRAM, "operands": "zero"}),
    Probe("dram_copy_zero", "dram_copy", {"byte": _DRAM, "operands": "zero"}),
    Probe("dram_copy_w8", "dram_copy", {"byte": _DRAM, "warps": 8}),
    Probe("tensor_sms66", "tensor", {"sms": 66}),
]
