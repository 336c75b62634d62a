"""Ways to capture a step, and steps that cannot be captured, each tried on a real GPU: what was asked, what came.

Sets nothing on the GPU. Each case is a process of its own, several at a time, since one hangs on purpose and others end
with a capture that failed. A way to capture has to leave the state as it was, bit for bit, replay to the bits that the
step leaves, and give pieces that leave the bits of the whole; a refusal has to say what is expected in one line, and
torch has to go on as before: draw random numbers and capture a sound step.

    kernel-dvfs build --graph on
    python experiments/benchmarks/gpu_capture.py -o gpu_capture.txt            # or: --only host_wait dropout
"""

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

HERE = Path(__file__).resolve()
CASES = {}  # name: (function, what is asked, words that what comes has to hold)


def case(asked, *expected):
    """A case: its function returns what came, or raises."""

    def known(function):
        CASES[function.__name__] = function, asked, expected
        return function

    return known


# --- steps ------------------------------------------------------------------------------------------------------------


class Training:
    """A small training step, deterministic: two linear layers, AdamW, everything on the GPU."""

    def __init__(self, capturable=True, dropout=0.0, width=256):
        import torch

        torch.manual_seed(1)
        layers = [torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)]
        self.model = torch.nn.Sequential(*layers, torch.nn.Dropout(dropout)).cuda()
        self.x = torch.randn(64, width, device="cuda")
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, capturable=capturable)

    def __call__(self):
        self.optimiser.zero_grad(set_to_none=True)
        self.model(self.x).square().mean().backward()
        self.optimiser.step()

    def state(self):
        """All that outlives a step, as one list of tensors."""
        moments = [value for each in self.optimiser.state.values() for value in each.values()]
        return [*self.model.parameters(), *moments]

    def copy(self):
        return [each.detach().clone() for each in self.state()]

    def is_as(self, copy):
        import torch

        return all(torch.equal(one, other) for one, other in zip(self.state(), copy, strict=True))

    def put_back(self, copy):
        import torch

        with torch.no_grad():
            for one, other in zip(self.state(), copy, strict=True):
                one.copy_(other)


