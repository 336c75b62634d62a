"""An iteration schedule on disk: which pair each launch wants, when changes are to land, and for what it was chosen.

`kernel-dvfs choose --sequence` writes it, deploy.player plays it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json
from kernel_dvfs.layout import ITERATION_SCHEDULE
from kernel_dvfs.sequence.changes import BEHAVIOURS, Timing
from kernel_dvfs.sequence.launches import Read
from kernel_dvfs.sequence.programme import Choice

if TYPE_CHECKING:
    from os import PathLike

    from kernel_dvfs.gpu.clocks import Clock

_CLOCK = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "auto"}]}
_PAIR = {
    "type": "object",
    "additionalProperties": False,
    "required": ["core_mhz", "mem_mhz"],
    "properties": {"core_mhz": _CLOCK, "mem_mhz": _CLOCK},
}
_TEXT = {"type": "string", "minLength": 1}
_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_INDEX = {"type": "integer", "minimum": 0}
_FORM = {
    "type": "object",
    "required": ["schema", "gpu", "workload", "switching", "pairs", "first", "kernels", "launches", "changes"],
    "properties": {
        "schema": {"const": ITERATION_SCHEDULE},
        "gpu": {"type": "object", "required": ["kind", "name", "slug"]},
        "workload": {"type": "object", "required": ["name"], "properties": {"name": _TEXT}},
        "switching": {
            "type": "object",
            "required": ["behaviour", "latency_s", "jitter"],
            "properties": {
                "behaviour": {"enum": list(BEHAVIOURS)},
                "latency_s": {"type": "number", "minimum": 0},
                "jitter": {"type": "number", "minimum": 0, "maximum": 1},
                "core_stall_s": {"type": "number", "minimum": 0},
                "mem_stall_s": {"type": "number", "minimum": 0},
            },
        },
        "pairs": {"type": "array", "minItems": 1, "items": _PAIR},
        "first": _INDEX,
        "kernels": {"type": "array", "minItems": 1, "uniqueItems": True, "items": _TEXT},
        # kernel, pair that it is to run at, time there
        "launches": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "array", "minItems": 3, "maxItems": 3, "prefixItems": [_INDEX, _INDEX, _POSITIVE]},
        },
        # launch, pair
        "changes": {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2, "items": _INDEX}},
    },
}


@dataclass(frozen=True, slots=True)
class Iteration:
    """An iteration schedule as read."""

    path: str  # of the file
    gpu: dict[str, Any]  # of the profile
    workload: dict[str, Any]  # of the profile
    timing: Timing
    pairs: list[tuple[Clock, Clock]]  # (core, memory), MHz or "auto" each
    first: int  # index of the pair at the begin
    names: list[str]  # kernel id of each launch
    wanted: list[int]  # index of the pair that each launch is to run at
    time_s: list[float]  # what each launch takes there
    changes: list[tuple[int, int]]  # (launch, index of its pair), ascending
    totals: dict[str, Any]  # everything else in the file

    def until_s(self) -> list[float]:
        """When the launches come to each boundary, s from the begin: (launches + 1,), stalls of changes included. A
        change that is to land at a boundary lands then; the GPU stands still right after."""
        found, now, to = [0.0], self.first, dict(self.changes)
        for launch, time_s in enumerate(self.time_s):
            next_pair = to.get(launch, now)
            stall_s = self.timing.stall_s(self.pairs[now], self.pairs[next_pair])
            found.append(found[-1] + stall_s + time_s)
            now = next_pair
        return found


def iteration_schedule(
    read: Read, timing: Timing, choice: Choice, slack_percent: float, stall: str, sources: dict[str, str]
) -> dict[str, Any]:
    """The schedule as a JSON-ready dict. stall: where the power of a stream that stands still is from, in words;
    sources: likewise of `latency` and `stalls`."""
    sequence = read.sequence
    kernels = list(dict.fromkeys(sequence.names))
    number = {name: place for place, name in enumerate(kernels)}
    wanted = choice.changes.pairs(len(sequence))
    used = sorted({choice.changes.first, *wanted})
    place = {pair: at for at, pair in enumerate(used)}
    base_s, base_j = sequence.baseline_time_s, sequence.baseline_energy_j
    return {
        "schema": ITERATION_SCHEDULE,
        "gpu": read.gpu,
        "workload": {key: value for key, value in read.workload.items() if key != "kernels"},
        "granularity": "iteration",
        "objective": "waste",
        "slack_percent": slack_percent,
        "switching": {
            "behaviour": timing.behaviour,
            "latency_s": timing.latency_s,
            "jitter": timing.jitter,
            "core_stall_s": timing.core_stall_s,
            "mem_stall_s": timing.mem_stall_s,
            "stall_power": stall,
            "sources": sources,
        },
        "baseline_time_s": base_s,
        "baseline_energy_j": base_j,
        "time_s": choice.time_s,
        "energy_j": choice.energy_j,
        "time_change_percent": 100 * (choice.time_s / base_s - 1),
        "energy_change_percent": 100 * (choice.energy_j / base_j - 1),
        "lower_bound_energy_j": choice.bound_j,
        "gap_points": 100 * choice.gap_j / base_j,
        "change_count": len(choice.changes),
        "pairs": [_clocks(sequence.pairs[pair]) for pair in used],
        "first": place[choice.changes.first],
        "kernels": kernels,
        "launches": [
            [number[name], place[pair], float(sequence.launch_time_s[launch, pair])]
            for launch, (name, pair) in enumerate(zip(sequence.names, wanted))
        ],
        "changes": [[at, place[to]] for at, to in zip(choice.changes.at, choice.changes.to)],
    }


def read_iteration(path: str | PathLike[str]) -> Iteration:
    """Read and check an iteration schedule. Raises InputError naming file and field."""
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; make it with kernel-dvfs choose --sequence") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: {error}; an iteration schedule of kernel-dvfs choose --sequence is expected"
        ) from None
    errors = sorted(Draft202012Validator(_FORM).iter_errors(content), key=lambda error: list(map(str, error.path)))
    if errors:
        where = ".".join(map(str, errors[0].path)) or "the file"
        raise InputError(
            f"{path}, field {where}: {errors[0].message[:120]}; an iteration schedule ({ITERATION_SCHEDULE}) is "
            "expected"
        )
    count, size = len(content["launches"]), len(content["pairs"])
    for number, (kernel, pair, _) in enumerate(content["launches"]):
        if kernel >= len(content["kernels"]) or pair >= size:
            raise InputError(f"{path}, field launches.{number}: names a kernel or pair that is not listed")
    _check_changes(path, content, count, size)
    switching = content["switching"]
    own = {"gpu", "workload", "switching", "pairs", "first", "kernels", "launches", "changes", "schema"}
    return Iteration(
        path=str(path),
        gpu=content["gpu"],
        workload=content["workload"],
        timing=Timing(
            switching["behaviour"],
            switching["latency_s"],
            switching["jitter"],
            switching.get("core_stall_s", 0.0),
            switching.get("mem_stall_s", 0.0),
        ),
        pairs=[(pair["core_mhz"], pair["mem_mhz"]) for pair in content["pairs"]],
        first=content["first"],
        names=[content["kernels"][kernel] for kernel, _, _ in content["launches"]],
        wanted=[pair for _, pair, _ in content["launches"]],
        time_s=[time for _, _, time in content["launches"]],
        changes=[(launch, pair) for launch, pair in content["changes"]],
        totals={key: value for key, value in content.items() if key not in own},
    )


def _check_changes(path: str | PathLike[str], content: dict[str, Any], count: int, size: int) -> None:
    now, before = content["first"], -1
    if now >= size:
        raise InputError(f"{path}, field first: pair {now} is not among the {size} listed")
    for number, (launch, pair) in enumerate(content["changes"]):
        if not before < launch < count or pair >= size or pair == now:
            raise InputError(
                f"{path}, field changes.{number}: launches ascend below {count}, each to another of the {size} pairs"
            )
        before, now = launch, pair
    if content["changes"] and now != content["first"]:
        raise InputError(f"{path}, field changes: an iteration ends at the pair that it begins with")


def _clocks(pair: tuple[float | None, float | None]) -> dict[str, float | str]:
    return dict(zip(("core_mhz", "mem_mhz"), (_plain(clock) for clock in pair)))


def _plain(clock: float | None) -> float | str:
    if clock is None or (isinstance(clock, float) and math.isnan(clock)):
        return "auto"
    return int(clock) if float(clock).is_integer() else clock
