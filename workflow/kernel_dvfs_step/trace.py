"""What a Kineto trace says of the kernels of a step: operation, module, section, shapes, work, time.

Works on plain events, which `from_kineto` takes from torch's profiler and tests from a file. A kernel knows the
operation that launched it by one number, and the call of CUDA that did by another; operations, modules, the engine of
backward and the user's own marks (NVTX, record_function) lie around each other in time.
"""

from __future__ import annotations

import math
import re
import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from kernel_dvfs.workload.step import WHOLE

# how `framework` marks a profiled step
CALL = "kernel-dvfs: call"
# ... and the forward of each module
MODULE = "nn.Module: "
_BACKWARD = "autograd::engine::evaluate_function: "
_OPTIMISER = "Optimizer."
# annotations that torch makes, not the user
_OF_TORCH = ("ProfilerStep", "Torch-Compiled Region", "## Call", "CompiledFxGraph", "TorchDynamo", "Pregraph", CALL)
# what torch's profiler says that an event is: operations and marks, numbered by torch; calls of CUDA, numbered by CUPTI
_OPERATIONS, _CALLS_OF_CUDA = ("cpu_op", "user_annotation"), ("cuda_runtime", "cuda_driver")
# by its name, where torch is too old to say it. CUPTI's own and the driver's work (CUpti_ActivityOverheadKind) ...
_OVERHEADS = (
    *("Unknown", "Unrecognized", "Driver Compiler", "Buffer Flush", "Instrumentation", "Resource"),
    *("Runtime Triggered Module Loading", "Lazy Function Loading"),
    *("Command Buffer Full", "Activity Buffer Request", "UVM Activity Init"),
)
# ... and calls of CUDA that are younger than the profiler's list of names
_NAMELESS = ("INVALID", "SIZE")
FORWARD, BACKWARD, OPTIMISER = "forward", "backward", "optimiser"

_ITEM_BYTE = {
    **{"double": 8, "long int": 8, "long": 8, "c10::complex<float>": 8, "float": 4, "int": 4},
    **{"c10::BFloat16": 2, "c10::Half": 2, "short": 2, "unsigned char": 1, "signed char": 1, "char": 1, "bool": 1},
    **{"c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1},
}
# torch's matrix products: places of the two factors among the inputs
_PRODUCTS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2)}
# attention: (place of the queries, of the keys, of is_causal among the inputs, FLOP beside those of forward). The
# backward pass does five products of that size where forward does two.
_ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": (0, 1, 4, 1.0),
    "aten::_scaled_dot_product_efficient_attention": (0, 1, 6, 1.0),
    "aten::_scaled_dot_product_cudnn_attention": (0, 1, 6, 1.0),
    "aten::_scaled_dot_product_flash_attention_backward": (1, 2, 11, 2.5),
    "aten::_scaled_dot_product_efficient_attention_backward": (1, 2, 11, 2.5),
    "aten::_scaled_dot_product_cudnn_attention_backward": (1, 2, 14, 2.5),
}
# operations whose result is small beside what they read
_REDUCING = ("sum", "mean", "amax", "amin", "max", "min", "argmax", "nll_loss", "norm", "_foreach_norm", "var", "std")


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a trace."""

    name: str
    kind: str  # gpu, op, annotation, module, launch (a call of CUDA)
    start_ns: int
    end_ns: int
    thread: int = 0
    number: int = 0  # of an operation; of a kernel: the operation that launched it, 0 where none is known
    launch: int = 0  # of a call of CUDA; of a kernel: the call that launched it, 0 where none is known
    sequence: int = -1  # of an operation of forward, and of its counterpart in backward
    flop: float = 0.0  # as torch's profiler counts it
    shapes: tuple = ()
    types: tuple = ()
    inputs: tuple = ()  # plain values among the inputs, None for tensors


@dataclass(frozen=True, slots=True)
class Traced:
    """One kernel, memset or copy in a trace."""

    name: str  # as the trace has it, demangled
    start_us: float
    time_us: float
    operation: str = ""
    label: str = ""  # the operation with the sizes of a product: `mm 8192x2048x6144`
    module: str = ""
    section: str = ""
    flop: float | None = None
    byte: float | None = None


def from_kineto(events: Iterable[Any]) -> list[Event]:
    """Return plain events of torch's `prof.profiler.kineto_results.events()`, those that say something here."""
    return [plain for event in events if (plain := _event(event)) is not None]


