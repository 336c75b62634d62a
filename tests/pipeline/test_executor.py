"""A plan followed while a program runs its operations: what is asked for, what is certified, what ends it."""

import math
import threading
import time

import pytest
from made_up import BLOCKING_W, profile

from kernel_dvfs.measurement.latency_file import Spread
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.executor import AT_AUTO, AT_PLAN, Executor, HostMarks, IterationBlock, Noted, judged
from kernel_dvfs_pipeline.following import following
from kernel_dvfs_pipeline.graph import pipeline_graph, recorded_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.reach import reachable
from kernel_dvfs_pipeline.runtime import Runtime
from kernel_dvfs_pipeline.spreads import Spreads
from kernel_dvfs_pipeline.stragglers import Lookup

KNOWN = Spreads(Spread(1e-4, 2e-4), Spread(1e-4, 2e-4), "made up")


def document(planner, plan):
    return reachable(planner, plan, KNOWN).document() | {"latency": KNOWN.document()}


@pytest.fixture(scope="module")
def planner():
    return Planner(profile(2), pipeline_graph("1f1b", 2, 4), BLOCKING_W)


@pytest.fixture(scope="module")
def plan(planner):
    return document(planner, planner.plan(1.1 * planner.frontier.time_s[-1]))


class Clocks(Noted):
    """The clocks of a GPU that obeys at once, or refuses."""

    reads_only = False

    def __init__(self, refuses_at=math.inf):
        super().__init__()
        self.board, self.log, self.closed, self.refuses_at = self, [], False, refuses_at
        self.energy, self._began_s = 0, time.monotonic()

    def ask(self, pair):
        if self.asked >= self.refuses_at:
            raise InputError("no right to set clocks")
        super().ask(pair)
        self.log.append(pair)

    def to_auto(self):
        super().to_auto()
        self.log.append(BASELINE)

    def seen(self):
        core, mem = (2000 if clock == "auto" else clock for clock in self.pair)
        return core, mem

    def energy_mj(self):
        self.energy += 1
        return self.energy

    def close(self):
        self.closed = True


def run(executor, works, iterations):
    for _ in range(iterations):
        with executor.iteration():
            for work in works:
                executor.begin(work)
                executor.end()


def test_every_change_is_asked_for_in_order_and_clocks_come_back(plan):
    clocks, own = Clocks(), following(plan, 1)
    assert len(own.requests) > 2
    with Executor(plan, 1, clocks, HostMarks(), lambda given: [given], blocks=0) as executor:
        run(executor, own.works, 3)
        executor.settle()
        log = list(clocks.log)
    wanted = [request.pair for request in own.requests]
    assert log == [own.pairs[0], *(3 * wanted)]
    assert clocks.closed and clocks.pair == BASELINE
    told = executor.certificate
    assert told.holds and told.restored and told.asked == 3 * len(wanted) and told.changes == len(wanted)


def test_another_order_than_planned_ends_it_at_auto_and_says_what_came(plan):
    clocks, own = Clocks(), following(plan, 0)
    works = [*own.works[:3], own.works[4], own.works[3], *own.works[5:]]
    with Executor(plan, 0, clocks, HostMarks(), lambda given: [given], blocks=0) as executor:
        run(executor, works, 2)
        executor.settle()
        assert clocks.pair == BASELINE
    told = executor.certificate
    assert not told.holds and f"{own.works[4]} came where the plan has {own.works[3]}" in told.why


def test_a_driver_that_refuses_ends_it_and_the_program_runs_on(plan):
    clocks, own = Clocks(refuses_at=2), following(plan, 1)
    with Executor(plan, 1, clocks, HostMarks(), lambda given: [given], blocks=0) as executor:
        run(executor, own.works, 4)
        executor.settle()
    assert "no right to set clocks" in executor.certificate.why and clocks.asked == 2
    assert clocks.pair == BASELINE


def test_a_program_that_fails_gets_its_clocks_back_and_asks_no_other_rank(plan):
    clocks, asked = Clocks(), []

    def gather(given):
        asked.append(given)
        return [given]

    executor = Executor(plan, 1, clocks, HostMarks(), gather, blocks=0)
    with pytest.raises(ZeroDivisionError), executor, executor.iteration():
        executor.begin(following(plan, 1).works[0])
        raise ZeroDivisionError
    assert clocks.closed and clocks.pair == BASELINE and not asked


