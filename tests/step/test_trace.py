"""What a trace says of a step's kernels: on made events, and on steps recorded on an H200."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from kernel_dvfs.workload.step import Id
from kernel_dvfs_clocks import shape
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import framework, trace
from kernel_dvfs_step.trace import Event, Traced


def op(name, start, end, number, thread=1, **more):
    return Event(name, "op", start, end, thread, number, **more)


def on_gpu(name, number, start, time=10):
    return Event(name, "gpu", start, start + time, number=number)


def around(name, start, end, kind="annotation", thread=1, number=0):
    return Event(name, kind, start, end, thread, number)


def test_a_kernel_knows_its_operation_module_and_work():
    events = [
        around("nn.Module: Gpt", 0, 100, "module"),
        around("nn.Module: Linear", 10, 50, "module"),
        op("aten::linear", 12, 48, 1),
        op("aten::addmm", 14, 40, 2, shapes=((6,), (4, 8), (8, 6)), types=("float",) * 3),
        on_gpu("gemm", 2, 200),
    ]
    (found,) = trace.traced(events)
    assert (found.operation, found.label, found.module) == ("aten::addmm", "addmm 4x8x6", "Gpt.Linear")
    assert found.flop == 2 * 4 * 8 * 6 and found.byte == 4 * (6 + 4 * 8 + 8 * 6 + 4 * 6)
    assert found.section == "forward" and found.time_us == pytest.approx(0.01)


class OfKineto:
    """An event as torch's profiler has it: what it says is asked of it by name."""

    def __init__(
        self, name, start_ns, duration_ns, number=0, linked=0, on_gpu=False, is_marked_by_user=False, activity=None
    ):
        self._says = {"name": name, "start_ns": start_ns, "duration_ns": duration_ns, "correlation_id": number}
        self._says |= {"linked_correlation_id": linked, "is_user_annotation": is_marked_by_user}
        self._says |= {"device_type": "DeviceType.CUDA" if on_gpu else "DeviceType.CPU", "start_thread_id": 1}
        self._says |= {"sequence_nr": -1, "flops": 0, "shapes": [[4, 8], []], "dtypes": ["float", ""]}
        self._says |= {"concrete_inputs": [None, True]}
        if activity:  # torch 2.8 does not say it
            self._says |= {"activity_type": activity}

    def __getattr__(self, name):
        if name not in self._says:
            raise AttributeError(name)
        return lambda: self._says[name]


@pytest.mark.parametrize(
    ("between", "activity"),
    [
        ("Command Buffer Full", None),
        ("Lazy Function Loading", None),
        ("Runtime Triggered Module Loading", None),
        ("train.py(3): f", None),
        ("an overhead of another CUDA", "overhead"),
    ],
)
def test_what_the_profiler_and_the_driver_do_within_an_operation_is_none(between, activity):
    found = trace.from_kineto(
        [
            OfKineto(trace.CALL, 0, 300, is_marked_by_user=True),
            OfKineto("nn.Module: Linear", 5, 90, 6),
            OfKineto("aten::_fused_adamw_", 10, 80, 7),
            OfKineto(between, 20, 30, 7, activity=activity),
            OfKineto("nn.Module: Linear", 100, 20, linked=6, on_gpu=True),
            OfKineto("adam_kernel", 100, 50, 99, linked=7, on_gpu=True),
        ]
    )
    assert [(each.name, each.kind, each.number) for each in found] == [
        (trace.CALL, "annotation", 0),
        ("nn.Module: Linear", "module", 0),
        ("aten::_fused_adamw_", "op", 7),
        ("adam_kernel", "gpu", 7),
    ]
    assert found[2].shapes == ((4, 8), ()) and found[2].inputs == (None, True)
    (ran,) = trace.traced(found)
    assert (ran.operation, ran.module, ran.time_us) == ("aten::_fused_adamw_", "Linear", 0.05)


def test_a_kernel_of_backward_is_in_the_module_of_its_forward():
    events = [
        around("nn.Module: Mlp", 0, 20, "module"),
        op("aten::gelu", 5, 10, 1, sequence=7),
        op("autograd::engine::evaluate_function: GeluBackward0", 50, 90, 2, thread=2, sequence=7),
        op("aten::gelu_backward", 60, 80, 3, thread=2),
        on_gpu("k", 3, 200),
    ]
    (found,) = trace.traced(events)
    assert (found.module, found.section, found.operation) == ("Mlp", "backward", "aten::gelu_backward")


