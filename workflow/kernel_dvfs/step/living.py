"""A captured step in the process that captured it: its nodes, its memory, and graphs built of its nodes.

`trial` tries launches on it, `measurement.real.step_loads` measures them, a player replays it in segments. Everything
runs on the default stream. Addresses are of this process and never leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernel_dvfs.step import nodes as node_lists
from kernel_dvfs.step.memory import Memory


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
        """An executable graph of nodes, `repeat` times: run(count) enqueues it, time(count) also waits (ms).

        A chain in the order given; with keep_edges, each waits for what it waits for in the captured graph, also where
        nodes between the two are left out.
        """
        return self._captured.loop([self._places[place] for place in places], repeat, keep_edges)

    def whole(self) -> Any:
        """The step rebuilt from its nodes with its own edges."""
        return self.loop(range(len(self.nodes)), keep_edges=True)

    def meet(self, place: int) -> None:
        """Put the state back and run the step up to this node, in stream order: memory is then as the node meets it."""
        self.memory.restore()
        if place:
            self.loop(range(place), keep_edges=True).run(1)
            self.device.synchronize()  # the graph above is destroyed now
