"""The experiments of a serving study, each a list of outcomes with what was varied. Every number is simulated.

CPU seconds are kept here and left out of tables, so that a table is the same bytes whenever it is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernel_dvfs_serving.packing import PARTS
from kernel_dvfs_serving.pools import COUNTS
from kernel_dvfs_serving.replay import outcome
from kernel_dvfs_serving.system import BASELINE, COMPARED, HINDSIGHT, PACKED, SYSTEMS, TOKEN_COUNT, TUNED
from kernel_dvfs_serving.trace import poisson, week
from kernel_dvfs_serving.tuned import Tuner, replayed

if TYPE_CHECKING:
    from kernel_dvfs_serving.replay import Replayer
    from kernel_dvfs_serving.study import ServingStudy
    from kernel_dvfs_serving.system import Settings
    from kernel_dvfs_serving.trace import Trace

# the end of the paper's sweep, and its middle; several draws each, since the change is as small as their scatter
MISPREDICTION = (0.0, 0.2, 0.4)
MISPREDICTION_SEEDS = 3
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
    known = _run(replayer, trace, "DynamoLLM", study.settings(load_prediction="oracle"), timeline=True)
    found.append(known | {"system": HINDSIGHT})
    return [*found, *tuned_plans(replayer, trace, study.settings())]


def tuned_plans(replayer: Replayer, trace: Trace, own: Settings) -> list[dict]:
    """The tuned static plan, which all are compared with, and packing on no more servers, both with timelines.

    Where no static plan keeps the promise it is all servers at the largest degree and highest clock, and says so by
    what it keeps.
    """
    found: list[dict] = []
    for name, parts in ((TUNED, None), (PACKED, PARTS)):
        begun = time.process_time()
        most = found[0]["servers"] if found else own.servers
        tuner = Tuner(replayer, trace, replace(own, servers=most), parts)
        best = next(iter(tuner.frontier((own.promise_percent,))), None)
        if best is None:
            tp = max(replayer.columns().degrees)
            best = {"servers": most, "tp": tp, "clock": replayer.columns().top(tp)}
        plan = tuner.plan(best["servers"], best["tp"], best["clock"])
        run = replayed(replayer, trace, plan, own, timeline=True, servers=most)
        found.append(run | {"system": name, "cpu_s": time.process_time() - begun})
    return found


def loads(study: ServingStudy) -> list[dict]:
    """The compared systems under constant Poisson loads, tokens/s per server."""
    replayer, found = study.replayer(), []
    for tps in study["loads_tps"]:
        trace = poisson(tps * study["settings"]["servers"], study["loads_span_s"], study["settings"]["seed"])
        runs = [_run(replayer, trace, name, study.settings()) for name in COMPARED]
        found += [{"tps_per_server": tps} | each for each in [*runs, *tuned_plans(replayer, trace, study.settings())]]
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


def week_(study: ServingStudy) -> list[dict]:
    """The baseline on all servers, DynamoLLM, the tuned static plan and packing over a synthetic week."""
    asked = study["week"]
    trace = week(asked["service"], asked["scale"], study["settings"]["seed"], asked["days"])
    replayer = study.replayer()
    own = study.settings(bin_s=60.0, sample_s=600.0)
    found = [_run(replayer, trace, name, own, True) for name in (BASELINE, "DynamoLLM")]
    found += tuned_plans(replayer, trace, own)
    return [{"trace": trace.subject} | each for each in found]


EXPERIMENTS: dict[str, Callable[[ServingStudy], list[dict]]] = {
    "systems": systems,
    "loads": loads,
    "misprediction": misprediction,
    "sweeps": sweeps,
    "week": week_,
}


def _run(replayer: Replayer, trace: Trace, name: str, settings: Settings, timeline: bool = False) -> dict[str, Any]:
    begun = time.process_time()
    cluster = replayer.run(trace, name, settings)
    return outcome(cluster, timeline) | {"cpu_s": time.process_time() - begun}
