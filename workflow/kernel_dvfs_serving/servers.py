"""Servers of 8 GPUs, the replicas that they hold, and the accounts of what they take: energy by state, gaps between
tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, floor, log

from kernel_dvfs_serving.instance import Instance, InstanceObserver
from kernel_dvfs_serving.resharding import SERVER_GPUS, Layout

OFF, STARTING, ON, SWITCHING, DRAINING = "off", "starting", "on", "switching", "draining"
STATES = ("busy", "idle", "starting", "switching")
# gaps between tokens are counted in classes of equal ratio
_PER_E = 200


class Accounts:
    """Energy by state, in all and over time; the histogram of gaps between tokens.

    bin_s: width of the bins over time, s.
    """

    def __init__(self, bin_s: float = 10.0):
        self.bin_s = bin_s
        self.energy_j = dict.fromkeys(STATES, 0.0)
        self.bins: dict[str, list[float]] = {state: [] for state in STATES}
        self.gaps: dict[int, int] = {}  # place of a class of length: how many
        self.gap_count = 0

    def add(self, state: str, start_s: float, end_s: float, energy_j: float) -> None:
        """Energy spent evenly over a span."""
        self.energy_j[state] += energy_j
        bins, width = self.bins[state], self.bin_s
        first, last = int(start_s / width), int(end_s / width)
        if last >= len(bins):
            bins.extend([0.0] * (last + 1 - len(bins)))
        if first == last or end_s <= start_s:
            bins[first] += energy_j
            return
        power_w = energy_j / (end_s - start_s)
        bins[first] += power_w * ((first + 1) * width - start_s)
        for place in range(first + 1, last):
            bins[place] += power_w * width
        bins[last] += power_w * (end_s - last * width)

    def gap(self, seconds: float, count: int) -> None:
        """`count` tokens came `seconds` after those before them."""
        place = floor(log(seconds) * _PER_E) if seconds > 1e-9 else floor(log(1e-9) * _PER_E)
        self.gaps[place] = self.gaps.get(place, 0) + count
        self.gap_count += count

    def gap_quantile(self, share: float) -> float:
        """Return the length of a gap that `share` of all gaps do not exceed, s, within 0.5 %; NaN without gaps."""
        reached = 0
        for place in sorted(self.gaps):
            reached += self.gaps[place]
            if reached >= share * self.gap_count:
                return exp((place + 0.5) / _PER_E)
        return float("nan")

    def power_w(self) -> dict[str, list[float]]:
        """Return {state: mean power in each bin, W}, all of the same length."""
        length = max(len(bins) for bins in self.bins.values())
        return {
            state: [energy / self.bin_s for energy in bins] + [0.0] * (length - len(bins))
            for state, bins in self.bins.items()
        }


class Account(InstanceObserver):
    """One server's energy by state, on its way into the Accounts of all."""

    def __init__(self, whole: Accounts):
        self.gap = whole.gap  # type: ignore[method-assign]  # nothing of it is the server's own
        self._whole = whole
        self.energy_j = dict.fromkeys(STATES, 0.0)

    def add(self, state: str, start_s: float, end_s: float, energy_j: float) -> None:
        """Energy spent evenly over a span."""
        self.energy_j[state] += energy_j
        self._whole.add(state, start_s, end_s, energy_j)

    def busy(self, start_s: float, end_s: float, energy_j: float) -> None:
        """Work of an instance."""
        self.energy_j["busy"] += energy_j
        self._whole.add("busy", start_s, end_s, energy_j)

    def idle(self, start_s: float, end_s: float, energy_j: float) -> None:
        """Idleness of an instance, or of GPUs without one."""
        self.add("idle", start_s, end_s, energy_j)


@dataclass(slots=True, eq=False)
class Replica:
    """An instance in a pool: what routing and controllers know about it."""

    server: Server
    tp: int  # GPUs
    clock: str  # last asked for
    instance: Instance
    capacity: float  # tokens/s at the highest clock, of its pool's class
    serving: bool = True  # whether it takes requests
    ticket: int = 0  # of its event on the agenda: older ones are void
    outstanding: float = 0.0  # expected tokens of the requests it holds
    arrived: float = 0.0  # expected tokens routed to it since the clock was last set
    processed: int = 0  # tokens, when the clock was last set
    stage: int = 0  # of the emergency ladder
    watched: bool = False  # whether the ladder looks at its queue
    held_until_s: float = 0.0  # highest clock until then

    @property
    def relative_load(self) -> float:
        """Return the tokens it holds, of those it may carry in a second."""
        return self.outstanding / self.capacity


@dataclass(slots=True, eq=False)
class Server:
    """8 GPUs."""

    number: int
    account: Account  # of its energy
    state: str = OFF
    pool: int | None = None  # place of its pool
    layout: Layout = ()
    replicas: list[Replica] = field(default_factory=list)
    parked_since_s: float = 0.0  # GPUs without instance are accounted for until then
    since_s: float = 0.0  # when it was taken
    fresh: Layout = ()  # its division when it comes up, where nobody divides it
    fresh_clocks: tuple[str, ...] = ()  # of those replicas; (): their highest

    @property
    def parked(self) -> int:
        """Return how many GPUs are without an instance, of a server that is on."""
        return SERVER_GPUS - sum(self.layout) if self.state in (ON, DRAINING) else 0

    @property
    def empty(self) -> bool:
        """Return whether it holds no request."""
        return all(replica.instance.empty for replica in self.replicas)
