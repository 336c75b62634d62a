"""A static plan for operators: YAML for people and programs, Prometheus recording rules for what to watch."""

from __future__ import annotations

from typing import Any

import yaml

from kernel_dvfs_serving.requests import TBT_SLO_S, TTFT_SLO_S

# metrics of the plan's servers, whose scrape targets carry this label, as vLLM, older vLLM and SGLang name them
_OWN = '{job="llm"}'
_TOKENS = ("vllm:{}_tokens_total", "sglang:{}_tokens_total")
_FIRST = ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds")
_GAP = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", "sglang:inter_token_latency_seconds")
_POWER = f"sum(DCGM_FI_DEV_POWER_USAGE{_OWN})"


def as_yaml(content: dict[str, Any]) -> str:
    """Plain values as YAML, keys in their order."""
    return yaml.safe_dump(content, sort_keys=False, width=120)


def recording_rules(plan: dict[str, Any]) -> dict[str, Any]:
    """Prometheus recording rules of a plan's first line: what was planned and promised, and what is seen.

    plan: tuned.written. Planned: servers and replicas of all cells, J a token. Seen: tokens/s, latencies (P99
    over 5 min), power by the DCGM exporter, and J a token of both.
    """
    first = plan["plans"][0]
    said = {"keep_percent": f"{first['keep_percent']:g}", "tp": str(first["tp"]), "core_mhz": first["clock"]}
    planned = {
        "servers": plan["cells"] * first["servers"],
        "replicas": plan["cells"] * first["replicas"],
        "joules_per_token": first["j_per_token_in_time"],
    }
    rules = [_rule(f"planned_{name}", f"vector({value:g})", said) for name, value in planned.items()]
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
    """The expression of the first of the names that there is."""
    return " or ".join(expression.replace("{}", name) for name in names)


def _rule(name: str, expression: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"record": f"kernel_dvfs:{name}", "expr": expression} | ({"labels": labels} if labels else {})
