"""A plan: what every stage runs when, at which clocks; its promise, its realised time, its energy. And as JSON.

Knows nothing of how it was found.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json, write_json
from kernel_dvfs.pipeline.graph import Graph
from kernel_dvfs.pipeline.ticks import TICKS_PER_S

SCHEMA = "kernel-dvfs/pipeline-plan/1"


class Part(namedtuple("Part", "core_mhz mem_mhz share setting")):
    """Clocks of an operation, or of a share of its kernels: MHz, None = auto; or None and the name of a setting that
    gives each kernel its own."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Plan:
    """One plan of one pipeline.

    kind: "one clock", "split" or a baseline's name. promised_ticks: the time it was asked for; time_ticks: its own,
    at measured durations. cost_j: sum of effective energies; bound_j: the least possible at the promised time, None
    for a baseline. blocking_w: S P_blk. begin_ticks, end_ticks: (N,). parts: (N,) tuples of Part, in order. note: what
    the asker should know, or "". kernel_settings: {setting: {kernel id: (core, memory)}}.
    """

    kind: str
    graph: Graph
    promised_ticks: int
    time_ticks: int
    cost_j: float
    bound_j: float | None
    blocking_w: float
    begin_ticks: np.ndarray
    end_ticks: np.ndarray
    parts: list
    note: str = ""
    kernel_settings: dict = field(default_factory=dict)

    @property
    def time_s(self) -> float:
        return self.time_ticks / TICKS_PER_S

    def energy_j(self, until_s: float | None = None) -> float:
        """Energy of the pipeline in an iteration that lasts until `until_s` (default: as long as the plan)."""
        return self.cost_j + self.blocking_w * (self.time_s if until_s is None else until_s)

    def document(self) -> dict:
        """The plan as JSON: totals, then per stage the instructions in the order in which they run."""
        stages = [[] for _ in range(self.graph.stages)]
        for number in np.argsort(self.begin_ticks, kind="stable").tolist():
            operation = self.graph.operations[number]
            stages[operation.stage].append(
                {
                    "instruction": operation.instruction,
                    "virtual_stage": operation.virtual_stage,
                    "microbatch": operation.microbatch,
                    "begin_s": float(self.begin_ticks[number] / TICKS_PER_S),
                    "end_s": float(self.end_ticks[number] / TICKS_PER_S),
                    "clocks": [_clocks(part) for part in self.parts[number]],
                }
            )
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "promised_time_s": self.promised_ticks / TICKS_PER_S,
            "time_s": self.time_s,
            "energy_j": self.energy_j(),
            "effective_energy_j": self.cost_j,
            "least_effective_energy_j": self.bound_j,
            "blocking_w": self.blocking_w,
            "note": self.note,
            "ranks": [{"stage": stage, "instructions": own} for stage, own in enumerate(stages)],
            "kernel_settings": {
                name: {kernel: {"core_mhz": core, "mem_mhz": mem} for kernel, (core, mem) in clocks.items()}
                for name, clocks in self.kernel_settings.items()
            },
        }


def _clocks(part: Part) -> dict:
    """What a part of an operation runs at: a pair, or the name of a setting in `kernel_settings`."""
    if part.setting is not None:
        return {"kernel_setting": part.setting, "share_of_kernels": part.share}
    return {"core_mhz": part.core_mhz, "mem_mhz": part.mem_mhz, "share_of_kernels": part.share}


def write_plan(path, plan: Plan, about: dict) -> None:
    """Write a plan as JSON, whole or not at all. about: further fields, such as the profile's name."""
    write_json(path, plan.document() | about)


def read_plan(path) -> dict:
    """The document of a plan. Raises InputError."""
    try:
        document = read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(f"plan {path}: {error}; make it again with kernel-dvfs pipeline-plan") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"plan {path}: not a {SCHEMA} file; make it with kernel-dvfs pipeline-plan")
    return document
