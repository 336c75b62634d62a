"""Kernel rows of a serving step add up to what the model's shape says."""

import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving import models as rows
from kernel_dvfs_serving.models import BF16, MODELS, check_degree, served

LLAMA2 = served("llama2-70b")


def _sum(own, field, families=None):
    return sum(row.launches * getattr(row, field) for row in own if families is None or row.family in families)


def test_llama2_70b_has_its_published_size_and_cache():
    assert LLAMA2.weights_byte / BF16 == pytest.approx(68.98e9, rel=1e-3)
    assert LLAMA2.kv_byte_per_token == 80 * 2 * 8 * 128 * 2


# a mixture of experts reads and does less: test_measured_steps.py
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.experts == 1])
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_all_ranks_together_read_every_weight_once_and_do_two_flop_a_weight_and_token(name, tp):
    model, tokens = served(name), 64
    own = rows.token_rows(model, tp, tokens)
    # norms and the embedding table are not matrices of a linear layer
    matrices = model.weights_byte / BF16 - model.vocab * model.hidden - model.hidden * (2 * model.layers + 1)
    assert tp * _sum(own, "tensor_flop") == pytest.approx(2 * tokens * matrices, rel=1e-12)
    activations = sum(
        row.launches * BF16 * tokens * (model.hidden if row.id != "output_linear" else model.hidden // tp)
        for row in own
        if row.family == "linear" and row.id != "down_linear"
    )
    activations += model.layers * BF16 * tokens * model.ffn // tp
    assert tp * (_sum(own, "read_byte", {"linear"}) - activations) == pytest.approx(BF16 * matrices, rel=1e-12)


def test_decoding_reads_the_cache_once_whatever_the_degree():
    for tp in (2, 4, 8):
        row = rows.decode_attention(LLAMA2, tp, 1000)
        assert tp * row.launches * row.read_byte == 1000 * LLAMA2.kv_byte_per_token


def test_prompt_attention_is_four_flop_a_pair_head_and_channel():
    row = rows.prompt_attention(LLAMA2, 4, 10)
    assert row.launches * row.tensor_flop * 4 == 80 * 4 * 64 * 128 * 10


def test_no_more_rows_reach_the_output_matrix_than_tokens_are_drawn():
    few, many = ({row.id: row for row in rows.token_rows(LLAMA2, 8, tokens)} for tokens in (256, 4096))
    assert few["logits_linear"] == many["logits_linear"]


def test_a_degree_that_splits_no_heads_is_refused():
    with pytest.raises(InputError, match="allowed: 1, 2, 4, 8"):
        check_degree(LLAMA2, 3)
    with pytest.raises(InputError, match="llama2-70b"):
        served("llama-7t")
