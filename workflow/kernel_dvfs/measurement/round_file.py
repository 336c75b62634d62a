"""A round's plan on disk: what it asks to have measured, and from what. Empty: nothing is left to ask."""

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json, read_json, write_text
from kernel_dvfs.measurement.request import from_json, to_json

SCHEMA = "kernel-dvfs/round/1"
_REMEDY = "delete it and run snakemake again"


def write(path: str, setup, options: dict, number: int, stage: str, requests: list, about: dict) -> None:
    """options: what the plan followed from beside records. stage: `search` or `refine`. about: the stage's own notes.

    All of it JSON-ready.
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


def read(path: str) -> dict:
    """The content, its requests as Request. Raises InputError naming the file."""
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


def finished(folder: str, setup_digest: str, options: dict) -> list | None:
    """The plans of all rounds in order, the last one empty, where they lie there whole and follow from these options.

    None otherwise: then something is left to be planned.
    """
    plans = []
    while not plans or plans[-1]["requests"]:
        try:
            plan = read(f"{folder}/{len(plans) + 1}.json")
        except InputError:
            return None
        if (plan["setup"], plan["options"], plan["round"]) != (setup_digest, options, len(plans) + 1):
            return None
        plans.append(plan)
    return plans
