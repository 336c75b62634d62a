"""`kernel_dvfs.capture`: a step captured in the user's own program, to be recorded, replayed and played at a schedule.

    captured = kernel_dvfs.capture(step)        # a function without arguments, warmed up and captured
    captured = kernel_dvfs.capture(graph)       # a torch.cuda.CUDAGraph(keep_graph=True), or a raw handle
    with kernel_dvfs.capture() as captured:     # what runs here is captured, by the rules of torch.cuda.graph
        loss = step()
    captured.write("step.json")

No kernel is repeated alone here: one that hangs could be ended only with the program. `kernel-dvfs capture` does that.
Replays and pieces run on torch's default stream; work on another one is to be ordered with that by events.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernel_dvfs.native.load import load
from kernel_dvfs.workload import step as steps
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import assembly, framework, trace, trial
from kernel_dvfs_step.living import elapsed_ms
from kernel_dvfs_step.trial import Tried

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

    from kernel_dvfs.workload.step import Step
    from kernel_dvfs_step.framework import Opened

_TRACED_REPLAYS = 4
_UNTRIED = "captured in the user's own program, where a kernel that hangs could not be ended"


def capture(step: Any = None, *, name: str = "step", results_dir: str = "results") -> Captured:
    """Capture a step: see above. name: of the step; results_dir: the folder with the native layer built.

    A function is called nine times before: five of these are steps of the training (thirteen with torch.distributed),
    the other four tell calls from replays and are put back. What is captured is replayed a few times for its trace, and
    the state (parameters, optimiser, buffers) is then put back, bit for bit.
    A step whose replays train otherwise than its calls, or that trains nothing, is warned of (UserWarning).
    Raises InputError with the reason, and what usually causes it, where the step cannot be captured.
    """
    captured = Captured(load("graph", results_dir), name)
    if step is not None:
        captured.open(step)
    return captured


class Captured:
    """A captured step in this process (deploy.replay.Replay)."""

    def __init__(self, extension: Any, name: str) -> None:
        self._extension, self._name = extension, name
        self._opened: Opened | None = None
        self._record: Step | None = None
        self._graph: Any = None
        self._context: Any = None

    # --- capturing ----------------------------------------------------------------------------------------------------

    def open(self, step: Any) -> None:
        """Capture a function, or take a graph. Raises InputError; the state is then what it was before any replay."""
        opened = framework.open_step(self._extension, step, name=self._name)
        memory = opened.living.memory
        try:
            self._record = self._recorded(opened)
        except BaseException:
            # refused or interrupted, the user's training goes on where it was
            memory.restore()
            opened.living.device.synchronize()
            raise
        finally:
            # room on the GPU is the user's; who plays the step saves again
            memory.drop()
        self._opened = opened

    def __enter__(self) -> Captured:
        if self._opened:
            raise InputError(f"{self._name}: is captured already; `with kernel_dvfs.capture():` takes no step")
        torch = framework.torch_module()
        self._graph = torch.cuda.CUDAGraph(keep_graph=True)
        self._context = torch.cuda.graph(self._graph)
        self._context.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        try:
            self._context.__exit__(kind, error, trace_)
        except Exception as ended:
            error = error or ended
        if isinstance(error, Exception):
            framework.after_failed_capture(framework.torch_module())
            raise framework.capture_failed(self._name, error) from error
        if error is None:
            self.open(self._graph)

    def _recorded(self, opened: Opened) -> Step:
        living = opened.living
        living.memory.restore()
        # a graph is not called before it is captured, so only its replays tell
        with framework.no_random_numbers(self._name):
            living.replay()
            time_us = 1e3 * elapsed_ms(living, living.replay, _TRACED_REPLAYS)
            events = framework.traced_replays(living.replay, _TRACED_REPLAYS)
        replays = trace.replays(living.functions, events, _TRACED_REPLAYS)
        living.memory.check_restored()
        faith = opened.faith()
        outline = assembly.outline_of(living.nodes, living.functions, living.memory.segments, opened.calls, replays[1:])
        for line in (*faith.frozen, *faith.noticed, *outline.noticed):
            warnings.warn(f"{self._name}: {line}", stacklevel=4)
        tried = [Tried(None, _turns(outline, members), "untried", _UNTRIED, 0) for members in outline.classes]
        return assembly.step(
            name=self._name,
            source="",
            date_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            device=opened.device,
            versions=opened.versions,
            outline=outline,
            tried=tried,
            clocks_mhz=None,
            whole=assembly.whole_of(living.edges) | {"time_us": round(time_us, 3)},
            state=living.memory.state,
            by_difference={},
            not_repeated={},
            faith=faith,
            items=opened.items,
        )

    # --- the step -----------------------------------------------------------------------------------------------------

    @property
    def _captured(self) -> Opened:
        if self._opened is None:
            raise InputError(f"{self._name}: nothing is captured yet: capture(step), or `with capture() as captured:`")
        return self._opened

    @property
    def _living(self) -> Any:
        return self._captured.living

    @property
    def record(self) -> Step:
        """What was captured. Raises InputError where nothing is yet."""
        assert self._living
        assert self._record
        return self._record

    def write(self, path: str | PathLike[str]) -> None:
        """Write the record: step.json. Raises InputError where nothing is captured yet."""
        steps.write(path, self.record)

    def named(self, source: str) -> Captured:
        """Return the same, said to be what FILE.py:FUNCTION makes, so that a study can capture it again."""
        self._record = replace(self.record, source=source)
        return self

    def replay(self) -> None:
        """Run the step once, as torch replays its graph."""
        self._living.replay()

    def piece(self, nodes: Sequence[int]) -> Any:
        """Return an executable graph of the nodes at these places; run(count) enqueues it. Raises InputError."""
        return self._living.loop(nodes, keep_edges=True)

    def whole(self) -> Any:
        """Return the graph as it was captured; run(count) enqueues it."""
        return _Replayed(self._living.replay)

    def event(self) -> Any:
        """Return an event on the stream that pieces run on: record(), done()."""
        return self._extension.Event(self._living.device)

    def synchronize(self) -> None:
        """Wait for all that is queued."""
        self._living.device.synchronize()

    def save(self) -> None:
        """Keep a copy of what outlives a step (parameters, optimiser, buffers, inputs), in place of an earlier one.
        Raises InputError where there is no room for all of it."""
        self.drop()
        # since the capture, the program may have given memory back
        self._living.memory = self._captured.memory()
        state = self._living.memory.state
        if state.left_out:
            self.drop()
            raise InputError(f"{self._name}: its state of {state.byte} B cannot be saved: {state.left_out}")

    def restore(self) -> None:
        """Put it back, bit for bit, in stream order; nothing where no copy is kept."""
        self._living.memory.restore()

    def drop(self) -> None:
        """Free the copy; waits for what is queued."""
        self.synchronize()
        self._living.memory.drop()

    def fingerprint(self) -> tuple[str, str]:
        """Return a hash (of what was saved, of all memory of the step, the loss included) as it is now: equal where
        every bit is."""
        memory = self._living.memory
        state, everything = (hashlib.sha256(hashes()).hexdigest() for hashes in (memory.state_hash, memory.all_hashes))
        return state, everything


def _turns(outline: assembly.Outline, members: Sequence[int]) -> int:
    functions = (outline.functions[place] for place in outline.launches[members[0]].nodes)
    return min(trial.most_turns(functions), len(members))


class _Replayed:
    """A replay as a piece."""

    def __init__(self, replay: Any) -> None:
        self._replay = replay

    def run(self, count: int = 1) -> None:
        for _ in range(count):
            self._replay()