def _event(event: Any) -> Event | None:
    name, start_ns = event.name(), event.start_ns()
    end_ns = start_ns + event.duration_ns()
    activity = _activity(event)
    if "CPU" not in str(event.device_type()):
        if _is_marked(name) or name.startswith(MODULE) or _is_annotation(event):
            return None  # annotations are drawn on the GPU's line as well
        return Event(name, "gpu", start_ns, end_ns, number=event.linked_correlation_id(), launch=event.correlation_id())
    if activity in _CALLS_OF_CUDA:
        return Event(name, "launch", start_ns, end_ns, launch=event.correlation_id())
    if name.startswith(MODULE):
        return Event(name, "module", start_ns, end_ns, event.start_thread_id())
    if _is_annotation(event):
        return Event(name, "annotation", start_ns, end_ns, event.start_thread_id(), event.correlation_id())
    if event.correlation_id() == 0 or activity not in _OPERATIONS:
        return None
    return Event(
        *(name, "op", start_ns, end_ns, event.start_thread_id(), event.correlation_id(), event.sequence_nr()),
        flop=float(event.flops() or 0),
        shapes=tuple(tuple(shape) if isinstance(shape, list) else shape for shape in event.shapes()),
        types=tuple(event.dtypes()),
        inputs=tuple(value if isinstance(value, bool | int | float) else None for value in event.concrete_inputs()),
    )


def _activity(event: Any) -> str:
    """Return what an event is, as torch names it (libkineto's ActivityType).

    Never told by a number: operations are numbered by torch and calls of CUDA by CUPTI, each from 1 on, so that a call
    taken for an operation has the number of another one, and with it that one's kernels.
    """
    if asked := getattr(event, "activity_type", None):
        return str(asked())
    name = event.name()
    if name.startswith("cu") or name in _NAMELESS:
        return _CALLS_OF_CUDA[0]
    if name in _OVERHEADS or name.startswith(("<", "/")) or ".py(" in name:
        return "overhead"
    return _OPERATIONS[0]


def _is_annotation(event: Any) -> bool:
    asked = getattr(event, "is_user_annotation", None)
    return bool(asked()) if asked else False


def _is_marked(name: str) -> bool:
    return name.startswith((*_OF_TORCH, _OPTIMISER, _BACKWARD))


def calls(events: Sequence[Event]) -> list[list[Event]]:
    """Return the events of each call that `framework` marked.

    A kernel is of the call in which the host launched it, whenever it ran: by its call of CUDA; where the trace lacks
    that, by its operation; where no operation is known either, by its time, since a call has ended on the GPU before
    the next one begins.
    """
    marks = sorted(
        (event for event in events if event.kind == "annotation" and event.name == CALL),
        key=lambda event: event.start_ns,
    )
    begins_ns = [mark.start_ns for mark in marks]
    launched_ns = {event.launch: event.start_ns for event in events if event.kind == "launch"}
    launched_ns.pop(0, None)
    by_operation_ns = {event.number: event.start_ns for event in events if event.kind not in ("gpu", "launch")}
    by_operation_ns.pop(0, None)
    by_call: list[list[Event]] = [[] for _ in marks]
    for event in events:
        start_ns = event.start_ns
        if event.kind == "gpu":
            start_ns = launched_ns.get(event.launch, by_operation_ns.get(event.number, start_ns))
        place = bisect_right(begins_ns, start_ns) - 1
        # between two calls the host does nothing but wait for the first
        is_within = place >= 0 and (event.kind == "gpu" or start_ns <= marks[place].end_ns)
        if is_within and event.kind != "launch":
            by_call[place].append(event)
    return by_call


