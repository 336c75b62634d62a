"""A whole iteration launched over and over, with a mark of the GPU's time between its kernels: how long each of them
takes where it belongs, under the clocks that the mix of all of them has.

A mark is a kernel of its own. What it adds to the time between two marks is what lies between two marks with nothing
between them, and is taken off: what is left is what a launch takes within an iteration without marks.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kernel_dvfs.native.steady import BATCH_S
from kernel_dvfs_clocks.errors import InputError

_QUEUED = 2
_ROOM = 1 << 20
# of what lies between two marks at least so much is a kernel's own, however coarse the GPU's timer
_LEAST_SHARE = 0.05


def room_for(launches: int) -> int:
    """Return how many marks passes of so many launches need room for."""
    return max(_ROOM, 4 * (launches + 2))


def marked_pass(cuda: Any, marks: Any, groups: Iterable[tuple[Sequence[Any], int]]) -> Any:
    """Return the cuda.Pass of groups of plans (cuda.Pass) with a mark before each launch and two at the end."""
    between = [([runnable for plan in plans for runnable in (marks, plan)], repeat) for plans, repeat in groups]
    return cuda.Pass([*between, ([marks, marks], 1)])


class Marked:
    """An iteration with marks. run: enqueues it so many times. names: of its launches in order."""

    def __init__(self, cuda: Any, device: Any, marks: Any, run: Callable[[int], object], names: Sequence[str]) -> None:
        self.cuda, self.device, self.marks, self.run, self.names = cuda, device, marks, run, names

    @property
    def most(self) -> int:
        """Passes that there is room for."""
        return room_for(len(self.names)) // (len(self.names) + 2)


def quick(device: Any, unit: Any) -> Callable[[int], object]:
    """Return what enqueues a marked pass so many times: through a CUDA graph, since the host would wait for room for
    thousands of launches, and see the energy counter move too late."""
    unit.run(1)
    device.synchronize()
    launch: Callable[[int], object] = unit.capture(1).launch
    return launch


class Passing:
    """A marked iteration that runs (loads.RunningIteration): until it has run for settle_s, then the passes that count,
    and on for as long as it is to stay."""

    def __init__(self, iteration: Marked, settle_s: float, pass_s: float) -> None:
        self._of, self._settle_s, self._pass_s = iteration, settle_s, pass_s
        self._until_s = 0.0
        self._probe = iteration.cuda.ClockProbe(iteration.device, 2)
        self._ends: list[Any] = []  # events: the begin, then one behind each batch
        self._done = 0  # of them, as far as the host knows
        self._begun: int | None = None  # place of the one behind which batches count
        self._batches = 0  # that are to count
        self._batch = 1  # passes in one
        self._began_s = time.monotonic()
        self._record()
        self._launch()
        self._ends[1].wait()
        self._note()
        # short passes are launched several at a time
        self._batch = min(max(1, round(BATCH_S / self._one_s)), iteration.most)
        self.feed()

    @property
    def ended(self) -> int:
        """How many batches are known to have ended: stands still where one hangs."""
        return self._done

    def feed(self) -> None:
        """See loads.RunningIteration."""
        self._note()
        while len(self._ends) - self._done < _QUEUED and not self._is_enough_queued:
            if self._begun is None and self._lasts_until(self._began_s + self._settle_s):
                self._of.marks.clear()
                self._probe.mark()
                self._begun = len(self._ends) - 1
                wanted = min(self._pass_s / self._one_s, self._of.most)
                self._batches = max(1, round(wanted / self._batch))
            was_all_queued = self._is_all_queued
            self._launch()
            if self._is_all_queued and not was_all_queued:
                self._probe.mark()

    def stay(self, seconds: float) -> None:
        """See loads.RunningIteration."""
        self._until_s = time.monotonic() + seconds

    def settles(self) -> bool:
        """See loads.RunningIteration."""
        return self._begun is None

    def is_over(self) -> bool:
        """See loads.RunningIteration."""
        return self._begun is not None and self._done > self._begun + self._batches

    def passes(self) -> dict[str, Any]:
        """See loads.RunningIteration. Raises InputError where marks are missing."""
        names, count = self._of.names, self._batches * self._batch
        times_ns, width = self._of.marks.times_ns(), len(self._of.names) + 2
        if len(times_ns) < width * count:
            raise InputError(f"passes: {len(times_ns)} marks of {count} passes of {len(names)} launches")
        # sums over passes of what lies between each two marks
        end = width * count
        sums_ns = [sum(times_ns[at + 1 : end : width]) - sum(times_ns[at:end:width]) for at in range(width - 1)]
        mark_us = 1e-3 * sums_ns[-1] / count
        of_kernel: dict[str, list[float]] = {}
        for name, sum_ns in zip(names, sums_ns):
            us = 1e-3 * sum_ns / count
            of_kernel.setdefault(name, []).append(max(us - mark_us, _LEAST_SHARE * us, 1e-3))
        return {
            "n": count,
            "iteration_us": math.fsum(us for times_us in of_kernel.values() for us in times_us),
            "time_us": {name: math.fsum(times_us) / len(times_us) for name, times_us in of_kernel.items()},
            "sm_mhz": self._probe.sm_mhz()[0],
        }

    def stop(self) -> None:
        """See loads.RunningIteration."""
        self._of.device.synchronize()

    @property
    def _one_s(self) -> float:
        """What a pass of the last batch that has ended took."""
        last = self._done - 1
        passes = self._batch if last > 1 else 1
        return max(1e-3 * float(self._ends[last].since_ms(self._ends[last - 1])) / passes, 1e-6)

    def _lasts_until(self, when_s: float) -> bool:
        """Return whether what is queued runs until then."""
        left_s = (len(self._ends) - self._done) * self._batch * self._one_s
        return time.monotonic() + left_s >= when_s

    @property
    def _is_all_queued(self) -> bool:
        return self._begun is not None and len(self._ends) - 1 - self._begun >= self._batches

    @property
    def _is_enough_queued(self) -> bool:
        return self._is_all_queued and self._lasts_until(self._until_s)

    def _launch(self) -> None:
        self._of.run(self._batch)
        self._record()

    def _record(self) -> None:
        event = self._of.cuda.Event(self._of.device)
        event.record()
        self._ends.append(event)

    def _note(self) -> None:
        while self._done < len(self._ends) and self._ends[self._done].done():
            self._done += 1
