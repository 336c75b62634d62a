"""The rows, run one after the other through the C reference, are one training iteration of a transformer: its loss and
its gradients, on one rank or divided over many."""

from dataclasses import replace

import iteration
import numpy as np
import pytest
import transformer

from kernel_dvfs.workload.models import FUSED, Model

BATCH = 2
TINY = Model("tiny", layers=1, channels=256, heads=16, vocab=1003, padded_vocab=1024, sequence=64)
# so small that a derivative in every parameter takes no time
DEEP = Model("deep", layers=3, channels=32, heads=4, vocab=101, padded_vocab=104, sequence=16)
H200 = {"bias_split": "llmc", "sm_count": 132, "threads_per_sm": 2048}
LAYER = ["ln1_gamma", "ln1_beta", "wqkv", "bqkv", "wo", "bo", "ln2_gamma", "ln2_beta", "wfc", "bfc", "wp", "bp"]


@pytest.fixture(scope="module")
def given(cpu):
    return iteration.given(cpu, TINY, BATCH)


@pytest.fixture(scope="module")
def whole(cpu, given):
    """Every tensor of an iteration of one layer on one rank, in float32."""
    return iteration.run(cpu, TINY, BATCH, given)[0]


@pytest.fixture(scope="module")
def narrow(cpu, given):
    """The same in bf16."""
    return iteration.run(cpu, TINY, BATCH, given, dtype="bf16")[0]


@pytest.fixture(scope="module")
def deep(cpu):
    """What an iteration is given, as the model in NumPy takes it, and every tensor of the iteration: three layers
    whose weights are so large that attention and GELU are far from linear."""
    layers = iteration.given(cpu, DEEP, BATCH)
    for tensors in layers:
        for name in ("wqkv", "wo", "wfc", "wp"):
            tensors[name] *= np.float32(1 / (0.02 * DEEP.channels**0.5))
    layers[-1]["dres3_in"][:] = 0  # nothing but the loss depends on the last layer
    given = [{name: iteration.read(array) for name, array in tensors.items()} for tensors in layers]
    return given, iteration.run(cpu, DEEP, BATCH, layers)


def largest_error(got, want):
    """Relative to the largest value of the tensor."""
    return np.abs(got - want).max() / np.abs(want).max()


def parameters(layers):
    """(layer, parameter), those of the embedding in the first layer and those of the last layernorm in the last."""
    return [
        *((layer, name) for layer in range(layers) for name in LAYER),
        *((0, name) for name in ("wte", "wpe")),
        *((layers - 1, name) for name in ("lnf_gamma", "lnf_beta")),
    ]


def gradient(given, computed, layer, name):
    """What the iteration added to the gradient it was given. wte's starts in the layer that the loss follows."""
    before = given[-1 if name == "wte" else layer][f"d{name}_in"]
    return computed[layer][f"d{name}"] - before


def test_the_loss_is_that_of_a_transformer(deep):
    given, computed = deep
    losses = computed[-1]["losses"] - given[-1]["losses_in"]
    assert losses.mean() == pytest.approx(transformer.loss(given, DEEP.heads, DEEP.vocab), rel=1e-6)


@pytest.mark.parametrize(("layer", "name"), parameters(DEEP.layers))
def test_gradients_are_the_slopes_of_the_loss(deep, layer, name):
    given, computed = deep
    exact = gradient(given, computed, layer, name)
    rng = np.random.default_rng(1)
    for _ in range(3):
        direction = rng.choice([-1.0, 1.0], exact.shape)
        slope = transformer.slope(given, DEEP.heads, DEEP.vocab, layer, name, direction)
        assert np.sum(exact * direction) == pytest.approx(slope, abs=2e-5 * np.linalg.norm(exact))


def test_the_gradient_reaches_the_input(deep):
    given, computed = deep
    exact = computed[0]["dres1"]
    for position in ((0, 0, 0), (1, 5, 7), (1, 15, 31)):
        direction = np.zeros_like(exact)
        direction[position] = 1
        slope = transformer.slope(given, DEEP.heads, DEEP.vocab, 0, "res1", direction)
        assert exact[position] == pytest.approx(slope, rel=1e-4, abs=1e-5 * np.abs(exact).max())


def test_gradients_agree_with_automatic_differentiation(deep):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    given, computed = deep
    leaves = {
        (layer, name): torch.tensor(given[layer][name], requires_grad=True) for layer, name in parameters(DEEP.layers)
    }
    _torch_loss(torch, leaves, given[0]["ids"], given[0]["targets"]).backward()
    for (layer, name), leaf in leaves.items():
        exact = gradient(given, computed, layer, name)
        assert largest_error(exact, leaf.grad.numpy()) < 2e-5, (layer, name)


