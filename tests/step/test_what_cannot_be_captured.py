"""What cannot be captured is refused in one line, with what usually causes it; nothing is left behind."""

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import framework, interpreter
from kernel_dvfs_step.trace import Event


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.fixture
def fake_torch(monkeypatch):
    """A torch with as much as refusals ask for: version, GPU, graphs, memory."""
    torch = ModuleType("torch")
    torch.__version__ = "2.11.0+cu130"
    torch.version = SimpleNamespace(cuda="13.0")

    class Graph:
        def __init__(self, keep_graph=False):
            self.keep_graph, self.ended = keep_graph, False

        def raw_cuda_graph(self):
            if not self.keep_graph:
                raise RuntimeError(
                    "You cannot access the raw cudaGraph_t unless keep_graph=True\nException raised from"
                )
            return 1

        def instantiate(self): ...
        def pool(self):
            return (0, 1)

    class Capture:
        def __init__(self, graph):
            self.graph = graph

        def __enter__(self):
            torch.is_generator_captured = True
            return self

        def __exit__(self, kind, error, trace):
            self.graph.ended = True
            if error:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
            torch.is_generator_captured = False

    torch.cuda = SimpleNamespace(
        is_available=lambda: True,
        get_allocator_backend=lambda: "native",
        CUDAGraph=Graph,
        graph=Capture,
        current_device=lambda: 0,
        memory_snapshot=list,
        synchronize=lambda: None,
    )

    # what calls are looked at by: classes that nothing alive is of
    class Tensor: ...

    torch.Tensor, torch.strided, torch.OutOfMemoryError = Tensor, None, MemoryError
    torch.nn = SimpleNamespace(Parameter=type("Parameter", (Tensor,), {}))
    torch.optim = SimpleNamespace(Optimizer=type("Optimizer", (), {}))
    torch.distributed = SimpleNamespace(is_available=lambda: False)
    torch.zeros = lambda count: SimpleNamespace(cpu=lambda: None)
    torch.no_grad = nullcontext
    torch.overrides = SimpleNamespace(TorchFunctionMode=object)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def said(error):
    line = str(error.value)
    assert "\n" not in line
    return line


