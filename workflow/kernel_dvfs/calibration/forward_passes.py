"""Measured forward passes of public transformers, and the work that they are made of.

For GPUs whose single kernels nobody has published: whole passes (PyTorch, eager attention) at locked clocks. The work
of a pass follows from the architecture and from the operations that an eager pass launches.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.kernel import Work
from kernel_dvfs.workload.formulas import Gemm

_BYTE = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A transformer by its published sizes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    mlp: int  # width of the hidden layer of the MLP
    gated: bool  # two products into the MLP instead of one, RMS norms, rotary positions
    upcast: bool  # softmax in fp32, so scores are cast there and back
    mlp_elementwise: int  # elementwise launches of the activation (reads + writes of a tensor each)


ARCHITECTURES = {
    "gpt2": Architecture(12, 768, 12, 12, 3072, gated=False, upcast=False, mlp_elementwise=8),
    "opt-1.3b": Architecture(24, 2048, 32, 32, 8192, gated=False, upcast=True, mlp_elementwise=1),
    "bert-large": Architecture(24, 1024, 16, 16, 4096, gated=False, upcast=False, mlp_elementwise=1),
    "qwen2-1.5b": Architecture(28, 1536, 12, 2, 8960, gated=True, upcast=True, mlp_elementwise=2),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One pass at one locked core clock."""

    gpu: str
    model: str  # of ARCHITECTURES
    precision: str  # bf16: tensor cores; fp32: FP32 lanes
    batch: int
    sequence: int
    core_mhz: int  # asked for
    energy_j: float  # of one pass
    time_s: float  # of one pass
    reached_core_mhz: float  # mean over the run

    @property
    def power_w(self) -> float:
        return self.energy_j / self.time_s

    @property
    def is_held(self) -> bool:
        """Whether the power cap held the clock below the one asked for."""
        return self.reached_core_mhz < self.core_mhz - 1

    @property
    def workload(self) -> tuple[str, str, int, int]:
        return self.model, self.precision, self.batch, self.sequence


def read_runs(path: str | PathLike[str], gpu: str) -> list[Run]:
    """The runs of one GPU in a table of passes. Raises InputError where it has none."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        runs = [
            Run(
                row["gpu"],
                row["model"],
                row["precision"],
                int(row["batch"]),
                int(row["sequence"]),
                int(row["core_mhz"]),
                float(row["energy_j"]),
                float(row["time_ms"]) * 1e-3,
                float(row["reached_core_mhz"] or row["core_mhz"]),
            )
            for row in csv.DictReader(lines)
            if row["gpu"] == gpu
        ]
    if not runs:
        raise InputError(f"{path}: no run of {gpu}; name a GPU of its column gpu")
    return runs


def works(
    model: str, precision: str, batch: int, sequence: int, byte_of: Callable[[Gemm], float]
) -> list[tuple[Work, int]]:
    """[(work, launches)] of one pass. byte_of: DRAM traffic of a bf16 matrix product on the GPU in question, B."""
    a, e = ARCHITECTURES[model], _BYTE[precision]
    tokens, head = batch * sequence, a.hidden // a.heads
    scores = batch * a.heads * sequence * sequence
    found: list[tuple[Work, int]] = []

    def product(m: int, n: int, k: int, count: int = 1, family: str = "gemm") -> None:
        gemm = Gemm(count, m, n, k, "TN", False, 0)
        flop, byte = 2.0 * count * m * n * k, byte_of(gemm) * e / 2
        tensor, fp32 = (flop, 0.0) if precision == "bf16" else (0.0, flop)
        found.append((Work(family, tensor, fp32, 0.0, byte), a.layers))

    def elementwise(elements: int, byte: float, family: str = "residual", sfu: float = 0.0, launches: int = 1) -> None:
        found.append((Work(family, 0.0, float(elements), sfu * elements, byte * elements), a.layers * launches))

    def norm() -> None:
        if a.gated:  # square, scale, cast and weight, the mean in between; in fp32
            elementwise(tokens * a.hidden, 8, launches=2)
            elementwise(tokens * a.hidden, 6)
        else:
            elementwise(tokens * a.hidden, 2 * e, "layernorm")

    norm()
    product(tokens, a.hidden, a.hidden)
    product(tokens, a.kv_heads * head, a.hidden)
    product(tokens, a.kv_heads * head, a.hidden)
    if a.gated:
        elementwise(tokens * (a.hidden + a.kv_heads * head), 3 * e, launches=3)
    product(sequence, sequence, head, batch * a.heads, "attention_gemm")
    elementwise(scores, 2 * e, launches=1 if model in ("gpt2", "opt-1.3b") else 2)  # scale, mask
    if a.upcast:
        elementwise(scores, 6)
        elementwise(scores, 8, "softmax", sfu=2)
        elementwise(scores, 6)
    else:
        elementwise(scores, 2 * e, "softmax", sfu=2)
    product(sequence, head, sequence, batch * a.heads, "attention_gemm")
    product(tokens, a.hidden, a.hidden)
    elementwise(tokens * a.hidden, 3 * e)
    norm()
    for _ in range(2 if a.gated else 1):
        product(tokens, a.mlp, a.hidden)
    elementwise(tokens * a.mlp, 2 * e, "gelu", sfu=2)
    if a.mlp_elementwise > 1:
        elementwise(tokens * a.mlp, 2.3 * e, launches=a.mlp_elementwise - 1)
    product(tokens, a.hidden, a.mlp)
    elementwise(tokens * a.hidden, 3 * e)
    return found


@dataclass(frozen=True, slots=True)
class Energies:
    """What a fit says of a GPU at one clock, each with its standard error."""

    standing_w: tuple[float, float]  # power of the board besides the work
    tensor_pj: tuple[float, float]  # of a tensor-core FLOP
    byte_pj: tuple[float, float]  # of a byte from DRAM through the SMs; (value, 0) where it was given
    mape: float  # mean absolute error of the passes' energy, percent


def energies(runs: list[Run], byte_of: Callable[[Gemm], float], byte_pj: float | None = None) -> Energies:
    """Energy = standing x time + tensor x FLOP + byte x bytes, least squares of the relative error over bf16 runs.

    All runs at one clock and clear of the cap, so that one voltage holds. byte_pj: keep a byte's energy at this.
    Raises InputError for fewer runs than unknowns.
    """
    if len(runs) < 4:
        raise InputError(f"forward passes: {len(runs)} runs cannot tell the energies of a GPU; give at least 4")
    columns = []
    for run in runs:
        load = works(run.model, run.precision, run.batch, run.sequence, byte_of)
        flop, byte = (sum(getattr(work, name) * count for work, count in load) for name in ("tensor_flop", "byte"))
        columns.append(np.array([run.time_s, flop * 1e-12, byte * 1e-12]) / run.energy_j)
    matrix, given = np.array(columns), 0.0 if byte_pj is None else byte_pj
    free = matrix if byte_pj is None else matrix[:, :2]
    wanted = 1 - given * matrix[:, 2] if byte_pj is not None else np.ones(len(runs))
    found = np.linalg.lstsq(free, wanted, rcond=None)[0]
    error = free @ found - wanted
    scatter = float(error @ error) / (len(runs) - len(found))
    sd = np.sqrt(np.diag(np.linalg.inv(free.T @ free)) * scatter)
    standing, tensor, *byte = ((float(value), float(each)) for value, each in zip(found, sd))
    return Energies(standing, tensor, byte[0] if byte else (given, 0.0), mape=100 * float(np.abs(error).mean()))
