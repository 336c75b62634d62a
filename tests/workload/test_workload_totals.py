"""Iterations of GPT-3-xl add up to the published check sums: work, rooflines, parallelism, replicates."""

from dataclasses import astuple

import pytest

from kernel_dvfs.workload.rows import kernel_rows

# nominal peaks: tensor FLOP/s, fp32 FLOP/s, DRAM B/s
RTX_3080_TI = (68.2e12, 34.1e12, 912e9)
H200 = (989.4e12, 66.9e12, 4800e9)


def launches(rows):
    return sum(row.multiplicity for row in rows)


def flop(rows):
    return sum(row.multiplicity * row.flop for row in rows)


def byte(rows):
    return sum(row.multiplicity * (row.read_byte + row.write_byte) for row in rows)


def roofline_ms(rows, peaks):
    tensor, fp32, dram = peaks
    return 1e3 * sum(
        row.multiplicity * max(row.tensor_flop / tensor, row.fp32_flop / fp32, (row.read_byte + row.write_byte) / dram)
        for row in rows
    )


@pytest.fixture(scope="module")
def rows():
    return kernel_rows()


def test_the_iteration_does_exactly_the_published_work(rows):
    assert len(rows) == 46
    assert launches(rows) == 897
    assert flop(rows) == 347_494_553_681_920
    assert round(byte(rows)) == 842_895_513_421


def check_sums(part, tflop, gb, ms_3080_ti, ms_h200):
    assert flop(part) / 1e12 == pytest.approx(tflop, abs=5.1e-4)
    assert byte(part) / 1e9 == pytest.approx(gb, abs=5.1e-4)
    assert roofline_ms(part, RTX_3080_TI) == pytest.approx(ms_3080_ti, abs=5.1e-3)
    assert roofline_ms(part, H200) == pytest.approx(ms_h200, abs=5.1e-3)


@pytest.mark.parametrize(
    "section, count, launched, tflop, gb, ms_3080_ti, ms_h200",
    [
        ("Embedding", 2, 2, 0.001, 0.623, 0.68, 0.13),
        ("Forward", 12, 288, 107.392, 276.269, 1713.22, 143.65),
        ("Loss calculation", 5, 5, 25.345, 22.596, 381.01, 27.45),
        ("Backward", 25, 600, 214.757, 542.830, 3413.14, 284.77),
        ("Embedding backward", 2, 2, 0.000, 0.578, 0.63, 0.12),
    ],
)
def test_each_section_adds_up(rows, section, count, launched, tflop, gb, ms_3080_ti, ms_h200):
    part = [row for row in rows if row.section == section]
    assert (len(part), launches(part)) == (count, launched)
    check_sums(part, tflop, gb, ms_3080_ti, ms_h200)


@pytest.mark.parametrize(
    "kind, count, launched, tflop, gb, ms_3080_ti, ms_h200",
    [
        ("gemm", 21, 435, 346.926, 458.220, 5086.89, 375.97),
        ("elementwise_or_reduction", 25, 462, 0.569, 384.675, 421.79, 80.14),
    ],
)
def test_gemms_and_the_rest_add_up(rows, kind, count, launched, tflop, gb, ms_3080_ti, ms_h200):
    part = [row for row in rows if row.kind == kind]
    assert (len(part), launches(part)) == (count, launched)
    check_sums(part, tflop, gb, ms_3080_ti, ms_h200)


@pytest.mark.parametrize(
    "batch, tflop, gb, ms_3080_ti, ms_h200",
    [
        (40, 347.495, 842.9, 5509, 456.1),
        (20, 173.747, 426.7, 2754, 228.1),
        (10, 86.874, 218.6, 1377, 114.0),
        (5, 43.437, 114.6, 689, 57.0),
        (2, 17.375, 52.1, 275, 22.8),
        (1, 8.687, 31.3, 138, 11.4),
    ],
)
def test_data_parallel_ranks_do_less_each(batch, tflop, gb, ms_3080_ti, ms_h200):
    rows = kernel_rows(batch=batch)
    assert flop(rows) / 1e12 == pytest.approx(tflop, abs=5.1e-4)
    assert byte(rows) / 1e9 == pytest.approx(gb, abs=0.051)
    assert roofline_ms(rows, RTX_3080_TI) == pytest.approx(ms_3080_ti, abs=0.51)
    assert roofline_ms(rows, H200) == pytest.approx(ms_h200, abs=0.051)


@pytest.mark.parametrize(
    "degree, tflop, gb_sequence, gb_gathered, ms_3080_ti, ms_h200",
    [
        (1, 347.495, 842.9, 842.9, 5508.7, 456.1),
        (2, 173.747, 446.1, 450.1, 2754.4, 228.1),
        (4, 86.874, 247.6, 253.7, 1377.2, 114.0),
        (8, 43.437, 148.4, 155.4, 688.6, 57.0),
        (16, 21.718, 98.8, 106.3, 344.3, 29.6),
    ],
)
def test_tensor_parallel_ranks_do_less_each(degree, tflop, gb_sequence, gb_gathered, ms_3080_ti, ms_h200):
    rows = kernel_rows(tensor_parallel=degree)
    gathered = kernel_rows(tensor_parallel=degree, row_parallel_bias="gathered")
    assert flop(rows) / 1e12 == pytest.approx(tflop, abs=5.1e-4)
    assert byte(rows) / 1e9 == pytest.approx(gb_sequence, abs=0.051)
    assert byte(gathered) / 1e9 == pytest.approx(gb_gathered, abs=0.051)
    assert roofline_ms(rows, RTX_3080_TI) == pytest.approx(ms_3080_ti, abs=0.051)
    assert roofline_ms(rows, H200) == pytest.approx(ms_h200, abs=0.051)


def test_gathering_the_row_parallel_bias_changes_rows_21_and_30_only():
    for split, whole in zip(
        kernel_rows(tensor_parallel=8),
        kernel_rows(tensor_parallel=8, row_parallel_bias="gathered"),
        strict=True,
    ):
        if split.number in (21, 30):
            assert whole.flop == 8 * split.flop
            assert whole.read_byte == 8 * split.read_byte
            assert whole.write_byte == split.write_byte
            assert (split.tp_rule, whole.tp_rule) == ("sequence", "unsplit")
        else:
            assert whole == split
    assert kernel_rows(row_parallel_bias="gathered") == kernel_rows()


def test_identical_launches_share_a_replicate_group(rows):
    groups = {}
    for row in rows:
        if row.replicate_group:
            groups.setdefault(row.replicate_group, []).append(row)
    assert sorted(tuple(row.number for row in group) for group in groups.values()) == [
        (5, 35), (7, 38), (10, 14), (12, 20), (19, 29, 44), (21, 30), (22, 31), (36, 39),
    ]  # fmt: skip
    for group in groups.values():
        same = {(row.name, row.family, row.gemm, row.flop, row.read_byte, row.write_byte) for row in group}
        assert len(same) == 1


def test_rows_that_differ_in_layout_or_bias_are_no_replicates(rows):
    fc, fcproj_dinp = (next(row for row in rows if row.number == number) for number in (11, 23))
    assert astuple(fc.gemm)[:4] == astuple(fcproj_dinp.gemm)[:4]
    assert fc.gemm != fcproj_dinp.gemm
    assert fc.replicate_group is None and fcproj_dinp.replicate_group is None
