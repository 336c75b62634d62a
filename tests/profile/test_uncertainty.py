"""Standard errors count what repeats within one campaign cannot show."""

import math
from statistics import fmean

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


# {target: its cells: the measurements of each session, in s}: unequal numbers of everything
MEASURED = {
    "several sessions": [
        [[0.51, 0.53, 0.52], [0.58], [0.49, 0.50]],
        [[2.10, 2.00], [2.31, 2.22, 2.24, 2.29]],
        [[7.7]],
    ],
    "quiet sessions": [[[1.0, 1.3], [1.2, 1.1]], [[3.0, 3.5, 2.9], [3.1]]],
    "one session": [[[0.2, 0.21, 0.19]], [[0.3]]],
    "no repeat in a session": [[[5.0], [5.4], [5.1]], [[9.0]]],
    "no repeat": [[[1.7]], [[1.8]]],
    "one repeat": [[[4.0, 4.3]], [[2.0]]],
    "one repeat in another session": [[[4.0], [4.3]], [[2.0]]],
}


def by_definition(cells):
    """Standard error of each cell's mean, by the sums that the docstring names; NaN where nothing tells it."""
    centre = [fmean(value for session in cell for value in session) for cell in cells]
    relative = [[[x / mean for x in session] for session in cell] for cell, mean in zip(cells, centre)]
    sessions = [session for cell in relative for session in cell]
    freedom = sum(len(session) - 1 for session in sessions)
    within = sum((x - fmean(session)) ** 2 for session in sessions for x in session) / freedom if freedom else 0.0
    chances = sum(len(cell) - 1 for cell in cells)
    if not freedom and not chances:
        return [math.nan] * len(cells)
    size = [sum(map(len, cell)) for cell in cells]
    alike = [sum(len(session) ** 2 for session in cell) / n for cell, n in zip(cells, size)]
    scatter = sum(len(session) * (fmean(session) - 1) ** 2 for session in sessions)
    spread = sum(size) - sum(alike)
    between = max(0.0, (scatter - chances * within) / spread) if spread else 0.0
    return [mean * math.sqrt(between * k / n + within / n) for mean, k, n in zip(centre, alike, size)]


def test_errors_of_unequal_sessions_are_those_of_dersimonian_and_laird_target_by_target():
    cells = [(number, cell) for number, name in enumerate(MEASURED) for cell in MEASURED[name]]
    rows = [(number, place, session) for place, (number, cell) in enumerate(cells) for session in cell]
    target, cell, sessions = zip(*rows)
    mean = [fmean(session) for session in sessions]
    squares = [sum((x - own) ** 2 for x in session) for session, own in zip(sessions, mean)]
    found = standard_errors(target, cell, [len(session) for session in sessions], mean, squares)
    expected = [error for name in MEASURED for error in by_definition(MEASURED[name])]
    assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)
    several, quiet = (by_definition(MEASURED[name])[0] for name in list(MEASURED)[:2])
    # what differs between sessions is seen in the one and not in the other
    assert several > 0.02 and quiet == pytest.approx(
        1.15 * math.sqrt((0.05 / 1.15**2 + 0.206666667 / 3.125**2) / 4 / 4)
    )
