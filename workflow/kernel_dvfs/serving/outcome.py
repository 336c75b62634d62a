"""What one run of a system amounts to: energy, latencies against promises, servers, events; as plain JSON values."""

import numpy as np

from kernel_dvfs.serving.accounts import STATES
from kernel_dvfs.serving.classes import CLASSES, TBT_SLO_S, ttft_slo_s

J_PER_KWH = 3.6e6


def outcome(cluster, timeline: bool = False) -> dict:
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
    found = {
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
        "server_hours": cluster.server_s / 3600,
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


def lines(found: dict) -> list:
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


def _quantile(values, share: float):
    values = values[np.isfinite(values)]
    return float(np.quantile(values, share)) if values.size else None


def _number(value: float):
    return value if np.isfinite(value) else None
