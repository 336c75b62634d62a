"""Capturing with torch: the user's file is run, its step warmed up, traced, captured and opened (living.LivingStep).

Torch is imported here only once the user's file, or the caller, has done so or is about to: nothing else of
kernel-dvfs needs it. Every refusal is one line: what, and what usually causes it.
"""

from __future__ import annotations

import importlib.util
import inspect
import operator
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.package import VERSION
from kernel_dvfs_step import trace
from kernel_dvfs_step.calls import COMPARED, Calls, Faith, alive
from kernel_dvfs_step.interpreter import OLDEST_TORCH, release_of
from kernel_dvfs_step.living import LivingStep
from kernel_dvfs_step.memory import Memory, MemoryRange, Room

WARM_UPS = 3
# as torch's notes on CUDA graphs ask of a step with DistributedDataParallel
_WARM_UPS_PARALLEL = 11
# what one step works on, as its attributes say it
_ITEMS = {"tokens": "token", "samples": "sample"}
_TRACED_CALLS = 2
# left free on the device when the state is saved there
_SPARE_BYTE = 1 << 30
# libraries of Python and this package: no user's own code
_INSTALLED = tuple(
    os.path.join(os.path.abspath(folder), "") for folder in (os.path.dirname(os.__file__), Path(__file__).parents[1])
)
_INSTALL = "pip install 'kernel-dvfs[torch]'"

_RANKS = (
    "{}: a step of several ranks is not taken, since one process is captured: make it with one rank "
    "(init_process_group('nccl', store=HashStore(), rank=0, world_size=1)), whose kernels are those of each rank; its "
    "collectives stay at auto and are named"
)
# what torchrun and its like set for each rank
_WORLD_SIZE = "WORLD_SIZE"
_LAUNCHED = (
    "{}: {}={} is set, as torchrun does for each of its ranks, which would wait for one another; start it without "
    "torchrun (env -u {}), with a step of one rank: "
    "init_process_group('nccl', store=HashStore(), rank=0, world_size=1)"
)
_NO_STEP = (
    "{}: gave a {}; expected the step: a function without arguments, or a CUDAGraph; let it return the function that "
    "runs forward, backward and optimiser (def step(): ...; return step)"
)
_SHARDED = (
    "{}: its parameters are sharded (FSDP), and gathered anew in each call by collectives of several ranks; capture "
    "the plain model, or with DistributedDataParallel in a world of one: its other kernels are those of each rank"
)

# what a failed capture says, and what usually causes it; the first that fits
_CAUSES = (
    (
        "legacy stream",
        "an autograd graph of an earlier call is still alive (a loss or output that is kept), and holds the stream of "
        "that call: keep its .detach() instead; DistributedDataParallel keeps one as well: make it within "
        "torch.cuda.stream(torch.cuda.Stream())",
    ),
    ("unjoined", "a stream of its own was not joined again: make the capturing stream wait for it (wait_stream)"),
    ("isolation", "two streams or threads work on the GPU at once: order them by events, or use one stream"),
    ("philox", "a random number generator that is not registered with the graph: draw before the step"),
    ("generator", "a random number generator that is not registered with the graph: draw before the step"),
    ("offset increment", "random numbers: draw them before the step"),
    ("cannot copy between cpu and cuda", "a copy from unpinned memory: keep inputs on the GPU"),
    ("pin", "a copy from unpinned memory: keep inputs on the GPU"),
    ("capturable", "this optimiser reads its step count on the host: pass capturable=True"),
    ("prepare for replay", "the step replays a graph of its own: capture the step without it"),
    (
        "not permitted when stream is capturing",
        "the host waits for the GPU inside the step: .item(), .cpu(), print of "
        "a tensor, an if on one, nonzero, an index by a mask, an optimiser without capturable=True, or memory "
        "allocated outside torch",
    ),
    ("streamcapture", "the host waits for the GPU inside the step, or memory is allocated outside torch"),
)


class Opened(NamedTuple):
    """A captured step, and what a trace of its calls says."""

    living: LivingStep
    calls: list[list[trace.Event]]  # of calls outside the graph; none where only a graph was given
    device: dict[str, Any]
    versions: dict[str, str]
    memory: Callable[[], Memory]  # as it is in use now; saved
    compared: Calls | None = None  # calls of what was captured; None where only a graph was given
    items: dict[str, int] = {}  # noqa: RUF012 - never written

    def faith(self) -> Faith:
        """Return whether replays train as calls do; replay a few steps from the saved state, which is then put back."""
        copies = sum(node.from_host for node in self.living.nodes)
        if self.compared is None:
            return Calls(None).faith(None, copies)
        compared = self.compared

        def replays() -> Any:
            self.living.memory.restore()
            for _ in range(COMPARED):
                self.living.replay()
            self.living.device.synchronize()
            left = compared.sample()
            self.living.memory.restore()
            return left

        return compared.faith(replays, copies)


