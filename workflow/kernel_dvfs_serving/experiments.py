"""The experiments of a serving study, each a list of outcomes with what was varied. Every number is simulated.

CPU seconds are kept here and left out of tables, so that a table is the same bytes whenever it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel_dvfs_serving.replay import outcome
from kernel_dvfs_serving.system import BASELINE, HINDSIGHT, LOADS_TPS, OVER_TIME, SYSTEMS, TOKEN_COUNT, TUNED
from kernel_dvfs_serving.trace import poisson
from kernel_dvfs_serving.tuned import FAMILIES, MARGINS, PlanTuner, Trials, replayed, second_for

if TYPE_CHECKING:
    from kernel_dvfs_serving.replay import Replayer
    from kernel_dvfs_serving.study import ServingStudy
    from kernel_dvfs_serving.system import ClusterSettings
    from kernel_dvfs_serving.trace import Trace

# the end of the paper's sweep, and its middle; several draws each, since the change is as small as their scatter
MISPREDICTION = (0.0, 0.2, 0.4)
MISPREDICTION_SEEDS = 3
SLOTS_S = (5.0, 15.0, 60.0, 300.0)
LOADS_SPAN_S = 300  # that each constant load lasts
# DynamoLLM otherwise than by the study's settings
VARIANTS: dict[str, dict[str, Any]] = {
    HINDSIGHT: {"load_prediction": "oracle"},
}


def systems(study: ServingStudy) -> list[dict]:
    """Return every system's outcome on the study's trace, some with timelines."""
    return every_system(study.replayer(), study.trace(), study.settings(), cores=study.cores)


def every_system(replayer: Replayer, trace: Trace, settings: ClusterSettings, *, cores: int) -> list[dict]:
    """Return every system's outcome on a trace, with what it keeps on both halves and with slower steps (`tried`:
    tuned.Trials). cores: as tuned.second_for."""
    trials = Trials(replayer, trace, settings)
    variants = [(name, name, settings) for name in SYSTEMS]
    variants += [(name, "DynamoLLM", replace(settings, **changes)) for name, changes in VARIANTS.items()]
    with second_for(trials, cores) as second:
        outcomes = [run for family in FAMILIES if (run := _fixed(PlanTuner(trials, family, second=second), settings))]
    for name, system, variant_settings in variants:
        tried = trials.tried(partial(_run, name=system, settings=variant_settings))
        outcomes.append(
            _run(replayer, trace, system, variant_settings, name in OVER_TIME) | {"system": name, "tried": tried}
        )
    return outcomes


def _fixed(tuner: PlanTuner, settings: ClusterSettings) -> dict | None:
    """Return the outcome, on the whole trace, of a family's cheapest plan that keeps the promise with all margins.

    Where none does it is all servers but the spare at the largest degree and highest clock, and says so by what it
    keeps. None where the machine has no such plans.
    """
    if not tuner.kinds:
        return None
    trials = tuner.trials
    plan = tuner.frontier((settings.promise_percent,)).get(settings.promise_percent)
    if plan is None:
        # without the spare: with it, that might keep the promise which the spare is to guard
        kind = max(tuner.kinds, key=lambda kind: (kind[0], float(kind[1].replace("@", "")), -kind[2]))
        plan = tuner.plan(settings.servers - settings.spare, *kind)
    run = replayed(trials.replayer, trials.trace, plan, settings, timeline=True)
    run |= {"kv_tokens": trials.replayer.machine.kv_tokens(plan.tp), "tried": trials.verdict(plan)}
    if tuner.family.name == TUNED:
        run["margins"] = []
        for name, tuner.count in MARGINS.items():  # how many of the trials the tuner looks at from here on
            for cheapest in tuner.frontier((settings.promise_percent,)).values():
                run["margins"].append({"kept_on": name} | trials.verdict(cheapest))
    return run | {"system": tuner.family.name}


def sensitivity(study: ServingStudy) -> list[dict]:
    """Return outcomes with the plan's degree, clock, step or servers otherwise, and with DynamoLLM's load slot."""
    replayer, trace, settings = study.replayer(), study.trace(), study.settings()
    trials = Trials(replayer, trace, settings)
    best = next(outcome for outcome in study.experiment("systems") if outcome["system"] == TUNED)
    tuner = PlanTuner(trials, FAMILIES[0])
    best_kind = (best["tp"], best["clock"], best["step_tokens"])
    asked = [("degree", f"TP{kind[0]}", kind) for kind in tuner.kinds if kind[1:] == best_kind[1:]]
    asked += [("clock, MHz", kind[1], kind) for kind in tuner.kinds if kind[::2] == best_kind[::2]]
    asked += [("step, tokens", str(kind[2]), kind) for kind in tuner.kinds if kind[:2] == best_kind[:2]]
    plans = [(varied, value, tuner.plan(best["servers"], *kind)) for varied, value, kind in asked]
    counts = range(max(1, best["servers"] - 1), min(best["servers"] + 3, settings.servers) + 1)
    plans += [("servers", str(count), tuner.plan(count, *best_kind)) for count in counts]
    outcomes = [
        replayed(replayer, trace, plan, settings) | {"varied": varied, "value": value, "system": TUNED}
        for varied, value, plan in plans
    ]
    for slot_s in SLOTS_S:
        run = _run(replayer, trace, "DynamoLLM", study.settings(load_slot_s=slot_s))
        outcomes.append(run | {"varied": "load slot, s", "value": f"{slot_s:g}"})
    return outcomes


def loads(study: ServingStudy) -> list[dict]:
    """Return the outcomes of the paper's baseline and DynamoLLM under its three constant loads, Poisson arrivals."""
    replayer, settings, outcomes = study.replayer(), study.settings(), []
    for tps in LOADS_TPS.values():
        trace = poisson(tps * settings.servers, LOADS_SPAN_S, settings.seed)
        outcomes += [
            {"tps_per_server": tps} | _run(replayer, trace, name, settings) for name in (BASELINE, "DynamoLLM")
        ]
    return outcomes


def misprediction(study: ServingStudy) -> list[dict]:
    """Return the outcomes of DynamoLLM with answers' classes mispredicted, and with the token-count predictor."""
    replayer, trace = study.replayer(), study.trace()
    seed = study["settings"]["seed"]
    asked = [(share, seed + offset) for share in MISPREDICTION for offset in range(MISPREDICTION_SEEDS if share else 1)]
    return [
        {"misprediction": share, "seed": drawn}
        | _run(replayer, trace, "DynamoLLM", study.settings(misprediction=share, seed=drawn))
        for share, drawn in [*asked, (TOKEN_COUNT, seed)]
    ]


EXPERIMENTS: dict[str, Callable[[ServingStudy], list[dict]]] = {
    "systems": systems,
    "sensitivity": sensitivity,
    "loads": loads,
    "misprediction": misprediction,
}


def _run(
    replayer: Replayer, trace: Trace, name: str, settings: ClusterSettings, timeline: bool = False
) -> dict[str, Any]:
    return outcome(replayer.run(trace, name, settings), timeline)
