"""The experiments of a serving study, each a list of outcomes with what was varied. Every number is simulated.

CPU seconds are kept here and left out of tables, so that a table is the same bytes whenever it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from kernel_dvfs_serving.packing import LADDER, PARTS, Autoscaled
from kernel_dvfs_serving.replay import outcome
from kernel_dvfs_serving.resharding import SERVER_GPUS
from kernel_dvfs_serving.system import (
    BASELINE,
    HINDSIGHT,
    LOADS_TPS,
    OVER_TIME,
    PACKED,
    PUBLISHED,
    SYSTEMS,
    TOKEN_COUNT,
    TUNED,
)
from kernel_dvfs_serving.trace import poisson
from kernel_dvfs_serving.tuned import Tuner, replayed, second_for

if TYPE_CHECKING:
    from kernel_dvfs_serving.replay import Replayer
    from kernel_dvfs_serving.study import ServingStudy
    from kernel_dvfs_serving.system import Settings
    from kernel_dvfs_serving.trace import Trace
    from kernel_dvfs_serving.tuned import Second

# the end of the paper's sweep, and its middle; several draws each, since the change is as small as their scatter
MISPREDICTION = (0.0, 0.2, 0.4)
MISPREDICTION_SEEDS = 3
SLOTS_S = (5.0, 15.0, 60.0, 300.0)
LOADS_SPAN_S = 300  # that each constant load lasts
# requests that a replica of the autoscaler is to hold
HOLDS = (8.0, 16.0, 32.0)
# DynamoLLM otherwise than by the study's settings
VARIANTS: dict[str, dict[str, Any]] = {
    PUBLISHED: {"react": False, "priced_at": "top"},
    HINDSIGHT: {"load_prediction": "oracle"},
}


def systems(study: ServingStudy) -> list[dict]:
    """Every system on the study's trace, some with timelines."""
    return every_system(study.replayer(), study.trace(), study.settings(), cores=study.cores)


def every_system(
    replayer: Replayer,
    trace: Trace,
    own: Settings,
    tuned_on: Trace | None = None,
    *,
    cores: int,
) -> list[dict]:
    """Every system on a trace. tuned_on: what the plans, packing and the autoscaler are tuned on; None: the trace.
    cores: as tuned.second_for."""
    asked = [(name, name, own) for name in SYSTEMS]
    asked += [(name, "DynamoLLM", replace(own, **changed)) for name, changed in VARIANTS.items()]
    found = [
        _run(replayer, trace, system, settings, name in OVER_TIME) | {"system": name}
        for name, system, settings in asked
    ]
    with second_for(replayer, tuned_on or trace, cores) as second:
        return [*tuned_systems(replayer, trace, own, tuned_on or trace, second), *found]


def tuned_systems(
    replayer: Replayer, trace: Trace, own: Settings, tuned_on: Trace, second: Second | None
) -> list[dict]:
    """The tuned static plan, which all are compared with, packing on no more servers, and an autoscaler that begins as
    the plan: tuned on one trace, replayed on another.

    Where no plan keeps the promise it is all servers but the spare at the largest degree and highest clock, and says so
    by what it keeps.
    """
    found: list[dict] = []
    most = own.servers
    for name, parts in ((TUNED, None), (PACKED, PARTS)):
        tuner = Tuner(replayer, tuned_on, replace(own, servers=most), parts, second)
        best = next(iter(tuner.frontier((own.promise_percent,))), None)
        if best:
            most = best["servers"]
        else:
            tp = max(replayer.columns.degrees)
            # without the spare: with it, that might keep the promise which the spare is to guard
            best = {"servers": most - own.spare, "tp": tp, "clock": replayer.columns.top(tp)}
        run = replayed(replayer, trace, tuner.plan_of(best), own, timeline=True)
        found.append(run | {"system": name})
    plan = _autoscaler(replayer, tuned_on, own, found[0])
    run = replayed(replayer, trace, plan, own, servers=own.servers) | {"holds": plan.holds}
    # it starts and stops servers: there is no plan to start
    run.pop("replicas")
    return [*found, run]


