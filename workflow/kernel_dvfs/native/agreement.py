"""Whether the native layer does the work that a study says its kernels do: the shapes, FLOP and bytes of every row.

They are counted twice: by the formulas of the workload, which all else uses, and by the layer from the sizes and
tensors of what it launches (native/include/kdvfs/work.hpp). The two must be equal at the sizes of the study and at
small ones, where each row is run once and writes the elements that the layer counts. Needs no GPU: `cpu` is the loaded
extension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

import numpy as np

from kernel_dvfs.native import load
from kernel_dvfs.workload import models
from kernel_dvfs.workload.models import Model
from kernel_dvfs.workload.rows import Row
from kernel_dvfs.workload.shapes import rank_shape
from kernel_dvfs.workload.workload import rows_of
from kernel_dvfs_clocks import shape
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import read_json

SCHEMA = "kernel-dvfs/native-rows/1"
# what is compared, as the layer calls it
COUNTED = ("flop", "tensor_flop", "sfu_op", "read_byte", "write_byte", "resident_byte")
# of a small model: tails in all axes
_BATCH, _HEAD, _VOCAB, _PADDED_VOCAB = 3, 20, 509, 512
# on which llm.c splits every bias gradient of a small model, and asks for no more partial sums than it has tokens
_SMALL_BOARD: dict[str, Any] = {"sm_count": 36, "threads_per_sm": 1536}
# never written by a kernel: NaNs with a payload of their own
_POISON = {"uint16": 0x7FAB, "float32": 0x7FABCDEF}
_SEED = 1


class Agreement(TypedDict):
    """The content of a study's native_rows.json."""

    schema: str
    status: Literal["agreed", "unavailable"]
    reason: str | None  # why the layer is not there
    compiler: str | None  # of the C reference
    backends: dict[str, str]  # of the layer: "built", or why not
    rows: list[dict[str, Any]]  # a kernel of the study each: settings, and what both count
    ran: dict[str, dict[str, list[int]]]  # {row: {tensor: shape}} of what ran once


def of_study(
    results: str, workload: Mapping[str, Any], board: Mapping[str, Any], works: Mapping[str, Sequence[Any]]
) -> Agreement:
    """Return how a study agrees with the layer in `results`/native, or that it is not built.

    workload: as a setup has it, a model's. board: sm_count and threads_per_sm. works: {kernel: its work in the setup}.
    Raises InputError naming the first row that the study counts otherwise than the layer.
    """
    backends = load.backends(results)
    if backends["cpu"] != "built":
        reason = backends["cpu"].removeprefix("unavailable: ")
        return Agreement(
            schema=SCHEMA, status="unavailable", reason=reason, compiler=None, backends=backends, rows=[], ran={}
        )
    rows, ran = agreement(load.load("cpu", results), workload, board, works)
    c_compiler = read_json(f"{results}/native/cpu/build.json")["compilers"]["c"]
    compiler = f"{c_compiler['id']} {c_compiler['version']}"
    return Agreement(
        schema=SCHEMA, status="agreed", reason=None, compiler=compiler, backends=backends, rows=rows, ran=ran
    )


def agreement(
    cpu: Any, workload: Mapping[str, Any], board: Mapping[str, Any], works: Mapping[str, Sequence[Any]]
) -> tuple[list[dict[str, Any]], dict[str, dict[str, list[int]]]]:
    """Return (rows, ran) of an Agreement, with the arguments of of_study."""
    rows = rows_of(workload, board["sm_count"], board["threads_per_sm"])
    for row in rows:
        _hold(row, works[row.id])
    small = {**workload, **small_workload(workload["model"], workload["tensor_parallel"])}
    small_rows, tokens = rows_of(small, **_SMALL_BOARD), tokens_of(small)
    studied = compared(cpu, rows, tokens_of(workload))
    compared(cpu, small_rows, tokens)
    return studied, {row.id: run(cpu, row, math.floor(tokens)) for row in small_rows}


def small_workload(model: str | Model, degree: int) -> dict[str, Any]:
    """Return model and batch of a workload with the rows of a large one, and sizes that divide by the degree."""
    attention = models.model(model).attention
    heads = 2 * degree
    small = Model("small", 1, heads * _HEAD, heads, _VOCAB, _PADDED_VOCAB, 24 * degree, attention)
    return {"model": small, "batch": _BATCH}


def tokens_of(workload: Mapping[str, Any]) -> float:
    """Return how many different tokens a workload is expected to look up."""
    options = (workload[name] for name in ("model", "batch", "tensor_parallel", "row_parallel_bias", "token_ids_zipf"))
    return rank_shape(*options).U


