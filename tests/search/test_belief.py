"""What is believed by visits: the same as conditioning everything at once, and a misfit that is learnt."""

import numpy as np
import pytest

from kernel_dvfs.search import belief
from kernel_dvfs.search.belief import AUTO_SD, LEVEL_SD, Cells, believed, cells_of, repeat_variance
from kernel_dvfs.search.prior import Field

PARTS, PAIRS = 3, 5
NAN = np.nan


def field_of(seed=1):
    draw = np.random.default_rng(seed)

    def covariance(sd):
        root = sd * draw.standard_normal((PAIRS, PAIRS))
        found = root @ root.T
        found[0], found[:, 0] = 0, 0
        return found

    mean = np.array([0.0, 0.03, 0.11, 0.24, 0.31])
    nugget = np.diag([0, 1, 1, 1, 1]) * 0.002**2
    return Field(mean, covariance(0.02), covariance(0.03), covariance(0.004), nugget)


def cells():
    visits = np.array([[3, 2, 0, 1, 0], [3, 1, 0, 1, 0], [3, 1, 1, 2, 0]], dtype=float)
    mean = np.array([[0.7, 0.72, NAN, 0.97, NAN], [-1.2, -1.16, NAN, -0.91, NAN], [0.1, 0.12, 0.3, 0.41, NAN]])
    return Cells(mean, visits, np.zeros((PARTS, PAIRS)))


def test_cells_pool_visits_and_leave_out_what_was_not_measured():
    values = np.array([[1.0, 5.0], [3.0, NAN], [4.0, 6.5], [8.0, 7.0]])
    found = cells_of(values, [2, 2, 2, 0], 4)
    assert found.visits.tolist() == [[1, 0, 3, 0], [1, 0, 2, 0]]
    assert found.mean[0, [0, 2]] == pytest.approx([8, 8 / 3]) and found.mean[1, [0, 2]] == pytest.approx([7, 5.75])
    assert np.isnan(found.mean[:, [1, 3]]).all()
    assert found.squares[0, 2] == pytest.approx(np.var([1, 3, 4]) * 3)
    assert found.squares[1, 2] == pytest.approx(2 * 0.75**2)


def test_scatter_is_that_of_repeats_drawn_to_all_and_to_a_guess():
    squares = np.array([[9e-4, 2e-4, 0, 1e-4], [0, 0, 6e-4, 0]])
    visits = np.array([[5, 3, 1, 2], [5, 1, 4, 0]], dtype=float)
    found = repeat_variance(Cells(np.zeros((2, 4)), visits, squares), 0.004)
    # auto does not count: the governor scatters otherwise
    whole = (30 * 0.004**2 + 9e-4) / (30 + 3 + 3)
    assert found == pytest.approx([(8 * whole + 3e-4) / (8 + 3), (8 * whole + 6e-4) / (8 + 3)])


def test_belief_is_that_of_conditioning_everything_at_once():
    """By brute force: one Gaussian of all parts and pairs, conditioned on the pairs that every part was seen at."""
    field, seen = field_of(), [0, 1, 3]
    variance = np.array([1e-5, 4e-5, 2e-5])
    found = believed(field, cells(), variance, AUTO_SD[0], [1, 2], 4000)
    smooth, nugget = belief.UNKNOWN
    own = field.kernels + smooth**2 * field.misfit + nugget**2 * field.nugget + LEVEL_SD**2
    whole = np.kron(np.ones((PARTS, PARTS)), field.boards + LEVEL_SD**2) + np.kron(np.eye(PARTS), own)
    at = [part * PAIRS + pair for part in range(PARTS) for pair in seen]
    noise = np.array(
        [
            variance[part] / cells().visits[part, pair]
            if pair
            else AUTO_SD[0] ** 2 * variance[part] / 2e-5 / cells().visits[part, pair]
            for part in range(PARTS)
            for pair in seen
        ]
    )
    y = (cells().mean[:, seen] - cells().mean[:, :1] - field.mean[seen]).ravel()
    gain = whole[:, at] @ np.linalg.inv(whole[np.ix_(at, at)] + np.diag(noise + 1e-9))
    mean = (gain @ y).reshape(PARTS, PAIRS) + field.mean + cells().mean[:, :1]
    sd = np.sqrt(np.diag(whole - gain @ whole[at])).reshape(PARTS, PAIRS)
    assert found.mean == pytest.approx(mean, abs=1e-6)
    assert found.sd == pytest.approx(sd, rel=1e-3)
    assert found.draws.mean(0) == pytest.approx(mean, abs=5e-3)
    assert found.draws.std(0) == pytest.approx(sd, rel=0.06)
    # and together: what parts share is drawn together
    total = found.draws.sum(1)
    covariance = (whole - gain @ whole[at]).reshape(PARTS, PAIRS, PARTS, PAIRS)
    assert total.std(0) == pytest.approx(np.sqrt(np.einsum("icjc->c", covariance)), rel=0.08)


def test_the_same_seed_draws_the_same():
    one, same, other = (believed(field_of(), cells(), np.full(3, 1e-5), 0.006, [seed], 3) for seed in (4, 4, 5))
    assert np.array_equal(one.draws, same.draws) and not np.array_equal(one.draws, other.draws)
    assert np.array_equal(one.mean, other.mean)


@pytest.mark.parametrize(("smooth", "nugget"), [(1.0, 1.0), (5.0, 1.0), (1.0, 4.0)])
def test_the_misfit_is_stretched_until_left_out_pairs_lie_where_they_are_said(smooth, nugget):
    """Parts drawn with a misfit so many times wider: that is what is found, or the next to it."""
    count, parts = 14, 40
    place = np.linspace(0, 1, count)
    flat = np.ones((count, count))
    correlation = np.exp(-abs(place[:, None] - place) / 0.5)
    field = Field(np.zeros(count), 0.01**2 * flat, 0.02**2 * flat, 0.006**2 * correlation, 0.002**2 * np.eye(count))
    draw = np.random.default_rng(2)
    covariance = field.boards + field.kernels + smooth**2 * field.misfit + nugget**2 * field.nugget
    y = draw.standard_normal((parts, count)) @ np.linalg.cholesky(covariance + 1e-12 * np.eye(count)).T
    noise = np.full((parts, count), 1e-7)
    found = belief.stretch_of(field, np.arange(count), y, noise)
    for stretch, said, known in zip((smooth, nugget), found, (belief.STRETCHES, belief.NUGGET_STRETCHES)):
        assert abs(known.index(said) - known.index(stretch)) <= 1
    # of few pairs nothing is learnt
    assert belief.stretch_of(field, np.arange(4), y[:, :4], noise[:, :4]) == belief.UNKNOWN


def test_one_wild_pair_does_not_decide_the_stretch():
    count = 12
    flat = np.ones((count, count))
    correlation = np.exp(-abs(np.linspace(0, 1, count)[:, None] - np.linspace(0, 1, count)) / 0.5)
    field = Field(np.zeros(count), 0.01**2 * flat, 0.02**2 * flat, 0.006**2 * correlation, 0.002**2 * np.eye(count))
    draw = np.random.default_rng(6)
    y = draw.standard_normal((30, count)) @ np.linalg.cholesky(field.kernels + field.misfit + field.nugget).T
    noise = np.full(y.shape, 1e-7)
    before = belief.stretch_of(field, np.arange(count), y, noise)
    y[0, 5] += 3.0
    after = belief.stretch_of(field, np.arange(count), y, noise)
    for known, one, other in zip((belief.STRETCHES, belief.NUGGET_STRETCHES), before, after):
        assert abs(known.index(one) - known.index(other)) <= 1
