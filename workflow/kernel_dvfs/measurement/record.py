"""Records on disk: one JSON file per point or per comparison, complete or absent, refused where it belongs elsewhere.

The one place that knows the shape of a record file. All units are raw: mJ, us, MHz.

A record carries the SHA-256 of its own content, so that a changed number is found even where all others were changed to
fit it. That finds a disk's fault and an edit. It does not find a forgery: nothing here is secret, so whoever means to
can compute the checksum again. Records of versions that wrote none are accepted without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError, unread
from kernel_dvfs.files import compact_json, read_json, write_text
from kernel_dvfs.gpu.clocks import AUTO, LOCKS, Pair, label
from kernel_dvfs.measurement import consistency
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target

if TYPE_CHECKING:
    from kernel_dvfs.measurement.campaign import AnyBench

POINT = "kernel-dvfs/point/1"
SKIPPED = "kernel-dvfs/skipped/1"
COMPARISON = "kernel-dvfs/comparison/2"
_CHECKSUM = "sha256"

_VERDICTS = ("ok", "throttled", "not_reached", "disturbed", "unstable", "counter")
_REMEDY = (
    "delete it (kernel-dvfs measure records FOLDER/measurements --gpu FOLDER/setup/DIGEST.json --delete-bad finds all "
    "such files) and run snakemake again"
)


_INFINITY = float("inf")
# (what a field must be, in words; the test)
_Kind = tuple[str, Callable[[Any], bool]]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -_INFINITY < value < _INFINITY


_TEXT: _Kind = ("text", lambda value: type(value) is str)
_COUNT: _Kind = ("a whole number >= 0", lambda value: type(value) is int and value >= 0)
_COUNT_OR_NULL: _Kind = ("a whole number >= 0 or null", lambda value: value is None or _COUNT[1](value))
_SOME: _Kind = ("a whole number >= 1", lambda value: type(value) is int and value >= 1)
_NUMBER: _Kind = ("a number", _is_number)
_POSITIVE: _Kind = ("a positive number", lambda value: _is_number(value) and value > 0)
_SCATTER: _Kind = ("a number >= 0 or null", lambda value: value is None or (_is_number(value) and value >= 0))
_NOT_NEGATIVE: _Kind = ("a number >= 0", lambda value: _is_number(value) and value >= 0)
_FLAG: _Kind = ("true, false or null", lambda value: value is None or type(value) is bool)
_TEXT_OR_NULL: _Kind = ("text or null", lambda value: value is None or type(value) is str)
_POLICY: _Kind = ("auto, lock or external", lambda value: value in (AUTO, "lock", "external"))
_LOCK: _Kind = ("range or exact", lambda value: value in LOCKS)
_POWER_LIMIT: _Kind = ("a positive number or null", lambda value: value is None or (_is_number(value) and value > 0))
_SHARES: _Kind = (
    "a group of event bits and shares",
    lambda value: type(value) is dict and all(_is_number(share) and 0 < share <= 1 for share in value.values()),
)
_PAIR: _Kind = ("two numbers", lambda value: type(value) is list and len(value) == 2 and all(map(_is_number, value)))
_RANGE: _Kind = ("two numbers or null", lambda value: value is None or _PAIR[1](value))
_SPREAD: _Kind = (
    "[lowest, middle, highest]",
    lambda value: type(value) is list and len(value) == 3 and all(map(_is_number, value)) and value == sorted(value),
)
_CLOCK: _Kind = ("a number of MHz or auto", lambda value: value == AUTO or (_is_number(value) and value >= 30))
_TEXTS: _Kind = ("a list of texts", lambda value: type(value) is list and all(type(each) is str for each in value))
_FILLED: _Kind = ("a list of at least one", lambda value: type(value) is list and value != [])
_FOUR: _Kind = ("a list of four points", lambda value: type(value) is list and len(value) == 4)
_VERDICT: _Kind = (f"one of {', '.join(_VERDICTS)}", lambda value: type(value) is str and value in _VERDICTS)

# the fields of each group, {name: _Kind or such a group}; what readers rely on
_POINT_FIELDS: dict[str, Any] = {
    "request": {"policy": _POLICY, "core_mhz": _CLOCK, "mem_mhz": _CLOCK, "switch_s": _NOT_NEGATIVE},
    "reached": {"core_mhz": _NUMBER, "mem_mhz": _NUMBER, "alias_of": _TEXT_OR_NULL},
    "summary": {
        "n": _SOME,
        "time_us": _POSITIVE,
        "time_sd_us": _SCATTER,
        "energy_mj": _POSITIVE,
        "energy_sd_mj": _SCATTER,
        "power_mw": _POSITIVE,
    },
    "verdict": _VERDICT,
    "reasons": _TEXTS,
}
_RAW: dict[str, Any] = {"duration_s": _POSITIVE, "energy_mj": _POSITIVE, "time_us": _POSITIVE}
_WINDOW: dict[str, Any] = {
    "duration_s": _POSITIVE,
    "energy_mj": _POSITIVE,
    "launches": _SOME,
    "time_us": _POSITIVE,
    "core_mhz": _SPREAD,
    "mem_mhz": _SPREAD,
    "temp_c": _PAIR,
    "cap_ns": _COUNT,
    "thermal_delta": _COUNT,
    "reasons": _SHARES,
    "processes": _COUNT_OR_NULL,
}
_DEVICE: dict[str, Any] = {
    "kind": _TEXT,
    "name": _TEXT,
    "uuid": _TEXT,
    "driver": _TEXT,
    "power_limit_mw": _POWER_LIMIT,
    "energy_scope": _TEXT,
    "counter_period_ms": _POSITIVE,
    "counter_read_ms": _NOT_NEGATIVE,
}
# further fields of a real board
_REAL_DEVICE: dict[str, Any] = {
    **dict.fromkeys(("pci_bus_id", "nvml", "binding", "cuda"), _TEXT),
    "vbios": _TEXT_OR_NULL,
    "ecc": _FLAG,
    "persistence": _FLAG,
}
# checked where they are present: a pass has no shape, a point at auto no range
_OPTIONAL: dict[str, Any] = {
    "device": {"cuda_runtime": _COUNT, "cublaslt": _COUNT, "library_sha256": _TEXT},
    "kernel": {"shape": _TEXT, "dtype": _TEXT, "instance": _TEXT, "working_set_bytes": _COUNT, "by_graph": _FLAG},
    "request": {"through": _TEXT, "lock": _LOCK, "core_range_mhz": _RANGE, "mem_range_mhz": _RANGE},
}
_REAL_RUN: dict[str, Any] = {
    **dict.fromkeys(("run_id", "started_utc", "host", "boot_id", "config_sha256"), _TEXT),
    "block": _COUNT,
    "order": _SOME,
    "spent_s": dict.fromkeys(("windows", "warm_up", "conditioning", "choosing", "preparing", "other"), _NOT_NEGATIVE),
}
_POINT_RECORD: dict[str, Any] = {
    "schema": _TEXT,
    "run": {"setup": _TEXT, "seed": _COUNT, "campaign": _TEXT, "repeat": _COUNT},
    "device": _DEVICE,
    "kernel": {"study": _TEXT, "name": _TEXT, "workload": _TEXT},
    "windows": _FILLED,
    **_POINT_FIELDS,
}
_SKIPPED_RECORD: dict[str, Any] = {
    "schema": _TEXT,
    "run": {"setup": _TEXT, "repeat": _COUNT},
    "kernel": {"study": _TEXT, "name": _TEXT},
    "request": {"core_mhz": _CLOCK, "mem_mhz": _CLOCK},
    "reason": _TEXT,
}
_COMPARISON_RECORD: dict[str, Any] = {
    "schema": _TEXT,
    "run": {"setup": _TEXT, "seed": _COUNT, "schedule": _TEXT},
    "device": _DEVICE,
    "comparisons": _FILLED,
}
_COMPARISON_FIELDS: dict[str, Any] = {"target": _TEXT, "repeat": _COUNT, "session": _TEXT, "points": _FOUR}


def write_point(
    path: str, setup: Setup, bench: AnyBench, target: Target, campaign: str, repeat: int, point: dict[str, Any]
) -> None:
    """Write the record of a point that `bench` (campaign.open_bench) has just measured.

    Raises InputError, and writes nothing, where its numbers do not agree: a reader would refuse it.
    """
    content = {
        "schema": POINT,
        "run": {
            "setup": setup.digest,
            "seed": setup.measurement["seed"],
            "campaign": campaign,
            "repeat": repeat,
            **bench.run,
        },
        "device": bench.device,
        "kernel": {"study": target.study, "name": target.name, "workload": setup.workload["name"], **bench.kernel},
        **point,
    }
    if wrong := consistency.of_point(content):
        raise InputError(f"record {path}: not written: {wrong}; measure the point again")
    _write(path, content, bench.device)


def write_skipped(path: str, setup: Setup, target: Target, pair: Pair, repeat: int, reason: str) -> None:
    """Write, in place of a point's record, why the point was not measured."""
    content = {
        "schema": SKIPPED,
        "run": {"setup": setup.digest, "repeat": repeat},
        "kernel": {"study": target.study, "name": target.name},
        "request": {"core_mhz": pair[0], "mem_mhz": pair[1]},
        "reason": reason,
    }
    _write(path, content, {})


