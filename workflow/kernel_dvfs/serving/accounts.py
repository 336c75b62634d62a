"""Where the energy went, and how long tokens took: kept up while the simulation runs."""

from math import exp, floor, log

STATES = ("busy", "idle", "starting", "switching")
# gaps between tokens are counted in classes of equal ratio
_PER_E = 200


class Accounts:
    """Energy by state, in all and over time; the histogram of gaps between tokens. A recorder for instances.

    bin_s: width of the bins over time, s.
    """

    def __init__(self, bin_s: float = 10.0):
        self.bin_s = bin_s
        self.energy_j = dict.fromkeys(STATES, 0.0)
        self.bins = {state: [] for state in STATES}
        self.gaps = {}
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

    def busy(self, start_s: float, end_s: float, energy_j: float) -> None:
        """Work of an instance."""
        self.add("busy", start_s, end_s, energy_j)

    def idle(self, start_s: float, end_s: float, energy_j: float) -> None:
        """Idleness of an instance."""
        self.add("idle", start_s, end_s, energy_j)

    def gap(self, seconds: float, count: int) -> None:
        """`count` tokens came `seconds` after those before them."""
        place = floor(log(seconds) * _PER_E) if seconds > 1e-9 else floor(log(1e-9) * _PER_E)
        self.gaps[place] = self.gaps.get(place, 0) + count
        self.gap_count += count

    def gap_quantile(self, share: float) -> float:
        """Length of a gap that `share` of all gaps do not exceed, s, within 0.5 %; NaN without gaps."""
        reached = 0
        for place in sorted(self.gaps):
            reached += self.gaps[place]
            if reached >= share * self.gap_count:
                return exp((place + 0.5) / _PER_E)
        return float("nan")

    def power_w(self) -> dict:
        """{state: mean power in each bin, W}, all of the same length."""
        length = max(len(bins) for bins in self.bins.values())
        return {
            state: [energy / self.bin_s for energy in bins] + [0.0] * (length - len(bins))
            for state, bins in self.bins.items()
        }
