"""What tiles make of a matrix product: DRAM traffic of more than "each operand once", and waves that are not full.

A product is computed in tiles, one an SM at a time: a *wave*. The tiles of a wave are neighbours (libraries order them
so: CUTLASS, "Efficient GEMM in CUDA", threadblock rasterization), a block of the result about as high as wide. They
walk along k together, so a row of tiles shares what it reads of A, a column what it reads of B, through L2. Waves
follow one another along a strip of the result, strips along the other side. So there are three distances at which L2
may find data again, each with the bytes that pass in between (its footprint):

    in a wave         slices of A and B in flight              shared by the tiles of a row or column
    along a strip     what one wave reads of A and B           the strip's operand, read again by every wave
    between strips    all of the other operand, and a strip    the other operand, read again by every strip

What is found again is min(1, L2 / footprint) of it: a cache that replaces lines without regard to their order keeps
that share (inferred; a strict least-recently-used one would keep all or nothing). Strips run along the side that costs
less. Limits: all fits in L2, and each operand is read once; no L2, and each tile reads its own (see tests).

The last wave is seldom full, and takes as long as if it were: a product keeps a share of the tensor cores busy. A tile
takes a while to start and to write what it computed, worth some elements of k. Where few tiles leave SMs idle a library
parts k among several (split-k) and adds their results up, if that is faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_dvfs.workload.formulas import BF16, Gemm, gemm

if TYPE_CHECKING:
    from kernel_dvfs.workload.rows import Row

# rows and columns of the result that an SM computes at a time: the larger of two tiles of bf16 products on Ampere
TILE = (256, 128)
# slices of k that are on their way to an SM: the depth of a library's pipeline times its slice (inferred)
_IN_FLIGHT = 3 * 64
# parts that k is split into, and the least k of one
_PARTS, _LEAST_K = (1, 2, 4, 8, 16, 32), 64


@dataclass(frozen=True, slots=True)
class L2Cache:
    """What of a GPU decides how much of a product is read again."""

    l2_byte: float  # what L2 keeps of data that all SMs read
    sm_count: int
    tile: tuple[int, int] = TILE


def gemm_byte(g: Gemm, cache: L2Cache, element_byte: float = BF16, result_byte: float | None = None) -> float:
    """Return the DRAM bytes, read and written, of one launch of `g`: its products follow one another.

    element_byte: of an element that is read; result_byte: of one that is written, where it is another. The accumulator,
    the bias and the result are counted as in formulas.gemm.
    """
    work = gemm(g)
    if result_byte is None:
        once = (work.read_byte + work.write_byte) * element_byte / BF16
    else:
        once = (work.read_byte * element_byte + work.write_byte * result_byte) / BF16
    return once + g.count * _again(g, cache, element_byte)


def _again(g: Gemm, cache: L2Cache, element_byte: float) -> float:
    """Return the bytes of both operands of one product that are read again."""
    rows, columns = (min(tile, size) for tile, size in zip(cache.tile, (g.m, g.n)))
    down, across = math.ceil(g.m / rows), math.ceil(g.n / columns)
    wave = min(cache.sm_count, down * across)
    # as square as the tiles and the result allow
    side = math.sqrt(wave * rows * columns)
    high = min(down, max(1, round(side / rows)))
    wide = min(across, max(1, round(wave / high)))
    high = min(down, max(1, round(wave / wide)))
    block = high * rows, wide * columns
    a, b = g.m * g.k * element_byte, g.k * g.n * element_byte

    def kept(footprint: float) -> float:
        return min(1.0, cache.l2_byte / footprint) if footprint else 1.0

    def strips(held: float, passing: float, length: int, width: int, along: int, over: int) -> float:
        """Return the bytes that strips read again. held: operand of the strips; length: of the side they run along, in
        elements; along, over: of a wave."""
        wave_byte = (along + over) * g.k * element_byte
        per_strip, count = max(1.0, length / along), max(1.0, width / over)
        along_strip = held * (per_strip - 1) * (1 - kept(wave_byte))
        between = passing * (count - 1) * (1 - kept(passing + over * g.k * element_byte))
        return along_strip + between

    shared = min(
        strips(a, b, g.n, g.m, block[1], block[0]),  # strips of rows: A is held, B passes
        strips(b, a, g.m, g.n, block[0], block[1]),
    )
    apart = a * (across - 1) + b * (down - 1)  # each tile reads its own
    together = kept((block[0] + block[1]) * min(g.k, _IN_FLIGHT) * element_byte)
    return together * shared + (1 - together) * apart


def gemm_bytes(
    gemms: Mapping[str, tuple[Gemm, int]], cache: L2Cache, multiple: float | None = None
) -> dict[str, float]:
    """Return {id: DRAM bytes of a launch} of products {id: (product, launches)}.

    multiple: their total as a multiple of "each operand once" (at least 1), the surplus spread over them as the tiles
    have it, or in proportion where these read nothing again. None: as the tiles have it.
    """
    once = {name: gemm(g).read_byte + gemm(g).write_byte for name, (g, _) in gemms.items()}
    tiled = {name: gemm_byte(g, cache) for name, (g, _) in gemms.items()}
    if multiple is None or not gemms:
        return tiled

    def total(byte: Mapping[str, float]) -> float:
        return math.fsum(count * byte[name] for name, (_, count) in gemms.items())

    surplus = total(tiled) - total(once)
    if surplus <= 0:
        return {name: multiple * byte for name, byte in once.items()}
    factor = (multiple - 1) * total(once) / surplus
    return {name: byte + factor * (tiled[name] - byte) for name, byte in once.items()}


def dense_gemm_byte(rows: list[Row], spec: Mapping[str, Any]) -> dict[str, float]:
    """Return {id: DRAM bytes of a launch} of the dense matrix products of an iteration on the simulated GPU of `spec`.

    By its `memory.gemm_traffic`, else by the products' tiles and its `memory.l2_mb`, else each operand once; in another
    precision than bf16 by tiles. The products of attention, small and many, fit in any L2.
    """
    gemms = {row.id: (row.gemm, row.multiplicity) for row in rows if row.gemm and row.family == "gemm"}
    cache = L2Cache(spec["memory"].get("l2_mb", math.inf) * 1e6, spec["sm_count"])
    precision = spec.get("families", {}).get("gemm", {}).get("precision", "bf16")
    if precision != "bf16":
        operand_byte = spec["precisions"][precision]["byte"]
        return {name: gemm_byte(g, cache, operand_byte, BF16) for name, (g, _) in gemms.items()}
    return gemm_bytes(gemms, cache, spec["memory"].get("gemm_traffic"))


def _waves(g: Gemm, sm_count: int, tile: Sequence[int], parts: int = 1) -> int:
    """Return waves of tiles that `g` takes. parts: into so many its k is split."""
    return math.ceil(parts * g.count * math.ceil(g.m / tile[0]) * math.ceil(g.n / tile[1]) / sm_count)


def wave_share(g: Gemm, sm_count: int, tile: Sequence[int]) -> float:
    """Share of the SMs that have a tile to compute, over the whole waves of tiles that `g` takes; a tile at the edge of
    the result counts by what of it is needed."""
    rows, columns = tile
    return g.count * g.m * g.n / (_waves(g, sm_count, tile) * sm_count * rows * columns)


def tensor_share(g: Gemm, sm_count: int, rates: Mapping[str, Any]) -> float:
    """Share of the tensor cores that a product keeps busy over the time that it takes them; 1 where the GPU's tile is
    not known. rates: the spec's group, whose gemm_start_k and gemm_split_k are in elements of k that one tile computes
    in as long; none where it is silent."""
    tile = rates.get("gemm_tile")
    if not tile:
        return 1.0
    start_k, split_k = rates.get("gemm_start_k", 0), rates.get("gemm_split_k")
    waves_of = [
        (parts, _waves(g, sm_count, tile, parts))
        for parts in (_PARTS if split_k else (1,))
        if parts == 1 or g.k >= parts * _LEAST_K
    ]
    least_k = min(waves * (g.k / parts + start_k) + (split_k if parts > 1 else 0) for parts, waves in waves_of)
    return wave_share(g, sm_count, tile) * (waves_of[0][1] * g.k / least_k)


def dense_products(rows: list[Row], spec: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return {id: (DRAM bytes of a launch, share of the tensor cores in use)} of the products of `dense_gemm_byte`."""
    gemms = {row.id: row.gemm for row in rows}

    def share(g: Gemm | None) -> float:
        return tensor_share(g, spec["sm_count"], spec["rates"]) if g else 1.0

    return {name: (byte, share(gemms[name])) for name, byte in dense_gemm_byte(rows, spec).items()}
