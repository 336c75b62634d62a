"""Records on disk: one JSON a point, or one a comparison, complete or absent, and refused when foreign.

The one place that knows the shape of a record file. Raw units (mJ, us, MHz), as the protocol's section 10 lays down.
"""

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json, read_json, write_text
from kernel_dvfs.gpu.clocks import Pair, label

POINT = "kernel-dvfs/point/1"
COMPARISON = "kernel-dvfs/comparison/1"

_POINT_FIELDS = {
    "schema",
    "run",
    "device",
    "kernel",
    "request",
    "windows",
    "reached",
    "summary",
    "verdict",
    "reasons",
}
_COMPARISON_FIELDS = {"schema", "run", "device", "comparisons"}
_REMEDY = "delete it (kernel-dvfs records --delete-bad finds all such files) and run snakemake again"


def write_point(path: str, setup, device: dict, target, campaign: str, repeat: int, point: dict) -> None:
    """Write one point's record."""
    content = {
        "schema": POINT,
        "run": {
            "setup": setup.digest,
            "seed": setup.measurement["seed"],
            "campaign": campaign,
            "repeat": repeat,
        },
        "device": device,
        "kernel": {"study": target.study, "name": target.name, "workload": setup.workload["name"]},
        **point,
    }
    _write(path, content)


def write_comparison(path: str, setup, device: dict, schedule: str, comparisons: list) -> None:
    """Write interleaved comparisons of auto and chosen clocks.

    comparisons: [{"target": id, "repeat": k, "points": [auto, chosen, chosen, auto]}], each point without windows.
    """
    content = {
        "schema": COMPARISON,
        "run": {"setup": setup.digest, "seed": setup.measurement["seed"], "schedule": schedule},
        "device": device,
        "comparisons": comparisons,
    }
    _write(path, content)


def _write(path: str, content: dict) -> None:
    write_text(path, compact_json(content) + "\n")


def read_point(path: str, setup, target, pair: Pair) -> dict:
    """The record of one point. Raises InputError naming the file if it is truncated, foreign or of another setup."""
    content = _read(path, POINT, _POINT_FIELDS)
    kernel, request = content["kernel"], content["request"]
    _same(path, "setup", content["run"].get("setup"), setup.digest)
    _same(path, "target", f"{kernel.get('study')}/{kernel.get('name')}", f"{target.study}/{target.name}")
    _same(path, "clocks", f"{request.get('core_mhz')}-{request.get('mem_mhz')}", label(pair))
    _positive(path, content["summary"])
    return content


def read_comparison(path: str) -> tuple:
    """(setup digest, comparisons) of a record. Raises InputError as `read_point`."""
    content = _read(path, COMPARISON, _COMPARISON_FIELDS)
    for comparison in content["comparisons"]:
        for point in comparison["points"]:
            _positive(path, point["summary"])
    return content["run"]["setup"], content["comparisons"]


def _read(path: str, schema: str, fields: set) -> dict:
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise InputError(f"record {path}: missing; run snakemake again") from None
    except (OSError, ValueError) as error:
        raise InputError(f"record {path}: truncated or not JSON ({error}); {_REMEDY}") from None
    if not isinstance(content, dict) or content.get("schema") != schema or set(content) != fields:
        raise InputError(f"record {path}: not a complete {schema} record; {_REMEDY}")
    return content


def _same(path: str, what: str, found, expected) -> None:
    if found != expected:
        raise InputError(f"record {path}: foreign: its {what} is {found}, expected {expected}; {_REMEDY}")


def _positive(path: str, summary: dict) -> None:
    for field in ("time_us", "energy_mj"):
        value = summary.get(field)
        if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise InputError(f"record {path}: summary.{field} is {value}, expected a positive number; {_REMEDY}")
