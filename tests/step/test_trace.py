"""What a trace says of a step's kernels: on made events, and on steps recorded on an H200."""

import math

import pytest

from kernel_dvfs import shape
from kernel_dvfs.step import trace
from kernel_dvfs.step.trace import Event, Traced
from kernel_dvfs.workload.step import Id


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

    def __init__(self, name, start_ns, duration_ns, number=0, linked=0, on_gpu=False, is_marked_by_user=False):
        self._says = {"name": name, "start_ns": start_ns, "duration_ns": duration_ns, "correlation_id": number}
        self._says |= {"linked_correlation_id": linked, "is_user_annotation": is_marked_by_user}
        self._says |= {"device_type": "DeviceType.CUDA" if on_gpu else "DeviceType.CPU", "start_thread_id": 1}
        self._says |= {"sequence_nr": -1, "flops": 0, "shapes": [[4, 8], []], "dtypes": ["float", ""]}
        self._says |= {"concrete_inputs": [None, True]}

    def __getattr__(self, name):
        return lambda: self._says[name]


@pytest.mark.parametrize(
    "between",
    [
        "Command Buffer Full",
        "Lazy Function Loading",
        "Runtime Triggered Module Loading",
        "cudaLaunchKernel",
        "train.py(3): f",
    ],
)
def test_what_the_profiler_and_the_driver_do_within_an_operation_is_none(between):
    found = trace.from_kineto(
        [
            OfKineto(trace.CALL, 0, 300, is_marked_by_user=True),
            OfKineto("nn.Module: Linear", 5, 90, 6),
            OfKineto("aten::_fused_adamw_", 10, 80, 7),
            OfKineto(between, 20, 30, 7),
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
    times = trace.mean_times_us(recorded.replays)
    assert len(times) == len(recorded.nodes) and min(times) > 0
