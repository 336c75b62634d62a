"""Every operation of the C reference computes what NumPy does in float64, reads and writes no more than it
should, and rounds where it should."""

import threading
import time

import numpy as np
import oracles
import pytest
from oracles import EPS, bf16, draw, expected, hold, read, widen

DTYPES = ("float32", "bf16")


def heads(B, T, NH, HS):
    return {"B": B, "T": T, "NH": NH, "HS": HS}


def product(M, N, K, layout="TN", count=1, has_bias=False, accumulate=False):
    sizes = {"count": count, "M": M, "N": N, "K": K}
    return {**sizes, "layout": layout, "has_bias": has_bias, "accumulate": accumulate}


def rows(*shapes, **more):
    return [{"M": M, "C": C, **more} for M, C in shapes]


# one element, odd tails beside a warp and a 16-byte pack, and lengths as in training
ROWS = [(1, 1), (1, 8), (2, 7), (5, 33), (3, 257), (128, 256), (4, 2048)]
HEADS = [heads(1, 1, 1, 1), heads(2, 3, 1, 5), heads(1, 5, 3, 8), heads(2, 64, 2, 128)]
ATTENTION = [
    {**sizes, "scale": sizes["HS"] ** -0.5} for sizes in (*HEADS[:3], heads(2, 33, 2, 16), heads(1, 64, 2, 128))
]
CASES = {
    "embedding_forward": [
        {"M": 1, "T": 1, "C": 1, "V": 1},
        {"M": 6, "T": 3, "C": 7, "V": 5},
        {"M": 128, "T": 64, "C": 256, "V": 1003},
    ],
    "layernorm_forward": rows(*ROWS, eps=EPS),
    "residual_layernorm": rows(*ROWS, eps=EPS),
    "permute_qkv_forward": HEADS,
    "permute_heads_forward": HEADS,
    "softmax_forward": [{"N": N, "T": T, "scale": HS**-0.5} for N, T, HS in [(1, 1, 1), (3, 5, 7), (4, 64, 128)]],
    "attention_forward": ATTENTION,
    "attention_backward": ATTENTION,
    "gelu_forward": rows(*ROWS[:-1]),
    "classifier": [
        {"M": M, "V": V, "Vp": Vp, "dloss": 1 / M}
        for M, V, Vp in [(1, 1, 1), (3, 5, 5), (2, 33, 40), (128, 1003, 1024)]
    ],
    "layernorm_backward": rows(*ROWS),
    "gelu_backward": rows(*ROWS[:-1]),
    "bias_backward": [
        {"M": M, "OC": OC, "G": G}
        for M, OC, G in [(1, 1, 1), (7, 33, 1), (128, 256, 1), (7, 3, 2), (7, 3, 7), (5, 2, 4), (128, 256, 5)]
    ],
    "bias_reduce": [{"OC": OC, "G": G} for OC, G in [(1, 1), (33, 2), (256, 5), (7, 31)]],
    "permute_heads_backward": HEADS,
    "softmax_backward": [
        {"N": N, "T": T, "scale": 0.3, "skip_upper": skip}
        for N, T, skip in [(1, 1, False), (3, 5, False), (3, 5, True), (4, 64, False)]
    ],
    "permute_qkv_backward": HEADS,
    "wpe_backward": [
        {"M": M, "T": T, "C": C, "seed": 3} for M, T, C in [(1, 1, 1), (6, 3, 7), (6, 6, 2), (128, 64, 256)]
    ],
    "wte_backward": [
        {"M": M, "V": V, "C": C, "seed": 4} for M, V, C in [(1, 1, 1), (5, 1, 3), (6, 40, 7), (128, 97, 64)]
    ],
    "gemm": [
        *(product(1, 1, 1, layout) for layout in ("TN", "NN", "NT")),
        *(product(5, 17, 3, layout, count=2) for layout in ("TN", "NN", "NT")),
        *(product(5, 17, 33, layout, has_bias=True) for layout in ("TN", "NN", "NT")),
        *(product(2, 16, 64, layout, accumulate=True) for layout in ("TN", "NN", "NT")),
        product(3, 35, 9, "NN", count=3, has_bias=True, accumulate=True),
        product(64, 128, 96, "TN", has_bias=True),
    ],
}
CALLS = [pytest.param(op, case, id=f"{op}-{i}") for op, cases in CASES.items() for i, case in enumerate(cases)]
# what float32 sums and functions may lose, in units of an output's largest value
FLOAT32_ERROR = 2e-6


def test_every_operation_is_tested(cpu):
    assert set(cpu.OPERATIONS) == set(CASES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("op", "settings"), CALLS)
