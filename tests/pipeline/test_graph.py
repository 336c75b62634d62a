"""The order of a stage's work, and the graph that follows: known shapes, known times, no circle."""

import math
from collections import Counter

import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.pipeline.graph import Graph, Operation, orders, pipeline_graph

FORWARD, BACKWARD = 10**10, 2 * 10**10


def letters(order):
    return " ".join(f"{item.instruction[0].upper()}{item.microbatch}" for item in order)


def duration(graph, chunks=1):
    """Ticks of an iteration whose stages are equal and whose backward passes take twice as long."""
    ticks = {"forward": FORWARD // chunks, "backward": BACKWARD // chunks, "recompute": FORWARD // chunks}
    return max(graph.finish_ticks([ticks[operation.instruction] for operation in graph.operations]))


def test_1f1b_warms_up_alternates_and_drains():
    made = orders("1f1b", 3, 4)
    assert letters(made[0]) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert letters(made[1]) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert letters(made[2]) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_1f1b_with_fewer_microbatches_than_stages_only_warms_up_and_drains():
    assert letters(orders("1f1b", 4, 2)[0]) == "F0 F1 B0 B1"


def test_gpipe_runs_all_forwards_then_backwards_from_the_last():
    assert letters(orders("gpipe", 2, 3)[1]) == "F0 F1 F2 B2 B1 B0"


def test_early_recomputation_comes_just_before_each_backward_but_on_the_last_stage():
    made = orders("1f1b", 2, 2, early_recompute=True)
    assert letters(made[0]) == "F0 F1 R0 B0 R1 B1"
    assert letters(made[1]) == "F0 B0 F1 B1"


def test_early_recomputation_does_not_wait_for_the_gradient():
    # its work lies in the time in which the stage would wait, so the iteration is shorter than with late recomputation
    early = duration(pipeline_graph("1f1b", 4, 8, early_recompute=True))
    plain = duration(pipeline_graph("1f1b", 4, 8))
    late = plain + 8 * FORWARD + 3 * FORWARD  # recomputing as part of each of the critical path's backwards
    assert plain < early < late


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_equal_stages_take_the_known_time(name, stages):
    for microbatches in (1, 3, 17):
        graph = pipeline_graph(name, stages, microbatches)
        assert len(graph) == 2 * stages * microbatches
        assert duration(graph) == (microbatches + stages - 1) * (FORWARD + BACKWARD)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_interleaving_divides_the_bubble_by_the_chunks(stages, chunks):
    for microbatches in (stages, 3 * stages, 6 * stages):
        graph = pipeline_graph("interleaved", stages, microbatches, chunks)
        own = FORWARD // chunks + BACKWARD // chunks
        assert duration(graph, chunks) == (microbatches * chunks + stages - 1) * own


def test_every_operation_of_every_chunk_occurs_once():
    graph = pipeline_graph("interleaved", 4, 8, 3)
    assert set(Counter(graph.operations).values()) == {1}
    assert {operation.virtual_stage for operation in graph.operations} == set(range(12))
    assert all(operation.virtual_stage % 4 == operation.stage for operation in graph.operations)


def test_a_transfer_between_stages_takes_its_time():
    plain, slow = (pipeline_graph("1f1b", 3, 1, transfer_s=lag) for lag in (0.0, 0.5))
    assert duration(slow) - duration(plain) == 4 * 5 * 10**11  # twice forward, twice back


def test_constant_work_stands_first_and_last_on_every_stage():
    graph = pipeline_graph("1f1b", 2, 2, constant=("load_data", "+optimizer"))
    for stage in range(2):
        own = [operation.instruction for operation in graph.operations if operation.stage == stage]
        assert own[0] == "load_data" and own[-1] == "optimizer" and len(own) == 6


def test_a_graph_grows_linearly():
    assert len(pipeline_graph("1f1b", 20, 100).tail) < 4 * 20 * 100


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("zigzag", 4, 8), "allowed: 1f1b, gpipe, interleaved"),
        (("1f1b", 0, 8), "stages = 0"),
        (("1f1b", 4, 1.5), "microbatches = 1.5"),
        (("gpipe", 4, 8, 2), "one chunk a stage"),
        (("interleaved", 4, 6, 2), "6 microbatches are no multiple of 4 stages"),
    ],
)
def test_an_impossible_schedule_is_refused(arguments, named):
    with pytest.raises(InputError, match=named):
        orders(*arguments)


def test_a_circle_in_a_graph_of_ones_own_is_named():
    operations = [Operation(0, 0, "forward", number) for number in range(3)]
    with pytest.raises(InputError, match=r"circle: .*forward.* -> .*; remove an edge"):
        Graph(operations, [(0, 1, 0.0), (1, 2, 0.0), (2, 0, 0.0)], stages=1)


def test_an_edge_to_nowhere_is_named():
    with pytest.raises(InputError, match="names operation 7 of 2"):
        Graph([Operation(0, 0, "forward", number) for number in range(2)], [(0, 7, 0.0)], stages=1)


@pytest.mark.parametrize("lag_s", [math.nan, math.inf, -math.inf, -1e-9])
def test_an_edge_never_takes_an_impossible_time(lag_s):
    with pytest.raises(InputError, match="transfer time"):
        pipeline_graph("1f1b", 2, 2, transfer_s=lag_s)
    operations = [Operation(0, 0, "forward", 0), Operation(0, 0, "backward", 0)]
    with pytest.raises(InputError, match="edge 0 -> 1 takes"):
        Graph(operations, [(0, 1, lag_s)], 1)
