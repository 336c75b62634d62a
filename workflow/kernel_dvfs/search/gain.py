"""What another pair is worth: the price of time, expected gain, and the few pairs that hold the saving.

With the price of time at which a limit binds, the choice separates by target: each takes the pair of the least score,
energy + price x time. So what a pair may gain is a sum over targets.

Arrays of J targets at C pairs, in any unit; the first pair is auto, which no target may choose by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_DEAREST = 64.0  # price of a percent of time in percent of energy, beyond which no limit is bought
_HALVINGS = 30
FEW = 8  # pairs at most that a path is made of
_REST = 0.01  # share of the saving that may be left to other pairs


def price(time: np.ndarray, energy: np.ndarray, usable: np.ndarray, limit: float) -> float:
    """Return the price of a unit of time, in energy, at which the choice among usable pairs (C,) keeps a total `limit`
    of time.

    0 where the limit does not bind; the dearest one where no choice keeps it.
    """
    time, energy = time[:, usable], energy[:, usable]
    row = np.arange(len(time))

    def keeps(cost: float) -> bool:
        return bool(time[row, (energy + cost * time).argmin(1)].sum() <= limit)

    if keeps(0.0):
        return 0.0
    low, high = 0.0, _DEAREST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def expected_gain(
    time: np.ndarray, energy: np.ndarray, drawn: tuple[np.ndarray, np.ndarray], seen: np.ndarray, cost: float
) -> np.ndarray:
    """Return (C,) what knowing each pair would save beyond the best that is seen, mean over draws, in energy; 0 where
    seen.

    time, energy: (J, C) as believed. drawn: the same, (S, J, C) that might be true. seen: (C,) bool; auto never counts.
    """
    scores = drawn[1] + cost * drawn[0]
    best = (energy + cost * time)[:, seen].min(1)
    gain = np.maximum(best[:, None] - scores, 0).mean(0).sum(0)
    return np.where(seen, 0.0, gain)


def few_pairs(time: np.ndarray, energy: np.ndarray, usable: np.ndarray, costs: Sequence[float]) -> list[int]:
    """Return the pairs that together save all but 1 % of what all usable ones (C,) save at these prices, FEW at most.

    The one that saves the most comes first, then whatever adds the most to those before.
    """
    places = np.flatnonzero(usable)
    scores = np.array([(energy + cost * time)[:, places] for cost in costs])  # (prices, J, usable)
    best = scores.min(2).sum(1)
    chosen = [int(scores.sum((0, 1)).argmin())]
    have = scores[:, :, chosen[0]]
    auto = np.array([(energy + cost * time)[:, 0].sum() for cost in costs])
    while len(chosen) < min(FEW, len(places)):
        rest = have.sum(1) - best
        if rest.sum() <= _REST * max(float((auto - best).sum()), 1e-12):
            break
        totals = np.minimum(have[:, :, None], scores).sum(1)
        chosen.append(int(totals.sum(0).argmin()))
        have = np.minimum(have, scores[:, :, chosen[-1]])
    return [int(places[place]) for place in chosen]