def _torch_loss(torch, p, ids, targets):
    F, C = torch.nn.functional, DEEP.channels
    ids, targets = torch.tensor(ids).long(), torch.tensor(targets).long()
    x = F.embedding(ids, p[0, "wte"]) + p[0, "wpe"]
    for i in range(DEEP.layers):
        h = F.layer_norm(x, (C,), p[i, "ln1_gamma"], p[i, "ln1_beta"])
        h = F.linear(h, p[i, "wqkv"].reshape(3 * C, C), p[i, "bqkv"].reshape(3 * C))
        q, k, v = (part.unflatten(2, (DEEP.heads, -1)).transpose(1, 2) for part in h.split(C, dim=2))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.linear(h, p[i, "wo"].reshape(C, C), p[i, "bo"])
        h = F.layer_norm(x, (C,), p[i, "ln2_gamma"], p[i, "ln2_beta"])
        h = F.gelu(F.linear(h, p[i, "wfc"], p[i, "bfc"]), approximate="tanh")
        x = x + F.linear(h, p[i, "wp"], p[i, "bp"])
    h = F.layer_norm(x, (C,), p[DEEP.layers - 1, "lnf_gamma"], p[DEEP.layers - 1, "lnf_beta"])
    logits = F.linear(h, p[0, "wte"])[..., : DEEP.vocab]
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def test_fused_attention_changes_nothing_but_what_is_stored(cpu, given, whole):
    fused = replace(TINY, attention=FUSED)
    (computed,) = iteration.run(cpu, fused, BATCH, iteration.given(cpu, fused, BATCH))
    gone = {"q", "k", "v", "pre", "att", "y", "dy", "datt", "dpre", "dq", "dk", "dv"}
    assert computed.keys() ^ whole.keys() == gone | {"lse"}
    for name in whole.keys() - gone:
        assert largest_error(computed[name], whole[name]) < 1e-5, name


@pytest.mark.parametrize("degree", [2, 16])
def test_ranks_with_fused_attention_compute_what_one_rank_does(cpu, given, whole, degree):
    (ranks,) = iteration.run(cpu, replace(TINY, attention=FUSED), BATCH, given, degree)
    for name in ranks.keys() & whole.keys():
        assert largest_error(ranks[name], whole[name]) < 1e-5, name


def test_the_token_table_learns_from_logits_and_from_lookups(given, whole):
    from_logits = whole["dwte_of_logits"] - given[0]["dwte_in"]
    from_lookups = whole["dwte"] - whole["dwte_of_logits"]
    looked_up = np.isin(np.arange(TINY.padded_vocab), given[0]["ids"])
    assert (np.abs(from_logits).max(axis=1) > 0).sum() == TINY.vocab
    assert ((np.abs(from_lookups).max(axis=1) > 0) == looked_up).all()
    expected = np.zeros_like(from_lookups)
    np.add.at(expected, given[0]["ids"], whole["dres1"])
    assert largest_error(from_lookups, expected) < 1e-6


def test_padding_of_the_vocabulary_and_the_future_stay_zero(whole):
    for name in ("wte", "dwte_in", "dwte_of_logits", "dwte"):
        assert not whole[name][TINY.vocab :].any(), name
    for name in ("logits", "dlogits"):
        assert not whole[name][..., TINY.vocab :].any(), name
    for name in ("att", "dpre"):
        assert not np.triu(whole[name], 1).any(), name
    np.testing.assert_allclose(whole["att"].sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(whole["dlogits"].sum(axis=-1), 0, atol=1e-5 * np.abs(whole["dlogits"]).max())


@pytest.mark.parametrize("degree", [2, 4, 8, 16])
def test_ranks_together_compute_what_one_rank_does(cpu, given, whole, degree):
    (ranks,) = iteration.run(cpu, TINY, BATCH, given, degree)
    assert whole.keys() < ranks.keys()
    for name, expected in whole.items():
        assert largest_error(ranks[name], expected) < 1e-5, name


def test_a_bias_gradient_over_gathered_tokens_is_whole_on_every_rank(cpu, given, whole):
    (ranks,) = iteration.run(cpu, TINY, BATCH, given, degree=4, row_parallel_bias="gathered")
    for name in ("dbp_partials", "dbp", "dbo_partials", "dbo", "dwte", "dwpe"):
        assert largest_error(ranks[name], whole[name]) < 1e-5, name


def test_several_layers_are_divided_as_one_is(cpu):
    model = replace(TINY, layers=2, channels=64)
    layers = iteration.given(cpu, model, BATCH)
    one, many = (iteration.run(cpu, model, BATCH, layers, degree) for degree in (1, 4))
    for layer, ranks in zip(one, many):
        for name, expected in layer.items():
            assert largest_error(ranks[name], expected) < 1e-5, name


def test_the_split_of_bias_gradients_changes_nothing_but_their_rounding(cpu, given, whole):
    (split,) = iteration.run(cpu, TINY, BATCH, given, **H200)
    sums = {f"d{bias}" for bias in ("bqkv", "bo", "bfc", "bp")}
    partial = {f"{name}_partials" for name in sums}
    assert split.keys() - whole.keys() == {"dbqkv_partials", "dbfc_partials"}
    for name in sums:
        assert largest_error(split[name], whole[name]) < 1e-6, name
    for name in whole.keys() - sums - partial:
        np.testing.assert_array_equal(split[name], whole[name], name)


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_a_second_iteration_equals_the_first_bit_for_bit(cpu, given, whole, narrow, dtype):
    (second,) = iteration.run(cpu, TINY, BATCH, given, dtype=dtype)
    for name, first in (narrow if dtype == "bf16" else whole).items():
        np.testing.assert_array_equal(first, second[name], name)


def test_bf16_stays_close_to_float32(whole, narrow):
    for name, expected in whole.items():
        assert np.linalg.norm(narrow[name] - expected) < 0.015 * np.linalg.norm(expected), name
    assert narrow["losses"].mean() == pytest.approx(whole["losses"].mean(), rel=1e-3)
