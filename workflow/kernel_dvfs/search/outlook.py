"""Which pairs are worth a visit by what is believed: unseen ones, the few of a path, and those to be measured again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernel_dvfs.search import gain
from kernel_dvfs.search.knowledge import Knowledge
from kernel_dvfs.search.parts import ChoiceLevel

_DRAWS, _TABLES = 24, 6  # of what is believed: for the gain, and for what is measured again
_LEAST_PRICE = 0.05  # of a percent of time in percent of energy, so that a loose limit's paths know faster pairs


def gains(known: Knowledge, level: ChoiceLevel, limits: Sequence[float], allowed: np.ndarray) -> np.ndarray:
    """Return (C,) what each allowed pair that was not seen is expected to gain, at the limit where that is the most.

    In percent of auto's energy. allowed: (C,) bool.
    """
    usable = allowed & known.is_seen
    time, energy, drawn = known.of_level(level, _DRAWS)
    costs = [gain.price(time, energy, allowed, 100 + limit) for limit in limits]
    expected = [gain.expected_gain(time, energy, drawn, usable, cost) for cost in costs]
    return np.where(allowed, np.max(expected, axis=0), 0.0)


def few(known: Knowledge, levels: Sequence[ChoiceLevel], limits: Sequence[float], allowed: np.ndarray) -> list[int]:
    """Return the few pairs that paths are made of: for every level and limit those that hold the saving around its
    price."""
    usable, pairs = allowed & known.is_seen, set()
    for level in levels if usable.any() else ():
        time, energy, _ = known.of_level(level)
        for limit in limits:
            cost = max(gain.price(time, energy, usable, 100 + limit), _LEAST_PRICE)
            pairs |= set(gain.few_pairs(time, energy, usable, [cost / 2, cost, 2 * cost]))
    return sorted(pairs)


def wanted(
    known: Knowledge, level: ChoiceLevel, limits: Sequence[float], pairs: Sequence[int], number: int
) -> np.ndarray:
    """Return (J, C) bool: what some drawn tables would choose among these pairs. number: of the draw."""
    places = np.array(pairs)
    time, energy, drawn = known.of_level(level, _TABLES, number)
    usable = np.isin(np.arange(time.shape[1]), places)
    chosen, row = np.zeros(time.shape, dtype=bool), np.arange(len(time))
    for limit in limits:
        cost = gain.price(time, energy, usable, 100 + limit)
        for score in drawn[1] + cost * drawn[0]:
            chosen[row, places[score[:, places].argmin(1)]] = True
    return chosen


def gain_of_timing(known: Knowledge, level: ChoiceLevel, limits: Sequence[float], pairs: Sequence[int]) -> float:
    """Return what timing these pairs once more would save at the limit where that is the most, in percent of auto's
    energy.

    Today's choice costs more than the best by what is unknown of times: the mean over tables that might be true. That
    falls with the variance, of n visits by 1 / (n + 1).
    """
    places = np.array(pairs)
    time, energy, drawn = known.of_level(level, _DRAWS)
    usable, row = np.isin(np.arange(time.shape[1]), places), np.arange(len(time))
    visits = known.cells()[0].visits[:, places].mean()
    losses = []
    for limit in limits:
        cost = gain.price(time, energy, usable, 100 + limit)
        of_time = (energy / time + cost)[:, places]
        choice = (of_time * time[:, places]).argmin(1)
        scores = of_time * drawn[0][:, :, places]
        losses.append((scores[:, row, choice] - scores.min(2)).sum(1).mean())
    return float(max(losses)) / (visits + 1)
