"""The rows equal the reference table, computed independently, at every batch and degree it holds."""

import csv

import pytest

from kernel_dvfs.workload.rows import kernel_rows

# follow from an expected number of different tokens: the only traffic that is no integer
EXPECTED_VALUE = (1, 46)

TEXT = {
    "id": "id",
    "section": "section",
    "display_name": "name",
    "kind": "kind",
    "replicate_group": "replicate_group",
    "tp_rule": "tp_rule",
}
INTEGER = {"number": "number", "multiplicity": "multiplicity", "bias_split_g": "bias_split"}
WORK = {
    "flop_per_launch": "flop",
    "read_byte_per_launch": "read_byte",
    "write_byte_per_launch": "write_byte",
    "resident_byte_drift_free": "resident_byte",
}
GEMM = {
    "gemm_count": "count",
    "gemm_m": "m",
    "gemm_n": "n",
    "gemm_k": "k",
    "bias_epilogue": "bias_epilogue",
    "beta": "beta",
}


@pytest.fixture(scope="module")
def reference(shared):
    tables = {}
    with open(shared("workload/gpt3_xl_rows.csv"), newline="") as file:
        for line in csv.DictReader(file):
            tables.setdefault((int(line["batch"]), int(line["tp"])), []).append(line)
    return tables


def whole(cell):
    return int(cell) if cell else None


@pytest.mark.parametrize("batch", [40, 20, 10, 5, 2, 1])
@pytest.mark.parametrize("degree", [1, 2, 4, 8, 16])
def test_rows_equal_the_reference_table(reference, batch, degree):
    lines = reference[batch, degree]
    rows = kernel_rows(batch=batch, tensor_parallel=degree)
    assert len(rows) == len(lines) == 46
    for row, line in zip(rows, lines, strict=True):
        for column, field in TEXT.items():
            assert (getattr(row, field) or "") == line[column], (row.id, column)
        for column, field in INTEGER.items():
            assert getattr(row, field) == whole(line[column]), (row.id, column)
        for column, field in WORK.items():
            ours, theirs = getattr(row, field), line[column]
            if row.number in EXPECTED_VALUE and field in ("read_byte", "write_byte"):
                assert ours == pytest.approx(float(theirs), rel=1e-9, abs=0), (row.id, column)
            else:
                assert isinstance(ours, int), (row.id, column)
                assert ours == int(theirs), (row.id, column)
        assert (row.gemm is not None) == (row.kind == "gemm")
        for column, field in GEMM.items():
            ours = getattr(row.gemm, field) if row.gemm else None
            assert ours == whole(line[column]), (row.id, column)
        assert (row.gemm.layout if row.gemm else "") == line["gemm_layout"]


def test_the_reference_table_holds_every_batch_and_degree_tested(reference):
    assert set(reference) == {(b, tp) for b in (40, 20, 10, 5, 2, 1) for tp in (1, 2, 4, 8, 16)}
