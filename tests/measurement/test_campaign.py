"""The order of a real GPU's points: each once, pairs mixed, auto at regular places."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from kernel_dvfs.measurement.campaign import (
    compare,
    lock_contracts,
    new_session,
    of_repeat,
    open_bench,
    ordered_points,
)
from kernel_dvfs.measurement.point import least_s
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

PAIRS = [BASELINE, *(Pair(core, mem) for core in range(300, 1500, 100) for mem in (800, 1600))]


def test_every_pair_is_measured_once_and_auto_as_often_as_asked():
    ordered = ordered_points(PAIRS, 10, 1)
    assert sorted(ordered, key=str) == sorted(
        [*((BASELINE, repeat) for repeat in range(10)), *((pair, 0) for pair in PAIRS[1:])], key=str
    )


def test_auto_is_first_last_and_evenly_between():
    places = [place for place, (pair, _) in enumerate(ordered_points(PAIRS, 10, 1)) if pair == BASELINE]
    assert places[0] == 0 and places[-1] == len(PAIRS) + 10 - 2
    gaps = [after - before for before, after in pairwise(places)]
    assert max(gaps) - min(gaps) <= 1
    assert [repeat for pair, repeat in ordered_points(PAIRS, 10, 1) if pair == BASELINE] == list(range(10))


def test_pairs_are_shuffled_by_the_seed():
    assert ordered_points(PAIRS, 3, 1) == ordered_points(PAIRS, 3, 1) != ordered_points(PAIRS, 3, 2)
    assert [pair for pair, _ in ordered_points(PAIRS, 1, 1) if pair != BASELINE] != PAIRS[1:]


@pytest.mark.parametrize("repeats", [1, 2, 100])
def test_any_number_of_repeats_is_possible(repeats):
    assert len(ordered_points(PAIRS, repeats, 1)) == len(PAIRS) - 1 + repeats
    assert ordered_points([BASELINE], repeats, 1) == [(BASELINE, place) for place in range(repeats)]


@pytest.mark.parametrize(
    ("pair", "repeat", "campaign"),
    [
        (BASELINE, 0, "sweep"),
        (BASELINE, 1, "sweep-1"),
        (BASELINE, 6, "sweep-6"),
        (BASELINE, 7, "remeasure-1"),
        (BASELINE, 11, "remeasure-5"),
        (PAIRS[3], 0, "sweep"),
        (PAIRS[3], 1, "remeasure-1"),
        (PAIRS[3], 4, "remeasure-4"),
    ],
)
def test_each_repeat_is_of_a_session_of_its_own_and_those_beyond_the_sweep_of_later_ones(pair, repeat, campaign):
    """Of a sweep that measures auto seven times and everything else once."""
    assert of_repeat(pair, repeat, 7) == campaign


def test_the_highest_clocks_are_locked_in_each_domain_alone_and_in_both():
    """At the highest memory clock a board may list fewer core clocks."""
    listed = {"core_mhz": {"listed": {"405": [210, 420], "5001": [210, 2100], "9251": [210, 1890]}}}
    found = lock_contracts(listed | {"mem_mhz": [5001, 9251, 405]})
    assert found == {"core": "1890,auto", "mem": "auto,9251", "both": "1890,9251"}
    stepped = {"core_mhz": {"lowest": 345, "highest": 1980, "step": 15}, "mem_mhz": []}
    assert lock_contracts(stepped) == {"core": "1980,auto"}, "its memory clock cannot be locked"


def test_a_new_session_ends_the_measuring_process_of_a_real_gpu_and_nothing_of_a_simulated_one(monkeypatch):
    from kernel_dvfs.measurement.real import client

    told = {"renew": [], "move": []}
    for what, paths in told.items():
        monkeypatch.setattr(client, what, paths.append)
    for kind in ("simulated", "nvml"):
        setup = Setup("digest", {"kind": kind}, {}, {}, {})
        new_session(setup, f"{kind}.json")
        assert told["renew"] == (["nvml.json"] if kind == "nvml" else []) and not told["move"]
        new_session(setup, f"{kind}-warm.json", is_warm=True)
    assert told == {"renew": ["nvml.json"], "move": ["nvml-warm.json"]}


def test_a_point_takes_its_warm_up_and_its_windows():
    assert least_s({"warmup_s": 2.8, "windows": 3, "window_s": 5}) == pytest.approx(2.8 + 0.5 + 3 * 5.1)


@pytest.mark.parametrize(
    "ask",
    [lambda setup: open_bench(setup, "", MeasurementTarget("kernel", "x")), lambda setup: compare(setup, "", {}, [])],
)
def test_a_kind_of_gpu_that_cannot_measure_is_one_line_whatever_is_asked(ask):
    with pytest.raises(InputError, match="gpu kind 'table' cannot measure"):
        ask(SimpleNamespace(gpu={"kind": "table"}))