def test_sections_come_from_the_users_marks_where_there_are_some():
    engine = op("autograd::engine::evaluate_function: X", 30, 60, 2, thread=2)
    events = [
        around("step", 0, 100),
        around("Loss and all", 1, 25),
        op("aten::mul", 5, 10, 1),
        engine,
        op("aten::mul", 40, 50, 3, thread=2),
        around("Optimizer.step#AdamW.step", 70, 90, number=4),
        op("aten::add", 75, 80, 5),
        op("aten::div", 92, 95, 6),
        *(on_gpu("k", number, 200 + 20 * number) for number in (1, 3, 5, 6)),
    ]
    assert [each.section for each in trace.traced(events)] == ["loss_and_all", "backward", "optimiser", "optimiser"]


@pytest.mark.parametrize(
    ("mark", "section"),
    [
        ("../../..", "forward"),
        ("a/../b\n$(c)", "a_b_c"),
        ("x" * 300, "x" * 60),
        (f"{'y' * 59} z", "y" * 59),
        ("Straße", "stra_e"),
    ],
)
def test_a_mark_of_any_name_gives_a_section_that_can_name_a_file(mark, section):
    events = [around(mark, 1, 25), op("aten::mul", 5, 10, 1), on_gpu("k", 1, 200)]
    (found,) = trace.traced(events)
    assert found.section == section and not shape.fault(section, Id)


def test_an_operations_work_is_that_of_its_longest_kernel():
    events = [
        op("aten::mm", 0, 10, 1, shapes=((4, 8), (8, 6)), types=("float",) * 2),
        on_gpu("split", 1, 20, 50),
        on_gpu("sum", 1, 80, 10),
    ]
    assert [each.flop for each in trace.traced(events)] == [384.0, None]


def test_causal_attention_does_half_of_the_products_and_backward_five_of_two():
    shape = (2, 16, 1024, 128)
    forward = op(
        "aten::_scaled_dot_product_flash_attention", 0, 10, 1,
        shapes=(shape,) * 3, types=("c10::BFloat16",) * 3, inputs=(None, None, None, 0.0, True),
    )  # fmt: skip
    events = [forward, op("aten::_flash_attention_forward", 2, 8, 2), on_gpu("flash", 2, 20)]
    (found,) = trace.traced(events)
    assert found.flop == 4 * 2 * 16 * 1024**2 * 128 / 2


def test_calls_are_told_apart_by_their_marks():
    events = [
        around(trace.CALL, 0, 50), op("aten::mul", 5, 10, 1), on_gpu("k", 1, 90),
        around(trace.CALL, 60, 99), op("aten::mul", 65, 70, 2), on_gpu("k", 2, 120),
    ]  # fmt: skip
    assert [[each.number for each in call if each.kind == "gpu"] for call in trace.calls(events)] == [[1], [2]]


def test_a_kernel_that_no_operation_launched_belongs_to_the_call_that_it_runs_in():
    module = trace.Event(f"{trace.MODULE}Linear", "module", 2, 9)  # has no number either
    later = trace.Event(f"{trace.MODULE}Linear", "module", 202, 209)
    events = [
        around(trace.CALL, 0, 50), module, op("aten::mul", 5, 10, 1), on_gpu("k", 1, 90), on_gpu("own", 0, 110),
        around(trace.CALL, 200, 250), later, op("aten::mul", 205, 210, 2), on_gpu("k", 2, 290), on_gpu("own", 0, 310),
    ]  # fmt: skip
    found = [[(each.name, each.start_ns) for each in call if each.kind == "gpu"] for call in trace.calls(events)]
    assert found == [[("k", 90), ("own", 110)], [("k", 290), ("own", 310)]]


# an operation as it is, and as a torch that names no activities has it
SAYS = [lambda kind: kind, lambda kind: None]


