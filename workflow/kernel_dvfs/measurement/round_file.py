"""A round's plan on disk: what it asks to have measured, and from what. Empty: nothing is left to ask."""

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json, read_json, write_text
from kernel_dvfs.measurement.request import from_json, to_json

SCHEMA = "kernel-dvfs/round/1"
_REMEDY = "delete it and run snakemake again"


def write(path: str, setup, number: int, stage: str, requests: list, about: dict) -> None:
    """stage: `search` or `refine`. about: what else the stage wants to remember, JSON-ready."""
    content = {
        "schema": SCHEMA,
        "setup": setup.digest,
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
        requests = from_json(content["requests"])
        if content["schema"] != SCHEMA or not isinstance(content["about"], dict):
            raise ValueError(f"not a {SCHEMA} file")
        return content | {"requests": requests, "stage": content["stage"], "round": content["round"]}
    except FileNotFoundError:
        raise InputError(f"round {path}: missing; run snakemake again") from None
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"round {path}: truncated or no plan of a round ({error}); {_REMEDY}") from None
