"""Traces replayed through serving systems, and what one run amounts to: energy by state, latencies against promises,
servers, events, in plain JSON values."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_dvfs_serving import dynamollm
from kernel_dvfs_serving.cluster import Cluster, Decisions
from kernel_dvfs_serving.columns import Columns
from kernel_dvfs_serving.machine import Machine
from kernel_dvfs_serving.prediction import LoadForecast, predicted, slot_loads
from kernel_dvfs_serving.profile import ServingProfile
from kernel_dvfs_serving.requests import CLASSES, classify
from kernel_dvfs_serving.servers import STATES
from kernel_dvfs_serving.system import SYSTEMS, ClusterSettings, System
from kernel_dvfs_serving.trace import Trace

J_PER_KWH = 3.6e6


class Replayer:
    """A machine and its profile, on which traces are replayed.

    columns: options of columns.Columns. Raises InputError for a trace with a class that is feasible nowhere.
    """

    def __init__(self, machine: Machine, profile: ServingProfile, **columns: Any):
        self.machine, self.columns = machine, Columns(profile, **columns)

    def run(self, trace: Trace, system: str, settings: ClusterSettings) -> Cluster:
        """Return the finished Cluster of a system, by name."""
        knobs = SYSTEMS[system]
        kinds = classify(trace.input_tokens, trace.output_tokens)
        self.columns.require(np.unique(kinds).tolist())
        return self.run_system(trace, knobs, settings, dynamollm)

    def run_system(
        self, trace: Trace, system: System, settings: ClusterSettings, decisions: Decisions, *limits: Any
    ) -> Cluster:
        """Return the finished Cluster of a system under `decisions`. limits: see Cluster. Raises cluster.Hopeless."""
        loads = slot_loads(trace, settings.load_slot_s)
        forecast = LoadForecast(loads, settings.load_slot_s, settings.load_prediction, settings.margin)
        guessed = predicted(trace, settings)
        return Cluster(trace, system, self.machine, self.columns, forecast, settings, guessed, decisions, *limits).run()


def outcome(cluster: Cluster, timeline: bool = False) -> dict:
    """Return the figures of a finished Cluster; timeline: also power by state over time.

    Every request is in_time (both promises kept), late, or rejected; j_per_token_in_time counts the tokens (prompt and
    answer) of the first alone, so work that nobody waited for is no service. Latencies are of finished requests,
    attainment is of all. tbt_*: over all gaps between tokens; tbt_kept_percent: requests by their mean gap, or by 99 %
    of their gaps (settings.gaps).
    """
    kinds, first_kept, rest_kept = cluster.kinds, cluster.first_kept, cluster.gaps_kept
    in_time = first_kept & rest_kept
    tokens = cluster.trace.input_tokens[in_time].sum(dtype=int) + cluster.trace.output_tokens[in_time].sum(dtype=int)
    energy_j = sum(cluster.accounts.energy_j.values())
    figures: dict[str, Any] = {
        "system": cluster.system.name,
        "servers": len(cluster.fleet.servers),
        "requests": len(kinds),
        "in_time": int(in_time.sum()),
        "late": int((cluster.finished & ~in_time).sum()),
        "rejected": int(cluster.rejected.sum()),
        "tokens_in": int(cluster.tokens_in),
        "tokens_out": int(cluster.tokens_out),
        "tokens_in_time": int(tokens),
        "j_per_token_in_time": energy_j / int(tokens) if tokens else None,
        "end_s": float(cluster.end_s),
        "energy_kwh": energy_j / J_PER_KWH,
        "energy_kwh_by_server": [sum(server.account.energy_j.values()) / J_PER_KWH for server in cluster.fleet.servers],
        **{f"{state}_kwh": cluster.accounts.energy_j[state] / J_PER_KWH for state in STATES},
        "mean_power_w": energy_j / cluster.end_s if cluster.end_s else 0.0,
        "server_hours": cluster.fleet.server_s / 3600,
        "ttft_p50_s": _quantile(cluster.ttft_s, 0.5),
        "ttft_p99_s": _quantile(cluster.ttft_s, 0.99),
        "tbt_p50_s": _number(cluster.accounts.gap_quantile(0.5)),
        "tbt_p99_s": _number(cluster.accounts.gap_quantile(0.99)),
        "ttft_kept_percent": 100.0 * float(first_kept.mean()),
        "tbt_kept_percent": 100.0 * float(rest_kept.mean()),
        "kept_percent": 100.0 * float(in_time.mean()),
        "short_tps": float(cluster.short_tps),
        "kept_percent_by_class": {
            name: 100.0 * float(in_time[kinds == place].mean())
            for place, name in enumerate(CLASSES)
            if (kinds == place).any()
        },
        "solve_s": [float(np.mean(cluster.solve_s)), float(np.max(cluster.solve_s))] if cluster.solve_s else [0.0, 0.0],
        "events": dict(sorted(cluster.events.items())),
    }
    if timeline:
        figures["bin_s"] = cluster.accounts.bin_s
        figures["power_w"] = cluster.accounts.power_w()
    return figures


def answer(figures: dict, source: str) -> str:
    """Return an outcome in a line. source: where the numbers are from."""
    token_j = figures["j_per_token_in_time"]
    energy = "no token was served in time" if token_j is None else f"{token_j:.4f} J per token served in time"
    servers = f"{figures['servers']} server{'s' if figures['servers'] > 1 else ''}"
    return f"{figures['system']} on {servers}: {energy}, {figures['kept_percent']:.2f} % kept ({source})"


def lines(figures: dict) -> list[str]:
    """Return what has to be said aloud: requests given up, load that the servers could not carry."""
    notes = []
    if figures["rejected"]:
        share = 100.0 * figures["rejected"] / figures["requests"]
        notes.append(
            f"{figures['system']}: {figures['rejected']} requests ({share:.2f} %) were shed: past their deadline"
        )
    if figures["short_tps"] > 0:
        notes.append(
            f"{figures['system']}: too few servers: up to {figures['short_tps']:.0f} tokens/s beyond what they can "
            "carry within the promises; add servers"
        )
    return notes


def _quantile(values: np.ndarray, share: float) -> float | None:
    values = values[np.isfinite(values)]
    return float(np.quantile(values, share)) if values.size else None


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
