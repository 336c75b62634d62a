"""How far the launches have come when a change lands: the expected cost, at every other pair, of what is done by then.

A launch progresses evenly: the share of its time at a pair is the share of its work.
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs.sequence.launches import Sequence


class Progress:
    """Landings `expected_s` after each boundary, as seen at the pair in force there.

    own_s, own_j: (N, P) expected time and energy from the boundary to the landing, at the own pair.
    other_s, other_j: (N, P, P) [boundary, own pair, other pair] what the same work takes at the other pair.
    Negative where it lands before the boundary. Iterations follow one another, so landings may be in another one.
    """

    def __init__(self, sequence: Sequence, expected_s: float, deviations_s: np.ndarray, weights: np.ndarray):
        count, size = len(sequence), len(sequence.pairs)
        totals = np.stack([sequence.until_s, sequence.until_j], axis=-1)  # (N + 1, P, 2)
        launch = np.stack([sequence.launch_time_s, sequence.launch_energy_j], axis=-1)
        own = np.zeros((count, size, 2))
        other = np.zeros((count, size, size, 2))
        pairs = np.arange(size)
        for deviation, weight in zip(deviations_s, weights):
            place, share, rounds = self._places(sequence, expected_s + deviation)
            # all that was done since the iteration's begin, at each pair
            done = totals[place] + share[..., None, None] * launch[place] + rounds[..., None, None] * totals[-1]
            done -= totals[:-1, None]
            other += weight * done
            own += weight * done[:, pairs, pairs]
        self.own_s, self.own_j = own[..., 0], own[..., 1]
        self.other_s, self.other_j = np.ascontiguousarray(other[..., 0]), np.ascontiguousarray(other[..., 1])

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
