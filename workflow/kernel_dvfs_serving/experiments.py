"""The experiments of a serving study, each a list of outcomes with what was varied. Every number is simulated.

CPU seconds are kept here and left out of tables, so that a table is the same bytes whenever it is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernel_dvfs_serving.pools import COUNTS, FULL_TP, pool_kinds, size
from kernel_dvfs_serving.prediction import slot_loads
from kernel_dvfs_serving.pricing import Planned, Pricing, compare
from kernel_dvfs_serving.replay import outcome
from kernel_dvfs_serving.requests import CLASSES
from kernel_dvfs_serving.system import BASELINE, COMPARED, SIZED, SYSTEMS, TOKEN_COUNT
from kernel_dvfs_serving.trace import poisson, week

if TYPE_CHECKING:
    import numpy as np

    from kernel_dvfs_serving.columns import Columns
    from kernel_dvfs_serving.replay import Replayer
    from kernel_dvfs_serving.study import ServingStudy
    from kernel_dvfs_serving.system import Settings
    from kernel_dvfs_serving.trace import Trace

# the end of the paper's sweep, and its middle; several draws each, since the change is as small as their scatter
MISPREDICTION = (0.0, 0.2, 0.4)
MISPREDICTION_SEEDS = 3
SLOTS_S = (5.0, 15.0, 60.0, 300.0)
EPOCHS = {
    "cluster_epoch_s": (600.0, 1800.0, 3600.0),
    "pool_epoch_s": (60.0, 300.0, 900.0),
    "clock_epoch_s": (1.0, 5.0, 30.0),
}
MARGINS = {"margin": (1.0, 1.1, 1.5), "clock_margin": (1.0, 1.1, 1.5, 2.0)}
RULES: dict[str, tuple] = {"priced_at": ("run", "top"), "react": (True, False)}
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
    return [*found, least_servers(replayer, trace, study.settings())]


def least_servers(replayer: Replayer, trace: Trace, own: Settings) -> dict:
    """The baseline on the fewest servers that keep the promise, which no setting but the promise decides.

    Found by running it: from the servers that the load's highest slot asks for, down while the promise is kept, else up
    to all there are.
    """

    def on(servers: int) -> dict:
        found = _run(replayer, trace, BASELINE, replace(own, servers=servers, pools=1), timeline=True)
        return found | {"system": SIZED}

    count = slot_servers(replayer, trace, own)
    found = on(count)
    while not keeps(found, own) and count < own.servers:
        count += 1
        found = on(count)
    while count > 1 and keeps(fewer := on(count - 1), own):
        count, found = count - 1, fewer
    return found


def slot_servers(replayer: Replayer, trace: Trace, own: Settings) -> int:
    """Servers that the baseline needs for the highest load slot, with the margin."""
    loads_tps = own.margin * slot_loads(trace, own.load_slot_s)
    (count,) = size(pool_kinds(1), replayer.columns(), loads_tps, own.servers).servers
    return count


def keeps(found: dict, own: Settings) -> bool:
    """Whether an outcome keeps the share of promises that it must."""
    return found["kept_percent"] >= own.promise_percent


def slots(study: ServingStudy) -> list[dict]:
    """What the length of a load slot decides: DynamoLLM, and the baseline on the servers that such slots ask for."""
    replayer, trace, found = study.replayer(), study.trace(), []
    for slot_s in SLOTS_S:
        own = study.settings(load_slot_s=slot_s)
        sized = replace(own, servers=slot_servers(replayer, trace, own), pools=1)
        for name, settings in ((BASELINE, sized), ("DynamoLLM", own)):
            found.append({"load_slot_s": slot_s} | _run(replayer, trace, name, settings))
    return found


def loads(study: ServingStudy) -> list[dict]:
    """The compared systems under constant Poisson loads, tokens/s per server."""
    replayer, found = study.replayer(), []
    for tps in study["loads_tps"]:
        trace = poisson(tps * study["settings"]["servers"], study["loads_span_s"], study["settings"]["seed"])
        runs = [_run(replayer, trace, name, study.settings()) for name in COMPARED]
        found += [{"tps_per_server": tps} | each for each in [*runs, least_servers(replayer, trace, study.settings())]]
    return found


def misprediction(study: ServingStudy) -> list[dict]:
    """DynamoLLM with answers' classes mispredicted, and with the token-count predictor."""
    replayer, trace = study.replayer(), study.trace()
    seed = study["settings"]["seed"]
    asked = [(share, seed + each) for share in MISPREDICTION for each in range(MISPREDICTION_SEEDS if share else 1)]
    return [
        {"misprediction": share, "seed": drawn}
        | _run(replayer, trace, "DynamoLLM", study.settings(misprediction=share, seed=drawn))
        for share, drawn in [*asked, (TOKEN_COUNT, seed)]
    ]


def sweeps(study: ServingStudy) -> list[dict]:
    """DynamoLLM over epochs, overheads, and numbers of pools; the others at the study's own value."""
    replayer, trace = study.replayer(), study.trace()
    servers = study["settings"]["servers"]
    swept = EPOCHS | LATENCIES | MARGINS | RULES | {"pools": tuple(count for count in COUNTS if count <= servers)}
    # each setting's own value is the same run
    asked = {(key, value): study.settings(**{key: value}) for key, values in swept.items() for value in values}
    runs = {own: _run(replayer, trace, "DynamoLLM", own) for own in dict.fromkeys(asked.values())}
    return [{"swept": key, "value": value} | runs[own] for (key, value), own in asked.items()]


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
            Pricing(tuple(columns.degrees), 1.0, replayer.machine.parked_w),
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
    """The baseline on all servers and on the fewest that keep the promise, and DynamoLLM, over a synthetic week."""
    asked = study["week"]
    trace = week(asked["service"], asked["scale"], study["settings"]["seed"], asked["days"])
    replayer = study.replayer()
    own = study.settings(bin_s=60.0, sample_s=600.0)
    found = [_run(replayer, trace, name, own, True) for name in (BASELINE, "DynamoLLM")]
    found.append(least_servers(replayer, trace, own))
    return [{"trace": trace.subject} | each for each in found]


EXPERIMENTS: dict[str, Callable[[ServingStudy], list[dict]]] = {
    "systems": systems,
    "slots": slots,
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