@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize("call_of_cuda", ["INVALID", "cudaGetDriverEntryPointByVersion", "cuTensorMapEncodeTiled"])
def test_a_call_of_cuda_is_no_operation_though_it_may_have_the_number_of_one(says, call_of_cuda):
    # torch numbers operations, CUPTI calls of CUDA: in the first call 4 is its own abs and a call of CUDA behind it, 7
    # another call of CUDA and the abs of the second call
    def call(at, number, launch):
        return [
            OfKineto(trace.CALL, at, 90, number, is_marked_by_user=True, activity=says("user_annotation")),
            OfKineto("aten::abs", at + 10, 10, number + 1, activity=says("cpu_op")),
            OfKineto("cudaLaunchKernel", at + 12, 4, launch, activity=says("cuda_runtime")),
            OfKineto("abs_kernel", at + 300, 50, launch, linked=number + 1, on_gpu=True, activity=says("kernel")),
        ]

    between = [
        OfKineto(call_of_cuda, at, 5, number, activity=says("cuda_runtime")) for at, number in ((30, 4), (40, 7))
    ]
    found = trace.calls(trace.from_kineto([*call(0, 3, 5), *between, *call(1000, 6, 9)]))
    assert [[each.launch for each in call if each.kind == "gpu"] for call in found] == [[5], [9]]
    framework.check_alike(found, "step")
    assert [ran.operation for call in found for ran in trace.traced(call)] == ["aten::abs", "aten::abs"]


def test_a_kernel_is_of_the_call_that_launched_it_whenever_it_ran():
    def launch(number, start):
        return Event("cudaLaunchKernel", "launch", start, start + 2, launch=number)

    def ran(name, start, launch, number=0):
        return Event(name, "gpu", start, start + 10, number=number, launch=launch)

    events = [
        around(trace.CALL, 100, 150, number=1), launch(11, 110), launch(12, 149), op("aten::mul", 120, 130, 2),
        around(trace.CALL, 200, 250, number=3), launch(21, 200), launch(22, 215), op("aten::mul", 220, 230, 4),
        launch(31, 90), launch(32, 180),
        ran("late", 205, 12), ran("early", 199, 21), ran("a", 110, 11), ran("a", 260, 22),
        # its call of CUDA is not in the trace: its operation tells
        ran("mul", 240, 0, 2), ran("mul", 190, 99, 4),
        # before the calls nothing is of one; what the host launches behind a call is of that one still
        ran("before", 130, 31), ran("behind", 230, 32),
    ]  # fmt: skip
    found = [[(each.name, each.start_ns) for each in call if each.kind == "gpu"] for call in trace.calls(events)]
    assert found == [
        [("late", 205), ("a", 110), ("mul", 240), ("behind", 230)],
        [("early", 199), ("a", 260), ("mul", 190)],
    ]


def made_trace(seed, count=3):
    """(events of so many calls, how often the host launched each kernel in them): operations and calls of CUDA are
    numbered apart and overlap, kernels run late, some on a side stream, some without an operation."""
    dice, events, launched = random.Random(seed), [], []
    number, launch, now, free_ns = dice.randrange(1, 40), dice.randrange(1, 40), 1000, [0, 0]
    kernels = [(dice.choice("abcd"), dice.random() < 0.8, dice.randrange(2)) for _ in range(dice.randrange(5, 40))]
    for _ in range(count):
        begin, counted = now, Counter()
        for name, has_operation, stream in kernels:
            start, number, launch = now + dice.randrange(5, 30), number + 1, launch + 1
            if dice.random() < 0.3:
                events.append(Event("cudaGetLastError", "launch", start, start + 1, launch=launch))
                launch += 1
            events.append(Event("cudaLaunchKernel", "launch", start + 2, start + 4, launch=launch))
            if has_operation:
                events.append(op(f"aten::{name}", start, start + 5, number))
            free_ns[stream] = max(free_ns[stream], start + dice.randrange(3, 900)) + 10
            ran = Event(name, "gpu", free_ns[stream], free_ns[stream] + 10, launch=launch)
            events.append(replace(ran, number=number if has_operation else 0))
            counted[name] += 1
            now = start + 6
        number += 1
        events.append(around(trace.CALL, begin, now, number=number))
        launched.append(counted)
        # sometimes the next call begins before the GPU is done with this one, by its clock
        now = now + 5 if dice.random() < 0.5 else max(now, *free_ns) + 20
    dice.shuffle(events)
    return events, launched


