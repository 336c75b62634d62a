"""The experiments of a serving study, each a list of outcomes with what was varied. Every number is simulated.

CPU seconds are kept here and left out of tables, so that a table is the same bytes whenever it is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel_dvfs.serving.allocation import Planned, compare
from kernel_dvfs.serving.outcome import outcome
from kernel_dvfs.serving.pools import COUNTS, FULL_TP, pool_kinds, size
from kernel_dvfs.serving.prediction import slot_loads
from kernel_dvfs.serving.requests import CLASSES
from kernel_dvfs.serving.system import BASELINE, COMPARED, SIZED, STATIC, SYSTEMS, TOKEN_COUNT
from kernel_dvfs.serving.trace import poisson, week

if TYPE_CHECKING:
    import numpy as np

    from kernel_dvfs.serving.columns import Columns
    from kernel_dvfs.serving.replayer import Replayer
    from kernel_dvfs.serving.study import ServingStudy
    from kernel_dvfs.serving.system import Settings
    from kernel_dvfs.serving.trace import Trace

MISPREDICTION = (0.0, 0.1, 0.2, 0.3, 0.4, TOKEN_COUNT)
EPOCHS = {
    "cluster_epoch_s": (600.0, 1800.0, 3600.0),
    "pool_epoch_s": (60.0, 300.0, 900.0),
    "clock_epoch_s": (1.0, 5.0, 30.0),
}
MARGINS = {"margin": (1.0, 1.1, 1.5), "clock_margin": (1.0, 1.1, 1.5, 2.0)}
LATENCIES = {
    "clock_latency_s": (0.0, 0.065, 1.0),
    "reshard_gap_s": (0.0, 1.0, 10.0),
    "start_s": (60.0, 420.0, 900.0),
}


def systems(study: ServingStudy) -> list[dict]:
    """Every system on the study's trace, with timelines."""
    replayer, trace = study.replayer(), study.trace()
    names = [name for name, each in SYSTEMS.items() if not each.kernel_level or study["kernel_level"]]
    found = [_run(replayer, trace, name, study.settings(), timeline=True) for name in names]
    return [*found, _sized(study, replayer, trace)]


def _sized(study: ServingStudy, replayer: Replayer, trace: Trace) -> dict:
    """The baseline on no more servers than the trace's peak needs: what consolidation has no part in."""
    own = study.settings()
    peaks = own.margin * slot_loads(trace, own.load_slot_s).max(0)
    (count,) = size(pool_kinds(1), replayer.columns(), peaks, own.servers).servers
    return _run(replayer, trace, BASELINE, study.settings(servers=count, pools=1), timeline=True) | {"system": SIZED}


def loads(study: ServingStudy) -> list[dict]:
    """The compared systems under constant Poisson loads, tokens/s per server."""
    replayer, found = study.replayer(), []
    for tps in study["loads_tps"]:
        trace = poisson(tps * study["settings"]["servers"], study["loads_span_s"], study["settings"]["seed"])
        for name in COMPARED:
            found.append({"tps_per_server": tps} | _run(replayer, trace, name, study.settings()))
    return found


def misprediction(study: ServingStudy) -> list[dict]:
    """DynamoLLM with answers' classes mispredicted, and with the token-count predictor."""
    replayer, trace = study.replayer(), study.trace()
    return [
        {"misprediction": share} | _run(replayer, trace, "DynamoLLM", study.settings(misprediction=share))
        for share in MISPREDICTION
    ]


def sweeps(study: ServingStudy) -> list[dict]:
    """DynamoLLM over epochs, overheads, and numbers of pools; the others at the study's own value."""
    replayer, trace = study.replayer(), study.trace()
    found = []
    servers = study["settings"]["servers"]
    swept = EPOCHS | LATENCIES | MARGINS | {"pools": tuple(count for count in COUNTS if count <= servers)}
    for key, values in swept.items():
        for value in values:
            found.append(
                {"swept": key, "value": value} | _run(replayer, trace, "DynamoLLM", study.settings(**{key: value}))
            )
    return found


def hierarchy(study: ServingStudy) -> list[dict]:
    """Deciding by levels against all at once, for each slot of the trace in hindsight, changes free."""
    replayer, trace, own = study.replayer(), study.trace(), study.settings()
    loads_tps = slot_loads(trace, own.pool_epoch_s)
    found = []
    for kernel_level in (False, True) if study["kernel_level"] else (False,):
        columns = replayer.columns(kernel_level)
        rows = compare(
            pool_kinds(own.pools),
            columns,
            loads_tps,
            own.pool_epoch_s,
            own.cluster_epoch_s,
            own.servers,
            replayer.machine.parked_w,
        )
        static = _static_w(columns, loads_tps, own.servers)
        for (start_s, levels, joint), static_w in zip(rows, static):
            one = {
                "kernel_level": kernel_level,
                "start_s": start_s,
                "load_tps": float(loads_tps[int(start_s / own.pool_epoch_s + 0.5)].sum()),
            }
            found.append(one | {"static_w": static_w} | _planned("levels", levels) | _planned("joint", joint))
    return found


def _planned(name: str, plan: Planned) -> dict:
    return {
        f"{name}_w": plan.power_w,
        f"{name}_servers": plan.servers,
        f"{name}_shed_tps": plan.shed_tps,
        f"{name}_solve_s": plan.solve_s,
        f"{name}_columns": len(plan.columns),
    }


def _static_w(columns: Columns, loads_tps: np.ndarray, servers: int) -> list[float]:
    """SinglePool in the terms of the profile: all servers at full power, the load shared equally."""
    offer = columns.pool(len(CLASSES) - 1)
    clock = columns.top(FULL_TP)
    return [servers * offer.power_w(FULL_TP, clock, float(load.sum()) / servers) for load in loads_tps]


def week_(study: ServingStudy) -> list[dict]:
    """Baseline, static pools and DynamoLLM over a synthetic week."""
    asked, found = study["week"], []
    trace = week(asked["service"], asked["scale"], study["settings"]["seed"], asked["days"])
    replayer = study.replayer()
    for name in (BASELINE, STATIC, "DynamoLLM"):
        found.append(
            {"trace": trace.subject} | _run(replayer, trace, name, study.settings(bin_s=60.0, sample_s=600.0), True)
        )
    return found


EXPERIMENTS: dict[str, Callable[[ServingStudy], list[dict]]] = {
    "systems": systems,
    "loads": loads,
    "misprediction": misprediction,
    "sweeps": sweeps,
    "hierarchy": hierarchy,
    "week": week_,
}


def _run(replayer: Replayer, trace: Trace, name: str, settings: Settings, timeline: bool = False) -> dict[str, Any]:
    begun = time.process_time()
    cluster = replayer.run(trace, name, settings)
    return outcome(cluster, timeline) | {"cpu_s": time.process_time() - begun}
