"""What a row says beyond the reference table: units that do the work, other GPUs, other tokens, bad input."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from kernel_dvfs.workload.models import MODELS
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs.workload.shapes import expected_distinct_tokens
from kernel_dvfs_clocks.errors import InputError

GPUS = {"RTX 3080 Ti": (80, 1536), "RTX A4000": (48, 1536), "H200": (132, 2048)}


def by_id(rows):
    assert len({row.id for row in rows}) == len(rows), "ids are unique"
    return {row.id: row for row in rows}


def llmc(gpu, degree=1, **settings):
    sm_count, threads_per_sm = GPUS[gpu]
    return kernel_rows(
        tensor_parallel=degree,
        bias_split="llmc",
        sm_count=sm_count,
        threads_per_sm=threads_per_sm,
        **settings,
    )


def test_rows_are_numbered_as_in_the_paper():
    assert [row.number for row in kernel_rows()] == list(range(1, 47))


def test_every_family_holds_the_rows_its_name_says():
    families = {}
    for row in kernel_rows():
        families.setdefault(row.family, []).append(row.number)
    assert families == {
        "gemm": [3, 9, 11, 13, 15, 17, 18, 23, 25, 27, 28, 32, 33, 42, 43],
        "attention_gemm": [5, 7, 35, 36, 38, 39],
        "softmax": [6, 16, 37],
        "layernorm": [2, 19, 29, 44],
        "residual": [10, 14],
        "gelu": [12, 20, 24],
        "permute": [4, 8, 34, 40],
        "bias": [21, 26, 30, 41],
        "bias_reduce": [22, 31],
        "embedding": [1, 45, 46],
    }


def test_work_is_done_by_tensor_cores_in_gemms_and_by_fp32_lanes_elsewhere():
    for row in kernel_rows():
        assert row.tensor_flop + row.fp32_flop == row.flop
        assert (row.tensor_flop == row.flop) == (row.kind == "gemm") or row.flop == 0


def test_special_function_units_serve_gelu_softmax_and_classifier():
    tokens, hidden, triangles = 40 * 1024, 8192, 40 * 16 * 1024 * 1025 // 2
    assert {row.number: row.sfu_op for row in kernel_rows() if row.sfu_op} == {
        6: 2 * triangles,
        12: 2 * tokens * hidden,
        16: 2 * tokens * 50257,
        20: 2 * tokens * hidden,
        24: 2 * tokens * hidden,
    }


def test_bias_and_bias_reduce_rows_alone_name_a_split():
    assert {row.number: row.bias_split for row in kernel_rows() if row.bias_split} == {
        21: 5, 22: 5, 26: 1, 30: 5, 31: 5, 41: 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "gpu, split_2048, split_6144, split_8192",
    [("RTX 3080 Ti", 5, 1, 1), ("RTX A4000", 3, 1, 1), ("H200", 8, 2, 2)],
)
def test_llmc_splits_bias_gradients_to_fill_the_gpu(gpu, split_2048, split_6144, split_8192):
    rows = by_id(llmc(gpu))
    assert rows["backward_fcproj_bias"].bias_split == split_2048
    assert rows["backward_attproj_bias_reduce"].bias_split == split_2048
    assert rows["backward_qkv_bias"].bias_split == split_6144
    assert rows["backward_fc_bias"].bias_split == split_8192


@pytest.mark.parametrize(
    "gpu, counts",
    [
        ("RTX 3080 Ti", {1: 46, 2: 48, 4: 48, 8: 48, 16: 48}),
        ("RTX A4000", {1: 46, 2: 47, 4: 48, 8: 48, 16: 48}),
        ("H200", {1: 48, 2: 48, 4: 48, 8: 48, 16: 48}),
    ],
)
def test_llmc_row_list_depends_on_the_gpu(gpu, counts):
    assert {degree: len(llmc(gpu, degree)) for degree in counts} == counts


def test_extra_reductions_follow_the_bias_they_finish():
    rows = llmc("H200")
    ids = [row.id for row in rows]
    for extra, before, columns in (
        ("backward_fc_bias_reduce", "backward_fc_bias", 8192),
        ("backward_qkv_bias_reduce", "backward_qkv_bias", 6144),
    ):
        row = rows[ids.index(extra)]
        assert ids[ids.index(extra) - 1] == before
        assert (row.number, row.family, row.multiplicity, row.replicate_group) == (
            None,
            "bias_reduce",
            24,
            None,
        )
        assert (row.flop, row.read_byte, row.write_byte) == (
            2 * columns,
            2 * columns * 4 + columns * 2,
            columns * 2,
        )
    assert [row.number for row in rows if row.number] == list(range(1, 47))


def test_a_tiny_gpu_splits_nothing_and_reduces_nothing():
    rows = kernel_rows(bias_split="llmc", sm_count=8, threads_per_sm=1024)
    assert [row.number for row in rows] == [n for n in range(1, 47) if n not in (22, 31)]


def test_llmc_on_the_papers_gpu_is_table_1():
    assert llmc("RTX 3080 Ti") == kernel_rows()


@pytest.mark.parametrize("gpu", GPUS)
def test_the_split_hardly_changes_the_bytes(gpu):
    def byte(rows):
        return sum(row.multiplicity * (row.read_byte + row.write_byte) for row in rows)

    assert byte(llmc(gpu)) == pytest.approx(byte(kernel_rows()), rel=5e-5)


def test_uniform_ids_leave_almost_half_the_vocabulary_untouched():
    assert expected_distinct_tokens(50257, 40960) == pytest.approx(28.0e3, rel=2e-3)
    assert expected_distinct_tokens(50257, 1) == pytest.approx(1)
    assert expected_distinct_tokens(1, 7) == 1
    assert expected_distinct_tokens(50257, 40960) == pytest.approx(50257 * (1 - (1 - 1 / 50257) ** 40960))


def test_zipf_without_exponent_is_uniform_and_natural_text_repeats_more():
    uniform = expected_distinct_tokens(50257, 40960)
    assert expected_distinct_tokens(50257, 40960, 0) == pytest.approx(uniform, rel=1e-12)
    # two ids of chances 2/3 and 1/3, two draws: (1 - 1/9) + (1 - 4/9)
    assert expected_distinct_tokens(2, 2, 1) == pytest.approx(8 / 9 + 5 / 9)
    assert expected_distinct_tokens(50257, 40960, 1.0) < 0.5 * uniform
    assert expected_distinct_tokens(50257, 40960, 1000.0) == pytest.approx(1)


def test_the_id_distribution_reaches_the_two_lookup_rows_only():
    uniform, zipf = kernel_rows(), kernel_rows(zipf_exponent=1.0)
    changed = [row.number for row, other in zip(uniform, zipf, strict=True) if row != other]
    assert changed == [1, 46]
    for row, other in zip(uniform, zipf, strict=True):
        assert other.read_byte <= row.read_byte and other.flop == row.flop
        assert other.resident_byte == row.resident_byte, "buffers are for the worst case"


def test_resident_buffers_hold_at_least_what_moves():
    for settings in ({}, {"batch": 1}, {"batch": 100}, {"tensor_parallel": 16}):
        for row in kernel_rows(**settings):
            assert row.resident_byte >= max(row.read_byte, row.write_byte)


def test_a_model_can_be_given_as_a_shape():
    assert kernel_rows(MODELS["gpt3-xl"]) == kernel_rows("gpt3-xl")
    small = replace(MODELS["gpt3-xl"], name="mine", layers=3)
    assert {row.multiplicity for row in kernel_rows(small)} == {1, 3}


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"model": "gpt4"},
            (
                "model 'gpt4' is unknown: known are gpt3-125m, gpt3-350m, gpt3-760m, gpt3-xl, gpt3-2.7b, "
                "gpt3-6.7b, gpt3-13b, gpt3-175b, each with fused attention too (gpt3-xl-flash)"
            ),
        ),
        ({"batch": 0}, "batch must be a whole number of at least 1, not 0"),
        ({"batch": -3}, "batch must be a whole number of at least 1, not -3"),
        ({"batch": 2.5}, "batch must be a whole number of at least 1, not 2.5"),
        ({"batch": True}, "batch must be a whole number of at least 1, not True"),
        ({"tensor_parallel": 0}, "tensor_parallel must be a whole number of at least 1, not 0"),
        (
            {"tensor_parallel": 3},
            (
                "tensor_parallel 3 does not divide the 16 heads and 1024 positions of gpt3-xl: "
                "allowed are 1, 2, 4, 8, 16"
            ),
        ),
        (
            {"tensor_parallel": 3, "model": "gpt3-125m"},
            ("tensor_parallel 3 does not divide the 12 heads and 1024 positions of gpt3-125m: allowed are 1, 2, 4"),
        ),
        ({"bias_split": "auto"}, "bias_split 'auto' is unknown: allowed are table1, llmc"),
        ({"row_parallel_bias": "all"}, "row_parallel_bias 'all' is unknown: allowed are sequence, gathered"),
        (
            {"bias_split": "llmc", "sm_count": 80},
            "bias_split llmc depends on the GPU: give sm_count and threads_per_sm, or use bias_split table1",
        ),
        (
            {"bias_split": "llmc", "sm_count": 0, "threads_per_sm": 1536},
            "sm_count must be a whole number of at least 1, not 0",
        ),
        ({"zipf_exponent": -1}, "zipf_exponent must be a finite number of at least 0, not -1"),
        ({"zipf_exponent": float("nan")}, "zipf_exponent must be a finite number of at least 0, not nan"),
    ],
)
def test_bad_input_gets_one_line_with_the_remedy(settings, message):
    with pytest.raises(InputError) as refusal:
        kernel_rows(**settings)
    assert str(refusal.value) == message


def test_a_measuring_process_needs_the_standard_library_only_for_its_workload(root):
    modules = sorted(path.stem for path in (root / "workflow/kernel_dvfs/workload").glob("[a-z]*.py"))
    code = f"import sys; {'; '.join(f'import kernel_dvfs.workload.{module}' for module in modules)}; "
    code += "print(*sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'__main__'}))"
    # -S: what the environment's own start-up files import is not ours
    run = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": str(root / "workflow")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "kernel_dvfs kernel_dvfs_clocks"
