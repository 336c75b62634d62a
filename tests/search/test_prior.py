"""The prior: of clocks alone, the same every time, and true of any board."""

import numpy as np
import pytest

from kernel_dvfs.search import prior as priors
from kernel_dvfs.search.prior import MISFIT, NUGGET, prior
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair

PAIRS = [BASELINE, Pair(1980, 3201), Pair(1500, 3201), Pair(1000, 3201), Pair(1500, 2201), Pair(900, 2201)]


@pytest.fixture(scope="module")
def found():
    return prior(PAIRS)


def test_it_depends_on_pairs_and_seed_alone(found):
    again, other = prior(PAIRS), prior(PAIRS, seed=2)
    assert all(np.array_equal(one, same) for one, same in zip(found.time, again.time))
    assert not np.array_equal(found.time.mean, other.time.mean)


def test_lower_clocks_are_slower_and_draw_less(found):
    for field, sign in ((found.time, 1), (found.power, -1)):
        steps = field.mean[[1, 2, 3]], field.mean[[4, 5]]
        assert all((sign * np.diff(own) > 0.02).all() for own in steps)
    # a lower memory clock slows down
    assert found.time.mean[4] > found.time.mean[2] + 0.02


def test_auto_is_the_reference_of_everything(found):
    for field in found:
        assert field.mean[0] == 0
        for covariance in (field.boards, field.kernels, field.misfit, field.nugget):
            assert covariance[0] == pytest.approx(0, abs=1e-12)
            assert np.linalg.eigvalsh(covariance).min() > -1e-9


def test_the_misfit_is_smooth_and_the_nugget_is_not(found):
    for field, sd, alone in zip(found, MISFIT, NUGGET):
        apart = np.diag(field.misfit)[:, None] + np.diag(field.misfit) - 2 * field.misfit
        # by hand: the logarithm of clocks over their reach
        steps = abs(np.log(1500 / 1000)) / 0.5 + abs(np.log(3201 / 2201)) / 1.0, abs(np.log(1500 / 1980)) / 0.5
        assert apart[3, 4] == pytest.approx(2 * sd**2 * (1 - np.exp(-steps[0])))
        assert apart[1, 2] == pytest.approx(2 * sd**2 * (1 - np.exp(-steps[1])))
        assert np.diag(field.nugget)[1:] == pytest.approx(alone**2)
        assert field.nugget[1, 2] == 0


def test_kernels_of_a_board_vary_and_so_do_boards():
    """Without anything to tell kernels apart, their covariance is none; that between boards stays."""
    logs = np.random.default_rng(3).standard_normal((priors.BOARDS, 1, 4)) * [0, 1, 2, 3]
    field = priors._field(np.repeat(logs, priors.KERNELS, 1), np.zeros((4, 4)), np.zeros((4, 4)))
    assert field.kernels == pytest.approx(np.zeros((4, 4)), abs=1e-12)
    assert field.boards == pytest.approx(np.cov(logs[:, 0].T), abs=1e-9)
    # and of one board whose kernels differ, what is between boards is not theirs
    logs = np.random.default_rng(4).standard_normal((priors.BOARDS, priors.KERNELS, 4)) * [0, 1, 2, 3]
    field = priors._field(logs, np.zeros((4, 4)), np.zeros((4, 4)))
    assert np.diag(field.kernels) == pytest.approx([0, 1, 4, 9], rel=0.05)
    assert np.diag(field.boards) == pytest.approx([0, 0, 0, 0], abs=0.1)


def test_a_capped_board_draws_its_cap_and_slows_down(monkeypatch):
    core, mem = np.array([1.0, 1.0, 0.5]), np.array([1.0, 1.0, 1.0])
    auto = np.array([True, False, False])

    def logs(share):
        monkeypatch.setattr(priors, "_CAPPED", share)
        return priors._boards(core, mem, auto, np.random.default_rng(9))

    capped, free = logs(1.0), logs(0.0)
    # of the same kernels: against a free board's, a low clock costs no more time where auto is slow by its cap
    assert (capped[0, ..., 2] <= free[0, ..., 2] + 1e-9).all()
    assert (capped[0, ..., 2] < free[0, ..., 2] - 0.02).mean() > 0.1
    # nothing runs above its cap: auto and the highest clock draw alike there
    assert (abs(capped[1, ..., 1]) < 1e-9).mean() > 0.1 > (abs(free[1, ..., 1]) < 1e-9).mean()


def test_memory_clocks_may_be_left_to_the_governor():
    found = prior([BASELINE, Pair(1980, AUTO), Pair(1500, AUTO), Pair(1000, AUTO)])
    assert (np.diff(found.time.mean[1:]) > 0).all()
