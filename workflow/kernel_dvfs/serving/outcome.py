"""What one run of a system amounts to: energy by state, latencies against promises, servers, events.

Accounts are kept while the simulation runs; `outcome` sums a finished run up in plain JSON values.
"""

from __future__ import annotations

from math import exp, floor, log
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs.serving.instance import Recorder
from kernel_dvfs.serving.requests import CLASSES, TBT_SLO_S, ttft_slo_s

if TYPE_CHECKING:
    from kernel_dvfs.serving.cluster import Cluster

J_PER_KWH = 3.6e6

STATES = ("busy", "idle", "starting", "switching")
# gaps between tokens are counted in classes of equal ratio
_PER_E = 200


class Accounts(Recorder):
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

    def power_w(self) -> dict[str, list[float]]:
        """{state: mean power in each bin, W}, all of the same length."""
        length = max(len(bins) for bins in self.bins.values())
        return {
            state: [energy / self.bin_s for energy in bins] + [0.0] * (length - len(bins))
            for state, bins in self.bins.items()
        }


def outcome(cluster: Cluster, timeline: bool = False) -> dict:
    """Figures of a finished Cluster; timeline: also power by state and knobs over time.

    Latencies are of finished requests, attainment is of all: a rejected request keeps no promise. tbt_*: over all gaps
    between tokens; tbt_kept_percent: requests whose mean gap keeps the promise.
    """
    kinds = cluster.kinds
    scale = cluster.columns.slo_scale
    promised_s = scale * np.array([ttft_slo_s(name) for name in CLASSES])[kinds]
    with np.errstate(invalid="ignore"):
        first_kept = cluster.finished & (cluster.ttft_s <= promised_s)
        # one token has no gap
        rest_kept = cluster.finished & ~(cluster.mean_tbt_s > scale * TBT_SLO_S)
    energy_j = sum(cluster.accounts.energy_j.values())
    found: dict[str, Any] = {
        "system": cluster.system.name,
        "requests": len(kinds),
        "finished": int(cluster.finished.sum()),
        "rejected": int(cluster.rejected.sum()),
        "tokens_in": int(cluster.tokens_in),
        "tokens_out": int(cluster.tokens_out),
        "end_s": float(cluster.end_s),
        "energy_kwh": energy_j / J_PER_KWH,
        **{f"{state}_kwh": cluster.accounts.energy_j[state] / J_PER_KWH for state in STATES},
        "mean_power_w": energy_j / cluster.end_s,
        "server_hours": cluster.fleet.server_s / 3600,
        "ttft_p50_s": _quantile(cluster.ttft_s, 0.5),
        "ttft_p99_s": _quantile(cluster.ttft_s, 0.99),
        "tbt_p50_s": _number(cluster.accounts.gap_quantile(0.5)),
        "tbt_p99_s": _number(cluster.accounts.gap_quantile(0.99)),
        "ttft_kept_percent": 100.0 * float(first_kept.mean()),
        "tbt_kept_percent": 100.0 * float(rest_kept.mean()),
        "kept_percent": 100.0 * float((first_kept & rest_kept).mean()),
        "short_tps": float(cluster.short_tps),
        "kept_percent_by_class": {
            name: 100.0 * float((first_kept & rest_kept)[kinds == place].mean())
            for place, name in enumerate(CLASSES)
            if (kinds == place).any()
        },
        "solve_s": [float(np.mean(cluster.solve_s)), float(np.max(cluster.solve_s))] if cluster.solve_s else [0.0, 0.0],
        "events": dict(sorted(cluster.events.items())),
    }
    if timeline:
        found["bin_s"] = cluster.accounts.bin_s
        found["power_w"] = cluster.accounts.power_w()
        found["samples"] = cluster.samples
    return found


def lines(found: dict) -> list[str]:
    """What has to be said aloud: requests given up, load that the servers could not carry."""
    said = []
    if found["rejected"]:
        share = 100.0 * found["rejected"] / found["requests"]
        said.append(f"{found['system']}: {found['rejected']} requests ({share:.2f} %) were shed: past their deadline")
    if found["short_tps"] > 0:
        said.append(
            f"{found['system']}: too few servers: up to {found['short_tps']:.0f} tokens/s beyond what they can carry "
            "within the promises; add servers"
        )
    return said


def _quantile(values: np.ndarray, share: float) -> float | None:
    values = values[np.isfinite(values)]
    return float(np.quantile(values, share)) if values.size else None


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
