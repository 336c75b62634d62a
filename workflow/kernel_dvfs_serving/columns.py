"""From a serving profile to the columns of the optimisation: what one instance may carry, and what it then draws.

A column is (class, degree, clock): an instance of so many GPUs at that clock keeps its promises at the 99th percentile
up to a load, its capacity. Combinations that keep them at no load have no column.

An instance that serves several classes is priced on the largest one's profile. It carries no more than it could carry
of the most demanding of them alone: prompts weigh more than answers, so the largest class is not always that one. And
it owes the smaller ones their earlier first tokens: they queue as long as its own requests and then have shorter
prompts, so its own first tokens may take, at the 99th percentile, a smaller class's promise plus the difference of both
classes' first tokens at no load (our choice).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.profile import ServingProfile
from kernel_dvfs_serving.requests import CLASSES, TBT_SLO_S, ttft_slo_s
from kernel_dvfs_serving.resharding import check_degrees

_STEPS = 64  # loads at which an instance's least-power clock is worked out, up to its capacity


class Columns:
    """The columns of all pools. slo_scale: factor of every promise."""

    def __init__(self, profile: ServingProfile, slo_scale: float = 1.0):
        self.profile = profile
        self.slo_scale = slo_scale
        self.degrees = profile.degrees
        self.clocks = {tp: profile.clocks(tp) for tp in self.degrees}
        self._pools: dict[tuple[int, frozenset[int]], PoolColumns] = {}

    def top(self, tp: int) -> str:
        """Return the highest clock of a degree."""
        return self.clocks[tp][-1]

    def pool(self, kind: int, served: Iterable[int] = ()) -> PoolColumns:
        """Return the columns of a class's configuration that serves these classes (its own always)."""
        every = frozenset(served) | {kind}
        if (kind, every) not in self._pools:
            self._pools[kind, every] = PoolColumns(self, kind, every)
        return self._pools[kind, every]

    def require(self, kinds: Iterable[int]) -> None:
        """Raise InputError where servers cannot be divided by the degrees, or a class is feasible nowhere."""
        try:
            check_degrees(self.degrees)
        except InputError as error:
            raise InputError(f"{self.profile.name}: {error}") from None
        for kind in kinds:
            if not self.pool(kind).capacity:
                name = CLASSES[kind]
                raise InputError(
                    f"{self.profile.name}: class {name} keeps its promises (TTFT {ttft_slo_s(name) * self.slo_scale:g} "
                    f"s, TBT {TBT_SLO_S * self.slo_scale:g} s) at no degree, clock and load; raise slo_scale, or "
                    "leave the class out of the trace"
                )


class PoolColumns:
    """One class's configuration: its columns, and the questions controllers ask of them."""

    def __init__(self, owner: Columns, kind: int, served: frozenset[int]):
        self.owner, self.kind, self.served = owner, kind, served
        self.capacity: dict[tuple[int, str], float] = {}  # (degree, clock): tokens/s; infeasible ones are missing
        self._ladders: dict[int, list[tuple[float, str]]] = {}
        self._powers: dict[int, np.ndarray] = {}
        profile, names = owner.profile, [CLASSES[member] for member in served]
        for tp in owner.degrees:
            for clock in owner.clocks[tp]:
                known = all((name, tp, clock) in profile.curves for name in names)
                if known and (most := self._capacity(tp, clock)) > 0:
                    self.capacity[tp, clock] = most

    def _capacity(self, tp: int, clock: str) -> float:
        """Return the tokens/s that an instance may carry, whatever the mix of the classes it serves; 0 where none."""
        profile, scale = self.owner.profile, self.owner.slo_scale
        name, tbt_s = CLASSES[self.kind], TBT_SLO_S * scale
        alone_s = {member: float(profile.curve(CLASSES[member], tp, clock).ttft_p50_s[0]) for member in self.served}
        limit_s = min(
            ttft_slo_s(CLASSES[member]) * scale + max(0.0, alone_s[self.kind] - alone_s[member])
            for member in self.served
        )
        able = [
            profile.capacity(CLASSES[member], tp, clock, ttft_slo_s(CLASSES[member]) * scale, tbt_s)
            for member in self.served
        ]
        return min(profile.capacity(name, tp, clock, limit_s, tbt_s), *able)

    def largest(self, tp: int) -> float:
        """Return what an instance at its highest clock may carry, tokens/s; 0 where it cannot keep the promises."""
        return self.capacity.get((tp, self.owner.top(tp)), 0.0)

    def power_w(self, tp: int, clock: str, tps: float) -> float:
        """Return the power of an instance at a load, W; above the profiled ones, that at the highest."""
        curve = self.owner.profile.curve(CLASSES[self.kind], tp, clock)
        return float(curve.power(min(tps, float(curve.tps[-1]))))

    def top_power_w(self, tp: int, relative: np.ndarray) -> np.ndarray:
        """Return the power of an instance at its highest clock, W, at loads relative to `largest` (0 to 1, any shape),
        linear between 65 of them."""
        if tp not in self._powers:
            most, top = self.largest(tp), self.owner.top(tp)
            self._powers[tp] = np.array([self.power_w(tp, top, most * place / _STEPS) for place in range(_STEPS + 1)])
        return np.interp(relative, np.linspace(0.0, 1.0, _STEPS + 1), self._powers[tp])

    def least_power_clock(self, tp: int, tps: float) -> str:
        """Return the clock that draws least while keeping the promises at `tps`; the highest where none keeps them."""
        for limit, clock in self.clock_ladder(tp):
            if tps <= limit:
                return clock
        return self.owner.top(tp)

    def clock_ladder(self, tp: int) -> list[tuple[float, str]]:
        """Return (load up to which, clock), ascending: the answers of least_power_clock, worked out once."""
        if tp not in self._ladders:
            capacities = {clock: self.capacity.get((tp, clock), 0.0) for clock in self.owner.clocks[tp]}
            most = max(capacities.values())
            ladder: list[tuple[float, str]] = []
            for limit in np.linspace(0, most, _STEPS + 1)[1:].tolist() if most > 0 else []:
                # a hair of tolerance: the last limit is a capacity itself
                fit = [clock for clock, capacity in capacities.items() if capacity >= limit * (1 - 1e-12)]
                best = min(fit, key=lambda clock: self.power_w(tp, clock, limit))
                if ladder and ladder[-1][1] == best:
                    ladder[-1] = (limit, best)
                else:
                    ladder.append((limit, best))
            self._ladders[tp] = ladder
        return self._ladders[tp]