def test_blocks_take_turns_and_the_certificate_comes_of_them(plan):
    """A board that draws 7 W less at the plan, and a program that takes as long."""
    clocks, own = Clocks(), following(plan, 1)
    lock, state = threading.Lock(), {"s": time.monotonic(), "mj": 0.0}

    def energy_mj():
        with lock:
            now_s = time.monotonic()
            state["mj"] += 1000 * (now_s - state["s"]) * (40.0 if clocks.pair == BASELINE else 33.0)
            state["s"] = now_s
            return int(state["mj"])

    clocks.energy_mj = energy_mj
    to_auto, ask = clocks.to_auto, clocks.ask
    clocks.to_auto = lambda: (energy_mj(), to_auto())
    clocks.ask = lambda pair: (energy_mj(), ask(pair))
    with Executor(plan, 1, clocks, HostMarks(), lambda given: [given], blocks=2, block_s=0.4) as executor:
        count = 0
        while executor.is_judging:
            with executor.iteration():
                for work in own.works:
                    executor.begin(work)
                    time.sleep(0.002)
                    executor.end()
            count += 1
    told = executor.certificate
    (blocks,) = told.blocks
    assert [block.mode for block in blocks] == [AT_AUTO, AT_PLAN, AT_PLAN, AT_AUTO]
    powers_w = [block.energy_j / block.time_s for block in blocks]
    assert powers_w == pytest.approx([40, 33, 33, 40], rel=0.05)
    assert told.counted == 1 and told.plans == 1


class QueuedMarks:
    """Marks of a GPU that is behind the program by 30 ms: seen to have passed only then."""

    def __init__(self):
        self.last_s = 0.0

    def mark(self):
        self.last_s = time.monotonic() + 0.03
        return self.last_s

    def passed_s(self, mark):
        return mark if time.monotonic() >= mark else None

    def synchronise(self):
        time.sleep(max(0.0, self.last_s - time.monotonic()))


def test_a_gpu_that_runs_behind_the_program_is_followed_as_it_gets_there(plan):
    clocks, own = Clocks(), following(plan, 1)
    with Executor(plan, 1, clocks, QueuedMarks(), lambda given: [given], blocks=2, block_s=0.2) as executor:
        while executor.is_judging:
            with executor.iteration():
                for work in own.works:
                    executor.begin(work)
                    time.sleep(0.001)
                    executor.end()
    told = executor.certificate
    (blocks,) = told.blocks
    assert [block.mode for block in blocks] == [AT_AUTO, AT_PLAN, AT_PLAN, AT_AUTO]
    assert all(block.time_s > 0.008 for block in blocks)
    assert told.asked % len(own.requests) == 0 and told.asked > 0


def test_faster_clocks_that_do_not_come_are_late(plan):
    clocks, own = Clocks(), following(plan, 1)
    clocks.seen = lambda: (210, 405)  # whatever is asked for
    before = [own.pairs[request.place - 1] for request in own.requests]
    rises = sum(
        request.pair > old for request, old in zip(own.requests, before) if request.place
    )  # the first operation's comes between iterations
    assert rises > 0
    with Executor(plan, 1, clocks, HostMarks(), lambda given: [given], blocks=0) as executor:
        run(executor, own.works, 3)
        executor.settle()
    told = executor.certificate
    assert (told.rises, told.late) == (3 * rises, 3 * rises)
    assert f"{3 * rises} of {3 * rises} to faster clocks late; restored; used" in str(told)


def blocks(*each):
    return [IterationBlock(mode, 7, time_s, energy_j) for mode, time_s, energy_j in each]


def test_an_iteration_takes_as_long_as_on_the_slowest_rank_and_the_energy_of_all():
    first = blocks((AT_AUTO, 1.0, 30.0), (AT_PLAN, 1.02, 24.0), (AT_PLAN, 1.01, 25.0), (AT_AUTO, 1.0, 31.0))
    second = blocks((AT_AUTO, 1.1, 17.0), (AT_PLAN, 1.1, 18.0), (AT_PLAN, 1.12, 15.0), (AT_AUTO, 1.09, 16.0))
    holds, why, time_, energy = judged([first, second], "", False, 50.0)
    assert time_.values == pytest.approx([0.0, 100 * (1.12 / 1.09 - 1)])
    assert energy.values == pytest.approx([100 * (42 / 47 - 1), 100 * (40 / 47 - 1)])
    # a board that is not counted leaves the others
    uncounted = [IterationBlock(own.mode, own.iterations, own.time_s, None) for own in second]
    assert judged([first, uncounted], "", False, 50.0)[3].values == pytest.approx([-20.0, 100 * (25 / 31 - 1)])
    assert holds == (energy.high < 0) and (why == "") == holds


def test_what_costs_more_time_than_it_may_or_saves_nothing_is_not_used():
    slow = blocks(*[(AT_AUTO, 1.0, 30.0), (AT_PLAN, 1.05, 20.0)] * 3)
    assert judged([slow], "", False, 1.0)[:2] == (False, "breaks its limit of +1 %")
    assert judged([slow], "", False, 6.0)[0]
    saves_nothing = blocks(*[(AT_AUTO, 1.0, 30.0), (AT_PLAN, 1.0, 30.0)] * 3)
    assert judged([saves_nothing], "", False, 1.0)[:2] == (False, "no energy saved that the blocks can show")
    assert judged([slow], "somebody else set clocks", False, 6.0)[:2] == (False, "somebody else set clocks")
    assert judged([slow], "", True, 6.0)[:2] == (False, "")  # a dry run
    assert judged([slow[:2]], "", False, 6.0)[1] == "too few blocks were counted"


