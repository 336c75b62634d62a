"""The board beside a capture: who else computes on it, and what runs cost by its energy counter."""

from itertools import pairwise

import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import beside
from kernel_dvfs_step.beside import Beside, _Edges


class Board:
    def __init__(self, counts):
        self._counts = list(counts)

    def compute_processes(self):
        return self._counts.pop(0)


@pytest.fixture
def with_board(monkeypatch):
    """with_board(processes before, then at each question)."""

    def made(before, *counts):
        def no_nvml(self):
            raise InputError("no driver")

        monkeypatch.setattr(beside.Library, "__enter__", no_nvml)
        found = Beside()
        found._before, found._nvml = {"GPU-1": before}, None
        monkeypatch.setattr(beside, "Board", lambda nvml, uuid: Board(counts))
        return found

    return made


def test_a_gpu_that_others_compute_on_is_refused_unless_it_is_shared(with_board, monkeypatch):
    monkeypatch.setattr(beside, "_ENDING_S", 0.0)
    with pytest.raises(InputError, match=r"GPU GPU-1: 2 other process\(es\) compute on it.*--share"):
        with_board(2).open("GPU-1", share=False)
    shared = with_board(2, 3)
    shared.open("GPU-1", share=True)
    assert shared.neighbours == 2, "without its own process"


@pytest.mark.parametrize(("counts", "is_free"), [((2, 2, 1, 1), True), ((2,) * 200, False), ((None,) * 200, False)])
def test_one_that_is_just_ending_is_waited_for(with_board, monkeypatch, counts, is_free):
    """With its own process: one other and itself, then itself alone."""
    now = [0.0]
    monkeypatch.setattr(beside.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(beside.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    found = with_board(1, *counts)
    if is_free:
        found.open("GPU-1", share=False)
        assert now[0] == pytest.approx(0.3)
    else:
        with pytest.raises(InputError, match=r"1 other process\(es\) compute on it"):
            found.open("GPU-1", share=False)
        assert now[0] == pytest.approx(10, abs=0.11)


def test_who_comes_meanwhile_is_counted(with_board):
    found = with_board(0, 1, 3)
    found.open("GPU-1", share=False)
    assert found.newcomers() == 2
    unknown = with_board(None, None, 3)
    unknown.open("GPU-1", share=False)
    assert unknown.newcomers() == 0, "where the driver does not tell"


def test_a_run_is_timed_back_to_back_and_its_state_put_back_now_and_then(with_board, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(beside.time, "monotonic", lambda: now[0])
    ran, put_back = [], []

    def run():
        now[0] += 0.01
        ran.append(1)

    def restore():
        now[0] += 0.004
        put_back.append(len(ran))

    cost = with_board(0).cost(run, restore, lambda: None, seconds=6.0)
    assert cost.time_s == pytest.approx(0.01, rel=3e-3) and cost.energy_j is None
    gaps = [after - before for before, after in pairwise(put_back[1:])]
    assert gaps and set(gaps) == {200}, "0.4 of 10 ms is 0.2 % of 200 runs"


def test_power_is_that_between_the_first_and_the_last_edge_within():
    edges = _Edges.__new__(_Edges)
    edges._ended, edges.join = beside.threading.Event(), lambda: None
    edges._seen = [(0.9, 0), (1.2, 100_000), (1.3, 170_000), (2.4, 940_000), (2.6, 1_500_000)]
    assert edges.power_w(1.0, 2.5) == pytest.approx((940 - 100) / 1.2)
    assert edges.power_w(1.0, 1.25) is None
    edges._seen[2] = 1.3, 90_000
    assert edges.power_w(1.0, 2.5) is None, "the counter fell meanwhile, although it ends above where it began"
