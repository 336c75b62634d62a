"""A row names the operation it launches, one name for formula, settings and native code, and sizes it in full."""

import re
from dataclasses import astuple

import pytest

from kernel_dvfs.workload import formulas, operations
from kernel_dvfs.workload.models import MODELS
from kernel_dvfs.workload.rows import kernel_rows

H200 = {"bias_split": "llmc", "sm_count": 132, "threads_per_sm": 2048}


@pytest.fixture(scope="module")
def native_operations(root):
    """The names that the C reference and the CUDA kernels are declared by."""
    header = (root / "native/include/kdvfs/kernels.h").read_text()
    return set(re.findall(r"^  X\((\w+)\)", header, re.MULTILINE))


def settings_of(id, **options):
    return next(row.settings for row in kernel_rows(**options) if row.id == id)


def public_functions(module):
    own = {name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    return {name for name, value in own.items() if callable(value) and re.match("[a-z]", name)}


def test_the_rows_launch_every_operation_of_the_native_layer_and_no_other(native_operations):
    assert len(native_operations) == 20
    fused = {"attention_forward", "attention_backward"}
    replaced = {"softmax_forward", "softmax_backward"} | {
        f"permute_{what}_{way}" for what in ("qkv", "heads") for way in ("forward", "backward")
    }
    for options in ({}, H200):
        assert {row.op for row in kernel_rows(**options)} == native_operations - fused
        assert {row.op for row in kernel_rows("gpt3-xl-flash", **options)} == native_operations - replaced


def test_formulas_and_settings_go_by_the_names_of_the_operations(native_operations):
    assert public_functions(operations) == native_operations
    assert public_functions(formulas) == native_operations


@pytest.mark.parametrize("degree", [1, 2, 16])
def test_a_gemm_is_told_what_the_table_says(degree):
    for row in kernel_rows(tensor_parallel=degree):
        if row.op == "gemm":
            size = row.settings
            assert row.flop == 2 * size["count"] * size["M"] * size["N"] * size["K"]
            assert (size["layout"], size["has_bias"], size["accumulate"]) == astuple(row.gemm)[4:]
        else:
            assert row.gemm is None


def test_sizes_of_one_rank_are_those_of_the_formulas():
    whole, rank = {"batch": 40}, {"batch": 40, "tensor_parallel": 8}
    assert settings_of("embedding_wte_wpe", **whole) == {"M": 40960, "T": 1024, "C": 2048, "V": 50304}
    assert settings_of("embedding_wte_wpe", **rank) == {"M": 5120, "T": 128, "C": 2048, "V": 50304}
    assert settings_of("forward_gelu", **rank) == {"M": 40960, "C": 1024}
    assert settings_of("forward_qkv_permute", **rank) == {"B": 40, "T": 1024, "NH": 2, "HS": 128}
    assert settings_of("forward_mlp_residual", **rank) == {"M": 5120, "C": 2048, "eps": 1e-5}
    assert settings_of("backward_fcproj_bias", **rank) == {"M": 5120, "OC": 2048, "G": 5}
    assert settings_of("backward_fcproj_bias", **rank, row_parallel_bias="gathered")["M"] == 40960
    assert settings_of("backward_qkv_bias", **H200) == {"M": 40960, "OC": 6144, "G": 2}
    assert settings_of("backward_qkv_bias_reduce", **H200) == {"OC": 6144, "G": 2}
    assert settings_of("embedding_backward_wte", **rank) == {"M": 5120, "V": 50304, "C": 2048, "seed": 1}


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_scaled_by_the_head_size_of_the_model(name):
    model = MODELS[name]
    for id in ("forward_attention_softmax", "backward_attention_softmax"):
        scale = settings_of(id, model=name, batch=1)["scale"]
        assert scale**2 * model.channels / model.heads == pytest.approx(1)


@pytest.mark.parametrize("degree", [1, 4])
def test_the_loss_is_a_mean_over_the_tokens_of_all_ranks(degree):
    loss = settings_of("loss_softmax", batch=4, tensor_parallel=degree)
    assert (loss["M"], loss["V"], loss["Vp"]) == (4096 / degree, 50257, 50304)
    assert loss["dloss"] * 4096 == 1


@pytest.mark.parametrize("options", [{}, {"tensor_parallel": 16}, H200])
def test_replicates_are_one_operation_with_one_set_of_settings(options):
    groups = {}
    for row in kernel_rows(**options):
        if row.replicate_group:
            groups.setdefault(row.replicate_group, []).append((row.op, row.settings))
    assert len(groups) == 8
    for group in groups.values():
        assert all(launch == group[0] for launch in group[1:])
