"""The clock that each launch has within a step, and the rests that give a kernel repeated alone the same clock.

Under load a core's clock follows what runs within microseconds, around a level that the power cap moves by the mean
power of some milliseconds. So in one step a matrix product runs slower than what lies between two of them; repeated
alone, without those, the cap holds it slower still. With rests between its launches the mean power is that of a step
again, and so is its clock. Needs no right: the rests choose the clock.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernel_dvfs.native.steady import Steady
from kernel_dvfs_clocks.errors import InputError

# a chain runs so long before its clock is read, then so often, so far apart: at the cap clocks sway by 2 %
WARM_S, SAMPLES, APART_S = 0.4, 5, 0.04
# the whole step, from a GPU that may be cool: its clock falls as it heats; or right after it ran for some seconds
STEP_WARM_S, STEP_HOT_S, STEP_SAMPLES, STEP_APART_S = 4.0, 1.0, 20, 0.1
# fewer samples where they take longer than this altogether, as of a step of many launches, but not less than these
_SAMPLES_S, _LEAST_SAMPLES = 4.0, 4
# a rest is found where the clock is within this share of the one that is asked for, or after so many tries
NEAR, TRIES = 0.008, 4
# first try: so much rest, as a share of the time, for each share that the clock is to rise by
_REST_PER_CLOCK, _MOST_REST = 1.25, 0.6
# so many rounds of a short chain are marked at once
_ROUNDS = 4


def mean_mhz(clocks_mhz: Iterable[float]) -> float:
    """Return the mean of the clocks that could be read; NaN where none could."""
    known = [mhz for mhz in clocks_mhz if math.isfinite(mhz)]
    return statistics.fmean(known) if known else math.nan


class ClockReader:
    """Reads the core clock of nodes of a chain that runs over and over.

    A second graph, which is the chain with marks of the clock probe around each of them, is put in between now and
    then, so that what is measured runs without marks. marked: which of `places`, by number in rising order.
    """

    def __init__(
        self,
        living: Any,
        places: Sequence[int],
        marked: Sequence[int],
        rounds: int = _ROUNDS,
        rest_ns: int = 0,
    ) -> None:
        self._device, self._count = living.device, len(marked)
        self._probe = living.extension.ClockProbe(living.device, 2 * len(marked) * rounds)
        self._marked = living.chain(places, rounds, rest_ns, marked, self._probe)

    def mhz(self, steady: Steady, samples: int = SAMPLES, apart_s: float = APART_S) -> list[float]:
        """Return the mean clock of each node while `steady` runs, MHz; NaN where none could be read."""
        seen: list[list[float]] = [[] for _ in range(self._count)]
        until_s = time.monotonic() + _SAMPLES_S
        for number in range(samples):
            if number >= _LEAST_SAMPLES and time.monotonic() > until_s:
                break
            steady.run_for(apart_s)
            self._marked.run(1)
            self._device.synchronize()
            # every second: between the marks of a node and those of the next one nothing is read
            for place, mhz in enumerate(self._probe.sm_mhz()[::2]):
                seen[place % self._count].append(mhz)
        return [mean_mhz(clocks_mhz) for clocks_mhz in seen]

    def mean_mhz(self, steady: Steady) -> float:
        """Return the mean clock of all of them while `steady` runs, MHz. Raises InputError where none could be read."""
        clock_mhz = mean_mhz(self.mhz(steady))
        if math.isnan(clock_mhz):
            raise InputError("the GPU's clock could not be read around a launch: no multiprocessor was marked twice")
        return clock_mhz


def within_step_mhz(living: Any, launches: Sequence[int], warm_s: float = STEP_WARM_S) -> list[float]:
    """Return the mean core clock of each launch, by the place of its main node, while the whole step runs over and
    over, after warm_s of it; NaN where it could not be read. The state is put back before and now and then
    (LivingStep.refreshed), but not at the end."""
    reader = ClockReader(living, range(len(living.nodes)), launches, rounds=1)
    with _running(living, living.refreshed(living.whole()), warm_s) as steady:
        return reader.mhz(steady, STEP_SAMPLES, STEP_APART_S)


def alone_mhz(living: Any, places: Sequence[int], mains: Sequence[int], repeat: int, rest_ns: int) -> float:
    """Return the core clock of nodes that run over and over, each round of them followed by a rest, apart from the
    rests. mains: which of `places` to read it at, by their number in it. Raises InputError."""
    reader = ClockReader(living, places, mains, rest_ns=rest_ns)
    with _running(living, living.chain(places, repeat, rest_ns), WARM_S) as steady:
        return reader.mean_mhz(steady)


@contextmanager
def _running(living: Any, graph: Any, warm_s: float) -> Iterator[Steady]:
    steady = Steady(living.extension, living.device, graph)
    steady.run_for(warm_s)
    yield steady
    steady.stop()


def rest_share(wanted_mhz: float, mhz: Callable[[float], float]) -> tuple[float, float]:
    """Return (share of the time that is rest, the clock that came of it): 0 where the clock is as high without any.

    mhz: the clock at a share. Tries until one is near what is wanted, and takes the nearest.
    """
    tried = [(0.0, mhz(0.0))]
    if tried[0][1] >= (1 - NEAR) * wanted_mhz:
        return tried[0]
    share = _REST_PER_CLOCK * (wanted_mhz / tried[0][1] - 1)
    while len(tried) <= TRIES:
        share = min(share, _MOST_REST)
        if any(share == known for known, _ in tried):
            break
        tried.append((share, mhz(share)))
        if abs(tried[-1][1] / wanted_mhz - 1) <= NEAR:
            break
        share = _next(wanted_mhz, tried)
    return min(tried, key=lambda point: abs(point[1] - wanted_mhz))


def _next(wanted_mhz: float, tried: Sequence[tuple[float, float]]) -> float:
    """Return the share to try next: on the line through the nearest clocks below and above, or through the first and
    last."""
    above = [point for point in tried if point[1] >= wanted_mhz]
    low = max((point for point in tried if point[1] < wanted_mhz), key=lambda point: point[1]) if above else tried[0]
    high = min(above, key=lambda point: point[1]) if above else tried[-1]
    rise = high[1] - low[1]
    # a clock that does not rise with the rest is not the cap's to give
    return low[0] + (wanted_mhz - low[1]) * (high[0] - low[0]) / rise if rise > 0 else 2 * tried[-1][0]