def warmed(step):
    """The step after a few calls on a side stream, as torch wants it before a capture."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    return step


def graph_of(step, keep_graph=True):
    import torch

    graph = torch.cuda.CUDAGraph(keep_graph=keep_graph)
    with torch.cuda.graph(graph):
        step()
    return graph


def graph_of_a_step():
    """For `kernel-dvfs capture gpu_capture.py:graph_of_a_step`: a graph that exists already."""
    step = warmed(Training())
    graph = graph_of(step)
    graph.step = step  # lives as long as the graph
    return graph


def waiting_step():
    """A step with a kernel that waits for a flag that the kernel before it sets, and takes it down: alone it hangs."""
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def wait_for(flag):
        seen = tl.atomic_add(flag, 0)
        while seen == 0:
            seen = tl.atomic_add(flag, 0)
        tl.atomic_xchg(flag, 0)

    training, flag = Training(), torch.zeros(1, dtype=torch.int32, device="cuda")

    def step():
        training()
        flag.add_(1)
        wait_for[(1,)](flag)

    return step


# --- ways to capture --------------------------------------------------------------------------------------------------


def checked(captured, training, before=None):
    """What came of a capture; raises AssertionError where it is not the step."""
    import torch

    from kernel_dvfs.workload.step import read

    torch.cuda.synchronize()
    assert before is None or training.is_as(before), "the capture changed the state"
    start = training.copy()
    training()
    by_call = training.copy()
    training.put_back(start)
    captured.replay()
    torch.cuda.synchronize()
    assert training.is_as(by_call), "a replay leaves other bits than a call"
    training.put_back(start)
    torch.cuda.synchronize()
    captured.save()
    record = captured.record
    half = len(record.order) // 2
    parts = [[node for node, own in enumerate(record.nodes) if (own < half) == first] for first in (True, False)]
    left = []
    for pieces in ([captured.whole()], [captured.piece(part) for part in parts]):
        captured.restore()
        for piece in pieces:
            piece.run()
        captured.synchronize()
        left.append(captured.fingerprint())
    captured.restore()
    captured.drop()
    assert left[0] == left[1], "two pieces leave other bits than the whole"
    assert training.is_as(start), "the state was not put back"
    with tempfile.TemporaryDirectory() as folder:
        captured.write(f"{folder}/step.json")
        assert read(f"{folder}/step.json").checksum == record.checksum
    state = "" if before is None else "state as before the capture; "
    return (
        f"{len(record.nodes)} nodes, {len(record.order)} launches, {record.whole.time_us:.0f} us; {state}"
        "a replay leaves the bits of a call, two pieces those of the whole"
    )


@case("kernel_dvfs.capture(step)", "nodes", "bits of a call")
def function():
    import kernel_dvfs

    training = Training()
    return checked(kernel_dvfs.capture(training), training)


@case("with kernel_dvfs.capture() as captured: step()", "nodes", "state as before", "bits of a call")
def block():
    import kernel_dvfs

    training = warmed(Training())
    before = training.copy()
    with kernel_dvfs.capture() as captured:
        training()
    return checked(captured, training, before)


@case("kernel_dvfs.capture(CUDAGraph(keep_graph=True))", "nodes", "state as before", "bits of a call")
def existing_graph():
    import kernel_dvfs

    training = warmed(Training())
    graph, before = graph_of(training), training.copy()
    return checked(kernel_dvfs.capture(graph), training, before)


@case("kernel_dvfs.capture(graph.raw_cuda_graph())", "nodes", "state as before", "bits of a call")
def raw_handle():
    import kernel_dvfs

    training = warmed(Training())
    graph, before = graph_of(training), training.copy()
    return checked(kernel_dvfs.capture(graph.raw_cuda_graph()), training, before)


@case("a step on two streams that are joined again", "nodes", "2 branches", "bits of a call")
def joined_streams():
    import torch

    import kernel_dvfs

    training, side = Training(), torch.cuda.Stream()
    one, other = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
    product = torch.empty_like(one)

    def step():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.mm(one, other, out=product)
        training()
        torch.cuda.current_stream().wait_stream(side)

    captured = kernel_dvfs.capture(step)
    came = checked(captured, training)
    return f"{captured.record.whole.branches} branches at most; {came}"


@case("kernel-dvfs capture FILE.py:FUNCTION that returns a CUDAGraph", "every bit put back: True")
def command_with_a_graph():
    return by_command("graph_of_a_step")


@case(
    "kernel-dvfs capture of a step with a kernel that hangs when it is repeated alone",
    "it hung",
    "every bit put back: True",
)
def hanging_kernel():
    return by_command("waiting_step")


def by_command(name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        words = [sys.executable, "-m", "kernel_dvfs", "capture", f"{os.path.relpath(HERE)}:{name}", "-o", str(path)]
        begin_s = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"exit code {done.returncode}: {done.stderr.strip().splitlines()[-1]}"
        content = json.loads(path.read_text())
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "hung" in line]
    kinds = [target["repeatable"] for target in content["targets"]]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    left = "; ".join(f"{target['id']}: {target['reason']}" for target in content["targets"] if target["reason"])
    state = content["state"]
    # the capture itself refuses where any saved bit is not as before
    is_restored = state["saved_byte"] == state["byte"]
    return (
        f"{len(content['nodes'])} nodes in {time.monotonic() - begin_s:.0f} s; repeatable: {counts}; every bit put "
        f"back: {is_restored}; {' / '.join(said)[:300]} {left[:300]}"
    )


# --- what cannot be captured ------------------------------------------------------------------------------------------


def refused(made, is_sound=True):
    """The line that capturing `made` is refused with, and whether torch goes on as before."""
    import torch

    import kernel_dvfs
    from kernel_dvfs_clocks.errors import InputError

    try:
        captured = kernel_dvfs.capture(made)
    except InputError as error:
        said = str(error)
        assert "\n" not in said
    else:
        return f"TAKEN: {len(captured.record.nodes)} nodes"
    return f"{said} [{left_behind(torch) if is_sound else 'torch was not asked afterwards'}]"


def left_behind(torch):
    """Whether torch draws and captures as before."""
    import kernel_dvfs

    try:
        torch.cuda.synchronize()
        torch.rand(4, device="cuda")
        kernel_dvfs.capture(Training())
    except Exception as error:
        return f"LEFT BEHIND: {type(error).__name__}: {str(error).splitlines()[0]}"
    return "torch goes on"


@case("a graph captured without keep_graph", "without its nodes", "keep_graph=True", "torch goes on")
def no_keep_graph():
    return refused(graph_of(warmed(Training()), keep_graph=False))


@case("the host waits for the GPU (.item())", "capture failed", "host waits", "torch goes on")
def host_wait():
    training = Training()

    def step():
        training()
        if training.x.sum().item() > 1e9:
            training()

    return refused(step)


@case("dropout", "draws random numbers", "torch goes on")
def dropout():
    return refused(Training(dropout=0.1))


@case("a graph with dropout in it", "draws random numbers", "torch goes on")
def dropout_in_a_graph():
    return refused(graph_of(warmed(Training(dropout=0.1))))


@case("memory allocated outside torch while it captures", "capture failed", "outside torch", "torch goes on")
def allocation():
    driver, training = ctypes.CDLL("libcuda.so.1"), Training()

    def step():
        address = ctypes.c_uint64()
        driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20))
        training()
        driver.cuMemFree_v2(address)

    return refused(step)


@case("a second stream that is not joined again", "capture failed", "wait_stream", "torch goes on")
def unjoined_stream():
    import torch

    training, side = Training(), torch.cuda.Stream()
    other = torch.ones(1 << 20, device="cuda")

    def step():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            other.add_(1)
        training()

    return refused(step)


@case("a copy from unpinned memory", "capture failed", "unpinned", "torch goes on")
def unpinned_copy():
    import torch

    training, batch = Training(), torch.randn(64, 256)

    def step():
        training.x.copy_(batch)
        training()

    return refused(step)


@case("an optimiser that counts on the host", "capture failed", "capturable=True", "torch goes on")
def host_optimiser():
    return refused(Training(capturable=False))


@case("kernels that change from call to call", "change from call to call", "torch goes on")
def changing_kernels():
    import torch

    training, calls = Training(), []

    def step():
        calls.append(0)
        training()
        (torch.sin if len(calls) % 2 else torch.cos)(training.x)

    return refused(step)


@case("a function on the host in the graph", "host node", "torch goes on")
def host_node():
    import torch

    driver, training = ctypes.CDLL("libcuda.so.1"), Training()
    nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # of no memory

    def step():
        training()
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        assert driver.cuLaunchHostFunc(stream, nothing, None) == 0

    return refused(graph_of(warmed(step)))


@case("a conditional node", "conditional node", "torch goes on")
def conditional_node():
    import torch

    torch.zeros(1, device="cuda")
    from cuda.bindings import driver

    def given(answer):
        assert int(answer[0]) == 0, answer[0]
        return answer[1]

    context, graph = given(driver.cuCtxGetCurrent()), given(driver.cuGraphCreate(0))
    about = driver.CUgraphNodeParams()
    about.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    about.conditional.handle = given(driver.cuGraphConditionalHandleCreate(graph, context, 1, 1))
    about.conditional.type = driver.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
    about.conditional.size, about.conditional.ctx = 1, context
    given(driver.cuGraphAddNode(graph, None, None, 0, about))
    return refused(int(graph))


@case("a step that replays a graph of its own", "capture failed", "replays a graph", "torch goes on")
def child_graph():
    training = Training()
    inner = graph_of(warmed(lambda: training.x.mul_(1.0)))

    def step():
        training()
        inner.replay()

    return refused(step)


@case("torch's allocator cudaMallocAsync", "allocates by cudaMallocAsync", "switch it off")
def memory_nodes():
    return refused(Training(), is_sound=False)


memory_nodes.environment = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}


@case("a step that launches no kernel", "launches no kernel", "torch goes on")
def no_kernel():
    return refused(lambda: None)


@case("a step that fails by itself", "failed before any capture", "torch goes on")
def failing_step():
    return refused(lambda: 1 / 0)


@case("a capture that runs out of memory", "capture failed", "smaller batch")
def no_memory_for_the_graph():
    import torch

    import kernel_dvfs
    from kernel_dvfs_clocks.errors import InputError

    warmed(Training())
    torch.cuda.set_per_process_memory_fraction(0.02)
    try:
        with kernel_dvfs.capture():
            torch.zeros(1 << 33, device="cuda")
    except InputError as error:
        said = str(error)
    torch.cuda.set_per_process_memory_fraction(1.0)
    return f"{said} [{left_behind(torch)}]"


@case("no room on the GPU for the saved state", "saved on the host", "bits of a call")
def no_memory_for_the_state():
    import torch

    import kernel_dvfs

    training = warmed(Training(width=4096))
    graph, before = graph_of(training), training.copy()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    captured = kernel_dvfs.capture(graph)
    torch.cuda.set_per_process_memory_fraction(1.0)
    state = captured.record.state
    came = checked(captured, training, before)
    return f"{state.byte / 1e6:.0f} MB saved on the {state.place}; {came}"


@case("a capture on two GPUs", "GPUs 0, 1")
def two_gpus():
    import torch

    if torch.cuda.device_count() < 2:
        return "NOT RUN: one GPU here"
    other = torch.ones(8, device="cuda:1")
    training = warmed(Training())

    def step():
        training()
        other.add_(1)

    return refused(step, is_sound=False)


# --- the cases --------------------------------------------------------------------------------------------------------


def one(name, limit_s):
    """(what came of a case, seconds), from a process of its own."""
    function, _, _ = CASES[name]
    begin_s = time.monotonic()
    environment = {**os.environ, **getattr(function, "environment", {})}
    case = subprocess.Popen(
        [sys.executable, str(HERE), "--case", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # with all that it starts it can be ended
    )
    try:
        said, errors = case.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(case.pid, signal.SIGKILL)
        case.communicate()
        return f"FAILED: not at its end after {limit_s:g} s", limit_s
    if case.returncode:
        told = [line for line in errors.splitlines() if re.match(r"[\w.]*(Error|Exception)", line)]
        return f"FAILED, exit code {case.returncode}: {told[-1] if told else errors[-200:]}", time.monotonic() - begin_s
    return json.loads(said.splitlines()[-1])["came"], time.monotonic() - begin_s


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=CASES, help="default: all cases")
    parser.add_argument("--at-once", type=int, default=8, help="processes that run at a time (default: 8)")
    parser.add_argument("--limit-s", type=float, default=300, help="end a case after that (default: 300)")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)  # in a process of its own: run this one
    parser.add_argument("-o", "--output", help="also write the lines there")
    options = parser.parse_args()
    if options.case:
        print(json.dumps({"came": CASES[options.case][0]()}))
        return 0
    code = "import torch; print(torch.cuda.get_device_name(), torch.__version__, sep=', torch ')"
    board = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    date = datetime.now(UTC).isoformat()[:10]
    found = [f"{board}, {date}, experiments/benchmarks/gpu_capture.py; default clocks, nothing set", ""]
    with ThreadPoolExecutor(options.at_once) as pool:
        right = 0
        for name, (came, seconds) in zip(
            options.only, pool.map(one, options.only, [options.limit_s] * len(options.only))
        ):
            _, asked, expected = CASES[name]
            is_right = all(word in came for word in expected) and "LEFT BEHIND" not in came
            right += is_right
            verdict = "as expected" if is_right else "not run" if "NOT RUN" in came else "NOT AS EXPECTED"
            found += [f"{asked}\n    {verdict}, {seconds:.0f} s: {came}"]
            print(found[-1], flush=True)
    found.append(f"\n{right} of {len(options.only)} as expected")
    print(found[-1])
    if options.output:
        Path(options.output).write_text("\n".join(found) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
