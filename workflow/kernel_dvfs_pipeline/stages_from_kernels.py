"""A profile of pipeline stages made from a profile of kernels: what each stage launches, summed.

Two levels. Pass level: one pair of clocks for all kernels of an operation; an option per pair of the kernel profile.
Kernel level: a pair for each kernel. Effective energy is a sum over kernels, so the best curve of the operation is the
Minkowski sum of the kernels' hulls: all their segments in order of price. It lies nowhere above the pass level's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernel_dvfs.choice.dominance import Edges, pareto
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.workload.dataflow import WEIGHT_GRADIENTS
from kernel_dvfs.workload.models import model
from kernel_dvfs.workload.passes import passes
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.schedules import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, RECOMPUTE
from kernel_dvfs_pipeline.stage_profile import (
    Clocks,
    InstructionSettings,
    KernelClocks,
    Key,
    StageProfile,
    known_clocks,
)

# sections of the workload whose kernels run once per layer
_LAYER = {FORWARD: "Forward", BACKWARD: "Backward"}
_EMBEDDING = ("Embedding", "Embedding backward")
# prices (W) of hull segments that differ by less than this share count as one; energy is off by its square
_SAME_PRICE = 0.04


Launches = list[tuple[str, int]]  # (kernel id, how often), in order


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """A kernel profile by kernel id, in order of execution."""

    pairs: list[tuple[float, ...]]  # (core, memory) MHz, nan = auto
    time_s: dict[str, np.ndarray]  # {id: (pairs,)} of a launch
    energy_j: dict[str, np.ndarray]  # likewise, of all ranks together
    section: dict[str, str]  # {id: its section of the workload}
    pass_of: dict[str, str]  # {id: forward or backward}
    layers: int  # of the model
    source: str  # whose numbers: `simulated ...`, or the GPU's name
    ranks: int  # the tensor-parallel degree


class _Row(NamedTuple):
    """What passes() asks of a kernel."""

    id: str
    section: str
    multiplicity: int


def read_kernels(path: Path | str) -> Kernels:
    """Return the kernels of a profile (profile.parquet) that this project made for a model. Raises InputError.

    Energies are multiplied by the tensor-parallel degree: the ranks of a stage all do the same.
    """
    profile = read_profile(path)
    workload, gpu = profile.metadata["workload"], profile.metadata["gpu"]
    if "kernels" not in workload:
        raise InputError(f"{path}: a table of any kernels, not of a model's; stages can be made from a workload's only")
    rows = [row for row in profile.table.to_pylist() if row["study"] == "kernel"]
    by_kernel: dict = {}
    for row in rows:
        pair = tuple(math.nan if mhz is None else float(mhz) for mhz in (row["core_mhz"], row["mem_mhz"]))
        by_kernel.setdefault(row["target"], {})[str(pair)] = (pair, row["time_s"], row["energy_j"])
    missing = [name for name in workload["kernels"] if name not in by_kernel]
    if missing:
        raise InputError(f"{path}: kernels without a row: {', '.join(missing)}; measure them")
    shared = [key for key in next(iter(by_kernel.values())) if all(key in by_pair for by_pair in by_kernel.values())]
    if not shared:
        raise InputError(f"{path}: no pair of clocks has every kernel; measure all kernels on one grid")
    names = list(workload["kernels"])
    ranks = workload["tensor_parallel"]
    subject = f"simulated {gpu['name']}" if gpu["kind"] == "simulated" else gpu["name"]
    return Kernels(
        pairs=[by_kernel[names[0]][key][0] for key in shared],
        time_s={name: np.array([by_kernel[name][key][1] for key in shared]) for name in names},
        energy_j={name: ranks * np.array([by_kernel[name][key][2] for key in shared]) for name in names},
        section={name: workload["kernels"][name]["section"] for name in names},
        pass_of=_passes(workload),
        layers=model(workload["model"]).layers,
        source=subject,
        ranks=ranks,
    )


def _passes(workload: dict) -> dict[str, str]:
    """Return {kernel id: forward or backward}: a stage runs its part of the loss within these two."""
    # a profile says of its kernels what passes() asks, and no more of a Row
    rows: list[Any] = [_Row(name, about["section"], 1) for name, about in workload["kernels"].items()]
    return {name: kind for kind, launched in passes(rows, "llmc").items() for name, _ in launched}


def layers_per_stage(layers: int, stages: int, layer_s: float, first_s: float = 0.0, last_s: float = 0.0) -> list[int]:
    """Return the layers of each stage, >= 1. layer_s: one layer; first_s, last_s: embedding, and logits with the loss.

    Layers are equal, so giving each to the stage that is least loaded with it makes the greatest load least.
    Raises InputError where there are fewer layers than stages.
    """
    if stages > layers:
        raise InputError(f"pipeline: {stages} stages for {layers} layers; allowed: 1 to {layers} stages")
    stage_s = [0.0] * stages
    stage_s[0] += first_s
    stage_s[-1] += last_s
    counts = [1] * stages
    for _ in range(layers - stages):
        # of equal loads the later stage: it holds fewer activations
        stage = min(range(stages), key=lambda at: (stage_s[at] + (counts[at] + 1) * layer_s, -at))
        counts[stage] += 1
    return counts


def launches(kernels: Kernels, stages: int) -> dict[Key, Launches]:
    """Return {(virtual stage, instruction): [(kernel id, launches), ...]}, embedding first, logits and loss last."""
    auto = next((at for at, pair in enumerate(kernels.pairs) if math.isnan(pair[0])), len(kernels.pairs) - 1)

    def duration_s(names: Iterable[str]) -> float:
        return sum(float(kernels.time_s[name][auto]) for name in names)

    by_place: dict[str, list[str]] = {}
    for name, section in kernels.section.items():
        place = "first" if section in _EMBEDDING else "layer" if section in _LAYER.values() else "last"
        by_place.setdefault(place, []).append(name)
    counts = layers_per_stage(
        kernels.layers, stages, *(duration_s(by_place.get(place, [])) for place in ("layer", "first", "last"))
    )
    work: dict[Key, Launches] = {}
    for stage, layers in enumerate(counts):
        for instruction, order in ((FORWARD, 1), (BACKWARD, -1)):
            work[stage, instruction] = [
                (name, layers if place == "layer" else 1)
                for place in ("first", "layer", "last")[::order]
                if place == "layer" or stage == (0 if place == "first" else stages - 1)
                for name in by_place.get(place, [])
                if kernels.pass_of[name] == instruction
            ]
        # a split backward pass: gradients of weights apart, since no other stage waits for them
        for instruction, of_weights in ((BACKWARD_INPUT, False), (BACKWARD_WEIGHT, True)):
            work[stage, instruction] = [
                pair for pair in work[stage, BACKWARD] if (pair[0] in WEIGHT_GRADIENTS) == of_weights
            ]
        # recomputing activations is the layers' forward pass once more
        work[stage, RECOMPUTE] = [pair for pair in work[stage, FORWARD] if kernels.section[pair[0]] == _LAYER[FORWARD]]
    return work


def pass_level(kernels: Kernels, stages: int) -> StageProfile:
    """Return the profile of one pair of clocks per operation: an option for each pair."""
    core, mem = np.array(kernels.pairs).T
    settings = {}
    for key, launched in launches(kernels, stages).items():
        time_s = sum((count * kernels.time_s[name] for name, count in launched), start=np.zeros(len(core)))
        energy_j = sum((count * kernels.energy_j[name] for name, count in launched), start=np.zeros(len(core)))
        settings[key] = InstructionSettings(core, mem, time_s, energy_j, [kernels.source] * len(core))
    return StageProfile(settings, f"{kernels.source}, {stages} stages, pass level")


def kernel_level(kernels: Kernels, stages: int, blocking_w: float) -> StageProfile:
    """Return the profile of a pair of clocks per kernel: an option for each vertex of the Minkowski sum; it knows its
    kernels' clocks.

    blocking_w: of a stage with all its ranks; the hulls are those of effective energy.
    """

    def operation(launched: Launches) -> tuple[InstructionSettings, KernelClocks]:
        sets, picked = [], []
        for name, count in launched:
            time_s = count * kernels.time_s[name]
            cost = count * kernels.energy_j[name] - blocking_w * time_s
            keep = pareto(time_s, cost, np.arange(len(time_s)))
            sets.append((time_s[keep], cost[keep]))
            picked.append(keep)
        edges = Edges(sets)
        corners = _corners(edges)
        time_change, cost_change = (change[corners] for change in edges.walk())
        time_s = sum(t[0] for t, _ in sets) + time_change
        cost = sum(c[0] for _, c in sets) + cost_change
        nothing = np.full(len(time_s), np.nan)
        settings = InstructionSettings(
            nothing, nothing, time_s, cost + blocking_w * time_s, [kernels.source] * len(time_s)
        )
        return settings, _KernelClocks(kernels.pairs, [name for name, _ in launched], edges, picked, corners)

    return stage_profile(launches(kernels, stages), operation, f"{kernels.source}, {stages} stages, kernel level")


def stage_profile(
    work: dict[Key, Launches], operation: Callable[[Launches], tuple[InstructionSettings, KernelClocks]], name: str
) -> StageProfile:
    """Return the profile of operations that launch `work`, worked out once where stages are alike."""
    distinct = {tuple(launched): launched for launched in work.values()}
    profiles = {names: operation(launched) for names, launched in distinct.items()}
    return StageProfile(
        {key: profiles[tuple(launched)][0] for key, launched in work.items()},
        name,
        {key: profiles[tuple(launched)][1] for key, launched in work.items()},
    )


def _corners(edges: Edges) -> np.ndarray:
    """Return the edges after which a vertex is kept: hundreds of prices that hardly differ become one segment."""
    price = -edges.de / edges.dt
    corners, first = [0], math.inf
    for number, price_w in enumerate(price.tolist()):
        if price_w < first * (1 - _SAME_PRICE):
            if number:
                corners.append(number)
            first = price_w
    return np.unique([*corners, len(price)])


class _KernelClocks:
    """Clocks of each kernel at an option of the Minkowski sum: worked out when asked for."""

    def __init__(
        self, pairs: Sequence[tuple], names: Sequence[str], edges: Edges, picked: Sequence, corners: np.ndarray
    ) -> None:
        self.pairs, self.names, self.edges, self.picked, self.corners = pairs, names, edges, picked, corners

    def at(self, option: int) -> dict[str, Clocks]:
        """Return {kernel id: (core, memory)} at an option, MHz, None = auto."""
        taken = self.edges.options_after(int(self.corners[option]), len(self.names))
        return {
            name: known_clocks(*self.pairs[rows[at]]) for name, rows, at in zip(self.names, self.picked, taken.tolist())
        }
