"""What several tables and figures share: changes, a plan in words, a figure's subtitle."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kernel_dvfs import change
from kernel_dvfs_serving.resharding import SERVER_GPUS

if TYPE_CHECKING:
    from kernel_dvfs_serving.study import ServingStudy

_CHARACTERS = 72  # of a subtitle's line


def change_percent(value: float | None, reference: float | None) -> float | None:
    """Return kernel_dvfs.change.change_percent; None where either is missing (no token served in time)."""
    return None if value is None or reference is None else change.change_percent(value, reference)


def promise_kept(study: ServingStudy, run: dict) -> bool:
    """Return whether a run keeps as many promises as it must: only then is what it does not spend saved."""
    return run["kept_percent"] >= study["settings"]["promise_percent"]


def token_change_percent(study: ServingStudy, run: dict, reference: dict) -> float | None:
    """Return the change of the energy of a token served in time against another run; None also where either breaks the
    promise: who does not do the work saves nothing, and against who does not nothing is saved."""
    if not (promise_kept(study, reference) and promise_kept(study, run)):
        return None
    return change_percent(run["j_per_token_in_time"], reference["j_per_token_in_time"])


def plan_in_words(run: dict) -> str:
    """Return what a fixed plan starts; "" for a system that divides servers itself."""
    if "replicas" not in run:
        return ""
    servers, tp, clock = run["replicas"] * run["tp"] // SERVER_GPUS, run["tp"], run["clock"]
    mhz, _, cap_w = clock.partition("@")
    words = f"{servers} server{'s' if servers > 1 else ''} of {SERVER_GPUS} GPUs, TP{tp} "
    words += f"capped at {cap_w} W a GPU" if cap_w else f"at {mhz} MHz"
    return f"{words}, steps of {run['step_tokens']} tokens, by {run['router']}"


def by_system(runs: list[dict]) -> dict[str, dict]:
    """Return {system: run}."""
    return {run["system"]: run for run in runs}


def subtitle(study: ServingStudy, better: str = "") -> str:
    """Return the study's subject and size; better: the direction in which numbers are better, or ""."""
    settings = study["settings"]
    text = f"{study.subject}, at most {settings['servers']} servers of 8 GPUs" + (
        f"; better: {better}" if better else ""
    )
    return textwrap.fill(text, _CHARACTERS)
