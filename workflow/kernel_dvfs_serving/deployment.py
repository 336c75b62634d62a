"""What to run: instances, degrees and clocks for given loads, as YAML for people and programs and as Prometheus rules.

One allocation over all classes, degrees and clocks (allocation.allocate); then each group of instances takes the clock
that draws least at its share of the load. Expected power, latencies and promises are the profile's at that load.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import yaml

from kernel_dvfs.errors import InputError
from kernel_dvfs.shape import FILLED, checked
from kernel_dvfs_serving.columns import Column, Columns, mhz
from kernel_dvfs_serving.pricing import allocate
from kernel_dvfs_serving.profile import Profile
from kernel_dvfs_serving.requests import CLASSES, TBT_SLO_S, dominates, index, ttft_slo_s
from kernel_dvfs_serving.resharding import SERVER_GPUS

SCHEMA = "kernel-dvfs/serving-plan/1"
# names of vLLM's metrics, and of the DCGM exporter's; a pool's scrape targets carry the label `pool`
_RATE = "sum(rate(vllm:{name}_tokens_total{{pool={pool}}}[1m]))"
_P99 = "histogram_quantile(0.99, sum by (le) (rate(vllm:{name}_seconds_bucket{{pool={pool}}}[5m])))"
_POWER = "sum(DCGM_FI_DEV_POWER_USAGE{{pool={pool}}})"


class _Step(TypedDict):
    up_to_tps: float
    core_mhz: int


class _Instance(TypedDict):
    pool: str
    clocks: Annotated[list[_Step], FILLED]


class _Level(TypedDict):
    instances: list[_Instance]


class PlanFile(TypedDict):
    """What whoever follows a plan relies on; `plan` makes more."""

    schema: str
    levels: Annotated[list[_Level], FILLED]


def plan(
    profile: Profile,
    loads: dict[str, float],
    *,
    servers: int,
    times: Sequence[float] = (1.0,),
    margin: float = 1.1,
    slo_scale: float = 1.0,
) -> dict[str, Any]:
    """What to run for `loads`, {class: tokens/s}, and for multiples of them, on at most `servers` servers of 8 GPUs.

    margin: capacity above the load. slo_scale: factor of every promise. Plain values, fit for YAML. Raises InputError
    for a class without a feasible column, or a load that the servers cannot carry.
    """
    columns = Columns(profile, slo_scale=slo_scale, layouts=False)
    columns.require([index(name) for name in loads])
    levels = [_level(columns, loads, factor, servers, margin) for factor in times]
    return {
        "schema": SCHEMA,
        "profile": profile.name,
        "source": ", ".join(sorted(profile.sources)),
        "model": profile.model,
        "gpu": profile.gpu,
        "margin": margin,
        "slo_scale": slo_scale,
        "levels": levels,
    }


def _level(columns: Columns, loads: dict[str, float], factor: float, servers: int, margin: float) -> dict[str, Any]:
    parked_w = columns.profile.parked_w
    wanted = {index(name): factor * margin * tps for name, tps in loads.items()}
    offers = {}
    for kind in range(len(CLASSES)):
        smaller = frozenset(each for each in wanted if dominates(kind, each))
        for served in {frozenset({kind}), smaller | {kind}}:
            offers[kind, served] = columns.pool(kind, served)
    offered = list(dict.fromkeys(column for offer in offers.values() for column in offer.columns))
    found = allocate(offered, wanted, servers=servers, parked_w=parked_w)
    if found.shed_tps:
        kind, short = max(found.shed_tps.items(), key=lambda item: item[1])
        raise InputError(
            f"{columns.profile.name}: {servers} servers cannot carry the load times {factor:g} and the margin "
            f"{margin:g} within the promises: {short:.3g} tokens/s of class {CLASSES[kind]} are left without a place; "
            "give more servers"
        )
    groups: dict[tuple[int, frozenset[int], int], list[tuple[Column, float]]] = {}
    for column, use in found.chosen.items():
        groups.setdefault((column.kind, column.served, column.tp), []).append((column, use))
    instances: list[dict[str, Any]] = []
    for (kind, served, tp), own in sorted(
        groups.items(), key=lambda item: (item[0][0], item[0][2], sorted(item[0][1]))
    ):
        count = round(sum(use for _, use in own))
        if not count:
            continue  # a rest within the solver's tolerance
        offer = offers[kind, served]
        most = sum(column.tps * use for column, use in own) / count
        tps = most / margin
        clock = offer.least_power_clock(tp, most)
        point = columns.profile.at(CLASSES[kind], tp, clock, tps)
        instances.append(
            {
                "pool": f"{CLASSES[kind]}-tp{tp}" + ("" if len(served) == 1 else "-shared"),
                "serves": [CLASSES[each] for each in sorted(served)],
                "tp": tp,
                "instances": count,
                "core_mhz": mhz(clock),
                "load_tps": round(tps, 1),
                "power_w": round(point.power_w, 1),
                "j_per_token": float(f"{point.power_w / tps:.4g}") if tps else None,
                "ttft_p99_s": float(f"{point.ttft_p99_s:.4g}"),
                "tbt_p99_s": float(f"{point.tbt_p99_s:.4g}"),
                "ttft_promise_s": min(ttft_slo_s(CLASSES[each]) for each in served) * columns.slo_scale,
                "tbt_promise_s": TBT_SLO_S * columns.slo_scale,
                # the clock for any load: that of the first line whose load is at least the instance's; each leaves the
                # margin that the plan itself leaves
                "clocks": [
                    {"up_to_tps": round(limit / margin, 1), "core_mhz": mhz(name)}
                    for limit, name in offer.clock_ladder(tp)
                ],
            }
        )
    gpus = sum(each["tp"] * each["instances"] for each in instances)
    running_w = sum(each["power_w"] * each["instances"] for each in instances)
    parked = SERVER_GPUS * found.servers - gpus
    return {
        "times": factor,
        "load_tps": {name: factor * tps for name, tps in loads.items()},
        "servers": found.servers,
        "gpus": gpus,
        "power_w": round(running_w + parked * parked_w, 1),
        "instances": instances,
    }


def clock_at(plan_: PlanFile, pool: str, tps: float) -> int:
    """The core clock, MHz, that a plan gives an instance of a pool at a load, tokens/s; above all loads the highest.

    Raises InputError for an unknown pool.
    """
    pools = {each["pool"]: each for level in plan_["levels"] for each in level["instances"]}
    if pool not in pools:
        raise InputError(f"pool {pool}: not in the plan; it has {', '.join(pools)}")
    ladder = pools[pool]["clocks"]
    return next((each["core_mhz"] for each in ladder if tps <= each["up_to_tps"]), ladder[-1]["core_mhz"])


def read_plan(path: str) -> PlanFile:
    """A plan from its YAML. Raises InputError."""
    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.safe_load(file)
    except FileNotFoundError:
        raise InputError(f"{path}: no such plan; make one with kernel-dvfs serving plan") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    remedy = "make it again with kernel-dvfs serving plan"
    content = checked(found, PlanFile, path, remedy, SCHEMA)
    if not any(level["instances"] for level in content["levels"]):
        raise InputError(f"{path}: none of its levels has instances; {remedy}")
    return content


def as_yaml(content: dict[str, Any]) -> str:
    """Plain values as YAML, keys in their order."""
    return yaml.safe_dump(content, sort_keys=False, width=120)


def recording_rules(plan_: dict[str, Any]) -> dict[str, Any]:
    """Prometheus recording rules: what was planned, what is seen, and the clock that the plan gives at the load seen.

    Seen: vLLM's and the DCGM exporter's metrics of targets whose label `pool` is the plan's.
    """
    rules = []
    for level in plan_["levels"]:
        said = {"load_times": f"{level['times']:g}"}
        rules.append(_rule("planned_power_watts", f"vector({level['power_w']})", said))
        rules.append(_rule("planned_servers", f"vector({level['servers']})", said))
        for each in level["instances"]:
            own = said | {"pool": each["pool"], "tp": str(each["tp"]), "core_mhz": str(each["core_mhz"])}
            rules.append(_rule("planned_instances", f"vector({each['instances']})", own))
            rules.append(_rule("planned_instance_power_watts", f"vector({each['power_w']})", own))
    pools = {each["pool"]: each for level in plan_["levels"] for each in level["instances"]}
    for name, each in pools.items():
        pool, label = f'"{name}"', {"pool": name}
        for promise in ("ttft", "tbt"):
            rules.append(_rule(f"{promise}_promise_seconds", f"vector({each[f'{promise}_promise_s']:g})", label))
        rules += [
            _rule(
                "tokens_per_second",
                " + ".join(_RATE.format(name=name, pool=pool) for name in ("prompt", "generation")),
                label,
            ),
            _rule("ttft_p99_seconds", _P99.format(name="time_to_first_token", pool=pool), label),
            _rule("tbt_p99_seconds", _P99.format(name="inter_token_latency", pool=pool), label),
            _rule("power_watts", _POWER.format(pool=pool), label),
        ]
        steps = each["clocks"]
        per_instance = (
            f"kernel_dvfs:tokens_per_second{{pool={pool}}} / on() count(vllm:num_requests_running{{pool={pool}}})"
        )
        expression = str(steps[0]["core_mhz"])
        for before, after in itertools.pairwise(steps):
            change = after["core_mhz"] - before["core_mhz"]
            expression += f" + {change} * (({per_instance}) > bool {before['up_to_tps']})"
        if len(steps) == 1:
            expression = f"vector({expression})"
        rules.append(_rule("planned_core_mhz", expression, label))
    return {"groups": [{"name": "kernel_dvfs_serving_plan", "interval": "5s", "rules": rules}]}


def _rule(name: str, expression: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"record": f"kernel_dvfs:{name}", "expr": expression, "labels": labels}