def traced(events: Sequence[Event]) -> list[Traced]:
    """Return what ran on the GPU in a call, in order, each with what launched it."""
    surroundings = _Surroundings(events)
    gpu = sorted((event for event in events if event.kind == "gpu"), key=lambda event: event.start_ns)
    longest: dict[int, int] = {}  # operation -> the longest of its kernels: that one does its work
    for place, event in enumerate(gpu):
        best = longest.setdefault(event.number, place)
        if event.end_ns - event.start_ns > gpu[best].end_ns - gpu[best].start_ns:
            longest[event.number] = place
    kernels = []
    for place, event in enumerate(gpu):
        about = surroundings.of(event.number)
        does_work = longest[event.number] == place
        kernels.append(
            replace(
                about,
                name=event.name,
                start_us=event.start_ns / 1e3,
                time_us=(event.end_ns - event.start_ns) / 1e3,
                flop=about.flop if does_work else None,
                byte=about.byte if does_work else None,
            )
        )
    return kernels


class _Surroundings:
    """What lies around the operations of a call."""

    def __init__(self, events: Sequence[Event]) -> None:
        host = [event for event in events if event.kind != "gpu"]
        self._chains: dict[int, list[Event]] = {}  # operation's number -> itself and what is around it, outwards
        by_thread: dict[int, list[Event]] = defaultdict(list)
        for event in host:
            by_thread[event.thread].append(event)
        forward: dict[int, str] = {}  # sequence number -> module
        for thread in by_thread.values():
            stack: list[Event] = []
            for event in sorted(thread, key=lambda event: (event.start_ns, -event.end_ns)):
                while stack and stack[-1].end_ns < event.end_ns:
                    stack.pop()
                stack.append(event)
                chain = stack[::-1]
                if event.number:
                    self._chains[event.number] = chain
                if event.kind == "op" and event.sequence >= 0 and not _in_backward(chain):
                    forward.setdefault(event.sequence, _module(chain))
        self._forward = forward
        marks = [event for event in host if event.kind == "annotation" and not _is_marked(event.name)]
        # a mark around all of it says nothing, and its name is that of the whole
        self._marks = [event for event in marks if _slug(event.name) != WHOLE]
        engine = [event.start_ns for event in host if event.name.startswith(_BACKWARD)]
        self._last_backward_ns = max(engine) if engine else None

    def of(self, number: int) -> Traced:
        """Return what is known of the kernels that an operation launches; of none: nothing."""
        chain = self._chains.get(number, [])
        if not chain:
            return Traced("", 0.0, 0.0)
        operations = [event for event in chain if event.kind == "op" and not event.name.startswith(_BACKWARD)]
        operation = operations[0] if operations else None
        flop, label = _work(operations)
        module = _module(chain) or self._forward.get(_backward_sequence(chain), "")
        return Traced(
            *("", 0.0, 0.0),
            operation=operation.name if operation else "",
            label=label,
            module=module,
            section=self._section(chain),
            flop=flop,
            byte=_byte(operation) if operation else None,
        )

    def _section(self, chain: Sequence[Event]) -> str:
        start_ns = chain[0].start_ns
        around = [mark for mark in self._marks if mark.start_ns <= start_ns <= mark.end_ns]
        if around:
            outermost = min(around, key=lambda mark: (mark.start_ns, -mark.end_ns))
            return _slug(outermost.name) or FORWARD
        if any(event.name.startswith(_OPTIMISER) for event in chain):
            return OPTIMISER
        if _in_backward(chain):
            return BACKWARD
        return OPTIMISER if self._last_backward_ns is not None and start_ns > self._last_backward_ns else FORWARD


