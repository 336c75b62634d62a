"""A captured step as a player needs it: whole or in pieces on one stream, its memory saved, restored and told apart.

`kernel_dvfs.capture` gives one on a GPU; tests have one on a board of the fake NVML.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kernel_dvfs_deploy.events import StreamEvents

if TYPE_CHECKING:
    from kernel_dvfs.workload.step import Step


class Piece(Protocol):
    """Some of a step's launches as one executable graph."""

    def run(self, count: int = 1) -> None:
        """Enqueue it so many times; returns before it has run."""
        ...


class Replay(Protocol):
    """A captured step, alive in this process."""

    @property
    def record(self) -> Step:
        """Return what was captured."""
        ...

    def piece(self, nodes: Sequence[int]) -> Piece:
        """Return an executable graph of the nodes at these places, in this order. Raises InputError."""
        ...

    def whole(self) -> Piece:
        """Return the graph as it was captured."""
        ...

    def event(self) -> Any:
        """Return an event on the stream that pieces run on: record(), and done() once the GPU has come to it."""
        ...

    def synchronize(self) -> None:
        """Wait for all that is queued."""
        ...

    def save(self) -> None:
        """Keep a copy of what outlives a step (parameters, optimiser, buffers, inputs). Raises InputError where there
        is no room."""
        ...

    def restore(self) -> None:
        """Put it back, bit for bit, behind all that is queued; nothing where no copy is kept."""
        ...

    def drop(self) -> None:
        """Free the copy."""
        ...

    def fingerprint(self) -> tuple[str, str]:
        """Return (of what was saved, of all memory, the loss included) as it is now: equal where every bit is."""
        ...


class StepEvents(StreamEvents):
    """Events of a step that the program runs whenever it likes: a player waits for an iteration that has not begun, and
    counts its patience from there. `end` releases it. Events of past iterations are forgotten."""

    def __init__(self, make_event: Callable[[], Any], boundaries: Iterable[int], count: int) -> None:
        super().__init__(make_event, boundaries, count)
        self._begun = threading.Condition()
        self._ended = False
        self._last_piece: Any = None  # event behind the last piece of the iteration that was launched last

    def begin(self) -> None:
        """The program is about to launch the next iteration; to be called before `reached(0)`."""
        self._last_piece = None

    def launched(self) -> None:
        """The program has launched all of an iteration."""
        event = self._make()
        event.record()
        self._last_piece = event

    def is_idle(self) -> bool:
        """See EventSource."""
        last = self._last_piece
        return last is not None and bool((last.done if hasattr(last, "done") else last.query)())

    def end(self) -> None:
        """There will be no further iteration."""
        with self._begun:
            self._ended = True
            self._begun.notify_all()

    def passed_s(self, boundary: int) -> float | None:
        """See EventSource. What lies more than an iteration before is forgotten: not before the program's own, since it
        launches several ahead of the GPU, and so of the player."""
        passed_s = super().passed_s(boundary)
        least = (boundary // self._count - 1) * self._count
        if self._passed and next(iter(self._passed)) < least:
            self._passed = {number: when for number, when in self._passed.items() if number >= least}
        return passed_s

    def wait(self, boundary: int, until_s: float) -> float | None:
        """See EventSource."""
        patience_s = until_s - self.now_s()
        with self._begun:
            self._begun.wait_for(lambda: self._ended or self._has_begun(boundary))
            if self._ended and not self._has_begun(boundary):
                return None
        return super().wait(boundary, self.now_s() + patience_s)

    def _has_begun(self, boundary: int) -> bool:
        return self._last >= 0 and boundary // self._count <= self._iteration

    def reached(self, launch: int) -> None:
        """See StreamEvents."""
        super().reached(launch)
        if launch == 0:
            with self._begun:
                self._begun.notify_all()
