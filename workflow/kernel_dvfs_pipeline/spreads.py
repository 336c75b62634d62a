"""How long changes of clocks take, as a plan that is played knows it: when one is asked for, how long it is kept."""

from __future__ import annotations

import math
from typing import NamedTuple, TypedDict

from kernel_dvfs.measurement.latency_file import Spread, latencies, read
from kernel_dvfs_clocks.shape import Positive

Clocks = tuple[float | None, float | None]  # (core, memory) MHz; None: auto

# shares of all changes that have landed when one to slower, and to faster clocks counts as landed
EARLY, LATE = 0.05, 0.95


class Quantiles(TypedDict):
    """Of how long changes of a clock take."""

    median_s: Positive
    p99_s: Positive


class LatencyDocument(TypedDict):
    """What a plan that is played knows of changes of clocks."""

    core: Quantiles
    mem: Quantiles
    source: str


class Spreads(NamedTuple):
    """How long changes of the core and of the memory clock take."""

    core: Spread
    mem: Spread
    source: str  # where that is from

    def document(self) -> LatencyDocument:
        """Return it as a plan's file has it."""
        core, mem = (Quantiles(median_s=spread.median_s, p99_s=spread.p99_s) for spread in (self.core, self.mem))
        return {"core": core, "mem": mem, "source": self.source}

    def lead_s(self, before: Clocks, after: Clocks) -> float:
        """Return how long before its operation a change is asked for, s."""
        share = LATE if height(after) > height(before) else EARLY
        return self._of(before, after).at(share)

    def keeps_s(self, before: Clocks, after: Clocks) -> float:
        """Return how long clocks that were changed to are kept at least, s: until the next request, which may be as
        early as that for faster clocks is, nearly every change has landed."""
        spread = self._of(before, after)
        return 2 * spread.at(LATE) - spread.at(EARLY)

    def _of(self, before: Clocks, after: Clocks) -> Spread:
        return self.core if before[1] == after[1] else self.mem


def spreads(path: str) -> Spreads:
    """Return the Spreads of a file of `kernel-dvfs latency`. Raises InputError."""
    (core, mem), source = latencies(read(path), None)
    return Spreads(core, mem, source)


def of_document(document: LatencyDocument) -> Spreads:
    """Return the Spreads that a plan's file holds."""
    core, mem = (Spread(document[name]["median_s"], document[name]["p99_s"]) for name in ("core", "mem"))
    return Spreads(core, mem, document["source"])


def height(pair: Clocks) -> tuple[float, float]:
    """Return what pairs are ordered by: auto is above all."""
    core, mem = (math.inf if mhz is None else mhz for mhz in pair)
    return core, mem