def _slug(name: str) -> str:
    """Return a mark's name as a section's, which is a workload.step.Id; "" where nothing of it is left."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:60].rstrip("_")


def _in_backward(chain: Iterable[Event]) -> bool:
    return any(event.name.startswith(_BACKWARD) for event in chain)


def _backward_sequence(chain: Iterable[Event]) -> int:
    return next((event.sequence for event in chain if event.name.startswith(_BACKWARD)), -1)


def _module(chain: Iterable[Event]) -> str:
    """Return the classes of the modules around an operation, from the outside in."""
    names = [event.name.removeprefix(MODULE) for event in chain if event.kind == "module"]
    return ".".join(names[::-1])


def _work(operations: Sequence[Event]) -> tuple[float | None, str]:
    """Return (FLOP of the innermost operation that says, its label)."""
    for operation in operations:
        if operation.name in _ATTENTION:
            return _attention_flop(operation), operation.name.removeprefix("aten::").lstrip("_")
    if not operations:
        return None, ""
    innermost = operations[0]
    label = innermost.name.removeprefix("aten::").lstrip("_")
    if innermost.name in _PRODUCTS:
        sizes = _product(innermost)
        if sizes:
            batch, m, k, n = sizes
            text = f"{m}x{k}x{n}" if batch == 1 else f"{batch}x{m}x{k}x{n}"
            return 2.0 * batch * m * k * n, f"{label} {text}"
    # outwards: a convolution says its work, not the library call within it
    return next((operation.flop for operation in operations if operation.flop > 0), None), label


def _product(operation: Event) -> tuple[int, int, int, int] | None:
    """Return (batch, m, k, n) of a matrix product."""
    first, second = _PRODUCTS[operation.name]
    try:
        a, b = operation.shapes[first], operation.shapes[second]
        return (1 if len(a) == 2 else a[0]), a[-2], a[-1], b[-1]
    except (IndexError, TypeError):
        return None


def _attention_flop(operation: Event) -> float | None:
    """Return the FLOP of two products over all pairs of positions, half of them where a mask lets no position look
    ahead."""
    query, key, causal, factor = _ATTENTION[operation.name]
    try:
        batch, heads, length, width = operation.shapes[query]
        flop = factor * 4.0 * batch * heads * length * operation.shapes[key][2] * width
    except (IndexError, TypeError, ValueError):
        return None
    is_causal = causal < len(operation.inputs) and operation.inputs[causal] is True
    return flop / 2 if is_causal else flop


def _byte(operation: Event) -> float | None:
    """Return the B of the inputs, and of a result: a product's own, else one like the largest input."""
    sizes = []
    for shape, kind in zip(operation.shapes, operation.types):
        if kind in _ITEM_BYTE and isinstance(shape, tuple) and all(isinstance(length, int) for length in shape):
            sizes.append((math.prod(shape) * _ITEM_BYTE[kind], _ITEM_BYTE[kind]))
    if not sizes:
        return None
    total, (largest, item) = sum(size for size, _ in sizes), max(sizes)
    if operation.name in _PRODUCTS:
        product = _product(operation)
        return float(total + product[0] * product[1] * product[3] * item) if product else None
    if operation.name.startswith("triton"):
        return float(total)  # results are among its arguments
    name = operation.name.removeprefix("aten::").lstrip("_")
    return float(total if name.startswith(_REDUCING) else total + largest)


def matched(names: Sequence[str], kernels: Sequence[Traced]) -> list[Traced | None]:
    """Return for each node, by its function's demangled name (`memset`, `copy`), the kernel of a call that it is.

    The n-th node of a name is the n-th kernel of that name, which holds also where branches run side by side. None
    where the call ran another number of them.
    """
    places: dict[str, list[Traced]] = defaultdict(list)
    for kernel in kernels:
        places[_key(kernel.name)].append(kernel)
    counts = Counter(map(_key, names))
    taken: Counter[str] = Counter()
    result: list[Traced | None] = []
    for name in map(_key, names):
        known = places[name] if len(places[name]) == counts[name] else None
        result.append(known[taken[name]] if known else None)
        taken[name] += 1
    return result


class Other(NamedTuple):
    """A kernel that one way of running a step runs more often than the other."""

    name: str
    launches: int  # more of them
    time_us: float  # of these


