"""The rows of a model with fused attention: Table 1's, with the launches of attention replaced by one each way."""

import re

import pytest

from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs_clocks.clocks import BASELINE

GONE = {
    "forward": {"qkv_permute", "scores_gemm", "attention_softmax", "context_gemm", "heads_permute"},
    "backward": {"heads_permute", "datt_gemm", "dv_gemm", "attention_softmax", "dq_gemm", "dk_gemm", "qkv_permute"},
}


def by_id(model="gpt3-xl", **options):
    return {row.id: row for row in kernel_rows(model, **options)}


@pytest.mark.parametrize("options", [{}, {"tensor_parallel": 8}, {"batch": 3}])
def test_all_other_rows_are_those_of_table_1_in_the_same_order(options):
    unfused, fused = by_id(**options), by_id("gpt3-xl-flash", **options)
    gone = {f"{way}_{what}" for way, names in GONE.items() for what in names}
    assert unfused.keys() - fused.keys() == gone
    assert fused.keys() - unfused.keys() == {"forward_attention", "backward_attention"}
    kept = [name for name in fused if name in unfused]
    assert kept == [name for name in unfused if name not in gone]
    assert all(fused[name] == unfused[name] for name in kept)
    order = list(fused)
    assert order[order.index("forward_attention") - 1 :][:3] == [
        "forward_qkv_gemm", "forward_attention", "forward_attproj_gemm",
    ]  # fmt: skip
    assert order[order.index("backward_attention") - 1 :][:3] == [
        "backward_attproj_dweight_gemm", "backward_attention", "backward_qkv_bias",
    ]  # fmt: skip


def test_the_work_is_that_of_the_lower_triangle_and_of_whole_tensors_once():
    """By hand, of batch 40: 640 heads of 128 channels, 1024 positions."""
    rows = by_id("gpt3-xl-flash")
    forward, backward = rows["forward_attention"], rows["backward_attention"]
    scores = 640 * 1024 * 1025 // 2
    assert forward.tensor_flop == 2 * (2 * scores * 128) and backward.tensor_flop == 5 * (2 * scores * 128)
    assert forward.sfu_op == backward.sfu_op == scores
    tokens, lse = 40 * 1024 * 2048 * 2, 640 * 1024 * 4
    assert (forward.read_byte, forward.write_byte) == (3 * tokens, tokens + lse)
    assert (backward.read_byte, backward.write_byte) == (5 * tokens + lse, 3 * tokens)
    assert forward.multiplicity == backward.multiplicity == 24


def test_fusing_saves_traffic_and_half_of_the_products():
    """What is left out: squares of scores written and read, and their upper halves computed."""
    for way, names in GONE.items():
        unfused, fused = by_id(), by_id("gpt3-xl-flash")[f"{way}_attention"]
        replaced = [unfused[f"{way}_{name}"] for name in names]
        assert fused.read_byte + fused.write_byte < 0.2 * sum(row.read_byte + row.write_byte for row in replaced)
        recomputed = 5 / 4 if way == "backward" else 1
        share = 1025 / 2048 * recomputed
        assert fused.tensor_flop == pytest.approx(share * sum(row.tensor_flop for row in replaced))


def test_ranks_share_the_heads():
    whole, rank = by_id("gpt3-xl-flash"), by_id("gpt3-xl-flash", tensor_parallel=16)
    for name in ("forward_attention", "backward_attention"):
        assert rank[name].settings == {"B": 40, "T": 1024, "NH": 1, "HS": 128, "scale": 128**-0.5}
        assert 16 * rank[name].flop == whole[name].flop
        assert 16 * rank[name].read_byte == whole[name].read_byte


def test_the_simulated_h200_takes_what_an_iteration_with_fused_attention_took(setup_of, root):
    """Of batch 40 at auto: experiments/results/gpu_iteration_h200.txt. Nothing of the spec was fitted to it."""
    (line,) = re.findall(r"^ours fused  .*$", (root / "experiments/results/gpu_iteration_h200.txt").read_text(), re.M)
    measured_ms, measured_j = (float(re.search(rf"([\d.]+) {unit}\b", line)[1]) for unit in ("ms", "J"))
    setup = setup_of(model="gpt3-xl-flash", gpu="h200_sxm")
    passes = [
        Bench(setup, MeasurementTarget("pass", name), exact=True).point(BASELINE)["summary"]
        for name in setup.targets["pass"]
    ]
    assert 1e-3 * sum(each["time_us"] for each in passes) == pytest.approx(measured_ms, rel=0.015)
    assert 1e-3 * sum(each["energy_mj"] for each in passes) == pytest.approx(measured_j, rel=0.015)
