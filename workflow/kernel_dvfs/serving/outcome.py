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


class Account(Recorder):
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


def outcome(cluster: Cluster, timeline: bool = False) -> dict:
    """Figures of a finished Cluster; timeline: also power by state and knobs over time.

    Every request is in_time (both promises kept), late, or rejected; j_per_token_in_time counts the tokens (prompt and
    answer) of the first alone, so work that nobody waited for is no service. Latencies are of finished requests,
    attainment is of all. tbt_*: over all gaps between tokens; tbt_kept_percent: requests by their mean gap.
    """
    kinds = cluster.kinds
    scale = cluster.columns.slo_scale
    promised_s = scale * np.array([ttft_slo_s(name) for name in CLASSES])[kinds]
    with np.errstate(invalid="ignore"):
        first_kept = cluster.finished & (cluster.ttft_s <= promised_s)
        # one token has no gap
        rest_kept = cluster.finished & ~(cluster.mean_tbt_s > scale * TBT_SLO_S)
    kept = first_kept & rest_kept
    tokens = cluster.trace.input_tokens[kept].sum(dtype=int) + cluster.trace.output_tokens[kept].sum(dtype=int)
    energy_j = sum(cluster.accounts.energy_j.values())
    found: dict[str, Any] = {
        "system": cluster.system.name,
        "servers": len(cluster.fleet.servers),
        "requests": len(kinds),
        "in_time": int(kept.sum()),
        "late": int((cluster.finished & ~kept).sum()),
        "rejected": int(cluster.rejected.sum()),
        "tokens_in": int(cluster.tokens_in),
        "tokens_out": int(cluster.tokens_out),
        "tokens_in_time": int(tokens),
        "j_per_token_in_time": energy_j / int(tokens) if tokens else None,
        "end_s": float(cluster.end_s),
        "energy_kwh": energy_j / J_PER_KWH,
        "energy_kwh_by_server": [sum(each.account.energy_j.values()) / J_PER_KWH for each in cluster.fleet.servers],
        **{f"{state}_kwh": cluster.accounts.energy_j[state] / J_PER_KWH for state in STATES},
        "mean_power_w": energy_j / cluster.end_s,
        "server_hours": cluster.fleet.server_s / 3600,
        "ttft_p50_s": _quantile(cluster.ttft_s, 0.5),
        "ttft_p99_s": _quantile(cluster.ttft_s, 0.99),
        "tbt_p50_s": _number(cluster.accounts.gap_quantile(0.5)),
        "tbt_p99_s": _number(cluster.accounts.gap_quantile(0.99)),
        "ttft_kept_percent": 100.0 * float(first_kept.mean()),
        "tbt_kept_percent": 100.0 * float(rest_kept.mean()),
        "kept_percent": 100.0 * float(kept.mean()),
        "short_tps": float(cluster.short_tps),
        "kept_percent_by_class": {
            name: 100.0 * float(kept[kinds == place].mean())
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
