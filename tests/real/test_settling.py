"""When the clocks of a load count as settled, on a board whose clocks are made up slice by slice."""

import itertools
from types import SimpleNamespace

import pytest

from kernel_dvfs.measurement.counter import EnergyCounter
from kernel_dvfs.measurement.real.gpu import RealGpu

ABOUT = dict.fromkeys(("clocks", "name", "uuid", "pci_bus_id", "vbios", "power_limit_mw", "ecc", "energy_scope"))


class Board:
    """Time that passes as it is slept away, and core clocks by the slice."""

    facts = nvml = SimpleNamespace(versions={})
    uuid = "GPU-1"
    less = None

    def __init__(self, core_mhz):
        self._core_mhz, self.time_s, self.run_s = iter(core_mhz), 0.0, 1e-5
        self.facts, self.board = {}, self
        self.nvml = SimpleNamespace(versions={})

    def now_s(self):
        return self.time_s

    def sleep(self, seconds):
        self.time_s += seconds

    def start(self):
        return self

    def feed(self):
        pass

    def between(self, start_s, end_s):
        return {"sm_mhz": next(self._core_mhz)}

    def mem_mhz(self):
        return 3201

    def persistence(self):
        return True

    def energy_mj(self):
        return 0


def warmed_s(core_mhz, seconds=2.0) -> float:
    """How long a warm-up of `seconds` takes."""
    board = Board(core_mhz)
    counter = EnergyCounter(board.energy_mj, board.now_s, board.sleep, board.feed)
    gpu = RealGpu(board, ABOUT, {}, board, counter, None, lambda: True, print)
    gpu.warm_up(board, seconds)
    return board.time_s


def test_clocks_that_stay_are_settled_when_the_warm_up_is_over():
    assert warmed_s(itertools.repeat(1980.0)) == pytest.approx(2.0, abs=0.01)


def test_clocks_that_a_power_cap_moves_to_and_fro_are_settled():
    """As a matrix product's on an H200, 1 % from slice to slice for as long as it runs."""
    assert warmed_s(itertools.cycle([1400.0, 1415.0, 1398.0, 1412.0])) == pytest.approx(2.0, abs=0.01)


def test_clocks_that_still_fall_or_swing_widely_are_not():
    falling = (1980.0 * 0.99**number for number in itertools.count())
    assert warmed_s(falling) == pytest.approx(7.0, abs=0.3), "at the limit"
    assert warmed_s(itertools.cycle([1980.0, 1400.0])) == pytest.approx(7.0, abs=0.3)


def test_a_short_warm_up_goes_on_until_they_are():
    dropping = itertools.chain([1980.0, 1600.0, 1405.0], itertools.cycle([1420.0, 1402.0]))
    assert warmed_s(dropping, seconds=0.1) == pytest.approx(5 * 0.25, abs=0.02)
