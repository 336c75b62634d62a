"""The C layernorm computes layernorm: against NumPy in float64, finite differences, and bit for bit."""

import numpy as np
import pytest

EPS = 1e-5
# rows M x channels C: one element, odd tails beside a warp and a 16-byte pack, a row as in training
SHAPES = [(1, 1), (1, 8), (2, 7), (5, 33), (3, 257), (128, 256), (4, 2048)]


def bf16(values):
    """float32 -> bits of the nearest bf16, ties to even: by comparing the rest, not by the carry trick."""
    values = np.asarray(values, np.float32)
    bits = values.view(np.uint32)
    down = bits & np.uint32(0xFFFF0000)
    rest = bits & np.uint32(0xFFFF)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    up = (rest > 0x8000) | ((rest == 0x8000) & (odd == 1))
    rounded = (down >> np.uint32(16)) + up
    return np.where(np.isnan(values), (down >> np.uint32(16)) | 0x40, rounded).astype(np.uint16)


def widen(bits):
    """bits of bf16 -> float32, exact."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def forward(inp, gamma, beta, eps=EPS):
    """Ba, Kiros, Hinton 2016 Eqs. 3-4, in the precision of the input."""
    mean = inp.mean(axis=1)
    rstd = 1 / np.sqrt(inp.var(axis=1) + eps)
    return (inp - mean[:, None]) * rstd[:, None] * gamma + beta, mean, rstd


def backward(dout, inp, gamma, dinp, dgamma, dbeta, eps=EPS):
    """Textbook gradient by the Jacobian of one row: no formula shared with the C code."""
    M, C = inp.shape
    _, mean, rstd = forward(inp, gamma, 0, eps)
    norm = (inp - mean[:, None]) * rstd[:, None]
    dinp = dinp.copy()
    for m in range(M):
        jacobian = rstd[m] * (np.eye(C) - 1 / C - np.outer(norm[m], norm[m]) / C)  # d norm / d inp
        dinp[m] += jacobian.T @ (gamma * dout[m])
    return dinp, dgamma + (dout * norm).sum(axis=0), dbeta + dout.sum(axis=0)


def data(M, C, seed=0):
    """inp with a mean well off zero, gamma about 1, and incoming gradients, float32."""
    rng = np.random.default_rng([seed, M, C])
    shapes = {"inp": (M, C), "gamma": C, "beta": C, "dout": (M, C), "dinp": (M, C), "dgamma": C, "dbeta": C}
    drawn = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    drawn["inp"] = drawn["inp"] * np.float32(1.5) + np.float32(3)
    drawn["gamma"] = np.float32(1) + np.float32(0.3) * drawn["gamma"]
    return drawn


def run_backward(cpu, x):
    _, mean, rstd = cpu.layernorm_forward(x["inp"], x["gamma"], x["beta"], EPS)
    return cpu.layernorm_backward(x["dout"], x["inp"], x["gamma"], mean, rstd, x["dinp"], x["dgamma"], x["dbeta"])


def doubles(x):
    return {name: array.astype(np.float64) for name, array in x.items()}


@pytest.mark.parametrize(("M", "C"), SHAPES)
def test_forward_is_layernorm(cpu, M, C):
    x = data(M, C)
    out, mean, rstd = cpu.layernorm_forward(x["inp"], x["gamma"], x["beta"], EPS)
    assert out.dtype == mean.dtype == rstd.dtype == np.float32
    assert (out.shape, mean.shape, rstd.shape) == ((M, C), (M,), (M,))
    d = doubles(x)
    want_out, want_mean, want_rstd = forward(d["inp"], d["gamma"], d["beta"])
    np.testing.assert_allclose(mean, want_mean, rtol=3e-6)
    np.testing.assert_allclose(rstd, want_rstd, rtol=1e-5)
    np.testing.assert_allclose(out, want_out, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("M", "C"), SHAPES)
def test_backward_is_the_gradient_added_to_what_came_in(cpu, M, C):
    x = data(M, C)
    d = doubles(x)
    want = backward(*(d[name] for name in ("dout", "inp", "gamma", "dinp", "dgamma", "dbeta")))
    for got, expected in zip(run_backward(cpu, x), want, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize(("M", "C"), [(2, 7), (3, 16), (1, 33)])
def test_backward_agrees_with_central_differences_of_forward(cpu, M, C):
    x = data(M, C, seed=1)
    step = np.float32(2**-6)

    def loss(**changed):
        y = {**x, **changed}
        out, _, _ = cpu.layernorm_forward(y["inp"], y["gamma"], y["beta"], EPS)
        return float(np.sum(out.astype(np.float64) * x["dout"]))

    zero = {name: np.zeros_like(x[name]) for name in ("dinp", "dgamma", "dbeta")}
    for name, gradient in zip(("inp", "gamma", "beta"), run_backward(cpu, {**x, **zero}), strict=True):
        for index in np.ndindex(x[name].shape):
            above, below = x[name].copy(), x[name].copy()
            above[index] += step
            below[index] -= step
            width = float(above[index]) - float(below[index])
            slope = (loss(**{name: above}) - loss(**{name: below})) / width
            assert slope == pytest.approx(gradient[index], rel=2e-3, abs=2e-3), (name, index)


def test_a_row_keeps_its_mean_and_variance_of_any_size(cpu):
    """Two passes: a mean of 4096 does not swallow a spread of 1, as E[x^2] - E[x]^2 in float32 would."""
    inp = np.tile(np.array([4095, 4097], np.float32), (1, 64))
    one, zero = np.ones(128, np.float32), np.zeros(128, np.float32)
    out, mean, rstd = cpu.layernorm_forward(inp, one, zero, EPS)
    assert mean[0] == 4096
    assert rstd[0] == pytest.approx(1, rel=1e-5)
    np.testing.assert_allclose(out, inp - 4096, rtol=1e-5)


def test_a_constant_row_gives_beta(cpu):
    beta = np.arange(5, dtype=np.float32)
    out, _, rstd = cpu.layernorm_forward(np.full((2, 5), 7, np.float32), np.ones(5, np.float32), beta, EPS)
    np.testing.assert_array_equal(out, [beta, beta])
    np.testing.assert_allclose(rstd, 1 / np.sqrt(EPS), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_a_second_call_equals_the_first_and_inputs_stay(cpu, dtype):
    x = data(33, 65)
    if dtype == "bf16":
        x = {name: bf16(array) for name, array in x.items()}
    before = {name: array.copy() for name, array in x.items()}
    first, second = run_backward(cpu, x), run_backward(cpu, x)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    for name, array in x.items():
        np.testing.assert_array_equal(array, before[name])


def add_bf16(cpu, left, right):
    """left + right by the one store of backward that is a bare sum: dbeta_out = dbeta_in + dout, M = 1."""
    C = len(left)
    ones, scalar = bf16(np.ones(C)), np.ones(1, np.float32)
    _, _, dbeta = cpu.layernorm_backward(right[None, :], ones[None, :], ones, scalar, scalar, ones[None, :], ones, left)
    return dbeta


def test_bf16_stores_round_to_nearest_and_ties_to_even(cpu):
    cases = {
        # 1 has the even mantissa 0; its last kept bit is 2^-7
        (1.0, 2.0**-8): 1.0,  # tie, down to even
        (1.0 + 2.0**-7, 2.0**-8): 1.0 + 2.0**-6,  # tie, up to even
        (1.0, 2.0**-8 + 2.0**-15): 1.0 + 2.0**-7,  # just above the tie
        (1.0, 2.0**-8 - 2.0**-16): 1.0,  # just below
        (-1.0, -(2.0**-8)): -1.0,
        (-1.0 - 2.0**-7, -(2.0**-8)): -1.0 - 2.0**-6,
        (1.0 + 127 * 2.0**-7, 2.0**-8): 2.0,  # the carry runs into the exponent
    }
    left, right = (bf16([pair[side] for pair in cases]) for side in (0, 1))
    np.testing.assert_array_equal(widen(left), [pair[0] for pair in cases])
    np.testing.assert_array_equal(widen(right), [pair[1] for pair in cases])
    np.testing.assert_array_equal(widen(add_bf16(cpu, left, right)), list(cases.values()))


def test_bf16_stores_at_the_ends_of_the_range(cpu):
    largest, tiny = np.uint16(0x7F7F), np.uint16(0x0001)  # 3.39e38; the smallest subnormal
    half_step = bf16(2.0**119)  # half of the step at the largest number
    inf, nan = np.uint16(0x7F80), np.uint16(0x7FC0)
    left = np.array([largest, largest, tiny, tiny, inf, nan, inf], np.uint16)
    right = np.array([half_step, 0, tiny, 0x8001, 0, 0, 0xFF80], np.uint16)
    got = add_bf16(cpu, left, right)
    np.testing.assert_array_equal(got[:5], [inf, largest, 0x0002, 0, inf])
    assert np.isnan(widen(got[5:])).all()


def test_a_bf16_store_does_not_carry_a_nan_into_a_number(cpu):
    """The NaN of all ones would round up to -0; it reaches the store through rstd, the one float32 input."""
    nan = np.array([0x7FFFFFFF], np.uint32).view(np.float32)
    one, mean = bf16(np.ones((1, 1))), np.zeros(1, np.float32)
    dinp, _, _ = cpu.layernorm_backward(one, one, one[0], mean, nan, one, one[0], one[0])
    assert np.isnan(widen(dinp)).all()


def test_bf16_sums_of_random_pairs_are_rounded_as_the_model_rounds(cpu):
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << 16, size=(2, 20_000), dtype=np.uint16)
    # exponents close together, so that sums need rounding rather than lose one side
    bits = (bits & 0x83FF) | 0x3C00
    left, right = bits
    want = bf16(widen(left) + widen(right))
    exact = widen(left).astype(np.float64) + widen(right)
    assert np.mean(widen(want) != exact) > 0.3
    np.testing.assert_array_equal(add_bf16(cpu, left, right), want)


@pytest.mark.parametrize(("M", "C"), [(2, 7), (5, 33), (9, 256)])
def test_bf16_rounds_once_at_the_store_and_computes_in_float32(cpu, M, C):
    """Widened inputs through the float32 kernel, then one rounding, give the same bits."""
    x = {name: bf16(array) for name, array in data(M, C, seed=2).items()}
    wide = {name: widen(bits) for name, bits in x.items()}
    narrow_out = cpu.layernorm_forward(x["inp"], x["gamma"], x["beta"], EPS)
    wide_out = cpu.layernorm_forward(wide["inp"], wide["gamma"], wide["beta"], EPS)
    np.testing.assert_array_equal(narrow_out[0], bf16(wide_out[0]))
    for narrow, full in zip(narrow_out[1:], wide_out[1:], strict=True):
        np.testing.assert_array_equal(narrow, full)
    for narrow, full in zip(run_backward(cpu, x), run_backward(cpu, wide), strict=True):
        np.testing.assert_array_equal(narrow, bf16(full))


def test_float32_is_rounded_after_every_operation_in_index_order(cpu):
    """No fused multiply-add, no reordered sum: NumPy scalars in the same order give the same bits."""
    x = data(3, 37, seed=3)
    out, mean, rstd = cpu.layernorm_forward(x["inp"], x["gamma"], x["beta"], EPS)
    one, C = np.float32(1), np.float32(37)
    for m, row in enumerate(x["inp"]):
        want_mean = np.add.accumulate(row)[-1] / C
        squares = np.add.accumulate((row - want_mean) * (row - want_mean))[-1]
        want_rstd = one / np.sqrt(squares / C + np.float32(EPS))
        assert (mean[m], rstd[m]) == (want_mean, want_rstd)
        np.testing.assert_array_equal(out[m], (row - want_mean) * want_rstd * x["gamma"] + x["beta"])


def misaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("inp", lambda a: a[0], "inp is float32 (6), expected shape (M, C)"),
        ("inp", lambda a: a[:0], "inp is float32 (0, 6), expected shape (M, C)"),
        ("inp", lambda a: a.astype(np.float64), "inp is float64 (4, 6), expected float32 or uint16"),
        ("inp", lambda a: a.astype(">f4"), "inp is >f4 (4, 6), expected float32 or uint16"),
        ("inp", lambda a: np.asfortranarray(a), "inp is float32 (4, 6) but strided or unaligned"),
        ("inp", lambda a: np.repeat(a, 2, axis=0)[::2], "inp is float32 (4, 6) but strided or unaligned"),
        ("inp", misaligned, "inp is float32 (4, 6) but strided or unaligned"),
        ("gamma", lambda a: a[:5], "gamma is float32 (5), expected float32 (6)"),
        ("gamma", lambda a: a[None, :], "gamma is float32 (1, 6), expected float32 (6)"),
        ("beta", lambda a: bf16(a), "beta is uint16 (6), expected float32 (6)"),
    ],
)
def test_forward_refuses_arrays_it_would_misread(cpu, name, change, message):
    x = data(4, 6)
    arguments = {key: x[key] for key in ("inp", "gamma", "beta")}
    arguments[name] = change(arguments[name])
    with pytest.raises(ValueError) as refused:
        cpu.layernorm_forward(**arguments)
    assert str(refused.value).startswith(f"layernorm_forward: {message}")


@pytest.mark.parametrize("eps", [0.0, -1e-5, float("nan"), float("inf")])
def test_forward_refuses_an_eps_that_cannot_keep_the_root_positive(cpu, eps):
    x = data(4, 6)
    with pytest.raises(ValueError, match=r"layernorm_forward: eps is .*, expected > 0"):
        cpu.layernorm_forward(x["inp"], x["gamma"], x["beta"], eps)


@pytest.mark.parametrize("name", ["dout", "inp", "gamma", "mean", "rstd", "dinp_in", "dgamma_in", "dbeta_in"])
def test_backward_refuses_every_argument_of_a_wrong_shape_or_type(cpu, name):
    x = data(4, 6)
    _, mean, rstd = cpu.layernorm_forward(x["inp"], x["gamma"], x["beta"], EPS)
    good = {
        **{key: x[key] for key in ("dout", "inp", "gamma")},
        "mean": mean,
        "rstd": rstd,
        **{f"{key}_in": x[key] for key in ("dinp", "dgamma", "dbeta")},
    }
    cpu.layernorm_backward(**good)
    for bad in (good[name].astype(np.float64), np.concatenate([good[name]] * 2)):
        # a longer dout is believed, and inp held against it
        with pytest.raises(ValueError, match=r"layernorm_backward: \w+ is float(32|64) \([\d, ]+\), expected"):
            cpu.layernorm_backward(**{**good, name: bad})


def test_a_list_is_not_an_array(cpu):
    with pytest.raises(TypeError):
        cpu.layernorm_forward([[1.0, 2.0]], [1.0, 1.0], [0.0, 0.0])
