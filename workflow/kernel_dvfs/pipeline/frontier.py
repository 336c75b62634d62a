"""The exact frontier as it is asked: by time, by energy, by price; and the planned times of every operation.

A query solves nothing: it is a binary search among the records that parametric.py found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernel_dvfs.pipeline.curve import TICKS_PER_S, UW_PER_W
from kernel_dvfs.pipeline.parametric import Records


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """Least energy of an iteration by its time."""

    records: Records  # the corners, from parametric_frontier
    cost_j: np.ndarray  # (R,) least effective energy at each record, rising
    blocking_w: float  # S P_blk, what the whole pipeline draws while every stage waits

    @classmethod
    def of(cls, records: Records, slowest_cost_j: float, blocking_w: float) -> Frontier:
        """slowest_cost_j: sum of the effective energies at the first record."""
        steps = -np.diff(records.ticks) * (records.price_uw[1:] / (UW_PER_W * TICKS_PER_S))
        return cls(records, slowest_cost_j + np.concatenate([[0.0], np.cumsum(steps)]), blocking_w)

    @property
    def time_s(self) -> np.ndarray:
        """(R,) falling."""
        return self.records.ticks / TICKS_PER_S

    @property
    def energy_j(self) -> np.ndarray:
        """(R,) energy of an iteration that is over when it is done."""
        return self.cost_j + self.blocking_w * self.time_s

    @property
    def fastest_ticks(self) -> int:
        return int(self.records.ticks[-1])

    @property
    def slowest_ticks(self) -> int:
        return int(self.records.ticks[0])

    def cost_at(self, ticks: ArrayLike) -> np.ndarray:
        """Least effective energy (J) of iterations of `ticks` (scalar or array), exact between records too."""
        return np.interp(np.asarray(ticks), self.records.ticks[::-1], self.cost_j[::-1])

    def energy_at(self, ticks: ArrayLike) -> np.ndarray:
        """Least energy (J) of iterations of `ticks`: a lower bound of every plan that takes as long."""
        return self.cost_at(ticks) + self.blocking_w * np.asarray(ticks) / TICKS_PER_S

    def ticks_at_price(self, price_w: float) -> int:
        """The fastest iteration at which a second less would cost at least `price_w` of effective energy.

        At the price of waiting, blocking_w, that is the iteration of least energy.
        """
        # price_uw[r] holds between r - 1 and r: go on while it is below the price asked
        cheaper = np.searchsorted(self.records.price_uw[1:], price_w * UW_PER_W, side="left")
        return int(self.records.ticks[cheaper])

    def ticks_at_energy(self, budget_j: float) -> int | None:
        """The fastest iteration of at most `budget_j`; None where no iteration takes as little."""
        energy, ticks = self.energy_j, self.records.ticks
        least = int(np.argmin(energy))
        if budget_j < energy[least]:
            return None
        # from the least energy on, faster is dearer
        last = least + int(np.searchsorted(energy[least:], budget_j, side="right")) - 1
        if last == len(ticks) - 1:
            return int(ticks[last])
        share = (budget_j - energy[last]) / (energy[last + 1] - energy[last])
        # rounded to the slow side: within the budget
        return int(np.ceil(ticks[last] + share * float(ticks[last + 1] - ticks[last])))

    def planned(self, ticks: int) -> list[np.ndarray]:
        """[begins, ends], int64 ticks (N,), of a least-energy plan of `ticks`; between far records, interpolated.

        From one corner to the next every time falls at the same pace until it stands still, so most operations keep
        whole durations. Interpolated times are whole ticks below the exact ones: durations and edges are whole, so
        every arc keeps its length.
        """
        kept = self.records.kept
        times = self.records.ticks[kept]
        slower = min(int(np.searchsorted(-times, -ticks, side="right")) - 1, len(times) - 2) if len(times) > 1 else 0
        rows = self.records.potential[slower : slower + 2]
        if len(rows) == 1:
            mixed = rows[0]
        elif kept[slower + 1] == kept[slower] + 1:
            mixed = rows[0] - np.minimum(rows[0] - rows[1], int(times[slower]) - ticks)
        else:
            span, done = int(times[slower] - times[slower + 1]), int(times[slower] - ticks)
            # rows hold up to 1e16 ticks, so the product is split: quotient and remainder of the difference
            whole, rest = np.divmod(rows[0] - rows[1], span)
            mixed = rows[0] - whole * done - _ceil_product(rest, done, span)
        return np.split(mixed, 2)


def _ceil_product(rest: np.ndarray, done: int, span: int) -> np.ndarray:
    """ceil(rest * done / span) for whole 0 <= rest < span, 0 <= done <= span, exactly."""
    if span < 2**31:
        return -(-rest * done // span)
    return np.array([-(-int(each) * done // span) for each in rest.tolist()], np.int64)
