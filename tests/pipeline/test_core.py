"""The compiled core of the search for plans: the same programme and the same repair as without it, plans at least as
good."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_up import BLOCKING_W, few_clocks, profile, random_case
from whole_programme import least_energy_j

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline import rounding
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner

INSTRUCTIONS = ("forward", "backward", "backward_input", "backward_weight")
SHAPES = [("1f1b", 4, 8, 1), ("gpipe", 3, 5, 1), ("interleaved", 2, 4, 2), ("dualpipe", 2, 6, 1)]


@pytest.fixture(scope="module")
def module(pipeline_core):
    return rounding.core(pipeline_core)


@pytest.fixture(autouse=True)
def built(module, monkeypatch):
    monkeypatch.setattr(rounding, "core", lambda results_dir="results": module)


def planners():
    for schedule, stages, microbatches, chunks in SHAPES:
        made = (profile(stages * chunks, instructions=INSTRUCTIONS), few_clocks(stages * chunks))
        for own in made[: 1 if schedule == "dualpipe" else 2]:
            graph = pipeline_graph(schedule, stages, microbatches, chunks, transfer_s=0.003)
            yield Planner(own, graph, BLOCKING_W)
    for seed in range(8):
        graph, own = random_case(np.random.default_rng(seed), 9, clocks=4)
        yield Planner(own, graph, BLOCKING_W)


def times_of(planner, count):
    frontier = planner.frontier
    return np.linspace(frontier.fastest_ticks, frontier.slowest_ticks, count).astype(np.int64).tolist()


@pytest.mark.parametrize("backwards", [False, True])
def test_a_beam_keeps_the_limit_and_what_it_may_not_choose_anew(module, backwards):
    nothing, anew = np.zeros(0, np.int64), 0
    for planner in planners():
        offered, graph = planner._offered("one clock"), planner.graph
        edges = rounding._edges(module, graph)
        # at the slowest time a second is worth nothing, so operations take all of it that they can get
        careless = planner._interior.point(planner.ends_ticks[1])
        for ticks in times_of(planner, 4):

            def beam(width, choice, free, point):
                search = module.Search(edges, offered.native, point, ticks)  # noqa: B023
                return search.beam(width, 0.1, backwards, choice, free)

            for width, point in itertools.product((1, 5, 40), (planner._interior.point(ticks), careless)):
                found = rounding.repaired(graph, offered, beam(width, nothing, nothing, point), ticks, False)
                assert max(graph.finish_ticks(offered.ticks_of(found).tolist())) <= ticks
                assert beam(width, found, nothing, point).tolist() == found.tolist()
                free = np.arange(len(graph))[::3]
                again = beam(width, found, free, point)
                kept = np.setdiff1d(np.arange(len(graph)), free)
                assert again[kept].tolist() == found[kept].tolist()
                assert max(graph.finish_ticks(offered.ticks_of(again).tolist())) <= ticks
                anew += int((again != found).sum())
    assert anew > 20


def test_a_wide_beam_finds_the_best_of_all_choices(module):
    """Wide enough to forget no choice of six operations, against each of them in turn."""
    compared = 0
    for seed in range(6):
        graph, own = random_case(np.random.default_rng(100 + seed), 6, clocks=3)
        planner = Planner(own, graph, BLOCKING_W)
        offered = planner._offered("one clock")
        counts = [len(planner.options[key].ticks) for key in planner.keys]
        for ticks in times_of(planner, 5):
            costs = [
                float(offered.cost_of(choice).sum())
                for choice in map(np.array, itertools.product(*map(range, counts)))
                if max(graph.finish_ticks(offered.ticks_of(choice).tolist())) <= ticks
            ]
            for backwards in (False, True):
                edges, point = rounding._edges(module, graph), planner._interior.point(ticks)
                search = module.Search(edges, offered.native, point, ticks)
                found = search.beam(3**6, 0.3, backwards, np.zeros(0, np.int64), np.zeros(0, np.int64))
                assert float(offered.cost_of(found).sum()) == pytest.approx(min(costs), rel=1e-12)
                compared += len(costs)
            # nor do all of them that choose anew from the fastest
            fastest = np.zeros(len(graph), np.int64)
            found = search.best(3**6, [0.3], [np.arange(len(graph))], len(graph), 9, fastest)
            assert float(offered.cost_of(found).sum()) == pytest.approx(min(costs), rel=1e-12)
    assert compared > 1000


def test_stages_that_choose_anew_keep_the_limit_and_gain_on_every_start_and_beam(module):
    gained, nothing = 0, np.zeros(0, np.int64)
    for planner in planners():
        offered, graph = planner._offered("one clock"), planner.graph
        stage = np.array([operation.stage for operation in graph.operations])
        groups = [np.flatnonzero(np.isin(stage, each)) for each in rounding._neighbours(graph.stages)]
        edges = rounding._edges(module, graph)

        def cost(choice):
            return float(offered.cost_of(choice).sum())  # noqa: B023

        for ticks in times_of(planner, 4):
            search = module.Search(edges, offered.native, planner._interior.point(ticks), ticks)
            start = rounding.repaired(graph, offered, np.zeros(len(graph), np.int64), ticks, False)
            beams = [search.beam(4, 0.1, way, nothing, nothing) for way in (True, False)]
            whole = search.best(4, [0.1], groups, len(graph), 0, start)
            assert cost(whole) <= min(cost(own) for own in (start, *beams)) + 1e-9
            assert max(graph.finish_ticks(offered.ticks_of(whole).tolist())) <= ticks
            for span in (1, len(graph) // 3, 2 * len(graph)):
                anew = search.best(4, [0.1], groups, span, 9, whole)
                assert max(graph.finish_ticks(offered.ticks_of(anew).tolist())) <= ticks
                assert cost(anew) <= cost(whole) + 1e-9
                gained += cost(anew) < cost(whole) - 1e-9
                assert cost(search.best(4, [0.1], groups, span, 9, anew)) <= cost(anew) + 1e-9
    assert gained > 10


def test_the_flow_of_a_solution_is_conserved_and_worth_its_price(module):
    for planner in planners():
        graph = planner.graph
        if planner.frontier.fastest_ticks == planner.frontier.slowest_ticks:
            continue
        point = planner._interior.point(times_of(planner, 3)[1], error=1e-6)
        flow = point.flow[: len(graph.tail)]
        into, out = (np.bincount(ends, flow, len(graph)) for ends in (graph.head, graph.tail))
        inner = np.isin(np.arange(len(graph)), graph.head) & np.isin(np.arange(len(graph)), graph.tail)
        assert (point.flow >= 0).all()
        assert into[inner] == pytest.approx(out[inner], rel=1e-9)
        # what enters where nothing is waited for leaves at the end, and is what a second less costs
        assert out[~inner].sum() <= point.price_w * (1 + 1e-9)


@pytest.mark.parametrize("with_core", [True, False])
def test_a_repair_keeps_the_limit_makes_nothing_faster_and_fills_what_room_there_is(with_core, monkeypatch):
    if not with_core:
        monkeypatch.setattr(rounding, "core", lambda results_dir="results": None)
    slower = 0
    for planner in planners():
        offered, graph = planner._offered("one clock"), planner.graph
        for ticks in times_of(planner, 4):
            start = np.zeros(len(graph), np.int64)
            for per_second in (False, True):
                found = rounding.repaired(graph, offered, start, ticks, per_second)
                assert max(graph.finish_ticks(offered.ticks_of(found).tolist())) <= ticks
                assert (found >= start).all()
                slower += int((found > start).sum())
                # again, nothing more fits
                assert rounding.repaired(graph, offered, found, ticks, per_second).tolist() == found.tolist()
    assert slower > 100


def test_a_thorough_plan_is_in_time_not_below_the_bound_and_never_worse_than_a_quick_one():
    gaps = []
    for planner in planners():
        for ticks in times_of(planner, 4):
            quick, thorough = (planner.plan_ticks(ticks, thorough=long) for long in (False, True))
            assert max(quick.time_ticks, thorough.time_ticks) <= ticks
            assert -1e-9 <= thorough.gap <= quick.gap + 1e-12
            gaps.append((quick.gap, thorough.gap))
    quick_mean, thorough_mean = np.mean(gaps, axis=0)
    assert thorough_mean < quick_mean


@pytest.mark.parametrize("make", [profile, few_clocks])
def test_energy_budgets_are_refused_where_an_integer_programme_proves_that_no_plan_keeps_them(make):
    planner = Planner(make(2), pipeline_graph("1f1b", 2, 3), BLOCKING_W)
    proven_j, best_j = least_energy_j(planner)
    assert proven_j == pytest.approx(best_j, rel=1e-6)
    assert float(planner.frontier.energy_j.min()) < proven_j * (1 - 1e-5)
    with pytest.raises(InputError, match="no plan was found within"):
        planner.plan_for_energy(proven_j * (1 - 1e-5))
    # the search is a heuristic; at this size it comes this close to the least
    assert planner.plan_for_energy(best_j * 1.0001).energy_j() <= best_j * 1.0001


def test_the_core_is_found_beside_the_package_from_a_folder_without_one(pipeline_core, tmp_path):
    """In a process and a copy of the package of its own: the checkout may have a core already."""
    package, beside = Path(rounding.__file__).parent, tmp_path / "kernel_dvfs_pipeline"
    shutil.copytree(package, beside, ignore=shutil.ignore_patterns("native", "__pycache__"))
    ask = "from kernel_dvfs_pipeline import rounding; print(rounding.__file__, rounding.core() is not None)"

    def answer():
        path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(package.parent)])}
        ran = subprocess.run(
            [sys.executable, "-c", ask], cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, check=True
        )
        return ran.stdout.split()

    assert answer() == [str(beside / "rounding.py"), "False"]
    shutil.copytree(Path(pipeline_core) / "native", beside / "native")
    assert answer()[1] == "True"


def test_only_the_search_for_clocks_goes_beside_the_package(refused):
    assert "--pipeline alone" in refused("build", "--cpu", "on", "--pipeline", "on", "--beside")


def test_the_same_plan_comes_every_time():
    planner, again = (Planner(few_clocks(4), pipeline_graph("1f1b", 4, 8), BLOCKING_W) for _ in range(2))
    middle = times_of(planner, 5)[1]
    planner.plan_ticks(times_of(planner, 5)[3])  # what was asked before changes nothing
    assert planner.plan_ticks(middle).parts == again.plan_ticks(middle).parts