def test_it_is_what_numpy_computes_and_nothing_more_is_read_or_written(cpu, op, settings, dtype):
    tensors = draw(cpu, op, settings, dtype)
    got = cpu.run(op, settings, tensors, dtype)
    want = expected(op, settings, tensors, dtype)
    assert list(got) == [name for name, kind, _, _ in cpu.tensors(op, settings, dtype) if kind == "output"]
    assert set(got) == set(want)
    rounding = oracles.HALF_STEP * (2 if op in oracles.ROUNDED_STOCHASTICALLY else 1)
    for name, array in got.items():
        hold(array, want[name], tensors[name], FLOAT32_ERROR, rounding)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", CASES)
def test_a_second_call_equals_the_first_and_what_was_given_stays(cpu, op, dtype):
    settings = CASES[op][-1]
    tensors = draw(cpu, op, settings, dtype)
    before = {name: array.copy() for name, array in tensors.items()}
    first, second = (cpu.run(op, settings, tensors, dtype) for _ in range(2))
    for name in first:
        assert first[name].tobytes() == second[name].tobytes(), name
    for name, array in tensors.items():
        assert array.tobytes() == before[name].tobytes(), name


@pytest.mark.parametrize(("op", "settings"), CALLS)
def test_bf16_rounds_once_at_the_store_and_computes_in_float32(cpu, op, settings):
    """Widened inputs through the float32 code, then one rounding, give the same bits."""
    narrow = draw(cpu, op, settings, "bf16")
    wide = {name: widen(array) if array.dtype == np.uint16 else array for name, array in narrow.items()}
    got, full = cpu.run(op, settings, narrow), cpu.run(op, settings, wide, "float32")
    if op == "residual_layernorm":  # rounds the sum, then goes on with that
        got, full = {"sum": got["sum"]}, {"sum": full["sum"]}
    for name, array in got.items():
        if array.dtype == np.float32:
            rounded = full[name]
        elif op in oracles.ROUNDED_STOCHASTICALLY:
            bits = full[name].view(np.uint32)
            rounded = bits + oracles.random16(np.arange(bits.size).reshape(bits.shape), settings["seed"])
            rounded = (rounded >> np.uint32(16)).astype(np.uint16)
        else:
            rounded = bf16(full[name])
        written = ~np.isnan(expected(op, settings, narrow, "bf16")[name])
        np.testing.assert_array_equal(array[written], rounded[written])


def test_outputs_that_are_not_given_start_as_zeros(cpu):
    settings = {"N": 1, "T": 40, "scale": 1.0}
    att = cpu.run("softmax_forward", settings, {"pre": bf16(np.ones((1, 40, 40)))})["att"]
    np.testing.assert_array_equal(np.triu(att[0], 1), 0)
    np.testing.assert_allclose(read(att).sum(axis=2), 1, rtol=2 * oracles.HALF_STEP)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", HEADS, ids=str)
