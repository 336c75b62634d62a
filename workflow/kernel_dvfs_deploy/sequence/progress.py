"""How far the launches have come when a change lands: the share of each launch that is expected to be done by then.

A launch is taken to progress evenly: the share of its time at a pair is the share of its work. A landing is spread
evenly over a stretch of time, or over several equally likely ones, so the expected share of a launch is an integral
over a ramp, which is exact.
"""

from __future__ import annotations

from collections.abc import Sequence as List

import numpy as np

from kernel_dvfs_deploy.sequence.launches import Sequence

# entries of all shares that are kept, 64 MB; beyond it they are worked out again each time
_KEPT = 8_000_000


class Progress:
    """Landings after each boundary, as seen at the pair in force there.

    stretches_s: (earliest, latest) of equally likely stretches of time after it, negative before it. All landings are
    to be within the iteration: whoever asks for others gets what they would have done of it.
    """

    def __init__(self, sequence: Sequence, stretches_s: List[tuple[float, float]]) -> None:
        self.sequence = sequence
        self._stretches_s = stretches_s
        earliest_s, latest_s = min(low for low, _ in stretches_s), max(high for _, high in stretches_s)
        # the launches that a landing may be in, or that it may have passed, at whatever pair: (N,) each
        self.begin = np.minimum(np.floor(positions(sequence, earliest_s).min(axis=1)), np.arange(len(sequence)))
        self.end = np.minimum(np.floor(positions(sequence, latest_s).max(axis=1)) + 1, len(sequence))
        self.begin, self.end = self.begin.astype(np.intp), self.end.astype(np.intp)
        self._every = np.arange(len(sequence.pairs))
        self._shares: dict[int, np.ndarray] = {}
        self._extremes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._keeps = len(self._every) * int((self.end - self.begin).sum()) <= _KEPT

    def window(self, place: int) -> slice:
        """Return the launches that the shares at a boundary are of."""
        return slice(int(self.begin[place]), int(self.end[place]))

    def shares(self, place: int, pair: np.ndarray | None = None) -> np.ndarray:
        """Return (pairs, launches of the window) how much of each launch is expected to be done when a change lands
        that belongs to a boundary, less what is done at the boundary: negative where it may land before it.

        pair: those in force before the landing; None: every one.
        """
        if pair is not None:
            return self._shares_of(place, pair)
        shares = self._shares.get(place)
        if shares is None:
            shares = self._shares_of(place, self._every)
            if self._keeps:
                self._shares[place] = shares
        return shares

    def extremes(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (launches of the window) the least and the most of the shares of every pair at a boundary."""
        extremes = self._extremes.get(place)
        if extremes is None:
            shares = self.shares(place)
            extremes = self._extremes[place] = shares.min(axis=0), shares.max(axis=0)
        return extremes

    def _shares_of(self, place: int, pair: np.ndarray) -> np.ndarray:
        sequence, window = self.sequence, self.window(place)
        time_s = sequence.launch_time_s[window, pair].T
        begin_s = (sequence.until_s[window, pair] - sequence.until_s[place, pair]).T
        done = np.zeros(time_s.shape)
        for low_s, high_s in self._stretches_s:
            if high_s > low_s:
                done += (_ramp(high_s - begin_s, time_s) - _ramp(low_s - begin_s, time_s)) / (high_s - low_s)
            else:
                done += np.clip((high_s - begin_s) / time_s, 0, 1)
        done /= len(self._stretches_s)
        done[:, : place - window.start] -= 1
        return done


def _ramp(since_s: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Return the integral over time of the share of a launch that is done, which begins at 0 and takes time_s, up to
    since_s."""
    within = np.clip(since_s, 0, time_s)
    return within * within / (2 * time_s) + np.maximum(since_s - time_s, 0)


def positions(sequence: Sequence, after_s: float) -> np.ndarray:
    """Return (N, P) where the launches are `after_s` after each boundary, all at one pair: launches done, and the share
    of the next one; within 0 and N."""
    until, count = sequence.until_s, len(sequence)
    moment = np.clip(until[:-1] + after_s, 0, until[-1])
    done = np.empty(moment.shape)
    for pair in range(moment.shape[1]):
        place = np.clip(np.searchsorted(until[:, pair], moment[:, pair], side="right") - 1, 0, count - 1)
        done[:, pair] = place + (moment[:, pair] - until[place, pair]) / sequence.launch_time_s[place, pair]
    return np.clip(done, 0, count)