@pytest.fixture
def script(tmp_path, monkeypatch):
    """script(text): the path of train.py with that text."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "train", raising=False)

    def made(text):
        path = tmp_path / "train.py"
        path.write_text(text)
        return str(path)

    return made


@pytest.mark.parametrize("source", ["train.py", "train:make", "train.py:", "train.py:make step", ":make"])
def test_a_source_that_names_no_function_of_a_file_is_refused(source):
    with pytest.raises(InputError, match=r"expected FILE\.py:FUNCTION"):
        framework.function_of(source)


def test_a_missing_file_and_a_missing_function_are_refused(script):
    with pytest.raises(InputError, match=r"nowhere\.py: no such file"):
        framework.function_of("nowhere.py:make")
    path = script("def make_step(): ...\n")
    with pytest.raises(InputError) as error:
        framework.function_of(f"{path}:make_stop")
    assert "no function 'make_stop'; it has make_step" in said(error)


def test_a_file_that_fails_says_its_own_reason(script):
    path = script("import json\njson.loads('{')\n")
    with pytest.raises(InputError) as error:
        framework.function_of(f"{path}:make")
    assert "train.py: failed when it was run at train.py:2 (JSONDecodeError: " in said(error)


def test_a_file_may_import_what_lies_beside_it(script, tmp_path, monkeypatch):
    (tmp_path / "beside_train.py").write_text("NUMBER = 7\n")
    monkeypatch.delitem(sys.modules, "beside_train", raising=False)
    function = framework.function_of(
        f"{script('import beside_train as b' + chr(10) + 'def make(): return b.NUMBER')}:make"
    )
    assert function() == 7


def test_without_torch_the_extra_is_named(no_torch):
    with pytest.raises(InputError) as error:
        framework.torch_module()
    assert "kernel-dvfs[torch]" in said(error)


def test_an_old_torch_is_refused(fake_torch):
    fake_torch.__version__ = "2.7.1"
    with pytest.raises(InputError, match=r"torch 2\.7\.1: capture needs 2\.8 or newer \(keep_graph\)"):
        framework.torch_module()


def test_a_torch_without_a_gpu_is_refused(fake_torch):
    fake_torch.cuda.is_available = lambda: False
    with pytest.raises(InputError, match="torch sees no GPU"):
        framework.torch_module()


def test_a_graph_without_its_nodes_is_refused(fake_torch):
    with pytest.raises(InputError) as error:
        framework.open_step(None, fake_torch.cuda.CUDAGraph(), name="mine")
    assert "mine: the graph was captured without its nodes" in said(error) and "keep_graph=True" in said(error)


def test_something_that_is_no_step_is_refused(fake_torch):
    with pytest.raises(InputError, match="gave a float; expected the step"):
        framework.open_step(None, 3.5)


def test_tensors_on_two_gpus_are_refused(fake_torch):
    graph = fake_torch.cuda.CUDAGraph(keep_graph=True)
    fake_torch.cuda.memory_snapshot = lambda: [
        {"device": number, "allocated_size": 512, "address": 0, "total_size": 512, "blocks": []} for number in (0, 1)
    ]
    with pytest.raises(InputError) as error:
        framework.open_step(SimpleNamespace(Device=lambda: None), graph)
    assert "tensors lie on GPUs 0, 1" in said(error) and "CUDA_VISIBLE_DEVICES" in said(error)


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (RuntimeError("CUDA error: operation not permitted when stream is capturing"), "the host waits"),
        (RuntimeError("CUDA error: operation failed due to unjoined work"), "wait_stream"),
        (RuntimeError("Cannot prepare for replay during capturing stage. cudaStreamCaptureStatus"), "replays a graph"),
        (RuntimeError("CUDA error: cudaErrorStreamCaptureIsolation: dependency"), "two streams or threads work"),
        (RuntimeError("Offset increment outside graph capture encountered unexpectedly."), "random numbers"),
        (
            RuntimeError("Attempting CUDA graph capture of step() for an instance of AdamW but capturable=False"),
            "capturable",
        ),
        (RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture unless pinned"), "unpinned"),
        (MemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "smaller batch"),
        (ValueError("something else"), "torch's notes on CUDA graphs"),
    ],
)
def test_a_failed_capture_says_the_frameworks_reason_and_the_usual_cause(fake_torch, raised, named):
    def step():
        raise raised

    with pytest.raises(InputError) as error:
        framework._captured(fake_torch, step, "mine")
    line = said(error)
    assert line.startswith("mine: capture failed at test_what_cannot_be_captured.py:") and named in line
    assert str(raised)[:40] in line, "not what failed after it"
    assert not fake_torch.is_generator_captured, "torch draws as before"


def test_a_refusal_names_the_line_of_the_users_own_code(fake_torch, script):
    # the error is raised within a library that the third line calls
    path = script("import json\ndef make():\n    return json.loads('{')\n")
    step = framework.function_of(f"{path}:make")
    with pytest.raises(InputError) as error:
        framework._captured(fake_torch, step, "mine")
    assert said(error).startswith("mine: capture failed at train.py:3 (")
    with pytest.raises(InputError) as error, framework._as_input_error("mine: failed"):
        step()
    assert said(error).startswith("mine: failed at train.py:3 (JSONDecodeError: ")


def test_a_line_names_no_more_of_a_kernel_than_a_reader_bears(fake_torch):
    long = "void at::native::vectorized_elementwise_kernel<4, " + "lambda, " * 100 + ">"
    with pytest.raises(InputError) as error:
        framework.check_alike([[Event(long, "gpu", 0, 1)], [Event("b", "gpu", 0, 1)]], "mine")
    assert len(said(error)) < 350 and "vectorized_elementwise_kernel" in said(error)
    with pytest.raises(InputError) as error, framework._as_input_error("mine: failed"):
        raise RuntimeError("CUDA out of memory. " + "Process 1 has 1 GiB in use. " * 20)
    assert len(said(error)) < 300 and "CUDA out of memory" in said(error)


def test_an_allocator_that_does_not_tell_its_blocks_is_refused(fake_torch):
    fake_torch.cuda.get_allocator_backend = lambda: "cudaMallocAsync"
    with pytest.raises(InputError, match=r"torch allocates by cudaMallocAsync, .*: switch it off"):
        framework.torch_module()


def test_a_single_call_is_like_itself():
    framework.check_alike([[Event("a", "gpu", 0, 1)]], "mine")
    framework.check_alike([], "mine")


def test_kernels_that_change_from_call_to_call_are_refused():
    def call(*names):
        return [Event(name, "gpu", 0, 1) for name in names]

    framework.check_alike([call("a", "b"), call("a", "b")], "mine")
    framework.check_alike([call("a", "b"), call("b", "a")], "mine")  # on two streams
    with pytest.raises(InputError, match=r"change from call to call \(1 of b, then 0\)"):
        framework.check_alike([call("a", "b"), call("a", "c")], "mine")
    with pytest.raises(InputError, match=r"change from call to call \(1 of b, then 0\)"):
        framework.check_alike([call("a", "b"), call("a")], "mine")


class Generator:
    """Random state that a step moves on or leaves alone."""

    def __init__(self):
        self.state = 0


def warming(fake_torch, generator):
    class Stream:
        def wait_stream(self, other): ...
        def __enter__(self):
            return self

        def __exit__(self, *error): ...

    fake_torch.cuda.Stream = Stream
    fake_torch.cuda.stream = lambda stream: stream
    fake_torch.cuda.current_stream = Stream
    fake_torch.cuda.get_rng_state = lambda: generator.state
    fake_torch.cuda.set_rng_state = lambda state: setattr(generator, "state", state)
    fake_torch.equal = lambda one, other: one == other


def test_a_step_that_draws_random_numbers_is_refused(fake_torch):
    generator = Generator()
    warming(fake_torch, generator)

    def step():
        generator.state += 4

    with pytest.raises(InputError) as error:
        framework._warm_up(fake_torch, step, "mine")
    assert "draws random numbers" in said(error) and "dropout" in said(error)
    framework._warm_up(fake_torch, lambda: None, "mine")


def test_a_step_that_fails_by_itself_says_so(fake_torch):
    warming(fake_torch, Generator())
    with pytest.raises(InputError, match=r"mine: the step failed before any capture at \w+\.py:\d+ \(ZeroDiv"):
        framework._warm_up(fake_torch, lambda: 1 / 0, "mine")


def test_only_what_outlives_the_graph_is_state():
    segments = [
        {"address": 1000, "segment_pool_id": (0, 0), "blocks": [
            {"size": 100, "state": "active_allocated"},
            {"size": 50, "state": "inactive"},
            {"size": 25, "state": "active_allocated"},
        ]},
        {"address": 9000, "segment_pool_id": (0, 3), "blocks": [{"size": 100, "state": "active_allocated"}]},
    ]  # fmt: skip
    assert framework._state(segments, (0, 3)) == [(1000, 100), (1150, 25)]


def test_what_torch_may_give_back_to_the_driver_is_never_looked_at():
    inactive, active = ([{"size": 100, "state": state}] for state in ("inactive", "active_allocated"))
    assert not framework._is_kept({"segment_pool_id": (0, 0), "blocks": inactive})
    assert framework._is_kept({"segment_pool_id": (0, 0), "blocks": active})
    assert framework._is_kept({"segment_pool_id": (0, 3), "blocks": inactive}), "a graph writes there"


def test_the_package_offers_capture_and_imports_no_torch(monkeypatch):
    import kernel_dvfs

    assert callable(kernel_dvfs.capture)
    with pytest.raises(AttributeError):
        _ = kernel_dvfs.captures
    assert "torch" not in sys.modules


class Extension:
    """The extension on a graph of given nodes; `ran` counts launches of what was rebuilt."""

    def __init__(self, *found):
        self.ran, device = (
            0,
            SimpleNamespace(synchronize=lambda: None, hashes=lambda *_: b"", info=lambda: {"driver": 13000}),
        )
        self.Device = lambda: device
        graph = SimpleNamespace(nodes=lambda: list(found), edges=list, loop=self._loop)
        self.Captured = lambda device, handle: graph
        self.demangled = str

    def _loop(self, places, repeat, keep_edges):
        def run(count=1):
            self.ran += count

        return SimpleNamespace(run=run)


MEMSET = {"type": 2, "target": 16, "byte": 4}
KERNEL = {"type": 0, "function": "k", "parameters": b""} | dict.fromkeys(("grid", "block", "cluster"), (1, 1, 1))


def test_a_graph_without_a_kernel_is_refused(fake_torch):
    graph = fake_torch.cuda.CUDAGraph(keep_graph=True)
    with pytest.raises(InputError) as error:
        framework.open_step(Extension(MEMSET), graph, name="mine")
    assert "mine: nothing was captured: the step launches no kernel" in said(error)


def test_a_graph_that_decides_on_the_gpu_is_refused(fake_torch):
    graph = fake_torch.cuda.CUDAGraph(keep_graph=True)
    with pytest.raises(InputError, match="its control flow is decided on the GPU"):
        framework.open_step(Extension(KERNEL | {"shared_byte": 0}, {"type": 13}), graph)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (3, "it calls a function on the host in the middle"),
        (4, "it holds another graph"),
        (10, "it allocates memory while it runs"),
        (11, "it frees memory while it runs"),
        (6, "(wait) that cannot be run by itself"),
        (99, "(type 99) that cannot be run by itself"),
    ],
)
def test_nodes_that_cannot_be_run_by_themselves_are_refused_in_one_line(fake_torch, kind, named):
    graph = fake_torch.cuda.CUDAGraph(keep_graph=True)
    with pytest.raises(InputError) as error:
        framework.open_step(Extension(KERNEL | {"shared_byte": 0}, {"type": kind}), graph)
    assert named in said(error)


def test_allocation_by_others_during_a_capture_is_named(fake_torch):
    def step():
        raise RuntimeError("CUDA error: cudaErrorStreamCaptureUnsupported")

    with pytest.raises(InputError) as error:
        framework._captured(fake_torch, step, "mine")
    assert "memory is allocated outside torch" in said(error)


def test_replays_run_on_the_default_stream_whichever_is_current(fake_torch):
    entered = []

    class Replayed(fake_torch.cuda.CUDAGraph):
        def replay(self):
            entered.append("replay")

    class Within:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            entered.append(self.stream)

        def __exit__(self, *error):
            entered.append("left")

    fake_torch.cuda.CUDAGraph, fake_torch.cuda.stream = Replayed, Within
    fake_torch.cuda.default_stream = lambda: "default"
    opened = framework.open_step(Extension(KERNEL | {"shared_byte": 0}), Replayed(keep_graph=True))
    opened.living.replay()
    assert entered == ["default", "replay", "left"]


@pytest.mark.slow
def test_a_step_is_called_as_often_before_its_capture_with_and_without_a_trace(fake_torch, monkeypatch):
    """So that a number that a call counts up on the host is the same in both."""
    warming(fake_torch, Generator())
    calls, counts = [], []

    def traced(torch, step, name):
        for _ in range(framework._TRACED_CALLS):
            step()

    monkeypatch.setattr(framework, "_traced_calls", traced)
    monkeypatch.setattr(framework, "_captured", lambda torch, step, name: counts.append(len(calls)))
    monkeypatch.setattr(framework, "_opened", lambda *_: SimpleNamespace(_replace=lambda **_: None))
    twice = framework.COMPARED * 2
    for is_traced in (False, True):
        calls.clear()
        framework.open_step(None, lambda: calls.append(1), is_traced)
    assert counts == [framework.WARM_UPS + framework._TRACED_CALLS + twice] * 2


def test_what_was_changed_for_a_trace_is_as_before_when_the_step_fails(fake_torch, monkeypatch):
    def push(message): ...
    def pop(): ...

    fake_torch.cuda.nvtx = SimpleNamespace(range_push=push, range_pop=pop)
    profiler = ModuleType("torch.profiler")

    class record_function:
        def __init__(self, name): ...
        def __enter__(self): ...
        def __exit__(self, *error): ...

    profiler.record_function = record_function
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    with pytest.raises(ZeroDivisionError), framework._ranges_as_annotations(fake_torch):
        assert fake_torch.cuda.nvtx.range_push is not push
        fake_torch.cuda.nvtx.range_push("forward")
        raise ZeroDivisionError
    assert (fake_torch.cuda.nvtx.range_push, fake_torch.cuda.nvtx.range_pop) == (push, pop)


def test_there_is_no_room_for_the_state_where_memory_ends(fake_torch):
    """Less of it is saved then, which the record says (test_trial)."""
    free, made = [1 << 40], []

    class OutOfMemory(RuntimeError): ...

    def empty(byte, dtype, device="cpu"):
        made.append(device)
        raise OutOfMemory

    fake_torch.cuda.mem_get_info = lambda: (free[0], 1 << 40)
    fake_torch.OutOfMemoryError, fake_torch.uint8, fake_torch.empty = OutOfMemory, "uint8", empty
    assert framework._device_room(fake_torch, 1 << 20) is None and framework._host_room(fake_torch, 1 << 20) is None
    assert made == ["cuda", "cpu"]
    free[0] = 1 << 20
    assert framework._device_room(fake_torch, 1 << 20) is None and len(made) == 2, "some is left to the step"


def test_a_block_of_a_program_that_cannot_be_captured_is_refused_in_one_line(fake_torch, monkeypatch):
    from kernel_dvfs_step import api

    monkeypatch.setattr(api, "load", lambda *_: None)
    with pytest.raises(InputError) as error, api.capture(name="mine"):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
    assert said(error).startswith("mine: capture failed at test_what_cannot_be_captured.py:")


def test_a_raw_handle_is_replayed_by_what_is_rebuilt_of_its_nodes(fake_torch):
    extension = Extension(MEMSET, KERNEL | {"shared_byte": 0})
    opened = framework.open_step(extension, 0x55550000)
    opened.living.replay()
    assert extension.ran == 1 and [node.kind for node in opened.living.nodes] == ["memset", "kernel"]


@pytest.mark.parametrize(
    ("word", "value", "shown"),
    [
        ("tokens", "64k", "'64k'"),
        ("tokens", 0, "0"),
        ("samples", -3, "-3"),
        ("samples", 2.5, "2.5"),
        ("tokens", True, "True"),
        ("tokens", [4096], "[4096]"),
    ],
)
def test_counts_that_are_none_are_refused_with_file_line_and_remedy(tmp_path, fake_torch, word, value, shown):
    path = tmp_path / "train.py"
    path.write_text(
        f"def make_step():\n    def step():\n        pass\n\n    step.{word} = {value!r}\n    return step\n"
    )
    with pytest.raises(InputError) as error:
        framework.open_source(None, f"{path}:make_step")
    said = str(error.value)
    assert said.startswith(f"{path}:make_step at train.py:2: step.{word} = {shown}; expected how many {word} one step")
    assert "\n" not in said and f"step.{word} = 65536" in said


@pytest.mark.parametrize("value", [4096, 4096.0])
def test_counts_may_be_any_whole_number(value):
    def step(): ...

    step.samples = value
    assert framework._items(step, "x") == {"sample": 4096}


def test_a_step_or_its_maker_that_asks_for_arguments_is_refused_with_their_names(tmp_path, fake_torch):
    path = tmp_path / "train.py"
    path.write_text(
        "def make_step(batch, size=3): ...\n"
        "def other():\n    def step(x, *, y, z=1, **more): ...\n    return step\n"
        "class Model:\n    def __call__(self, *args): ...\n    def forward(self, tokens): ...\n"
        "def model():\n    return Model()\n"
        "def nothing(): ...\n"
    )
    for function, at, said in (
        ("make_step", "train.py:1", "what makes the step asks for arguments (batch)"),
        ("other", "train.py:3", "the step asks for arguments (x, y)"),
        ("model", "train.py:7", "the step asks for arguments (tokens)"),
        ("nothing", "train.py:10", "gave a NoneType; expected the step"),
    ):
        with pytest.raises(InputError) as error:
            framework.open_source(None, f"{path}:{function}")
        assert f"{path}:{function} at {at}: {said}" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "has no torch"),
        ("2.7.1+cu126", "has torch 2.7.1+cu126, older than 2.8"),
        ("2.13.0+cpu", "has torch 2.13.0+cpu, which was built without CUDA"),
        ("2.8.0a0+cu130", ""),
        ("2.11.0", ""),
        ("", ""),
    ],
)
def test_which_python_runs_a_step_and_what_it_lacks_is_said_before_anything_else(monkeypatch, version, said):
    def found(name):
        if not version:
            raise interpreter.importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(interpreter.importlib.util, "find_spec", lambda name: None if version is None else object())
    monkeypatch.setattr(interpreter.importlib.metadata, "version", found)
    assert interpreter.lacks().startswith(said) and bool(interpreter.lacks()) == bool(said)
    if not said:
        assert interpreter.check("train.py:make_step") == (
            f"train.py:make_step: run by {sys.executable} (Python {sys.version.split()[0]})"
        )
        return
    with pytest.raises(InputError) as error:
        interpreter.check("train.py:make_step")
    assert sys.executable in str(error.value) and said in str(error.value) and "\n" not in str(error.value)
    # of two torches with one version, pip would keep the one without CUDA
    assert ("pip uninstall --yes torch && " in str(error.value)) == (version == "2.13.0+cpu")
