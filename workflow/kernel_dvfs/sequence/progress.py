"""How far the launches have come when a change lands: the expected cost, at every other pair, of what is done by then.

A launch progresses evenly: the share of its time at a pair is the share of its work.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from kernel_dvfs.sequence.launches import Sequence


class Progress:
    """Landings `expected_s` after each boundary, as seen at the pair in force there.

    own_s, own_j: (N, P) expected time and energy from the boundary to the landing, at the own pair.
    other_s, other_j: (N, P, P) [boundary, own pair, other pair] what the same work takes at the other pair.
    Negative where it lands before the boundary. Iterations follow one another, so landings may be in another one.
    """

    def __init__(self, sequence: Sequence, expected_s: float, deviations_s: np.ndarray, weights: np.ndarray):
        count, size = len(sequence), len(sequence.pairs)
        totals = np.concatenate([sequence.until_s, sequence.until_j], axis=1)  # (N + 1, 2 P)
        # what is done at a moment lies on the line between two boundaries: a sparse mean of rows of `totals`
        rows = np.arange(count * size)
        entries = []
        for deviation, weight in zip(deviations_s, weights):
            place, share, rounds = (each.ravel() for each in self._places(sequence, expected_s + deviation))
            entries += [
                (rows, place, weight * (1 - share)),
                (rows, place + 1, weight * share),
                (rows, np.full(len(rows), count), weight * rounds),
            ]
        row, column, value = (np.concatenate(each) for each in zip(*entries))
        done = csr_array((value, (row, column)), shape=(count * size, count + 1)) @ totals
        done = done.reshape(count, size, 2, size) - totals[:-1].reshape(count, 1, 2, size)
        self.other_s, self.other_j = np.ascontiguousarray(done[:, :, 0]), np.ascontiguousarray(done[:, :, 1])
        pairs = np.arange(size)
        self.own_s, self.own_j = self.other_s[:, pairs, pairs], self.other_j[:, pairs, pairs]

    def exchanged(self, price: np.ndarray) -> np.ndarray:
        """(N, P, P) own less other, as energy + price x time; price: (N, 1)."""
        own = self.own_j + price * self.own_s
        return own[:, :, None] - (self.other_j + price[..., None] * self.other_s)

    @staticmethod
    def _places(sequence: Sequence, after_s: float) -> tuple:
        """(launch, share of it done, iterations on) of the moment `after_s` after each boundary: (N, P) each."""
        until, launch_s = sequence.until_s, sequence.launch_time_s
        moment = until[:-1] + after_s
        rounds = np.floor(moment / until[-1])
        moment = moment - rounds * until[-1]
        place = np.empty(moment.shape, dtype=np.intp)
        for pair in range(moment.shape[1]):
            place[:, pair] = np.searchsorted(until[:, pair], moment[:, pair], side="right") - 1
        place = np.clip(place, 0, len(sequence) - 1)
        own = np.arange(moment.shape[1])
        share = np.clip((moment - until[place, own]) / launch_s[place, own], 0.0, 1.0)
        return place, share, rounds
