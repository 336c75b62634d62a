"""A replica that has become slower, noticed while training runs, and the frontier looked up again, as Perseus does.

Every look tells how long the pipeline of each data-parallel replica took. One that takes longer than the plan in force
says is a straggler, and the others may take as long; one that takes what it should is none any more. The answer is
looked up in a thread of its own, so that no iteration waits for it, and is handed out at the next look.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernel_dvfs_clocks.errors import InputError, lines

if TYPE_CHECKING:
    from kernel_dvfs_pipeline.planner import Plan
    from kernel_dvfs_pipeline.runtime import Runtime

_NOTICED = 0.03  # a replica that takes this share longer than planned straggles
_LASTING = 2  # looks in a row


class Lookup:
    """Plans for all but the stragglers.

    runtime: its plan is the one in force. document: makes what is handed out of a plan. say: is given lines for the
    user. lasting: looks in a row by which a straggler is noticed, and by which it counts as gone.
    """

    def __init__(
        self,
        runtime: Runtime,
        document: Callable[[Plan], Any],
        say: Callable[[str], object] = print,
        lasting: int = _LASTING,
    ) -> None:
        self._runtime, self._document, self._say, self._lasting = runtime, document, say, lasting
        self._slow: dict[int, int] = {}  # looks in a row at which a replica was slow
        self._fast: dict[int, int] = {}  # likewise of a straggler, that it was not
        self._reference_s: dict[int, float] = {}  # what the work takes at the plan without a straggler
        self._changes: queue.SimpleQueue[dict[int, float | None]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, set[int]]] = queue.SimpleQueue()
        self.stragglers: set[int] = set()
        self._thread = threading.Thread(target=self._work, name="kernel-dvfs stragglers", daemon=True)
        self._thread.start()

    def tell(self, spans_s: Mapping[int, float]) -> None:
        """Tell how long the pipeline of each replica took, s; nan where nobody knows."""
        changed: dict[int, float | None] = {}
        for replica, span_s in spans_s.items():
            if math.isnan(span_s):
                continue
            if not self.stragglers:
                self._reference_s[replica] = min(span_s, self._reference_s.get(replica, math.inf))
            reference_s = min(self._reference_s.values(), default=span_s)
            # who follows a slower plan takes longer by that
            planned_s = reference_s
            if self.stragglers and replica not in self.stragglers:
                planned_s *= self._runtime.plan.time_s / self._runtime.base_s
            is_slow = span_s > (1 + _NOTICED) * planned_s
            self._slow[replica] = self._slow.get(replica, 0) + 1 if is_slow else 0
            self._fast[replica] = 0 if is_slow else self._fast.get(replica, 0) + 1
            if replica not in self.stragglers and self._slow[replica] == self._lasting:
                changed[replica] = self._runtime.base_s * span_s / reference_s
            elif replica in self.stragglers and self._fast[replica] == self._lasting:
                changed[replica] = None
        if changed:
            self.stragglers = (self.stragglers | changed.keys()) - {
                replica for replica, t_iter_s in changed.items() if t_iter_s is None
            }
            self._changes.put(changed)

    def answer(self) -> tuple[Any, set[int]] | None:
        """Return (a plan's document, the stragglers, which do not follow it) where one was found since, else None."""
        answer = None
        while not self._answers.empty():
            answer = self._answers.get()
        return answer

    def _work(self) -> None:
        while True:
            for replica, t_iter_s in self._changes.get().items():
                try:
                    plan = (
                        self._runtime.clear(replica)
                        if t_iter_s is None
                        else self._runtime.set_straggler(replica, t_iter_s)
                    )
                except InputError as error:
                    self._say(f"replica {replica}: {'; '.join(lines(error))}; the plan stays")
                    continue
                took = "straggles no more" if t_iter_s is None else f"takes {t_iter_s:.4g} s an iteration"
                in_force = self._runtime.plan
                what = "the plan stays" if plan is None else f"the others follow a plan of {in_force.time_s:.4g} s"
                self._say(f"replica {replica} {took}: {what}")
                self._answers.put((self._document(in_force), set(self.stragglers)))