def read_skipped(path: str, setup: Setup, target: Target, pair: Pair) -> str:
    """Why the point was not measured; "" where the file does not say so, be it missing or a point's record.

    Raises InputError, as `read_point`, where the file says so but is damaged or foreign.
    """
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return ""
    if type(content) is not dict or content.get("schema") != SKIPPED:
        return ""
    content = _read(path, SKIPPED, _SKIPPED_RECORD)
    _is_of(path, content, setup, target, pair, None)
    _unchanged(path, content)
    return content["reason"]


def write_comparison(
    path: str, setup: Setup, device: dict[str, Any], schedule: str, comparisons: list[dict[str, Any]]
) -> None:
    """Write interleaved comparisons of auto and chosen clocks.

    schedule: what the clocks were chosen by, a path or the clocks. comparisons: [{"target": id, "repeat": k, "session":
    what was measured in one go, "points": [auto, chosen, chosen, auto]}], each point as consistency.without_windows
    leaves it. Raises InputError, and writes nothing, where their numbers do not agree: a reader would refuse them.
    """
    content = {
        "schema": COMPARISON,
        "run": {"setup": setup.digest, "seed": setup.measurement["seed"], "schedule": schedule},
        "device": device,
        "comparisons": comparisons,
    }
    if wrong := _disagreement(content):
        raise InputError(f"record {path}: not written: {wrong}; measure the comparison again")
    _write(path, content, device)


