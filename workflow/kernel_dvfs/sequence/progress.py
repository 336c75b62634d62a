"""How far the launches have come when a change lands: the expected cost, at every other pair, of what is done by then.

A launch is taken to progress evenly: the share of its time at a pair is the share of its work.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from kernel_dvfs.sequence.launches import Sequence, cumulated

# of Gauss-Legendre, for early and for late landings
_POINTS = 4
# below this spread of landings a few points are enough, and integrals over the whole iteration would lose digits; above
# it an optimiser would find where the points miss what lies between them
_FINE_S = 1e-4


class Progress:
    """Landings `expected_s` after each boundary, early or late by up to `spread_s`, as seen at the pair in force there.

    own_s, own_j: (N, P) expected time and energy from the boundary to the landing, at the own pair.
    other_s, other_j: (N, P, P) [boundary, own pair, other pair] what the same work takes at the other pair.
    Negative where it lands before the boundary. Iterations follow one another, so landings may be in another one.
    """

    def __init__(self, sequence: Sequence, expected_s: float, spread_s: float) -> None:
        if spread_s < _FINE_S:
            done = _mean_by_points(sequence, expected_s, spread_s)
        else:
            done = _integral(sequence, expected_s + spread_s) - _integral(sequence, expected_s - spread_s)
            done /= 2 * spread_s
        # against what is done at the boundary; [boundary, own pair, time or energy, other pair]
        done -= np.stack([sequence.until_s[:-1], sequence.until_j[:-1]], axis=1)[:, None]
        self.other_s, self.other_j = np.ascontiguousarray(done[:, :, 0]), np.ascontiguousarray(done[:, :, 1])
        pairs = np.arange(len(sequence.pairs))
        self.own_s, self.own_j = self.other_s[:, pairs, pairs], self.other_j[:, pairs, pairs]

    @staticmethod
    def others_s(sequence: Sequence, after_s: float) -> np.ndarray:
        """(N, P, P) [boundary, own pair, other pair] where the launches are `after_s` after the boundary at the own
        pair, as the time that the iteration takes to get there at the other pair alone."""
        return _mean_by_points(sequence, after_s, 0.0)[:, :, 0]

    def exchanged(self, price: np.ndarray) -> np.ndarray:
        """(N, P, P) own less other, as energy + price x time; price: (N, 1), W."""
        own = self.own_j + price * self.own_s
        return own[:, :, None] - (self.other_j + price[..., None] * self.other_s)


def _mean_by_points(sequence: Sequence, expected_s: float, spread_s: float) -> np.ndarray:
    """(N, P, 2, P) mean over the landings of time and energy, from the iteration's begin, at every other pair.

    By Gauss-Legendre for early and late landings apart, since costs bend at the boundary.
    """
    count, size = len(sequence), len(sequence.pairs)
    if spread_s:
        place, weight = np.polynomial.legendre.leggauss(_POINTS)
        moments = expected_s + spread_s * np.concatenate([(place - 1) / 2, (place + 1) / 2])
        weights = np.concatenate([weight, weight]) / 4
    else:
        moments, weights = np.array([expected_s]), np.ones(1)
    # what is done at a moment lies on the line between two boundaries: a sparse mean of rows
    rows = np.arange(count * size)
    entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for moment_s, weight in zip(moments, weights):
        place, into_s, rounds = (each.ravel() for each in _places(sequence, moment_s))
        share = into_s / sequence.launch_time_s[place, np.tile(np.arange(size), count)]
        entries += [
            (rows, place, weight * (1 - share)),
            (rows, place + 1, weight * share),
            (rows, np.full(len(rows), count), weight * rounds),
        ]
    row, column, value = (np.concatenate(each) for each in zip(*entries))
    totals = np.concatenate([sequence.until_s, sequence.until_j], axis=1)
    done = csr_array((value, (row, column)), shape=(count * size, count + 1)) @ totals
    return done.reshape(count, size, 2, size)


def _integral(sequence: Sequence, after_s: float) -> np.ndarray:
    """(N, P, 2, P) integral over time, from the iteration's begin to `after_s` after each boundary, of the time and
    energy that the work done so far takes at every other pair: exact, since it grows evenly within a launch."""
    size = len(sequence.pairs)
    place, into_s, rounds = _places(sequence, after_s)
    done = np.empty((len(sequence), size, 2, size))
    for kind, (until, launch) in enumerate(
        ((sequence.until_s, sequence.launch_time_s), (sequence.until_j, sequence.launch_energy_j))
    ):
        middle = (until[:-1] + until[1:]) / 2
        for own in range(size):
            time_s, end_s = sequence.launch_time_s[:, own], sequence.until_s[-1, own]
            areas = cumulated(time_s[:, None] * middle)
            at, into = place[:, own], into_s[:, own, None]
            area = areas[at] + into * (until[at] + into / (2 * time_s[at, None]) * launch[at])
            # each round before adds all that it did, for as long as it lasted and lies back
            turns = rounds[:, own, None]
            past = end_s * turns * (turns - 1) / 2 + turns * (sequence.until_s[at, own, None] + into)
            done[:, own, kind] = area + turns * areas[-1] + past * until[-1]
    return done


def _places(sequence: Sequence, after_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(launch, time into it, iterations on) of the moment `after_s` after each boundary: (N, P) each."""
    until, launch_s = sequence.until_s, sequence.launch_time_s
    moment = until[:-1] + after_s
    rounds = np.floor(moment / until[-1])
    moment = moment - rounds * until[-1]
    place = np.empty(moment.shape, dtype=np.intp)
    for pair in range(moment.shape[1]):
        place[:, pair] = np.searchsorted(until[:, pair], moment[:, pair], side="right") - 1
    place = np.clip(place, 0, len(sequence) - 1)
    own = np.arange(moment.shape[1])
    return place, np.clip(moment - until[place, own], 0.0, launch_s[place, own]), rounds
