"""A captured step in the process that captured it: its nodes, its memory, and graphs built of its nodes.

`trial` tries launches on it, `loads` measures them, a player replays it in segments. Everything
runs on the default stream. Addresses are of this process and never leave it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kernel_dvfs_step import nodes as node_lists
from kernel_dvfs_step.memory import Memory

# of the time that a graph runs over and over, putting the state back takes at most this share
_REFRESH_SHARE = 0.002


def elapsed_ms(living: Any, run: Callable[[], object], count: int = 1) -> float:
    """Return the mean time on the GPU of what `run` enqueues, over so many calls, ms; waits. living: a LivingStep."""
    begin, end = (living.extension.Event(living.device) for _ in range(2))
    begin.record()
    for _ in range(count):
        run()
    end.record()
    end.wait()
    return float(end.since_ms(begin)) / count


class Refreshed:
    """A graph, with the state put back in stream order before every `every`-th run of it."""

    def __init__(self, graph: Any, restore: Callable[[], None], every: int) -> None:
        self.every = every
        self._graph, self._restore, self._left = graph, restore, every

    def run(self, count: int) -> None:
        """Enqueue it so many times."""
        for _ in range(count):
            if self._left == 0:
                self._restore()
                self._left = self.every
            self._graph.run(1)
            self._left -= 1

    def time(self, count: int) -> float:
        """Return the ms of so many runs, waited for; the state is not put back meanwhile."""
        return float(self._graph.time(count))


class LivingStep:
    """A captured step.

    extension: the module `_graph`; device: its Device. handle: of the graph (CUgraph). replay: runs the graph that the
    framework keeps, as the user would; None: the graph is rebuilt from its nodes. memory: its saved state. keeps:
    whatever must live as long as this.

    nodes: in an order that respects every edge, without empty ones. Places below are places among them.
    """

    def __init__(
        self,
        extension: Any,
        device: Any,
        handle: int,
        replay: Callable[[], None] | None,
        memory: Memory,
        keeps: Any = None,
    ) -> None:
        self.extension, self.device, self.memory = extension, device, memory
        self._keeps = keeps
        self._captured = extension.Captured(device, handle)
        raw, self.edges = self._captured.nodes(), self._captured.edges()
        self.nodes, self._places = node_lists.from_graph(raw, self.edges, extension.demangled)
        self.names = {node.function: extension.demangled(node.function) for node in self.nodes}
        self.checksum = node_lists.checksum(self.nodes, self.names)
        self.replay = replay or self.whole().run

    @property
    def functions(self) -> list[str]:
        """The demangled name of each node's function; `memset` or `copy`."""
        return [self.names[node.function] for node in self.nodes]

    def loop(self, places: Sequence[int], repeat: int = 1, keep_edges: bool = False) -> Any:
        """Return an executable graph of nodes, `repeat` times: run(count) enqueues it, time(count) also waits (ms).

        A chain in the order given; with keep_edges, each waits for what it waits for in the captured graph, also where
        nodes between the two are left out.
        """
        return self._captured.loop([self._places[place] for place in places], repeat, keep_edges)

    def chain(
        self,
        places: Sequence[int],
        repeat: int = 1,
        rest_ns: int = 0,
        marked: Sequence[int] = (),
        probe: Any = None,
    ) -> Any:
        """Return an executable graph of nodes one after the other and a rest behind them, `repeat` times; of rests
        where there are no nodes. marked: which of `places`, by number in rising order, the probe marks before and
        after."""
        return self._captured.chain([self._places[place] for place in places], repeat, rest_ns, list(marked), probe)

    def timed(self, places: Sequence[int], marked: Sequence[int], marks: Any) -> Any:
        """Return an executable graph of nodes one after the other, with a mark of time (TimeMarks) before some of
        `places`, by number in rising order, and two at its end."""
        return self._captured.timed([self._places[place] for place in places], list(marked), marks)

    def whole(self) -> Any:
        """Return the step rebuilt from its nodes with its own edges."""
        return self.loop(range(len(self.nodes)), keep_edges=True)

    def refreshed(self, graph: Any) -> Refreshed:
        """Return a graph that runs over and over on the numbers of the step: the state is put back now and then in
        between.

        Otherwise a step learns its only batch by heart within a second, its gradients vanish, and it draws less power.
        """
        self.memory.restore()
        restore_ms, once_ms = elapsed_ms(self, self.memory.restore), max(graph.time(1), 1e-3)
        return Refreshed(graph, self.memory.restore, max(1, math.ceil(restore_ms / (_REFRESH_SHARE * once_ms))))

    def meet(self, place: int) -> None:
        """Put the state back and run the step up to this node, in stream order: memory is then as the node meets it."""
        self.memory.restore()
        if place:
            self.loop(range(place), keep_edges=True).run(1)
            self.device.synchronize()  # the graph above is destroyed now