def torch_module() -> Any:
    """Return torch, new enough, with a GPU. Raises InputError."""
    try:
        import torch
    except ImportError as error:
        raise InputError(f"torch cannot be imported ({error}): {_INSTALL}") from None
    if release_of(torch.__version__) < OLDEST_TORCH:
        raise InputError(f"torch {torch.__version__}: capture needs 2.8 or newer (keep_graph): {_INSTALL}")
    if not torch.cuda.is_available():
        raise InputError("torch sees no GPU: capture on the machine that trains (nvidia-smi shows its GPUs)")
    if torch.cuda.get_allocator_backend() != "native":
        raise InputError(
            f"torch allocates by {torch.cuda.get_allocator_backend()}, which does not report what memory is in use: "
            "switch it off (backend in PYTORCH_CUDA_ALLOC_CONF)"
        )
    return torch


def function_of(source: str) -> Callable[[], Any]:
    """Return the function that FILE.py:FUNCTION names; runs the file. Raises InputError."""
    path, colon, name = source.rpartition(":")
    if not colon or not name.isidentifier() or not path.endswith(".py"):
        raise InputError(f"{source}: expected FILE.py:FUNCTION, a function without arguments that makes the step")
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file")
    folder, stem = os.path.dirname(os.path.abspath(path)), os.path.basename(path)[:-3]
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python FILE.py` has it
    spec = importlib.util.spec_from_file_location(stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    with _as_input_error(f"{path}: failed when it was run"):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        names = ", ".join(
            attribute for attribute, value in vars(module).items() if callable(value) and not attribute.startswith("_")
        )
        raise InputError(f"{source}: {path} has no function '{name}'; it has {names or 'none'}")
    return function


@contextmanager
def _as_input_error(what: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what}{place_of(error)} ({type(error).__name__}: {_first_line(error)})") from error


def place_of(error: BaseException) -> str:
    """Return ` at train.py:212`: the innermost line of the user's own code that an error came through; "" where none is
    known.

    Own code: what is installed neither as a library nor as this package.
    """
    return _place(traceback.extract_tb(error.__traceback__))


def _place(stack: traceback.StackSummary) -> str:
    frames = [
        frame
        for frame in stack
        if os.path.isfile(frame.filename) and not _is_installed(os.path.abspath(frame.filename))
    ]
    return f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def _is_installed(path: str) -> bool:
    return path.startswith(_INSTALLED) or "/site-packages/" in path or "/dist-packages/" in path


def _first_line(error: BaseException) -> str:
    return _cut(next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__), 200)


def _cut(text: str, most: int = 100) -> str:
    """Return no more of a text than a line for the user bears."""
    return text if len(text) <= most else text[:most].rstrip() + "…"


def open_source(
    extension: Any, source: str, is_traced: bool = True, look: Callable[[Any, Any], None] | None = None
) -> Opened:
    """Capture what FILE.py:FUNCTION makes: a callable without arguments, or a torch.cuda.CUDAGraph.

    is_traced: whether calls are traced before (operations, modules, sections). look: is given torch and the callable
    once that is warm, before anything is traced. Raises InputError.
    """
    ranks = os.environ.get(_WORLD_SIZE, "1")
    if ranks != "1":
        raise InputError(_LAUNCHED.format(source, _WORLD_SIZE, ranks, _WORLD_SIZE))
    function = function_of(source)
    _refuse_arguments(function, source, "what makes the step", "make_step")
    try:
        with _as_input_error(f"{source}: failed"):
            step = function()
    except InputError as error:
        if "rendezvous" in str(error) or "init_process_group" in str(error):
            raise InputError(_RANKS.format(source)) from error
        raise
    if not _is_step(torch_module(), step):
        raise InputError(_NO_STEP.format(f"{source}{_line_of(function)}", type(step).__name__))
    return open_step(extension, step, is_traced, source, look)


def open_step(
    extension: Any,
    step: Any,
    is_traced: bool = True,
    name: str = "step",
    look: Callable[[Any, Any], None] | None = None,
) -> Opened:
    """Capture a callable, or take a torch.cuda.CUDAGraph as it is: see open_source. Raises InputError."""
    torch = torch_module()
    if isinstance(step, torch.cuda.CUDAGraph):
        return _opened(torch, extension, step, [], name)
    if isinstance(step, int):
        return _opened(torch, extension, _Handle(step), [], name)
    if not _is_step(torch, step):
        raise InputError(_NO_STEP.format(name, type(step).__name__))
    _refuse_arguments(step, name, "the step", "step")
    items = _items(step, name)
    is_parallel = torch.distributed.is_available() and torch.distributed.is_initialized()
    if is_parallel and torch.distributed.get_world_size() > 1:
        raise InputError(_RANKS.format(name))
    if _is_sharded():
        raise InputError(_SHARDED.format(name))
    compared = Calls(torch)

    def step_and_look() -> None:
        step()
        compared.look()

    _warm_up(torch, step_and_look, name, _WARM_UPS_PARALLEL if is_parallel else WARM_UPS)
    if look:
        with _as_input_error(f"{name}: the step failed before any capture"):
            look(torch, step)
    # as many calls either way, so that what a call counts on the host is the same when it is captured
    calls = _traced_calls(torch, step, name) if is_traced else _plain_calls(torch, step, name)
    with _as_input_error(f"{name}: the step failed before any capture"):
        compared.twice(step)
    opened = _opened(torch, extension, _captured(torch, step, name), calls, name)
    return opened._replace(compared=compared, items=items)


def _is_step(torch: Any, step: Any) -> bool:
    """Return whether this can be run as a step, or is a graph of one."""
    return isinstance(step, torch.cuda.CUDAGraph | int) or callable(step)


def _line_of(function: Any) -> str:
    """Return ` at train.py:40`: where a function of the user's begins; "" of what is no function of a file."""
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__call__", None), "__code__", None)  # noqa: B004
    return f" at {os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code else ""


def _refuse_arguments(function: Any, name: str, what: str, called: str) -> None:
    """Raise InputError where a function, or a module, cannot be called without arguments."""
    function = getattr(function, "forward", function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of what is not Python's, nobody knows
        return
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if asked := [
        needed.name for needed in parameters if needed.default is needed.empty and needed.kind not in variadic
    ]:
        raise InputError(
            f"{name}{_line_of(function)}: {what} asks for arguments ({', '.join(asked)}), and is called without any: "
            f"keep them in variables around it, or bind them (functools.partial({called}, ...))"
        )


def _items(step: Any, name: str) -> dict[str, int]:
    """Return {what one step works on: how many}, of the attributes that say it. Raises InputError: no whole number
    above 0."""
    items = {}
    for word, item in _ITEMS.items():
        value = getattr(step, word, None)
        if value is None:
            continue
        try:
            count = operator.index(value)
        except TypeError:
            count = int(value) if isinstance(value, float) and value.is_integer() else 0
        if isinstance(value, bool) or count <= 0:
            raise InputError(
                f"{name}{_line_of(step)}: step.{word} = {_cut(repr(value))}; expected how many {item}s one step works "
                f"on, a whole number above 0 (step.{word} = 65536), or no such attribute"
            )
        items[item] = count
    return items


def _is_sharded() -> bool:
    """Return whether a module that is alive shards its parameters, by either of torch's ways."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    names = ("FullyShardedDataParallel", "FSDPModule")
    kinds = tuple(kind for name in names if (kind := getattr(fsdp, name, None)))
    return bool(kinds) and bool(alive(kinds))


class _Handle:
    """A raw handle of a graph (CUgraph) as if it were torch's: replayed by the graph that is rebuilt from its nodes."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def raw_cuda_graph(self) -> int:
        return self._handle

    def instantiate(self) -> None: ...

    def pool(self) -> tuple[int, int]:
        return (-1, -1)  # none of torch's: all of its memory is state


def _warm_up(torch: Any, step: Callable[[], Any], name: str, count: int = WARM_UPS) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with _as_input_error(f"{name}: the step failed before any capture"):
        with torch.cuda.stream(side):
            for _ in range(count - 1):
                step()  # the first ones may set things up at random
            with no_random_numbers(name, step):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()


@contextmanager
def no_random_numbers(name: str, step: Callable[[], Any] | None = None) -> Iterator[None]:
    """Raise InputError where random numbers are drawn on the GPU within; the generator is then put back. step: what
    is called once more to find the line that draws them."""
    torch = torch_module()
    before = torch.cuda.get_rng_state()
    yield
    if not torch.equal(before, torch.cuda.get_rng_state()):
        place = _place_of_random(torch, step) if step else ""
        torch.cuda.set_rng_state(before)
        raise InputError(
            f"{name}: the step draws random numbers on the GPU{place} (dropout?), so no two runs of it are the same; "
            "set dropout to 0, or draw before the step"
        )


def _place_of_random(torch: Any, step: Callable[[], Any]) -> str:
    """Return ` at train.py:212`: the line of the user's own code whose call of torch draws random numbers; "" where no
    call shows it, such as one that was compiled."""
    places: list[str] = []

    class Look(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = torch.cuda.get_rng_state()
            result = function(*args, **(kwargs or {}))
            if not places and not torch.equal(before, torch.cuda.get_rng_state()):
                places.append(_place(traceback.extract_stack()))
            return result

    with suppress(Exception), Look():
        step()
    return places[0] if places else ""


def _captured(torch: Any, step: Callable[[], Any], name: str) -> Any:
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    try:
        with torch.cuda.graph(graph):
            step()
    except Exception as error:
        after_failed_capture(torch)
        raise capture_failed(name, error) from error
    return graph


def after_failed_capture(torch: Any) -> None:
    """Have torch go on as before: where a capture fails, its generator believes that it is still captured, and refuses
    to draw and to replay. A capture of nothing, which ends well, lets it go."""
    with suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the graph is empty
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass


def capture_failed(name: str, error: Exception) -> InputError:
    """Return what to raise where a capture ended in an error."""
    first: BaseException = error
    while first.__context__ is not None:  # the end of a broken capture fails as well; what broke it came before
        first = first.__context__
    place = place_of(first) or place_of(error)
    return InputError(f"{name}: capture failed{place} ({_first_line(first)}); usual cause: {cause(error)}")


def cause(error: BaseException) -> str:
    """Return what usually causes a failed capture."""
    seen: BaseException | None = error
    message = ""
    while seen is not None:  # the first error says more than what follows from it
        message += f" {type(seen).__name__} {seen}".lower()
        seen = seen.__context__
    if "outofmemory" in message or "out of memory" in message:
        return "the graph needs memory of its own beside that of the calls before: a smaller batch"
    unknown = "work that CUDA graphs cannot hold; torch's notes on CUDA graphs list it"
    return next((why for text, why in _CAUSES if text in message), unknown)


def _traced_calls(torch: Any, step: Callable[[], Any], name: str) -> list[list[trace.Event]]:
    """Return the events of calls outside a graph. Raises InputError: see check_alike."""
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with (
        _as_input_error(f"{name}: the step failed while it was traced"),
        _ranges_as_annotations(torch),
        _modules_as_annotations(torch),
        profile(activities=activities, record_shapes=True, with_flops=True, acc_events=True) as prof,
    ):
        for _ in range(_TRACED_CALLS):
            with record_function(trace.CALL):
                step()
            torch.cuda.synchronize()
    calls = trace.calls(trace.from_kineto(prof.profiler.kineto_results.events()))
    check_alike(calls, name)
    return calls


def _plain_calls(torch: Any, step: Callable[[], Any], name: str) -> list[list[trace.Event]]:
    with _as_input_error(f"{name}: the step failed before any capture"):
        for _ in range(_TRACED_CALLS):
            step()
        torch.cuda.synchronize()
    return []


def check_alike(calls: list[list[trace.Event]], name: str) -> None:
    """Raise InputError where one call launches other kernels than the next. In which order they ran says nothing where
    streams run side by side."""
    for before, after in pairwise([Counter(event.name for event in call if event.kind == "gpu") for call in calls]):
        for kernel in [*before, *after]:
            if before[kernel] != after[kernel]:
                raise InputError(
                    f"{name}: kernels change from call to call ({before[kernel]} of {_cut(kernel)}, then "
                    f"{after[kernel]}); a graph holds those of one call: take out what depends on the call or on data "
                    "(a mixture of experts: compute all of them, as grouped or batched products)"
                )


@contextmanager
def _ranges_as_annotations(torch: Any) -> Iterator[None]:
    """Return a context in which NVTX ranges, which CUPTI keeps out of the trace, appear in it as annotations."""
    from torch.profiler import record_function

    nvtx, stack = torch.cuda.nvtx, []
    push, pop = nvtx.range_push, nvtx.range_pop

    def pushed(message: str) -> Any:
        stack.append(record_function(message))
        stack[-1].__enter__()
        return push(message)

    def popped() -> Any:
        if stack:
            stack.pop().__exit__(None, None, None)
        return pop()

    nvtx.range_push, nvtx.range_pop = pushed, popped
    try:
        yield
    finally:
        nvtx.range_push, nvtx.range_pop = push, pop


@contextmanager
def _modules_as_annotations(torch: Any) -> Iterator[None]:
    """Return a context in which each module's forward appears in the trace. Not where something is compiled: hooks
    would have it compiled again, to other kernels."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["frames"]:
        yield
        return
    from torch.nn.modules import module as modules
    from torch.profiler import record_function

    stack: list[Any] = []

    def begin(module: Any, inputs: Any) -> None:
        stack.append(record_function(f"{trace.MODULE}{type(module).__name__}"))
        stack[-1].__enter__()

    def end(module: Any, inputs: Any, output: Any) -> None:
        if stack:
            stack.pop().__exit__(None, None, None)

    hooks = [
        modules.register_module_forward_pre_hook(begin),
        modules.register_module_forward_hook(end, always_call=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _opened(torch: Any, extension: Any, graph: Any, calls: list[list[trace.Event]], name: str) -> Opened:
    try:
        handle = graph.raw_cuda_graph()
    except RuntimeError as error:
        raise InputError(
            f"{name}: the graph was captured without its nodes ({_first_line(error)}): CUDAGraph(keep_graph=True)"
        ) from None
    graph.instantiate()
    torch.cuda.synchronize()
    device = extension.Device()
    pool = tuple(graph.pool())

    def memory() -> Memory:
        segments = torch.cuda.memory_snapshot()
        _refuse_two_gpus(torch, segments, name)
        return Memory(
            device,
            [MemoryRange(segment["address"], segment["total_size"]) for segment in segments if _is_kept(segment)],
            _state(segments, pool),
            lambda byte: _device_room(torch, byte),
            lambda byte: _host_room(torch, byte),
        )

    def replay() -> None:
        # the stream that pieces of the graph run on, whichever is current
        with torch.cuda.stream(torch.cuda.default_stream()):
            graph.replay()

    torch_replay = replay if hasattr(graph, "replay") else None
    living = LivingStep(extension, device, int(handle), torch_replay, memory(), keeps=graph)
    if not any(node.kind == "kernel" for node in living.nodes):
        raise InputError(f"{name}: nothing was captured: the step launches no kernel on the GPU that torch uses")
    return Opened(living, calls, device.info(), versions(torch), memory)


def _refuse_two_gpus(torch: Any, segments: list[dict[str, Any]], name: str) -> None:
    devices = sorted({segment["device"] for segment in segments if segment["allocated_size"]})
    if devices and devices != [torch.cuda.current_device()]:
        raise InputError(
            f"{name}: tensors lie on GPUs {', '.join(map(str, devices))}, and one GPU is measured at a time; "
            "set CUDA_VISIBLE_DEVICES to one, or take a step of one rank"
        )


def _is_kept(segment: dict[str, Any]) -> bool:
    """Return whether torch will not give a segment back to the driver, which it does with empty ones of no graph."""
    is_graphs = tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    return is_graphs or any(block["state"] != "inactive" for block in segment["blocks"])


def _state(segments: list[dict[str, Any]], pool: tuple[int, int]) -> list[MemoryRange]:
    """Return the blocks in use outside the graph's own memory."""
    ranges = []
    for segment in segments:
        if tuple(segment.get("segment_pool_id", (0, 0))) == pool:
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                ranges.append(MemoryRange(block.get("address", address), block["size"]))
            address += block["size"]
    return ranges


def _device_room(torch: Any, byte: int) -> Room | None:
    free, _ = torch.cuda.mem_get_info()
    if free < byte + _SPARE_BYTE:
        return None
    try:
        tensor = torch.empty(byte, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return None
    return Room(tensor.data_ptr(), tensor)


def _host_room(torch: Any, byte: int) -> Room | None:
    try:
        tensor = torch.empty(byte, dtype=torch.uint8)
    except (RuntimeError, MemoryError):
        return None
    return Room(tensor.data_ptr(), tensor)


def versions(torch: Any) -> dict[str, str]:
    """Return what a step's kernels depend on."""
    return {
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "python": sys.version.split()[0],
        "kernel_dvfs": VERSION,
    }


def traced_replays(replay: Callable[[], None], count: int) -> list[trace.Event]:
    """Return the events of so many replays of a graph."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
        for _ in range(count):
            replay()
        torch.cuda.synchronize()
    return trace.from_kineto(prof.profiler.kineto_results.events())
