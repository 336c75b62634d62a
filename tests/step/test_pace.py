"""Rests that give a kernel repeated alone the clock that it has in its step."""

import math
from types import SimpleNamespace

import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import pace
from kernel_dvfs_step.living import LivingStep

# (what is wanted, the clock without rests, how it rises with the share of rest)
CASES = [
    (1578.0, 1355.0, lambda share: 1355 + 1050 * share),
    (1696.0, 1480.0, lambda share: 1480 + 900 * share**1.5),
    (1603.0, 1314.0, lambda share: min(1314 + 700 * share**0.8, 1980)),
    (1400.0, 1380.0, lambda share: 1380 + 1100 * share),
]


@pytest.mark.parametrize(("wanted", "alone", "clock"), CASES)
def test_a_rest_is_found_that_gives_the_clock_wanted(wanted, alone, clock):
    asked = []

    def mhz(share):
        asked.append(share)
        return clock(share)

    share, found = pace.rest_share(wanted, mhz)
    assert found == pytest.approx(wanted, rel=pace.NEAR) and found == clock(share)
    assert asked[0] == 0 and len(asked) <= pace.TRIES + 1
    assert clock(0) == alone and 0 < share < 0.6


def test_none_is_needed_where_the_clock_is_as_high_without():
    assert pace.rest_share(1500.0, lambda share: 1810.0) == (0.0, 1810.0)
    assert pace.rest_share(1500.0, lambda share: 1499.0) == (0.0, 1499.0)


def test_the_nearest_is_taken_where_none_gives_it():
    """A clock that rests do not raise, and one that jumps over what is wanted."""
    shares = []
    share, found = pace.rest_share(1500.0, lambda share: shares.append(share) or 1300.0)
    assert found == 1300.0 and len(set(shares)) == len(shares) and max(shares) == 0.6
    share, found = pace.rest_share(1500.0, lambda share: 1300.0 if share < 0.2 else 1600.0)
    assert found == 1600.0 and share >= 0.2


@pytest.mark.parametrize("ratio", [1.3, 1.5, 1.8, 2.5])
def test_no_rest_is_so_long_that_hardly_anything_runs(ratio):
    shares = []
    share, _ = pace.rest_share(1900.0, lambda share: shares.append(share) or 1900 / ratio + 300 * share)
    assert max(shares) <= 0.6 and shares[0] == 0 and len(shares) >= 2 and share in shares


@pytest.mark.parametrize("clocks", [(1000.0, 1300.0, 1480.0, 1520.0), (1100.0, 1300.0, 1450.0, 1530.0, 1400.0)])
def test_clocks_that_sway_end_the_search_with_the_nearest(clocks):
    left = iter(clocks)
    share, found = pace.rest_share(1500.0, lambda share: next(left))
    assert found in clocks and 0 < share <= 0.6


def test_a_clock_that_cannot_be_read_is_said():
    class Probe:
        def __init__(self, device, marks):
            self.marks = marks

        def sm_mhz(self):
            return [math.nan] * (self.marks - 1)

    living = SimpleNamespace(
        device=SimpleNamespace(synchronize=lambda: None),
        extension=SimpleNamespace(ClockProbe=Probe),
        chain=lambda *about: SimpleNamespace(run=lambda count: None),
    )
    reader, steady = pace.ClockReader(living, [0], [0]), SimpleNamespace(run_for=lambda seconds: None)
    assert math.isnan(reader.mhz(steady)[0])
    with pytest.raises(InputError, match="the GPU's clock could not be read around a launch"):
        reader.mean_mhz(steady)
    assert pace.mean_mhz([math.nan, 1500.0, 1600.0]) == 1550


def test_clocks_are_read_node_by_node_and_averaged_over_samples_and_rounds():
    runs, waited = [], []

    class Probe:
        def __init__(self, device, marks):
            self.marks = marks

        def sm_mhz(self):
            # two nodes, two rounds: node, gap, node, gap, node, gap, node
            first, second = 1500.0 + len(runs), 1700.0 + 2 * len(runs)
            return [first, 0.0, second, 0.0, first + 2, 0.0, second + 2]

    living = SimpleNamespace(
        device=SimpleNamespace(synchronize=lambda: None),
        extension=SimpleNamespace(ClockProbe=Probe),
        chain=lambda *about: SimpleNamespace(run=lambda count: runs.append(about)),
    )
    reader = pace.ClockReader(living, [4, 5, 6], [1, 2], rounds=2, rest_ns=700)
    steady = SimpleNamespace(run_for=waited.append)
    assert reader.mhz(steady, samples=3, apart_s=0.01) == [1500 + 2 + 1, 1700 + 4 + 1]
    assert waited == [0.01] * 3 and reader._probe.marks == 8
    assert [(list(places), rounds, rest_ns, marked) for places, rounds, rest_ns, marked, _ in runs] == [
        ([4, 5, 6], 2, 700, [1, 2])
    ] * 3


@pytest.mark.parametrize(("restore_ms", "every"), [(1.2, 26), (100.0, 2128), (0.0, 1)])
def test_the_state_is_put_back_as_often_as_costs_a_500th_of_the_time(restore_ms, every):
    done = []
    graph = SimpleNamespace(run=lambda count: done.append("run"), time=lambda count: 23.5 * count)
    event = SimpleNamespace(record=lambda: None, wait=lambda: None, since_ms=lambda earlier: restore_ms)
    living = SimpleNamespace(
        memory=SimpleNamespace(restore=lambda: done.append("back")),
        device=None,
        extension=SimpleNamespace(Event=lambda device: event),
    )
    refreshed = LivingStep.refreshed(living, graph)
    done.clear()
    assert refreshed.every == every and refreshed.time(2) == 47.0
    refreshed.run(2 * every)
    refreshed.run(1)
    assert done == [*["run"] * every, "back", *["run"] * every, "back", "run"]