def _disagreement(content: dict[str, Any]) -> str:
    """What is wrong with the points of a comparison's record, in words; "" where they agree."""
    found = (
        consistency.of_summary(f"comparisons[{number}].points[{place}].", point, content["device"])
        for number, comparison in enumerate(content["comparisons"])
        for place, point in enumerate(comparison["points"])
    )
    return next(filter(None, found), "")


def _write(path: str, content: dict[str, Any], device: dict[str, Any]) -> None:
    text = compact_json(content | {_CHECKSUM: _checksum(content)})
    write_text(path, text + "\n", durable=device.get("kind") == "nvml")


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(compact_json(content).encode()).hexdigest()


def read_point(path: str, setup: Setup, target: Target, pair: Pair, repeat: int | None = None) -> dict[str, Any]:
    """The record of one point. Raises InputError naming the file where it is missing, truncated or foreign.

    A record is foreign if it is of another setup, target, clock pair or repeat. repeat: None takes it from a file name
    r<repeat>.json.
    """
    content = _read(path, POINT, _POINT_RECORD)
    for number, window in enumerate(content["windows"]):
        _check(path, f"windows[{number}]", window, _WINDOW)
        there = {part: _RAW for part in ("with_beginning", "beginning") if part in window}
        _check(path, f"windows[{number}]", window, there)
    if content["device"]["kind"] == "nvml":
        _check(path, "run", content["run"], _REAL_RUN)
        for group, fields in _OPTIONAL.items():
            there = {name: kind for name, kind in fields.items() if name in content[group]}
            _check(path, group, content[group], there)
    _consistent(path, consistency.of_point(content))
    _is_of(path, content, setup, target, pair, repeat)
    _unchanged(path, content)
    return content


