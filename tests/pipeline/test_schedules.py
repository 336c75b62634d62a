"""Schedules that split the backward pass: known bubbles, memory no larger than 1F1B's, and every schedule run by an
event simulation that knows stages, orders and messages but no graph."""

from collections import Counter

import numpy as np
import pytest
from made_up import BLOCKING_W, profile

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.schedules import NAMES, layout, orders

# ticks of a forward pass, of the input's gradient, of the weights' gradient
F, G, W = 5, 6, 4
TICKS = {"forward": F, "backward": G + W, "backward_input": G, "backward_weight": W, "recompute": F}
SPLIT = ("forward", "backward", "backward_input", "backward_weight")


def bubble(name, stages, microbatches):
    graph = pipeline_graph(name, stages, microbatches)
    return max(graph.finish_ticks([TICKS[own.instruction] for own in graph.operations])) - microbatches * (F + G + W)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("rounds", [2, 3, 10])
def test_equal_stages_wait_as_long_as_the_papers_say(stages, rounds):
    microbatches = rounds * stages
    # Qi et al., ICLR 2024, Table 2, with backward = input + weights
    assert bubble("1f1b", stages, microbatches) == (stages - 1) * (F + G + W)
    assert bubble("zb-h1", stages, microbatches) == (stages - 1) * (F + G - W)
    # DeepSeek-V3, Table 2: (S/2 - 1)(F&B + B - 3W), of pairs that run in lockstep; one after the other they need not
    assert bubble("dualpipe", stages, microbatches) == (stages // 2 - 1) * (F + G - W)
    assert bubble("dualpipe", stages, microbatches) <= (stages // 2 - 1) * (F + 2 * (G + W) - 3 * W)


def held(order):
    """The most activations that a stage holds at once: from a forward pass until the weights' gradient is made."""
    now, most = 0, 0
    for item in order:
        now += {"forward": 1, "backward": -1, "backward_weight": -1}.get(item.instruction, 0)
        most = max(most, now)
    return most


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (8, 40)])
def test_a_split_backward_pass_needs_no_more_activations_than_published(stages, microbatches):
    assert max(map(held, orders("zb-h1", stages, microbatches))) == stages  # of 1F1B's first stage
    assert max(map(held, orders("dualpipe", stages, microbatches))) == stages + 1


@pytest.mark.parametrize("name", NAMES)
def test_every_microbatch_passes_every_part_of_the_model_once(name):
    stages, microbatches, chunks = 4, 8, 2 if name == "interleaved" else 1
    graph = pipeline_graph(name, stages, microbatches, chunks)
    parts = layout(name, stages, chunks).virtual_stages
    every = {(part, microbatch) for part in range(parts) for microbatch in range(microbatches)}
    for wanted in (("forward",), ("backward", "backward_input"), ("backward", "backward_weight")):
        found = Counter((own.virtual_stage, own.microbatch) for own in graph.operations if own.instruction in wanted)
        assert set(found) == every and set(found.values()) == {1}


def simulated(made, parts, both_ways, duration, transfer):
    """Seconds until all stages are done: each runs its order as soon as what the next item needs has arrived.

    duration(stage, part, item): of an item. A message arrives `transfer` after it was made, at once on the same stage.
    """
    arrived: dict = {}  # (what, part, microbatch): (stage that it was made on, time)
    clock, at = [0.0] * len(made), [0] * len(made)

    def part_of(stage, item):
        if both_ways:
            return stage if item.chunk == 0 else len(made) - 1 - stage
        return item.chunk * len(made) + stage

    def needs(part, item):
        if item.instruction == "forward" and part > 0:
            yield "activation", part - 1, item.microbatch
        if item.instruction in ("backward", "backward_input"):
            if part == parts - 1:
                yield "activation", part, item.microbatch
            else:
                yield "gradient", part + 1, item.microbatch

    made_by = {"forward": "activation", "backward": "gradient", "backward_input": "gradient"}
    while any(place < len(order) for place, order in zip(at, made)):
        ran = False
        for stage, order in enumerate(made):
            while at[stage] < len(order):
                item = order[at[stage]]
                part = part_of(stage, item)
                wanted = list(needs(part, item))
                if not all(each in arrived for each in wanted):
                    break
                for maker, when in (arrived[each] for each in wanted):
                    clock[stage] = max(clock[stage], when + (transfer if maker != stage else 0.0))
                clock[stage] += duration(stage, part, item)
                if item.instruction in made_by:
                    arrived[made_by[item.instruction], part, item.microbatch] = (stage, clock[stage])
                at[stage] += 1
                ran = True
        assert ran, "the stages wait for each other"
    return max(clock)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 12), (6, 24)])
def test_the_graph_takes_the_time_of_an_event_simulation(name, recompute, stages, microbatches):
    chunks = 3 if name == "interleaved" else 1
    made = orders(name, stages, microbatches, chunks, recompute)
    graph = pipeline_graph(name, stages, microbatches, chunks, recompute, transfer_s=0.25)
    parts = layout(name, stages, chunks).virtual_stages
    rng = np.random.default_rng(stages)
    taken = {(part, kind): round(rng.uniform(0.5, 2), 3) for part in range(parts) for kind in TICKS}
    known = simulated(
        made, parts, name == "dualpipe", lambda stage, part, item: taken[part, item.instruction], transfer=0.25
    )
    ticks = [round(taken[own.virtual_stage, own.instruction] * 10**12) for own in graph.operations]
    assert max(graph.finish_ticks(ticks)) == pytest.approx(known * 10**12, rel=1e-12)


@pytest.mark.parametrize(("name", "microbatches"), [("zb-h1", 6), ("dualpipe", 8)])
def test_a_plan_of_a_split_backward_pass_saves_and_is_in_time(name, microbatches):
    planner = Planner(profile(4, instructions=SPLIT), pipeline_graph(name, 4, microbatches), BLOCKING_W)
    base = all_max(planner)
    plan = planner.plan_ticks(base.time_ticks)
    assert plan.time_ticks <= base.time_ticks and plan.cost_j < base.cost_j
    durations = (plan.end_ticks - plan.begin_ticks).tolist()
    assert max(planner.graph.finish_ticks(durations)) == plan.time_ticks


@pytest.mark.parametrize(
    ("stages", "microbatches", "named"),
    [(3, 8, "3 stages; expected an even number"), (4, 6, "at least 8"), (4, 9, "expected an even number")],
)
def test_a_dualpipe_that_does_not_work_out_is_refused(stages, microbatches, named):
    with pytest.raises(InputError, match=named):
        orders("dualpipe", stages, microbatches)
