"""Standard errors count what repeats within one campaign cannot show."""

import numpy as np
import pytest

from kernel_dvfs.profile.aggregate import standard_errors


def groups(draw, cells, campaigns, n, between, within):
    """Campaigns of n measurements each of cells of one target, true mean 1."""
    values = (
        1 + between * draw.standard_normal((cells, campaigns, 1)) + within * draw.standard_normal((cells, campaigns, n))
    )
    cell = np.repeat(np.arange(cells), campaigns)
    mean = values.mean(axis=2)
    squares = ((values - mean[..., None]) ** 2).sum(axis=2)
    return np.zeros(len(cell), dtype=int), cell, np.full(len(cell), n), mean.ravel(), squares.ravel()


def test_what_differs_between_campaigns_is_in_the_error():
    draw = np.random.default_rng(1)
    found = standard_errors(*groups(draw, 200, 4, 3, 0.003, 0.001))
    # sqrt(0.003^2 / 4 + 0.001^2 / 12)
    assert found.mean() == pytest.approx(0.00153, rel=0.1)


def test_one_campaign_shows_its_own_scatter_alone():
    draw = np.random.default_rng(1)
    found = standard_errors(*groups(draw, 200, 1, 10, 0.003, 0.001))
    assert found.mean() == pytest.approx(0.001 / np.sqrt(10), rel=0.1)


def test_a_target_measured_once_has_no_known_error():
    found = standard_errors([0, 1, 1], [0, 1, 1], [1, 1, 1], [1.0, 2.0, 2.1], [0.0, 0.0, 0.0])
    assert np.isnan(found[0]) and found[1] > 0
