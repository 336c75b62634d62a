"""The rows of every model, batch and degree are calls that the native layer takes, and their tensors fit together."""

import itertools
import math

import pytest

from kernel_dvfs.workload.dataflow import bindings
from kernel_dvfs.workload.models import MODELS, tensor_parallel_degrees
from kernel_dvfs.workload.models import model as model_named
from kernel_dvfs.workload.rows import kernel_rows

H200 = {"bias_split": "llmc", "sm_count": 132, "threads_per_sm": 2048}
# the squares of its scores have more elements than an int32 can count
TOO_LARGE = ("gpt3-175b", 40, 1)


def workloads(model):
    """Rows at every batch and degree of a model, with the degree."""
    for batch, degree in itertools.product((40, 20, 10, 5, 2, 1), tensor_parallel_degrees(model_named(model))):
        if (model, batch, degree) != TOO_LARGE:
            yield kernel_rows(model, batch, degree), degree
            yield kernel_rows(model, batch, degree, row_parallel_bias="gathered", **H200), degree


def borders(shape):
    """Numbers of elements at which an axis ends: of a reshaped tensor, those that the coarser shape has are among
    those of the finer one."""
    return set(itertools.accumulate(reversed(shape), lambda length, axis: length * axis))


def test_every_row_has_a_reference(cpu):
    assert {row.op for model in ("gpt3-xl", "gpt3-xl-flash") for row in kernel_rows(model)} == set(cpu.OPERATIONS)


@pytest.mark.parametrize("model", [*MODELS, "gpt3-xl-flash"])
def test_tensors_of_one_name_are_one_tensor(cpu, model):
    for rows, degree in workloads(model):
        users = {}
        for row in rows:
            bound = bindings(row, model, degree)
            tensors = cpu.tensors(row.op, row.settings)
            assert {name for name, _, _, _ in tensors} == bound.keys(), row.id
            for tensor, _, type_, shape in tensors:
                users.setdefault(bound[tensor]["name"], []).append((type_, shape))
        for name, seen in users.items():
            assert len({(type_, math.prod(shape)) for type_, shape in seen}) == 1, name
            for (_, one), (_, other) in itertools.pairwise(seen):
                assert borders(one) <= borders(other) or borders(other) <= borders(one), name


@pytest.mark.parametrize("model", [*MODELS, "gpt3-xl-flash"])
def test_fills_fit_their_tensors(cpu, model):
    rows = kernel_rows(model, batch=2)
    for row in rows:
        bound = bindings(row, model)
        for tensor, _, type_, shape in cpu.tensors(row.op, row.settings):
            fill = bound[tensor]["fill"]
            assert (fill["kind"] == "ids") == (type_ == "int32"), (row.id, tensor)
            if fill["kind"] == "causal":
                assert shape[-1] == shape[-2]
            if fill["kind"] == "normal" and (fill["rows"] or fill["columns"]):
                vocabulary, padded = model_named(model).vocab, model_named(model).padded_vocab
                assert (fill["rows"] == vocabulary) == (shape[-2] == padded), (row.id, tensor)
                assert (fill["columns"] == vocabulary) == (shape[-1] == padded), (row.id, tensor)


def test_a_workload_whose_scores_outgrow_an_int32_index_is_refused(cpu):
    model, batch, degree = TOO_LARGE
    scores = [row for row in kernel_rows(model, batch, degree) if row.family in ("attention_gemm", "softmax")]
    for row in scores:
        if row.op != "classifier":
            with pytest.raises(cpu.ShapeError, match=r"B\*NH\*T\*T is .* a smaller batch or a higher tensor-parallel"):
                cpu.tensors(row.op, row.settings)