def _autoscaler(replayer: Replayer, trace: Trace, own: Settings, static: dict) -> Autoscaled:
    """Of some targets the cheapest that keeps the promise, else the one that keeps most."""
    runs = []
    for holds in HOLDS:
        plan = Autoscaled(static["servers"], static["tp"], static["clock"], holds=holds * SERVER_GPUS / static["tp"])
        run = replayed(replayer, trace, plan, own, servers=own.servers)
        cost = run["j_per_token_in_time"] if run["kept_percent"] >= own.promise_percent else inf
        runs.append((cost, -run["kept_percent"], plan))
    return min(runs, key=lambda run: run[:2])[2]


def ladder(study: ServingStudy) -> list[dict]:
    """The tuned static plan, and packing with one part more each time, each tuned by itself on no more servers; the
    first and whole packing are those of `systems`."""
    replayer, trace, own = study.replayer(), study.trace(), study.settings()
    known = {each["system"]: each for each in study.experiment("systems") if each["system"] in (TUNED, PACKED)}
    found = [known[TUNED]] if known[TUNED]["kept_percent"] >= own.promise_percent else []
    with second_for(replayer, trace, study.cores) as second:
        for name, parts in LADDER.items() if found else ():
            if parts == PARTS:
                best = known[PACKED]
            else:
                tuner = Tuner(replayer, trace, replace(own, servers=found[0]["servers"]), parts, second)
                best = next(iter(tuner.frontier((own.promise_percent,), like=found[-1])), {"kept_percent": -1.0})
            if best["kept_percent"] >= own.promise_percent:
                found.append(best | {"system": name})
    return found


def sensitivity(study: ServingStudy) -> list[dict]:
    """What the answer hangs on: degree and clock (each with the fewest servers that keep the promise), servers, and for
    DynamoLLM the load slot; a promise that is kept nowhere has no energy."""
    replayer, trace, own = study.replayer(), study.trace(), study.settings()
    tuner = Tuner(replayer, trace, own)
    found: list[dict] = []
    for tp, clock in tuner.kinds:
        run = tuner.least(tp, clock, own.promise_percent)
        found.append(run | {"varied": "degree and clock", "value": f"TP{tp} {clock}", "system": TUNED})
    keeping = [each for each in found if each["j_per_token_in_time"] is not None]
    best = min(keeping, key=lambda each: each["j_per_token_in_time"], default=None)
    for parts, name in ((None, TUNED), (PARTS, PACKED)) if best else ():
        assert best is not None
        maker = Tuner(replayer, trace, own, parts)
        for count in range(max(1, best["servers"] - 1), min(best["servers"] + 4, own.servers + 1)):
            run = maker.on(maker.plan(count, best["tp"], best["clock"]))
            found.append(run | {"varied": "servers", "value": str(count), "system": name})
    for slot_s in SLOTS_S:
        run = _run(replayer, trace, "DynamoLLM", study.settings(load_slot_s=slot_s))
        found.append(run | {"varied": "load slot, s", "value": f"{slot_s:g}"})
    return found


def loads(study: ServingStudy) -> list[dict]:
    """The paper's baseline and DynamoLLM under its three constant loads, Poisson arrivals."""
    replayer, own, found = study.replayer(), study.settings(), []
    for tps in LOADS_TPS.values():
        trace = poisson(tps * own.servers, LOADS_SPAN_S, own.seed)
        found += [{"tps_per_server": tps} | _run(replayer, trace, name, own) for name in (BASELINE, "DynamoLLM")]
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


EXPERIMENTS: dict[str, Callable[[ServingStudy], list[dict]]] = {
    "systems": systems,
    "ladder": ladder,
    "sensitivity": sensitivity,
    "loads": loads,
    "misprediction": misprediction,
}


def _run(replayer: Replayer, trace: Trace, name: str, settings: Settings, timeline: bool = False) -> dict[str, Any]:
    return outcome(replayer.run(trace, name, settings), timeline)
