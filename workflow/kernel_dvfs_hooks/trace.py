"""An iteration as a trace: a slice a launch, in order, with its joules, as torch's profiler writes and Perfetto opens.

The format is the Chrome trace event format with what Kineto puts into it. Times and energies are a profile's, one
launch after the other: the trace shows where the joules go, and no gap nor overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kernel_dvfs.choice.schedule_file import read_schedule
from kernel_dvfs.layout import subject
from kernel_dvfs_clocks.clocks import AUTO
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.sequence.launches import Sequence, read_sequence

if TYPE_CHECKING:
    from os import PathLike

_STREAM = 7  # the first that torch makes


def trace(
    profile: str | PathLike[str], schedule: str | PathLike[str] | None = None, order: str = "profile"
) -> dict[str, Any]:
    """Return the content of a trace of one iteration at the profile's baseline, and beside it at a schedule's clocks.

    order: as of read_sequence. Energy in joules, power in W, times in us. Raises InputError.
    """
    read = read_sequence(str(profile), order, shared_pairs=schedule is None)
    sequence, gpu = read.sequence, read.gpu
    if sequence.baseline is None:
        raise InputError(f"{profile}: it has no baseline")
    kernels = read.workload.get("kernels", {})
    whose = [(f"{subject(gpu)}, baseline", [sequence.baseline] * len(sequence.time_s))]
    if schedule is not None:
        whose.append((f"{subject(gpu)}, schedule", _pairs(sequence, schedule)))
    events: list[dict[str, Any]] = []
    for process, (title, pairs) in enumerate(whose):
        events += _process(process, title, sequence, pairs, kernels)
    device = {"id": 0, "name": gpu["name"]}
    return {
        "schemaVersion": 1,
        "deviceProperties": [device],
        "distributedInfo": {"backend": "", "rank": 0, "world_size": 1},
        "traceEvents": events,
    }


def _pairs(sequence: Sequence, schedule: str | PathLike[str]) -> list[int]:
    """Return for each kernel the place of its pair. Raises InputError where the profile lacks one."""
    chosen = read_schedule(schedule)["targets"]
    names = dict(zip(sequence.kernel.tolist(), sequence.names))
    places = []
    for row in range(len(sequence.time_s)):
        clocks = chosen.get(names.get(row, ""))
        if row in names and clocks is None:
            raise InputError(f"{schedule}: no clocks for {names[row]}; choose a schedule from this profile")
        pair = tuple(
            None if clocks is None or clocks[name] == AUTO else float(clocks[name]) for name in ("core_mhz", "mem_mhz")
        )
        if row in names and pair not in sequence.pairs:
            raise InputError(f"{schedule}: {names[row]} at {pair[0]}-{pair[1]} is not in the profile")
        places.append(sequence.pairs.index(pair) if pair in sequence.pairs else 0)
    return places


def _process(
    process: int, title: str, sequence: Sequence, pairs: list[int], kernels: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the events of an iteration: names, a slice a launch, the mean power of each as a curve."""
    track = {"pid": process, "tid": _STREAM}
    yield {"ph": "M", "name": "process_name", **track, "args": {"name": title}}
    yield {"ph": "M", "name": "thread_name", **track, "args": {"name": f"stream {_STREAM}"}}
    begin_us = 0.0
    for place, (name, row) in enumerate(zip(sequence.names, sequence.kernel.tolist())):
        core_mhz, mem_mhz = sequence.pairs[pairs[row]]
        time_s, energy_j = float(sequence.time_s[row, pairs[row]]), float(sequence.energy_j[row, pairs[row]])
        power_w, end_us = energy_j / time_s, begin_us + 1e6 * time_s
        kernel = kernels.get(name, {})
        args = {
            "energy_j": energy_j,
            "power_w": power_w,
            "core_mhz": AUTO if core_mhz is None else core_mhz,
            "mem_mhz": AUTO if mem_mhz is None else mem_mhz,
            **{key: kernel[key] for key in ("operation", "module", "section") if kernel.get(key)},
            **{"device": process, "stream": _STREAM, "correlation": place + 1},
        }
        yield {
            **{"ph": "X", "cat": "kernel", "name": kernel.get("name", name), **track},
            # in whole ns, as readers take them: no slice begins before the one before it has ended
            **{"ts": round(begin_us, 3), "dur": round(round(end_us, 3) - round(begin_us, 3), 3), "args": args},
        }
        yield {"ph": "C", "name": "power_w", **track, "ts": round(begin_us, 3), "args": {"power_w": power_w}}
        begin_us = end_us
    yield {"ph": "C", "name": "power_w", **track, "ts": round(begin_us, 3), "args": {"power_w": 0.0}}