@pytest.mark.parametrize("seed", range(20))
def test_launches_of_each_call_are_as_many_as_the_host_counted(seed):
    events, launched = made_trace(seed)
    calls = trace.calls(events)
    assert [Counter(each.name for each in call if each.kind == "gpu") for call in calls] == launched
    framework.check_alike(calls, "step")
    # one kernel that is given to another call, by the number of its launch, is noticed
    ran = [each for call in calls for each in call if each.kind == "gpu"]
    one, other = random.Random(seed).choice(ran[: len(ran) // 3]), ran[-1]
    planted = [replace(each, launch=other.launch) if each is one else each for each in events]
    with pytest.raises(InputError, match="kernels change from call to call"):
        framework.check_alike(trace.calls(planted), "step")


def test_nodes_are_matched_by_name_whatever_the_order_of_branches():
    found = [Traced("void a(int)", 0, 1), Traced("Memset (Device)", 1, 2), Traced("b", 2, 3), Traced("a(int)", 4, 5)]
    matched = trace.matched(["b", "a(int)", "memset", "a(int)"], found)
    assert [each.time_us for each in matched] == [3, 1, 2, 5]
    assert trace.matched(["b", "b"], found) == [None, None], "another number of them: nothing is known"


def test_kernels_that_only_a_call_or_only_its_graph_runs_are_told_the_longest_first():
    def ran(*each):
        return [trace.Traced(name, 0.0, time_us) for name, time_us in each]

    call = ran(("flash_fwd", 30.0), ("add", 2.0), ("void add", 4.0), ("flash_fwd", 50.0), ("Memset (Device)", 1.0))
    graph = ran(("add", 2.0), ("softmax", 90.0), ("gemm_f32", 300.0), ("gemm_f32", 500.0), ("Memset (Unknown)", 1.0))
    in_call, in_graph = trace.others(call, graph)
    # an add more, at the mean of the two
    assert in_call == [("flash_fwd", 2, 80.0), ("add", 1, 3.0)]
    assert in_graph == [("gemm_f32", 2, 800.0), ("softmax", 1, 90.0)]
    assert trace.others(call, call) == ([], [])


def test_a_recorded_graph_runs_what_its_call_ran(recorded):
    assert trace.others(trace.traced(recorded.call), recorded.replays[-1]) == ([], [])


def test_overlap_is_the_time_that_is_counted_twice():
    events = [Traced("a", 0.0, 10.0), Traced("b", 8.0, 4.0), Traced("c", 20.0, 1.0)]
    assert trace.overlap(events) == (pytest.approx(2.0), [0, 1])


def test_times_of_replays_need_every_node():
    assert trace.replays(["a", "b"], [on_gpu("a", 0, 0), on_gpu("b", 0, 20), on_gpu("a", 0, 40)], 2) == []


def test_events_are_read_as_they_were_written(recorded):
    assert trace.from_json(trace.to_json(recorded.call)) == recorded.call


def test_every_recorded_kernel_has_a_section_and_nearly_all_an_operation(recorded):
    found = trace.matched(recorded.functions, trace.traced(recorded.call))
    assert all(found), "each node of the graph ran in the call that was traced"
    assert {each.section for each in found} == {"forward", "backward", "optimiser"}
    assert sum(bool(each.operation) for each in found) >= 0.9 * len(found)
    order = [each.section for each in found]
    assert order == sorted(order, key=["forward", "backward", "optimiser"].index)


def test_the_recorded_transformer_has_its_products(recording):
    step = recording("gpt_eager")
    found = trace.matched(step.functions, trace.traced(step.call))
    products = [each for each in found if each.label.startswith(("mm ", "addmm "))]
    # two layers of width 2048, 8192 tokens, and a head of 50304: forward, and twice that backward
    tokens, width, head = 8192, 2048, 50304
    forward = 2 * tokens * (2 * 12 * width**2 + width * head)
    assert math.fsum(each.flop or 0 for each in products) == pytest.approx(3 * forward)


def test_times_in_the_recorded_step_come_from_its_replays(recorded):
    assert len(recorded.replays) == 2
    times = trace.times_us(recorded.replays)
    assert len(times) == len(recorded.nodes) and min(times) > 0