def test_a_stage_that_the_plan_lacks_and_clocks_within_an_operation_are_refused(plan):
    with pytest.raises(InputError, match="has 2 stages, this is stage 2"):
        following(plan, 2)
    (split,) = [own for own in plan["ranks"] if own["stage"] == 1]
    own = split["instructions"][0]
    changed = own | {"clocks": [own["clocks"][0] | {"share_of_kernels": 0.5}] * 2}
    other = plan | {"ranks": [{"stage": 0, "instructions": [changed]}]}
    with pytest.raises(InputError, match="forward of microbatch 0 on stage 1: changes clocks on its way"):
        following(other, 0)


# --- stragglers -------------------------------------------------------------------------------------------------------


def answered(lookup):
    """The answer, once its thread has found it."""
    while (found := lookup.answer()) is None:
        time.sleep(0.01)
    return found


def test_a_slower_replica_is_noticed_once_it_lasts_and_the_others_follow_a_slower_plan(planner):
    said = []
    runtime = Runtime(planner, 1.02 * planner.frontier.time_s[-1])
    base_s = runtime.plan.time_s
    lookup = Lookup(runtime, lambda own: document(planner, own), said.append)
    own_s = 0.97 * base_s  # a program is never quite as fast as planned
    lookup.tell({0: own_s, 1: 1.001 * own_s, 2: math.nan})
    lookup.tell({0: 1.2 * own_s, 1: own_s})  # once is no straggler
    lookup.tell({0: own_s, 1: own_s})
    assert lookup.answer() is None and not lookup.stragglers
    for _ in range(2):
        lookup.tell({0: own_s, 1: 1.25 * own_s})
    found, stragglers = answered(lookup)
    assert stragglers == {1} and base_s < found["time_s"] <= 1.25 * runtime.base_s * 1.0001
    # who follows is slower, too, and no straggler for that
    for _ in range(3):
        lookup.tell({0: own_s * found["time_s"] / base_s, 1: 1.25 * own_s})
    assert lookup.stragglers == {1} and lookup.answer() is None
    for _ in range(2):
        lookup.tell({0: own_s * found["time_s"] / base_s, 1: 1.01 * own_s})
    found, stragglers = answered(lookup)
    assert not stragglers and found["time_s"] <= base_s * 1.0001
    assert "replica 1 takes" in said[0] and said[1].startswith("replica 1 straggles no more")


def test_ranks_take_the_new_plan_and_the_straggler_keeps_the_first(planner, plan):
    """Two replicas, of which the second is slow: each rank as it sees the same exchange."""
    slower = document(planner, planner.plan(1.5 * planner.frontier.time_s[-1]))
    seen = {}
    for replica in (0, 1):

        def gather(given):
            return [given, (1, 1.0, (slower, {1}))] if len(given) == 3 else [given]

        named = {"blocks": 0, "look_every": 2, "dp_rank": replica}
        with Executor(plan, 1, Noted(), HostMarks(), gather, **named) as executor:
            run(executor, following(plan, 1).works, 4)
            executor.settle()
            seen[replica] = executor.time_s
    assert seen == {0: slower["time_s"], 1: plan["time_s"]}


# --- what was recorded ------------------------------------------------------------------------------------------------


def test_a_recorded_order_is_the_graph_of_its_schedule_and_stages_may_lie_in_a_v():
    wanted = pipeline_graph("interleaved", 2, 4, 2)
    orders = [[], []]
    for own in wanted.operations:
        orders[own.stage].append((own.instruction, own.virtual_stage, own.microbatch))
    found = recorded_graph(orders)
    durations = {own: 1.0 + 0.37 * number for number, own in enumerate(sorted(wanted.operations))}
    ends = [
        max(graph.finish_ticks([int(1e6 * durations[own]) for own in graph.operations])) for graph in (wanted, found)
    ]
    assert ends[0] == ends[1]
    v = [[("forward", 0, 0), ("forward", 3, 0), ("backward", 3, 0), ("backward", 0, 0)]]
    v.append([("forward", 1, 0), ("forward", 2, 0), ("backward", 2, 0), ("backward", 1, 0)])
    made = recorded_graph(v)
    assert len(made) == 8 and made.stages == 2
    assert max(made.finish_ticks([10] * 8)) == 80  # one after the other
    with pytest.raises(InputError, match="ran the stages 0, 0"):
        recorded_graph([[("forward", 0, 0)], [("forward", 0, 0)]])
