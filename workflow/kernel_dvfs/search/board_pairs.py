"""Which clock pairs a study by clock may ask for, and at which it begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Clock, Pair, applied_mem_mhz, supported_core_mhz

LEAST = 0.45  # of the highest clock: below it no choice comes near
STEP_MHZ = 30  # between core clocks; the board's own step where that is wider
_SHORT_MHZ = 2  # drivers round clocks: steps of 7.5 MHz are listed as 7 and 8
# shares of the highest core clock, each at the highest (0), the next (1) or the lowest (-1) memory clock
PROBES = (0, 0.55), (0, 0.97), (0, 0.80), (1, 0.90), (-1, 0.72)
PROBES_OF_ONE = (0, 0.55), (0, 0.97), (0, 0.85), (0, 0.72)  # where there is one memory clock


def pairs_of(clocks: dict[str, Any], grid_pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return the baseline, and the pairs of locked core clocks that a study may ask for, fastest first.

    clocks: of the GPU. grid_pairs: those of the sweep, whose memory clocks are taken; auto alone where the sweep locks
    none.
    """
    locked = [mem for _, mem in grid_pairs if isinstance(mem, int)]
    mems: list[Clock] = sorted({mem for mem in locked if mem >= LEAST * max(locked)}, reverse=True) or [AUTO]
    pairs = [BASELINE]
    for mem in mems:
        thinned: list[int] = []
        known = supported_core_mhz(clocks, mem)
        for core in reversed(known):
            if core >= LEAST * known[-1] and (not thinned or thinned[-1] - core >= STEP_MHZ - _SHORT_MHZ):
                thinned.append(core)
        pairs += [Pair(core, mem) for core in thinned if mem == AUTO or applied_mem_mhz(clocks, (core, mem)) == mem]
    return tuple(pairs)


def probes(pairs: Sequence[Pair]) -> list[int]:
    """Return the places of the pairs that show what a board is like, the slowest first, each once."""
    mems = sorted({mem for core, mem in pairs if core != AUTO and mem != AUTO}, key=int, reverse=True) or [AUTO]
    highest = max(int(core) for core, _ in pairs if core != AUTO)
    near = [mem for mem in mems if mem == AUTO or int(mem) >= LEAST * int(mems[0])]
    places: dict[int, None] = {}
    for at, share in PROBES if len(near) > 1 else PROBES_OF_ONE:
        cores = {place: core for place, (core, mem) in enumerate(pairs) if mem == near[at] and core != AUTO}
        places[min(cores, key=lambda place: abs(int(cores[place]) - share * highest))] = None
    return list(places)
