"""A static plan for operators and for replays: its file, the lines that start what was simulated, Prometheus rules."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import yaml

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import CHECKSUM, change_of, checksum, parse_yaml
from kernel_dvfs_clocks.shape import FILLED, Is, checked
from kernel_dvfs_serving.requests import TBT_SLO_S, TTFT_SLO_S
from kernel_dvfs_serving.scheduler import BLOCK_TOKENS
from kernel_dvfs_serving.static import Static
from kernel_dvfs_serving.steps import MEMORY_SHARE
from kernel_dvfs_serving.system import LEAST, MAX_BATCH, NO_SPARE, SLOWER
from kernel_dvfs_serving.tuned import MARGINS, TRIALS

SCHEMA = "kernel-dvfs/serving-static/3"
_REMEDY = "make it again with kernel-dvfs serving plan TRACE.csv --profile PROFILE.csv"
# metrics of the plan's servers, whose scrape targets carry this label, as vLLM, older vLLM and SGLang name them
_OWN = '{job="llm"}'
_TOKENS = ("vllm:{}_tokens_total", "sglang:{}_tokens_total")
_FIRST = ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds")
_GAP = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", "sglang:inter_token_latency_seconds")
_POWER = f"sum(DCGM_FI_DEV_POWER_USAGE{_OWN})"


def as_yaml(content: dict[str, Any]) -> str:
    """Return plain values as YAML, keys in their order."""
    return yaml.safe_dump(content, sort_keys=False, width=120)


def sealed_yaml(content: dict[str, Any]) -> str:
    """Return the same, with its checksum as it is read back, last."""
    text = as_yaml(content)
    return f"{text}{CHECKSUM}: {checksum(parse_yaml(text))}\n"


# -- what starts it ----------------------------------------------------------------------------------------------------


class Served(NamedTuple):
    """What is started besides a plan: the model, its KV cache on a replica, the longest request, sequences at once."""

    model: str
    kv_tokens: int
    model_len: int
    sequences: int = MAX_BATCH


def vllm_line(served: Served, tp: int, step_tokens: int) -> str:
    """Return what starts a replica, for a shell: every limit of the simulated engine as a flag of vLLM's."""
    flags = {
        "--tensor-parallel-size": tp,
        "--max-num-batched-tokens": step_tokens,
        "--max-num-seqs": served.sequences,
        "--max-model-len": served.model_len,
        "--block-size": BLOCK_TOKENS,
        "--num-gpu-blocks-override": served.kv_tokens // BLOCK_TOKENS,
        "--gpu-memory-utilization": MEMORY_SHARE,
        "--scheduling-policy": "fcfs",
    }
    words = [f"{flag} {value}" for flag, value in flags.items()]
    switches = "--enable-chunked-prefill --no-enable-prefix-caching --no-async-scheduling"
    # a table of others names the model
    return f"vllm serve {shlex.quote(served.model)} {' '.join(words)} {switches}"


def router_line(router: str, replicas: int, port: int = 8080) -> str:
    """Return what hands requests to them: HOST and the replicas' addresses are the operator's."""
    if router == LEAST:
        urls = " ".join(f"http://REPLICA-{place + 1}:8000" for place in range(replicas))
        policy = "--policy cache_aware --balance-abs-threshold 0 --balance-rel-threshold 1.0"
        return f"vllm-router {policy} --port {port} --worker-urls {urls}"
    return f"python -m dynamo.frontend --router-mode kv --load-aware --http-port {port}"


def lock_line(clock: str, rest: str) -> str:
    """Return what sets the clocks, once, on each server."""
    mhz, _, cap_w = clock.partition("@")
    return f"nvidia-smi --power-limit={cap_w}" if cap_w else f"nvidia-smi --lock-gpu-clocks={rest},{mhz}"


def started(served: Served, plan: dict[str, Any]) -> dict[str, str]:
    """Return the three lines of a plan (tuned.plan_values, with its replicas)."""
    return {
        "replica": vllm_line(served, plan["tp"], plan["step_tokens"]),
        "router": router_line(plan["router"], plan["replicas"]),
        "clocks": lock_line(plan["clock"], plan["rest"]),
    }


# -- a plan as a file --------------------------------------------------------------------------------------------------


