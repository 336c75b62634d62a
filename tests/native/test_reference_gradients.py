"""Backward of the C reference is the slope of forward: central differences of NumPy's forward in float64."""

import numpy as np
import oracles
import pytest
from oracles import EPS, read

STEP = 1e-5


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture
def normal(rng):
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


@pytest.fixture
def run(cpu):
    return lambda op, settings, **tensors: cpu.run(op, settings, tensors, "float32")


def is_slope(got, forward, at, dout):
    """`got` is d sum(dout * forward(x)) / dx at x = `at`. NaN in forward's output is nothing."""
    at, dout = read(at), read(dout)
    want = np.empty(at.shape)
    for index in np.ndindex(at.shape):
        above, below = at.copy(), at.copy()
        above[index] += STEP
        below[index] -= STEP
        want[index] = np.nansum(dout * (forward(above) - forward(below))) / (2 * STEP)
    assert np.abs(want).max() > 0
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=5e-6 * np.abs(want).max())


@pytest.mark.parametrize(("M", "C"), [(2, 7), (3, 16), (1, 33)])
def test_layernorm(run, normal, M, C):
    inp, gamma, beta, dout = 1.5 * normal(M, C) + 3, 1 + 0.3 * normal(C), normal(C), normal(M, C)
    kept = run("layernorm_forward", {"M": M, "C": C, "eps": EPS}, inp=inp, gamma=gamma, beta=beta)
    zero = {"dinp_in": 0 * inp, "dgamma_in": 0 * gamma, "dbeta_in": 0 * beta}
    kept = {name: kept[name] for name in ("mean", "rstd")}
    got = run("layernorm_backward", {"M": M, "C": C}, dout=dout, inp=inp, gamma=gamma, **kept, **zero)
    x = {"inp": read(inp), "gamma": read(gamma), "beta": read(beta)}
    for name in x:
        forward = lambda value, name=name: oracles.layernorm_forward({"eps": EPS}, {**x, name: value})["out"]  # noqa: E731
        is_slope(got[f"d{name}_out"], forward, x[name], dout)


@pytest.mark.parametrize("T", [1, 2, 7])
def test_softmax(run, normal, T):
    settings = {"N": 2, "T": T, "scale": 0.4}
    pre, datt = normal(2, T, T), normal(2, T, T)
    att = run("softmax_forward", settings, pre=pre)["att"]
    got = run("softmax_backward", {**settings, "skip_upper": False}, att=att, datt=datt)["dpre"]
    if T == 1:
        assert got.tolist() == [[[0]], [[0]]]
    else:
        is_slope(got, lambda x: oracles.softmax_forward(settings, {"pre": x})["att"], pre, datt)


@pytest.mark.parametrize(("T", "NH", "HS"), [(1, 1, 2), (5, 2, 3)])
def test_fused_attention(run, normal, T, NH, HS):
    settings = {"B": 2, "T": T, "NH": NH, "HS": HS, "scale": 0.6}
    qkv, dout = normal(2, T, 3, NH, HS), normal(2, T, NH, HS)
    kept = run("attention_forward", settings, qkv=qkv)
    got = run("attention_backward", settings, qkv=qkv, dout=dout, **kept)["dqkv"]
    is_slope(got, lambda x: oracles.attention_forward(settings, {"qkv": x})["out"], qkv, dout)


def test_gelu(run, normal):
    inp, dout = 3 * normal(5, 9), normal(5, 9)
    got = run("gelu_backward", {"M": 5, "C": 9}, inp=inp, dout=dout)["dinp"]
    is_slope(got, oracles.gelu, inp, dout)


def test_classifier(run, rng, normal):
    M, V = 4, 6
    settings = {"M": M, "V": V, "Vp": V + 2, "dloss": 1 / M}
    x = {"logits": normal(M, V + 2), "targets": rng.integers(0, V, M, dtype=np.int32), "losses_in": normal(M)}
    got = run("classifier", settings, **x)["dlogits"]

    def losses(logits):
        return oracles.classifier(settings, {**x, "logits": logits})["losses_out"]

    is_slope(got, losses, x["logits"], np.full(M, 1 / M))  # 0 in the pad columns: they have no effect


def test_permutes(run, normal):
    shape = {"B": 2, "T": 3, "NH": 2, "HS": 4}
    inp, d = normal(2, 3, 3, 2, 4), {name: normal(2, 2, 3, 4) for name in "qkv"}
    got = run("permute_qkv_backward", shape, **{f"d{name}": gradient for name, gradient in d.items()})["dinp"]

    def stacked(x):
        return np.stack([oracles.permute_qkv_forward(shape, {"inp": x})[name] for name in "qkv"])

    is_slope(got, stacked, inp, np.stack([d[name] for name in "qkv"]))
    inp, dout = normal(2, 2, 3, 4), normal(2, 3, 2, 4)
    got = run("permute_heads_backward", shape, dout=dout)["dinp"]
    is_slope(got, lambda x: oracles.permute_heads_forward(shape, {"inp": x})["out"], inp, dout)


def test_embedding(run, rng, normal):
    M, T, V, C = 6, 3, 5, 4
    ids, wte, wpe, dout = rng.integers(0, V, M, dtype=np.int32), normal(V, C), normal(T, C), normal(M, C)
    dwpe = run("wpe_backward", {"M": M, "T": T, "C": C, "seed": 0}, dout=dout, dwpe_in=0 * wpe)["dwpe_out"]
    settings = {"M": M, "V": V, "C": C, "seed": 0}
    dwte = run("wte_backward", settings, ids=ids, dout=dout, dwte_in=0 * wte)["dwte_out"]

    def forward(wte, wpe):
        return oracles.embedding_forward({"M": M, "T": T}, {"ids": ids, "wte": wte, "wpe": wpe})["out"]

    is_slope(dwpe, lambda x: forward(wte, x), wpe, dout)
    is_slope(dwte, lambda x: forward(x, wpe), wte, dout)


@pytest.mark.parametrize("G", [1, 3])
def test_linear_layer(run, normal, G):
    """Forward TN with a bias; the input's gradient NN, the weight's NT, the bias' by column sums."""
    M, C, OC = 5, 4, 3
    inp, weight, bias, dout = normal(1, M, C), normal(1, OC, C), normal(OC), normal(1, M, OC)
    none = {"count": 1, "has_bias": False, "accumulate": False}
    dinp = run("gemm", {**none, "M": M, "N": C, "K": OC, "layout": "NN"}, a=dout, b=weight)["d"]
    dweight = run("gemm", {**none, "M": OC, "N": C, "K": M, "layout": "NT"}, a=dout, b=inp)["d"]
    if G == 1:
        dbias = run("bias_backward", {"M": M, "OC": OC, "G": 1}, dout=dout[0], dbias_in=0 * bias)["dbias_out"]
    else:
        partials = run("bias_backward", {"M": M, "OC": OC, "G": G}, dout=dout[0])["partials"]
        dbias = run("bias_reduce", {"OC": OC, "G": G}, partials=partials, dbias_in=0 * bias)["dbias_out"]

    def forward(a, b, bias):
        return oracles.gemm({"layout": "TN"}, {"a": a, "b": b, "bias": bias})["d"]

    is_slope(dinp, lambda x: forward(x, weight, bias), inp, dout)
    is_slope(dweight, lambda x: forward(inp, x, bias), weight, dout)
    is_slope(dbias, lambda x: forward(inp, weight, x), bias, dout)
