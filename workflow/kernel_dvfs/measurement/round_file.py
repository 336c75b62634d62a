"""The file of a round's plan: what the round asks to have measured, and what the plan follows from.

A plan without requests ends the rounds: nothing is left to ask for.
"""

from __future__ import annotations

from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json, read_json, write_text
from kernel_dvfs.measurement.request import Request, from_json, to_json
from kernel_dvfs.measurement.setup import Setup

SCHEMA = "kernel-dvfs/round/1"
_REMEDY = "delete it and run snakemake again"


def write(
    path: str,
    setup: Setup,
    options: dict[str, Any],
    number: int,
    stage: str,
    requests: list[Request],
    about: dict[str, Any],
) -> None:
    """Write the plan of round `number`.

    options: what the plan follows from besides the records. stage: `search` or `refine`. about: notes of the stage.
    Options and notes are JSON-ready.
    """
    content = {
        "schema": SCHEMA,
        "setup": setup.digest,
        "options": options,
        "round": number,
        "stage": stage,
        "requests": to_json(requests),
        "about": about,
    }
    write_text(path, compact_json(content) + "\n")


def read(path: str) -> dict[str, Any]:
    """The fields of a plan, its requests as Request. Raises InputError naming the file where it is no whole plan."""
    try:
        content = read_json(path)
        if content["schema"] != SCHEMA:
            raise ValueError(f"not a {SCHEMA} file")
        fields = {name: content[name] for name in ("setup", "options", "round", "stage", "about")}
        return fields | {"requests": from_json(content["requests"])}
    except FileNotFoundError:
        raise InputError(f"round {path}: missing; run snakemake again") from None
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"round {path}: truncated or no plan of a round ({error}); {_REMEDY}") from None


def finished(folder: str, setup_digest: str, options: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The plans of all rounds in order, the last one without requests; None where a round is still to be planned.

    A plan counts only if its file is whole and it follows from this setup and these options.
    """
    plans: list[dict[str, Any]] = []
    while not plans or plans[-1]["requests"]:
        try:
            plan = read(f"{folder}/{len(plans) + 1}.json")
        except InputError:
            return None
        if (plan["setup"], plan["options"], plan["round"]) != (setup_digest, options, len(plans) + 1):
            return None
        plans.append(plan)
    return plans
