"""A choice for an iteration: the pair that it begins with, and where which pair is asked for or lands."""

from __future__ import annotations

from typing import NamedTuple


class Changes(NamedTuple):
    """first: index of the pair at the iteration's begin, which is also that at its end.

    at: launches, ascending; to: pair index of each. wait: the stream stands still before that launch. lag: asked for as
    it begins. ahead: lands before it.
    """

    first: int
    at: tuple
    to: tuple

    def __len__(self) -> int:
        return len(self.at)

    @staticmethod
    def of_pairs(pairs) -> Changes:
        """From the pair of every launch, (N,): a change wherever it differs from the launch before (cyclic)."""
        pairs = [int(pair) for pair in pairs]
        found = [(place, pair) for place, pair in enumerate(pairs) if pair != pairs[place - 1]]
        return Changes(pairs[-1], tuple(place for place, _ in found), tuple(pair for _, pair in found))

    def pairs(self, count: int) -> list:
        """The pair wanted for each of `count` launches."""
        wanted, now, place = [], self.first, dict(zip(self.at, self.to))
        for launch in range(count):
            now = place.get(launch, now)
            wanted.append(now)
        return wanted