def compared(cpu: Any, rows: Sequence[Row], tokens: float) -> list[dict[str, Any]]:
    """Return what the layer counts for each row, the study's own number in it.

    tokens: how many different ones the study expects, which need not be whole: bytes that follow from it lie between
    those of the whole numbers around it. Raises InputError naming a row, both numbers and where each comes from.
    """
    counts = []
    for row in rows:
        below, above = (
            cpu.work(row.op, row.settings, _ids(row, count)) for count in (math.floor(tokens), math.ceil(tokens))
        )
        for name in COUNTED:
            ours = getattr(row, name)
            if not below[name] <= ours <= above[name]:
                raise InputError(
                    f"native layer: row {row.id} ({row.op}): {name} is {ours:,} by the study's formula "
                    f"(workload/formulas.py), {below[name]:,} by the layer (native/include/kdvfs/work.hpp) at "
                    f"{_in_words(row.settings)}: mend the one that is wrong"
                )
        spare = below["spare_read_byte"] + below["spare_write_byte"]
        counted = {name: getattr(row, name) for name in COUNTED}
        counts.append({"row": row.id, "op": row.op, "settings": row.settings, **counted, "spare_byte": spare})
    return counts


def run(cpu: Any, row: Row, tokens: int) -> dict[str, list[int]]:
    """Run a row once on random values; return the shapes of its tensors, {tensor: shape}.

    tokens: how many different ones it looks up. Raises InputError where it writes other elements than it counts.
    """
    generator, given, shapes = np.random.default_rng(_SEED), _ids(row, tokens), {}
    for name, role, dtype, lengths in cpu.tensors(row.op, row.settings):
        shapes[name] = list(lengths)
        if role == "output":
            bits = np.full(lengths, _POISON[dtype], {"uint16": np.uint16, "float32": np.uint32}[dtype])
            given[name] = bits.view(dtype)
        elif dtype == "int32":
            given.setdefault(name, generator.integers(0, _VOCAB, lengths, np.int32))
        else:
            values = generator.normal(0, 1, lengths).astype(np.float32)
            # bf16: the upper half of a float32
            given[name] = values if dtype == "float32" else (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    written = 0
    for name, result in cpu.run(row.op, row.settings, given).items():
        bits = result.view({2: np.uint16, 4: np.uint32}[result.itemsize])
        written += result.itemsize * int(np.count_nonzero(bits != _POISON[str(result.dtype)]))
        if list(result.shape) != shapes[name]:
            raise InputError(f"native layer: row {row.id}: {name} came out as {result.shape}, expected {shapes[name]}")
    counted = cpu.work(row.op, row.settings, given)
    if written != counted["write_byte"] + counted["spare_write_byte"]:
        raise InputError(
            f"native layer: row {row.id} ({row.op}) wrote {written:,} bytes, the layer counts "
            f"{counted['write_byte']:,} and {counted['spare_write_byte']:,} beside them (native/include/kdvfs/work.hpp)"
        )
    return shapes


def read(path: str) -> Agreement:
    """Return what a file says. Raises InputError where it is none."""
    return shape.read(path, Agreement, SCHEMA, "delete it and run snakemake again")


def sentence(content: Agreement) -> str:
    """Return in words what was found, for a page and for the user."""
    if content["status"] == "unavailable":
        return f"not built here ({content['reason']}), so shapes, FLOP and bytes were counted once only"
    return (
        f"shapes, FLOP and bytes of {len(content['rows'])} kernels are those that the C reference counts; it was built "
        f"by {content['compiler']} and ran {len(content['ran'])} of them once at small shapes"
    )


def _hold(row: Row, work: Sequence[Any]) -> None:
    """Raise InputError where a setup has other work than the formulas: family, tensor and FP32 FLOP, special
    functions, bytes. Of a dense product tiles read some bytes again (workload/traffic.py)."""
    _, tensor_flop, fp32_flop, sfu_op, byte, *_ = work
    once = row.read_byte + row.write_byte
    same = (tensor_flop, fp32_flop, sfu_op) == (row.tensor_flop, row.fp32_flop, row.sfu_op)
    if not same or not (once <= byte if row.family == "gemm" else once == byte):
        raise InputError(
            f"native layer: row {row.id}: the setup has {', '.join(f'{count:,}' for count in work[1:5])} tensor FLOP, "
            f"FP32 FLOP, special functions and bytes, the formulas {row.tensor_flop:,}, {row.fp32_flop:,}, "
            f"{row.sfu_op:,}, {once:,}: it is of another version, delete it and run again"
        )


def _ids(row: Row, count: int) -> dict[str, Any]:
    """Return token ids, `count` different ones, where a row looks them up."""
    if row.op not in ("embedding_forward", "wte_backward"):
        return {}
    return {"ids": (np.arange(row.settings["M"]) % count).astype(np.int32)}


def _in_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
