"""The compiled core of the search for plans: the same programme and the same repair as without it, plans at least as
good."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_up import BLOCKING_W, few_clocks, profile, random_case

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


def test_the_network_finds_the_frontier_cold_and_from_any_other_time():
    for planner in planners():
        curves = [planner.curves[key] for key in planner.keys]
        network = planner._programme
        for ticks in [*times_of(planner, 7), *times_of(planner, 5)[::-1]]:
            assert network.solve(ticks)
            assert network.cost_j == pytest.approx(float(planner.frontier.cost_at(ticks)), rel=1e-9)
            begin, end = np.split(network.times, 2)
            assert end.max() <= ticks and begin.min() >= 0
            graph = planner.graph
            assert (begin[graph.head] - end[graph.tail] >= graph.lag_ticks).all()
            reached = sum(
                float(np.interp(duration, curve.ticks, curve.cost_j)) for duration, curve in zip(end - begin, curves)
            )
            assert reached == pytest.approx(network.cost_j, rel=1e-7)
        if planner.frontier.fastest_ticks > 1:
            assert not network.solve(planner.frontier.fastest_ticks - 1)


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