class _Plan(TypedDict):
    keep_percent: float
    kept_on: Literal["first half", "both halves", "both halves, slower steps"]
    router: Literal["least requests", "earliest first token"]
    servers: Annotated[int, Is("a whole number from 1 to 128", lambda value: 1 <= value <= 128)]
    tp: Annotated[int, Is("1, 2, 4 or 8", lambda value: value in (1, 2, 4, 8))]
    clock: str
    rest: str
    step_tokens: Annotated[int, Is("a whole number from 2 to 16384", lambda value: 2 <= value <= 16_384)]
    answer_tokens: Annotated[float, Is("a number of at least 1", lambda value: value >= 1)]


class StaticFile(TypedDict):
    """What a replay takes from a plan; `written` makes more."""

    schema: str
    cells: Annotated[int, Is("a whole number of at least 1", lambda value: value >= 1)]
    slo_scale: Annotated[float, Is("a number above 0", lambda value: value > 0)]
    gaps: Literal["mean", "p99"]
    plans: Annotated[list[_Plan], FILLED]


class Planned(NamedTuple):
    """A plan from its file, and under what it was tuned."""

    plan: Static
    cells: int  # as many fleets like this, to which requests are dealt in turn
    slo_scale: float
    gaps: str


def written(verdicts: list[dict[str, Any]], about: dict[str, Any], served: dict[int, Served]) -> dict[str, Any]:
    """Return plans (tuned.Trials.verdict, with keep_percent and kept_on) as plain values for YAML, with their starts.

    about: cells, slo_scale and gaps, and what else is to be said of all plans. served: by degree.
    """
    plans = []
    for verdict in verdicts:
        note = {"note": NO_SPARE} if verdict["servers"] == 1 else {}
        plans.append(verdict | note | {"start": started(served[verdict["tp"]], verdict)})
    return {"schema": SCHEMA, **about, "plans": plans}


def read_static(
    path: str, keep_percent: float | None = None, router: str | None = None, profile: str | None = None
) -> Planned:
    """Return the plan in a file that keeps the promises of so many percent, with all margins, by a router; None: the
    cheapest of the first level. profile: that it is used with; one of the name that it was planned with must be as it
    was. Raises InputError."""
    try:
        with open(path, encoding="utf-8") as file:
            content = parse_yaml(file.read())
    except FileNotFoundError:
        raise InputError(f"{path}: no such plan; {_REMEDY}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not YAML ({error}); {_REMEDY}") from None
    is_own = profile and isinstance(content, dict) and content.get("profile") == profile
    if what := change_of(content, {"profile": profile} if profile and is_own else None):
        raise InputError(f"{path}: {what}; {_REMEDY}")
    file_ = checked(content, StaticFile, path, _REMEDY, SCHEMA)
    whole = [plan for plan in file_["plans"] if plan["kept_on"] == list(MARGINS)[-1]]
    levels = list(dict.fromkeys(plan["keep_percent"] for plan in whole))
    if not levels:
        raise InputError(f"{path}: no plan keeps its promise with all margins; {_REMEDY}")
    level = levels[0] if keep_percent is None else keep_percent
    chosen = [plan for plan in whole if plan["keep_percent"] == level and router in (None, plan["router"])]
    if not chosen:
        routed = f" by {router}" if router else ""
        known = ", ".join(f"{percent:g}" for percent in levels)
        raise InputError(f"{path}: no plan keeps {level:g} %{routed}; it has {known}")
    names = ("servers", "tp", "clock", "rest", "step_tokens")
    plan: dict[str, Any] = {name: chosen[0][name] for name in names}  # type: ignore[literal-required]
    static = Static(**plan, router_name=chosen[0]["router"], answer_tokens=chosen[0]["answer_tokens"])
    return Planned(static, file_["cells"], file_["slo_scale"], file_["gaps"])


# -- for a terminal ----------------------------------------------------------------------------------------------------


