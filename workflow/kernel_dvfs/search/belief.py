"""What is believed of every part of an iteration at every pair, from what visits have shown at some.

All parts are seen at the same pairs, so a few small matrices serve all. With y the log time (or log power) of part k at
pair c, less that measured at auto:

    y_k(c) = mean(c) + board(c) + own_k(c) + level_k + noise

mean and covariances are those of the prior; level is what auto, one more noisy pair, was measured wrong by. First the
board's part is conditioned on all parts, then each part's own on the board's. How far the prior's physics may be off is
learnt by leaving pairs out: the misfit is stretched until they lie where they are said to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from kernel_dvfs.search.prior import Field

AUTO_SD = 0.006, 0.009  # of log time and log power of a usual part at auto, one visit
LEVEL_SD = 0.02  # of auto against all locked pairs, beyond the prior
REPEAT_SD = 0.003, 0.009  # of one visit at a locked pair, before repeats have shown it
# how many times wider the misfit may be than beforehand: what is smooth, and what varies from pair to pair
STRETCHES = 1.0, 1.5, 2.2, 3.3, 5.0
NUGGET_STRETCHES = 0.3, 1.0, 2.0, 4.0
UNKNOWN = 2.0, 1.0  # while fewer than LEAST_SEEN locked pairs were seen
LEAST_SEEN = 4
_FURTHEST = 25.0  # squared standardised distance beyond which a left-out pair counts no further
_TINY = 1e-9  # variance that keeps matrices regular
# degrees of freedom that what is known beforehand counts for: of all parts' scatter, of a part's against all parts'
_BEFOREHAND, _OF_ALL = 30, 8


class Cells(NamedTuple):
    """Logarithms of time, or of power, of U parts as measured at C pairs."""

    mean: np.ndarray  # (U, C), NaN where not measured
    visits: np.ndarray  # (U, C) that they come from
    squares: np.ndarray  # (U, C) sums of squared deviations from the mean


class Belief(NamedTuple):
    """What is believed: logarithms against no reference, as measured."""

    mean: np.ndarray  # (U, C)
    sd: np.ndarray  # (U, C)
    draws: np.ndarray  # (S, U, C)


def cells_of(values: np.ndarray, pairs: Sequence[int], count: int) -> Cells:
    """Return the cells of visits: values (visits, U), NaN where a part was not measured, at the pair of each."""
    place, known = np.array(pairs), np.isfinite(values)
    at = (place[:, None] == np.arange(count)).astype(float)
    n = known.T.astype(float) @ at
    with np.errstate(invalid="ignore"):
        mean = np.where(known, values, 0).T @ at / n
    apart = np.where(known, values - mean[:, place].T, 0)
    return Cells(mean, n, (apart**2).T @ at)


def repeat_variance(cells: Cells, guess_sd: float) -> np.ndarray:
    """Return (U,) variance of one visit at a locked pair: what repeats show, drawn to that of all parts and to the
    guess."""
    squares = cells.squares[:, 1:].sum(1)
    freedom = np.maximum(cells.visits[:, 1:] - 1, 0).sum(1)
    whole = (_BEFOREHAND * guess_sd**2 + squares.sum()) / (_BEFOREHAND + freedom.sum())
    return (_OF_ALL * whole + squares) / (_OF_ALL + freedom)


class Conditioned(NamedTuple):
    """A field given measurements at n pairs: the board's part, and how each part's own follows."""

    common: np.ndarray  # (C,)
    covariance: np.ndarray  # (C, C) of the board's part
    part_covariance: np.ndarray  # (C, C) covariance of a part beside the board's
    gain: np.ndarray  # (U, C, n)


def conditioned(
    field: Field, stretch: tuple[float, float], at: np.ndarray, y: np.ndarray, noise: np.ndarray
) -> Conditioned:
    """Condition a field on y (U, n) at the pairs `at`, less the mean there, with variances `noise` (U, n)."""
    covariances = field.kernels + field.misfit * stretch[0] ** 2 + field.nugget * stretch[1] ** 2 + LEVEL_SD**2
    seen = np.ix_(at, at)
    precision = np.linalg.inv(covariances[seen] + (noise + _TINY)[:, :, None] * np.eye(len(at)))
    # what all parts together say of the board's part at these pairs
    spread = np.linalg.inv(precision.sum(0))
    value = spread @ np.einsum("uij,uj->i", precision, y)
    boards = field.boards + LEVEL_SD**2
    weight = np.linalg.solve(boards[seen] + spread, boards[at]).T
    covariance = boards - weight @ boards[at]
    return Conditioned(weight @ value, covariance, covariances, covariances[:, at] @ precision)


def believed(
    field: Field, cells: Cells, variance: np.ndarray, auto_sd: float, seed: Sequence[int], draws: int
) -> Belief:
    """Return the belief of a field, from cells whose one visit has a variance (U,); only pairs that every part was seen
    at count. Draws are of the whole: parts share what is unknown of the board."""
    at = np.flatnonzero((cells.visits > 0).all(0))
    base = cells.mean[:, :1]
    y = cells.mean[:, at] - base - field.mean[at]
    noise = variance[:, None] / cells.visits[:, at]
    noise[:, 0] = auto_sd**2 * variance / np.median(variance) / cells.visits[:, 0]
    stretch = stretch_of(field, at, y, noise)
    known = conditioned(field, stretch, at, y, noise)
    rest = y - known.common[at]
    mean = base + field.mean + known.common + np.einsum("ucn,un->uc", known.gain, rest)
    draw = np.random.default_rng(seed)
    shape = draws, len(y), len(field.mean)
    board = draw.standard_normal((draws, shape[2])) @ _root(known.covariance).T
    deviation = draw.standard_normal(shape) @ _root(known.part_covariance).T
    error = draw.standard_normal((draws, *y.shape)) * np.sqrt(noise)
    seen = board[:, None, at] + deviation[:, :, at] + error
    drawn = mean + board[:, None] + deviation - np.einsum("ucn,sun->suc", known.gain, seen)
    left = known.gain @ known.covariance[at]
    sd2 = np.diag(known.part_covariance) - np.einsum("ucn,cn->uc", known.gain, known.part_covariance[:, at])
    sd2 = sd2 + np.diag(known.covariance) - 2 * np.einsum("ucc->uc", left)
    sd2 = sd2 + np.einsum("ucn,ucn->uc", left[..., at], known.gain)
    return Belief(mean, np.sqrt(np.maximum(sd2, 1e-10)), drawn)


def stretch_of(field: Field, at: np.ndarray, y: np.ndarray, noise: np.ndarray) -> tuple[float, float]:
    """Return how many times wider the misfit must be for pairs that are left out, one at a time, to lie where they are
    said.

    at: the pairs seen, auto first; y, noise: as `conditioned` takes them.
    """
    if len(at) <= LEAST_SEEN:
        return UNKNOWN
    locked, apart, together = at[1:], y[:, 1:], (noise[:, 1:] + noise[:, :1]).mean(0) + _TINY
    tested = np.ix_(locked, locked)
    boards, kernels, misfit, nugget = (k[tested] for k in (field.boards, field.kernels, field.misfit, field.nugget))
    middle, best = apart.mean(0), (-np.inf, UNKNOWN)
    for smooth, alone in product(STRETCHES, NUGGET_STRETCHES):
        whole = kernels + smooth**2 * misfit + alone**2 * nugget + np.diag(together)
        weight = np.linalg.solve(boards + whole / len(y), boards).T
        precision = np.linalg.inv(whole + boards - weight @ boards)
        variance = 1 / np.diag(precision)
        missed = (apart - weight @ middle) @ precision * variance
        likelihood = -(np.minimum(missed**2 / variance, _FURTHEST) + np.log(variance)).sum()
        best = max(best, (likelihood, (smooth, alone)))
    return best[1]


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return a matrix whose square, with its transpose, is this covariance."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    keep = values > 1e-7 * max(values.max(), 1e-12)
    root = np.zeros_like(vectors)
    root[:, keep] = vectors[:, keep] * np.sqrt(values[keep])
    return root