def _is_of(path: str, content: dict[str, Any], setup: Setup, target: Target, pair: Pair, repeat: int | None) -> None:
    """Raise InputError unless a file is of this setup, target, pair and repeat (None: that of its name)."""
    run, kernel, request = content["run"], content["kernel"], content["request"]
    _same(path, "setup", run["setup"], setup.digest)
    if setup.gpu["kind"] == "nvml" and "device" in content:
        _same(path, "device", content["device"]["uuid"], setup.gpu["uuid"])
    _same(path, "target", f"{kernel['study']}/{kernel['name']}", f"{target.study}/{target.name}")
    _same(path, "clocks", label(Pair(request["core_mhz"], request["mem_mhz"])), label(pair))
    if repeat is None:
        repeat = _repeat_of(path)
    if repeat is not None:
        _same(path, "repeat", run["repeat"], repeat)


def read_comparison(path: str) -> tuple[str, list[dict[str, Any]]]:
    """(digest of the setup, comparisons) of a record. Raises InputError, as `read_point`."""
    content = _read(path, COMPARISON, _COMPARISON_RECORD)
    for number, comparison in enumerate(content["comparisons"]):
        where = f"comparisons[{number}]"
        _check(path, where, comparison, _COMPARISON_FIELDS)
        for place, point in enumerate(comparison["points"]):
            _check(path, f"{where}.points[{place}]", point, _POINT_FIELDS)
    _consistent(path, _disagreement(content))
    _unchanged(path, content)
    return content["run"]["setup"], content["comparisons"]


def _unchanged(path: str, content: dict[str, Any]) -> None:
    """Raise InputError where a record has another content than when it was written."""
    rest = {name: value for name, value in content.items() if name != _CHECKSUM}
    if _CHECKSUM in content and content[_CHECKSUM] != _checksum(rest):
        raise InputError(f"record {path}: was changed since it was written: its {_CHECKSUM} is another's; {_REMEDY}")


def _consistent(path: str, wrong: str) -> None:
    if wrong:
        raise InputError(f"record {path}: {wrong}; {_REMEDY}")


def _repeat_of(path: str) -> int | None:
    """The k of a file name r<k>.json, None for any other name."""
    name = path.rpartition("/")[2]
    number = name[1:-5]
    return int(number) if name == f"r{number}.json" and number.isdecimal() else None


def _read(path: str, schema: str, fields: dict[str, Any]) -> dict[str, Any]:
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise InputError(f"record {path}: missing; run snakemake again") from None
    except (OSError, ValueError) as error:
        raise InputError(f"record {path}: truncated or not JSON ({error}); {_REMEDY}") from None
    if type(content) is not dict or content.get("schema") != schema:
        raise InputError(f"record {path}: {unread(content, schema)}; {_REMEDY}")
    if content.keys() - {_CHECKSUM} != fields.keys():
        raise InputError(f"record {path}: not a complete {schema} record; {_REMEDY}")
    _check(path, "", content, fields)
    if "device" in content and content["device"]["kind"] == "nvml":
        _check(path, "device", content["device"], _REAL_DEVICE)
    return content


def _check(path: str, where: str, content: Any, fields: dict[str, Any]) -> None:
    """Raise InputError naming file and field unless `content` is a mapping with these fields, each as it must be."""
    if type(content) is not dict:
        raise InputError(f"record {path}: {where} is not a group of fields; {_REMEDY}")
    for name, kind in fields.items():
        if name not in content:
            raise InputError(f"record {path}: {_join(where, name)} is missing; {_REMEDY}")
        value = content[name]
        if type(kind) is dict:
            _check(path, _join(where, name), value, kind)
        elif not kind[1](value):
            shown = repr(value)[:40]
            raise InputError(f"record {path}: {_join(where, name)} is {shown}, expected {kind[0]}; {_REMEDY}")


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _same(path: str, what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise InputError(f"record {path}: foreign: its {what} is {found}, expected {expected}; {_REMEDY}")