def test_permutes_are_undone_by_their_backward_bit_for_bit(cpu, shape, dtype):
    """Any bits, those of a signalling NaN too."""
    rng = np.random.default_rng(1)

    def anything(*lengths):
        raw = rng.integers(0, 1 << 16, size=(*lengths, 1 if dtype == "bf16" else 2), dtype=np.uint16)
        return raw[..., 0].copy() if dtype == "bf16" else raw.view(np.float32)[..., 0].copy()

    B, T, NH, HS = shape.values()
    inp = anything(B, T, 3, NH, HS)
    there = cpu.run("permute_qkv_forward", shape, {"inp": inp}, dtype)
    back = cpu.run("permute_qkv_backward", shape, {f"d{name}": there[name] for name in "qkv"}, dtype)
    assert back["dinp"].tobytes() == inp.tobytes()
    inp = anything(B, NH, T, HS)
    there = cpu.run("permute_heads_forward", shape, {"inp": inp}, dtype)["out"]
    back = cpu.run("permute_heads_backward", shape, {"dout": there}, dtype)["dinp"]
    assert back.tobytes() == inp.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_rows_sum_to_one_whatever_the_scores_size(cpu, dtype):
    settings = {"N": 2, "T": 9, "scale": 1.0}
    scores = np.random.default_rng(2).standard_normal((2, 9, 9))
    for size in (1, 1e2, 1e4):
        att = read(cpu.run("softmax_forward", settings, {"pre": oracles.stored(size * scores, dtype)}, dtype)["att"])
        np.testing.assert_allclose(att.sum(axis=2), 1, rtol=1e-6 if dtype == "float32" else 2e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_gradient_sums_to_zero_along_a_row(cpu, dtype):
    settings = {"N": 2, "T": 33, "scale": 1.0, "skip_upper": False}
    dpre = read(cpu.run("softmax_backward", settings, draw(cpu, "softmax_backward", settings, dtype), dtype)["dpre"])
    rounding = (1e-6 if dtype == "float32" else 3 * oracles.HALF_STEP) * np.abs(dpre).sum(axis=2)
    assert np.abs(dpre).sum() > 10
    assert (np.abs(dpre.sum(axis=2)) <= rounding + 1e-7).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_the_logits_sums_to_zero_along_a_row(cpu, dtype):
    settings = {"M": 16, "V": 1003, "Vp": 1024, "dloss": 1 / 16}
    given = draw(cpu, "classifier", settings, dtype)
    dlogits = read(cpu.run("classifier", settings, given, dtype)["dlogits"])[:, :1003]
    rounding = (3e-6 if dtype == "float32" else oracles.HALF_STEP) * np.abs(dlogits).sum(axis=1)
    assert (np.abs(dlogits).sum(axis=1) > 1 / 16).all()
    assert (np.abs(dlogits.sum(axis=1)) <= rounding).all()


def test_a_sure_classifier_has_a_finite_loss(cpu):
    """p of a target far below the largest logit is no float32, but its log is."""
    settings = {"M": 2, "V": 2, "Vp": 3, "dloss": 1.0}
    logits = np.array([[0, 500, np.nan], [0, 500, np.nan]], np.float32)
    tensors = {"logits": logits, "targets": np.array([0, 1], np.int32), "losses_in": np.array([0.25, 0], np.float32)}
    out = cpu.run("classifier", settings, tensors, "float32")
    np.testing.assert_array_equal(out["losses_out"], [500.25, 0])
    np.testing.assert_array_equal(out["dlogits"][:, :2], [[-1, 1], [0, 0]])


@pytest.mark.parametrize("M", [1, 7, 64, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bias_gradient_does_not_depend_on_its_split(cpu, M, dtype):
    OC = 37
    whole = {"M": M, "OC": OC, "G": 1}
    given = draw(cpu, "bias_backward", whole, dtype)
    want = cpu.run("bias_backward", whole, given, dtype)["dbias_out"]
    for G in {G for G in (2, 3, 5, 6, M) if 1 < G <= M}:
        partials = cpu.run("bias_backward", {**whole, "G": G}, {"dout": given["dout"]}, dtype)["partials"]
        tensors = {"partials": partials, "dbias_in": given["dbias_in"]}
        got = cpu.run("bias_reduce", {"OC": OC, "G": G}, tensors, dtype)["dbias_out"]
        hold(got, read(want), got, 1e-6, 2 * oracles.HALF_STEP)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_of_a_product_differ_in_storage_only(cpu, dtype):
    """Same sums in the same order: bit for bit."""
    rng = np.random.default_rng(7)
    a, b = (oracles.stored(rng.standard_normal(shape), dtype) for shape in [(2, 5, 33), (2, 33, 19)])
    turned = {"a": a.swapaxes(1, 2).copy(), "b": b.swapaxes(1, 2).copy()}
    stored = {"TN": (a, turned["b"]), "NN": (a, b), "NT": (turned["a"], b)}
    first, *others = (
        cpu.run("gemm", product(5, 19, 33, layout, count=2), {"a": left, "b": right}, dtype)["d"]
        for layout, (left, right) in stored.items()
    )
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_a_product_rounds_once_after_bias_and_accumulation(cpu):
    """1 + 2^-9 + 2^-9 is half a step above 1 + 2^-8..., which two roundings would lose."""
    one, tiny = bf16(np.ones((1, 1, 1))), bf16(np.full((1, 1, 1), 2.0**-8 + 2.0**-15))
    settings = product(1, 1, 1, has_bias=True, accumulate=True)
    d = cpu.run("gemm", settings, {"a": one, "b": one, "bias": bf16([2.0**-9]), "c": tiny})["d"]
    assert widen(d) == 1 + 2.0**-7


def test_python_goes_on_while_it_computes(cpu):
    settings = product(128, 1024, 512, count=4)
    tensors = draw(cpu, "gemm", settings, "float32")
    done = []
    worker = threading.Thread(target=lambda: done.append(cpu.run("gemm", settings, tensors, "float32")))
    worker.start()
    turns = 0
    while not done:
        time.sleep(0.001)
        turns += 1
    worker.join()
    assert turns > 10