def others(call: Sequence[Traced], replay: Sequence[Traced]) -> tuple[list[Other], list[Other]]:
    """Return what a call launches more of than a replay of its graph, and what the replay launches more of, the longest
    first.

    Code that asks whether it is being captured takes another way then: a graph may hold kernels that no call runs.
    """
    ran = []
    for kernels in (call, replay):
        by_name: dict[str, list[Traced]] = defaultdict(list)
        for kernel in kernels:
            by_name[_key(kernel.name)].append(kernel)
        ran.append(by_name)
    more = []
    for way, other_way in (ran, ran[::-1]):
        surplus = [
            Other(kernels[0].name, count, count * statistics.fmean(kernel.time_us for kernel in kernels))
            for key, kernels in way.items()
            if (count := len(kernels) - len(other_way.get(key, ()))) > 0
        ]
        more.append(sorted(surplus, key=lambda other: -other.time_us))
    return more[0], more[1]


def _key(name: str) -> str:
    """Return a kernel's name as both CUPTI and the demangler write it."""
    if name.startswith("Memset"):
        return "memset"
    if name.startswith("Memcpy"):
        return "copy"
    return re.sub(r"\s+|\(anonymous namespace\)|<unnamed>|\bvoid\b", "", name)


def replays(names: Sequence[str], events: Sequence[Event], count: int) -> list[list[Traced]]:
    """Return what each node did in each of `count` traced replays of a graph, in the order of the nodes.

    Empty where the trace does not hold every node of every replay.
    """
    gpu = sorted((event for event in events if event.kind == "gpu"), key=lambda event: event.start_ns)
    if len(gpu) != count * len(names):
        return []
    complete = []
    for number in range(count):
        part = gpu[number * len(names) : (number + 1) * len(names)]
        plain = [Traced(event.name, event.start_ns / 1e3, (event.end_ns - event.start_ns) / 1e3) for event in part]
        ran = matched(names, plain)
        whole = [kernel for kernel in ran if kernel is not None]
        if len(whole) < len(names):
            return []
        complete.append(whole)
    return complete


def times_us(traced_replays: Sequence[Sequence[Traced]], shortest: bool = False) -> list[float]:
    """Return the mean time of each node over the replays, or its shortest."""
    of = min if shortest else statistics.fmean
    return [float(of([kernel.time_us for kernel in node])) for node in zip(*traced_replays)]


def last(events: Sequence[Event], count: int) -> list[Event]:
    """Return the last so many things that ran on the GPU."""
    return sorted((event for event in events if event.kind == "gpu"), key=lambda event: event.start_ns)[-count:]


def overlap(replay: Sequence[Traced]) -> tuple[float, list[int]]:
    """Return (us by which the times of the nodes exceed the time in which any of them ran, places of those that
    overlap)."""
    order = sorted(range(len(replay)), key=lambda place: replay[place].start_us)
    beside: set[int] = set()
    busy_us, end_us, last = 0.0, -math.inf, -1
    for place in order:
        start_us, stop_us = replay[place].start_us, replay[place].start_us + replay[place].time_us
        if start_us < end_us:
            beside |= {last, place}
        busy_us += max(0.0, stop_us - max(start_us, end_us))
        if stop_us > end_us:
            end_us, last = stop_us, place
    return math.fsum(kernel.time_us for kernel in replay) - busy_us, sorted(beside)


def to_json(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return events for a file, without what is at its default."""
    empty = asdict(Event("", "", -1, -1))
    return [{key: value for key, value in asdict(event).items() if value != empty[key]} for event in events]


def from_json(content: Iterable[dict[str, Any]]) -> list[Event]:
    """Return the events of such a list."""
    events = []
    for entry in content:
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
        }
        shapes = fields.get("shapes", ())
        fields["shapes"] = tuple(tuple(shape) if isinstance(shape, list) else shape for shape in shapes)
        events.append(Event(**fields))
    return events