def lines(verdicts: list[dict[str, Any]], levels: Sequence[float], cells: int = 1, spare: int = 0) -> Iterator[str]:
    """Yield plans, a line each: first with all margins, by level and router, then what the margins cost."""
    yield "keep %  router                servers  degree     clock   step  J/token  kept, %: " + " / ".join(TRIALS)
    last = list(MARGINS)[-1]
    whole = [verdict for verdict in verdicts if verdict["kept_on"] == last]
    yield from map(row, whole)
    for level in sorted(set(levels) - {verdict["keep_percent"] for verdict in whole}):
        yield f"{level:6g}  no plan keeps so many on these servers, at these degrees and clocks"
    for name in list(MARGINS)[:-1]:
        if margin_verdicts := [verdict for verdict in verdicts if verdict["kept_on"] == name]:
            yield f"the cheapest plans that keep it on {name} alone:"
            yield from map(row, margin_verdicts)
    if cells > 1:
        yield f"note: these are the servers of one cell of {cells}; deal the requests to the cells in turn"
    if spare:
        yield f"note: {spare} of these servers {'is' if spare == 1 else 'are'} spare: without them the promise is kept"
    yield f"note: slower: all steps take {SLOWER:g} times as long as the profile says"
    if any(verdict["servers"] == 1 for verdict in whole):
        yield f"note: {NO_SPARE} (--spare 1 adds one)"


def row(verdict: dict[str, Any]) -> str:
    """Return a plan in a line; what is kept is rounded down, as 98.999 % is not 99."""
    kept_percent = " / ".join(f"{int(100 * value) / 100:.2f}" for value in verdict["kept_percent"].values())
    token_j = verdict["j_per_token_in_time"]
    cost = "none   " if token_j is None else f"{token_j:.4f}"
    level = f"{verdict['keep_percent']:6g}" if "keep_percent" in verdict else "      "
    return (
        f"{level}  {verdict['router']:20}  {verdict['servers']:7d}  TP{verdict['tp']:<4d}  {verdict['clock']:>8}  "
        f"{verdict['step_tokens']:5d}  {cost}  {kept_percent}"
    )


# -- what to watch -----------------------------------------------------------------------------------------------------


def recording_rules(plan: dict[str, Any]) -> dict[str, Any]:
    """Return Prometheus recording rules of a file's first plan: what was planned and promised, and what is seen.

    plan: `written`. Planned: servers and replicas of all cells, J a token. Seen: tokens/s, latencies (P99
    over 5 min), power by the DCGM exporter, and J a token of both.
    """
    first = plan["plans"][0]
    labels = {"keep_percent": f"{first['keep_percent']:g}", "tp": str(first["tp"]), "core_mhz": first["clock"]}
    planned = {
        "servers": plan["cells"] * first["servers"],
        "replicas": plan["cells"] * first["replicas"],
        "joules_per_token": first["j_per_token_in_time"],
    }
    rules = [_rule(f"planned_{name}", f"vector({value:g})", labels) for name, value in planned.items()]
    for letter, promise_s in TTFT_SLO_S.items():
        rules.append(_rule("ttft_promise_seconds", f"vector({plan['slo_scale'] * promise_s:g})", {"prompt": letter}))
    rules.append(_rule("tbt_promise_seconds", f"vector({plan['slo_scale'] * TBT_SLO_S:g})", {"of": plan["gaps"]}))
    kinds = [[name.format(kind) for name in _TOKENS] for kind in ("prompt", "generation")]
    tokens = " + ".join(f"({_either(f'sum(rate({{}}{_OWN}[1m]))', names)})" for names in kinds)
    p99 = f"histogram_quantile(0.99, sum by (le) (rate({{}}_bucket{_OWN}[5m])))"
    rules += [
        _rule("tokens_per_second", tokens, {}),
        _rule("ttft_p99_seconds", _either(p99, _FIRST), {}),
        _rule("tbt_p99_seconds", _either(p99, _GAP), {}),
        _rule("power_watts", _POWER, {}),
        _rule("joules_per_token", f"{_POWER} / ({tokens})", {}),
    ]
    return {"groups": [{"name": "kernel_dvfs_serving_plan", "interval": "15s", "rules": rules}]}


def _either(expression: str, names: list[str] | tuple[str, ...]) -> str:
    """Return the expression of the first of the names that there is."""
    return " or ".join(expression.replace("{}", name) for name in names)


def _rule(name: str, expression: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"record": f"kernel_dvfs:{name}", "expr": expression} | ({"labels": labels} if labels else {})
