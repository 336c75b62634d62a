"""The order of a stage's work, and the graph that follows: known shapes, known times, no circle."""

import json
import math
from collections import Counter
from graphlib import TopologicalSorter

import numpy as np
import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.graph import (
    Graph,
    Operation,
    finishes,
    ordered_graph,
    pipeline_graph,
    read_graph,
    write_graph,
)
from kernel_dvfs_pipeline.schedules import Layout, orders, read_schedule

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


@pytest.mark.parametrize("seed", range(40))
def test_any_graph_is_in_the_librarys_order_and_over_when_python_says(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    named = rng.permutation(count).tolist()
    pairs = [(named[i], named[j]) for j in range(count) for i in range(j) if rng.random() < (0.05, 0.3)[seed % 2]]
    edges = [(*pairs[at], float(rng.choice([0.0, 0.01]))) for at in rng.permutation(len(pairs)).tolist()]
    graph = Graph([Operation(0, 0, "forward", number) for number in range(count)], edges, stages=1)
    waits = {number: [tail for tail, head, _ in edges if head == number] for number in range(count)}
    assert [own.microbatch for own in graph.operations] == list(TopologicalSorter(waits).static_order())
    for ticks in (rng.integers(1, 10**12, count), rng.random(count)):
        assert graph.finish_ticks(ticks.tolist()) == finishes(graph.before, ticks.tolist())
        assert graph.finish_ticks(ticks) == finishes(graph.before, ticks.tolist())


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
        (("zigzag", 4, 8), "allowed: 1f1b, gpipe, interleaved, zb-h1, dualpipe"),
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


def written(path, made, columns=3):
    """A schedule file of the Items that stages run."""
    names = ["stage", "instruction", "microbatch", "chunk"][:columns]
    rows = [
        [stage, item.instruction, "" if item.microbatch < 0 else item.microbatch, item.chunk][:columns]
        for stage, order in enumerate(made)
        for item in order
    ]
    path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("name", "chunks", "recompute"), [("1f1b", 1, False), ("gpipe", 1, True), ("interleaved", 2, False)]
)
def test_a_schedule_in_a_file_is_the_same_graph(tmp_path, name, chunks, recompute):
    made = orders(name, 3, 6, chunks, recompute)
    read, read_chunks = read_schedule(written(tmp_path / "s.csv", made, 4))
    assert read == made and read_chunks == chunks
    own, known = ordered_graph(read, Layout(3, chunks), 0.1), pipeline_graph(name, 3, 6, chunks, recompute, 0.1)
    assert own.operations == known.operations and own.before == known.before


def test_a_schedule_of_ones_own_takes_the_time_that_its_order_needs(tmp_path):
    # two stages, two microbatches, backwards in the other order than 1F1B; forward 1 s, backward 2 s
    text = "stage,instruction,microbatch\n0,load,\n0,forward,0\n0,forward,1\n0,backward,1\n0,backward,0\n"
    text += "1,load,\n1,forward,0\n1,forward,1\n1,backward,1\n1,backward,0\n"
    (tmp_path / "s.csv").write_text(text)
    order, chunks = read_schedule(tmp_path / "s.csv")
    graph = ordered_graph(order, Layout(2, chunks))
    taken = {"load": 0, "forward": 1, "backward": 2}
    assert max(graph.finish_ticks([taken[own.instruction] for own in graph.operations])) == 3 + 2 * 2 + 2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("stage,microbatch\n0,0\n", "line 1: expected stage,instruction,microbatch"),
        ("stage,instruction,microbatch\n", "the table has a header but no rows"),
        ("stage,instruction,microbatch\n1,forward,0\n", "stages 1: number all"),
        ("stage,instruction,microbatch\n0,forward,x\n", "line 2, column microbatch: 'x'"),
        ("stage,instruction,microbatch\n0,forward,\n", "line 2, column microbatch: empty"),
        ("stage,instruction,microbatch\n0,forward,0\n0,forward,0\n", "stage 0 runs forward of microbatch 0 twice"),
        ("stage,instruction,microbatch\n0,forward,0\n", "stage 0 does not run backward of microbatch 0"),
        ("stage,instruction,microbatch\n0,backward,0\n0,forward,0\n", "wait for each other in a circle"),
        ("stage,instruction,microbatch\n0,backward,0\n", "stage 0 does not run forward of microbatch 0"),
        (
            "stage,instruction,microbatch\n0,forward,0\n0,backward,0\n1,forward,0\n1,backward,0\n1,forward,1\n1,backward,1\n",
            "stage 0 does not run forward of microbatch 1",
        ),
        (f"stage,instruction,microbatch\n0,forward,{'9' * 5000}\n", "is not a whole number"),
    ],
)
def test_a_bad_schedule_file_is_one_line(tmp_path, text, named):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        order, chunks = read_schedule(tmp_path / "s.csv")
        ordered_graph(order, Layout(len(order), chunks))
    assert named in str(refused.value) and "\n" not in str(refused.value)


def test_weights_gradients_must_be_made_where_the_backward_pass_is_split(tmp_path):
    text = "stage,instruction,microbatch\n0,forward,0\n0,backward_input,0\n"
    (tmp_path / "s.csv").write_text(text)
    order, _ = read_schedule(tmp_path / "s.csv")
    with pytest.raises(InputError, match="does not run backward_weight of microbatch 0"):
        ordered_graph(order, Layout(1))


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "dualpipe"])
def test_a_graph_in_a_file_is_the_same_graph(tmp_path, name):
    graph = pipeline_graph(name, 4, 8, transfer_s=0.125)
    write_graph(tmp_path / "g.json", graph)
    read = read_graph(tmp_path / "g.json")
    assert set(read.operations) == set(graph.operations) and read.stages == 4

    def edges(own):
        ends = zip(own.tail.tolist(), own.head.tolist(), own.lag_ticks.tolist())
        return {(own.operations[tail], own.operations[head], lag) for tail, head, lag in ends}

    assert edges(read) == edges(graph)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schema": "other"}, "g.json: not a kernel-dvfs/pipeline-graph/1 file; .*write_graph"),
        ({"edges": 3}, "edges is 3, expected a list"),
        ({"stages": 3}, "its operations are on 0, 1"),
        ({"operations": [{"stage": 0}]}, r"operations\[0\]\.virtual_stage is missing"),
        ({"edges": [{"tail": 0, "head": 1, "lag_s": "x"}]}, r"edges\[0\]\.lag_s is 'x', expected a number"),
        ({"edges": [{"tail": 0, "head": 99, "lag_s": 0}]}, "names operation 99"),
        ({"edges": [{"tail": 0, "head": 1, "lag_s": 1e9}]}, "expected seconds from 0 to 3600"),
        ({"edges": []}, "stage 0 may run .* at once: add an edge"),
        ({"stages": 300_000_000}, "number all from 0"),
        ({"edges": [{"tail": 0, "head": 1, "lag_s": 0}, {"tail": 1, "head": 0, "lag_s": 0}]}, "circle"),
    ],
)
def test_a_bad_graph_file_is_one_line(tmp_path, change, named):
    write_graph(tmp_path / "g.json", pipeline_graph("1f1b", 2, 2))
    content = json.loads((tmp_path / "g.json").read_text())
    (tmp_path / "g.json").write_text(json.dumps(content | change))
    with pytest.raises(InputError, match=named) as refused:
        read_graph(tmp_path / "g.json")
    assert "\n" not in str(refused.value)
