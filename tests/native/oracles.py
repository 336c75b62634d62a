"""What every operation computes, in NumPy and float64, and how to hold an extension module against it.

An oracle takes the settings and the input tensors by name and returns the outputs by name; NaN stands for what
the operation must not write. Formulas are the textbook's, not those of the C code.
"""

import numpy as np

HALF_STEP = 2.0**-8  # largest relative error of rounding to the nearest bf16
EPS = 1e-5
UNWRITTEN = np.nan


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


def random16(index, seed):
    """The 16 random bits of an element: lowbias32 (Wellons 2018) of its index and the seed."""
    x = np.asarray(index, np.uint64) ^ np.uint64(seed * 0x9E3779B9 % 2**32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor) % np.uint64(2**32)
    return (x & np.uint64(0xFFFF)).astype(np.uint32)


def stored(values, dtype):
    """Tensor of the call's element type, from float values."""
    return bf16(values) if dtype == "bf16" else np.asarray(values, np.float32)


def read(array):
    """float64 of a tensor; token ids stay integers."""
    if array.dtype == np.int32:
        return array
    return (widen(array) if array.dtype == np.uint16 else array).astype(np.float64)


# --- forward


def embedding_forward(s, x):
    return {"out": x["wte"][x["ids"]] + np.tile(x["wpe"], (s["M"] // s["T"], 1))}


def layernorm_forward(s, x):
    """Ba, Kiros, Hinton 2016 Eqs. 3-4."""
    mean, rstd = x["inp"].mean(axis=1), 1 / np.sqrt(x["inp"].var(axis=1) + s["eps"])
    return {"out": (x["inp"] - mean[:, None]) * rstd[:, None] * x["gamma"] + x["beta"], "mean": mean, "rstd": rstd}


def residual_layernorm(s, x):
    """Of the sum as it is stored: `round_to` is the element type."""
    total = x["a"] + x["b"]
    return {"sum": total, **layernorm_forward(s, {**x, "inp": read(stored(total, s["round_to"]))})}


def permute_qkv_forward(s, x):
    return {name: np.ascontiguousarray(x["inp"][:, :, i].transpose(0, 2, 1, 3)) for i, name in enumerate("qkv")}


def permute_heads_forward(s, x):
    return {"out": x["inp"].transpose(0, 2, 1, 3)}


SECTOR = 16  # elements of 32 bytes


def beyond_the_diagonals_sector(T):
    """True where neither the lower triangle nor the sector of 16 that holds a row's diagonal element reaches."""
    return np.arange(T) // SECTOR > np.arange(T)[:, None] // SECTOR


def softmax_forward(s, x):
    lower = np.tril(np.ones((s["T"], s["T"]), bool))
    weights = np.where(lower, np.exp(s["scale"] * np.where(lower, x["pre"], 0)), 0)
    att = weights / weights.sum(axis=2, keepdims=True)
    return {"att": np.where(beyond_the_diagonals_sector(s["T"]), UNWRITTEN, att)}


def gelu(x):
    """Hendrycks, Gimpel 2016, section 2."""
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_forward(s, x):
    return {"out": gelu(x["inp"])}


def classifier(s, x):
    logits = x["logits"][:, : s["V"]]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    onehot = np.eye(s["V"])[x["targets"]]
    dlogits = np.full((s["M"], s["Vp"]), UNWRITTEN)
    dlogits[:, : s["V"]] = s["dloss"] * (p - onehot)
    return {"dlogits": dlogits, "losses_out": x["losses_in"] - np.log((p * onehot).sum(axis=1))}


def gemm(s, x):
    a = x["a"].swapaxes(1, 2) if s["layout"] == "NT" else x["a"]
    b = x["b"].swapaxes(1, 2) if s["layout"] == "TN" else x["b"]
    return {"d": a @ b + x.get("bias", 0) + x.get("c", 0)}


def scores(s, x):
    """q, k, v as (B, NH, T, HS), and scaled scores, -inf in the future."""
    q, k, v = (x["qkv"][:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    future = np.triu(np.ones((s["T"], s["T"]), bool), 1)
    return q, k, v, np.where(future, -np.inf, s["scale"] * q @ k.swapaxes(2, 3))


def attention_forward(s, x):
    _, _, v, score = scores(s, x)
    lse = np.log(np.exp(score).sum(axis=3))
    return {"out": (np.exp(score - lse[..., None]) @ v).transpose(0, 2, 1, 3), "lse": lse}


# --- backward


def attention_backward(s, x):
    """By the Jacobian of each softmax, from the forward pass's own results."""
    q, k, v, score = scores(s, x)
    dout = x["dout"].transpose(0, 2, 1, 3)
    weight = np.exp(score - x["lse"][..., None])
    dweight = dout @ v.swapaxes(2, 3)
    mean = (dout * x["out"].transpose(0, 2, 1, 3)).sum(axis=3, keepdims=True)
    dscore = s["scale"] * weight * (dweight - mean)
    parts = dscore @ k, dscore.swapaxes(2, 3) @ q, weight.swapaxes(2, 3) @ dout
    return {"dqkv": np.stack([part.transpose(0, 2, 1, 3) for part in parts], axis=2)}


def layernorm_backward(s, x):
    """By the Jacobian of one row."""
    norm = (x["inp"] - x["mean"][:, None]) * x["rstd"][:, None]
    dinp = x["dinp_in"].copy()
    for m, n in enumerate(norm):
        jacobian = x["rstd"][m] * (np.eye(len(n)) - 1 / len(n) - np.outer(n, n) / len(n))  # d norm / d inp
        dinp[m] += jacobian.T @ (x["gamma"] * x["dout"][m])
    return {
        "dinp_out": dinp,
        "dgamma_out": x["dgamma_in"] + (x["dout"] * norm).sum(axis=0),
        "dbeta_out": x["dbeta_in"] + x["dout"].sum(axis=0),
    }


def gelu_backward(s, x):
    """By a complex step: exact, and no formula of the derivative."""
    step = 1e-30
    return {"dinp": x["dout"] * gelu(x["inp"] + 1j * step).imag / step}


def softmax_backward(s, x):
    """By the Jacobian of one row."""
    dpre = np.zeros_like(x["att"])
    if s["skip_upper"]:
        dpre[:, beyond_the_diagonals_sector(s["T"])] = UNWRITTEN
    for n, t in np.ndindex(s["N"], s["T"]):
        p = x["att"][n, t, : t + 1]
        dpre[n, t, : t + 1] = s["scale"] * (np.diag(p) - np.outer(p, p)) @ x["datt"][n, t, : t + 1]
    return {"dpre": dpre}


def permute_qkv_backward(s, x):
    return {"dinp": np.stack([x[name].transpose(0, 2, 1, 3) for name in ("dq", "dk", "dv")], axis=2)}


def permute_heads_backward(s, x):
    return {"dinp": x["dout"].transpose(0, 2, 1, 3)}


def bias_backward(s, x):
    if s["G"] == 1:
        return {"dbias_out": x["dbias_in"] + x["dout"].sum(axis=0)}
    rows = -(-s["M"] // s["G"])
    return {"partials": np.stack([x["dout"][g * rows : (g + 1) * rows].sum(axis=0) for g in range(s["G"])])}


def bias_reduce(s, x):
    return {"dbias_out": x["dbias_in"] + x["partials"].sum(axis=0)}


def wpe_backward(s, x):
    return {"dwpe_out": x["dwpe_in"] + x["dout"].reshape(-1, s["T"], s["C"]).sum(axis=0)}


def wte_backward(s, x):
    onehot = np.eye(s["V"])[x["ids"]]
    rows = np.where(onehot.any(axis=0)[:, None], x["dwte_in"], 0) + onehot.T @ x["dout"]
    return {"dwte_out": np.where(onehot.any(axis=0)[:, None], rows, UNWRITTEN)}


ROUNDED_STOCHASTICALLY = ("wpe_backward", "wte_backward")


def expected(op, settings, tensors, dtype):
    """The oracle's outputs for tensors as an extension takes them."""
    x = {name: read(array) for name, array in tensors.items()}
    return globals()[op](settings | {"round_to": dtype}, x)


# --- tensors


def draw(module, op, settings, dtype, seed=0):
    """Tensors for a call: inputs at a realistic scale, NaN where nothing may be read; outputs full of noise,
    of which must remain what nothing may be written to."""
    rng = np.random.default_rng([seed, *op.encode()])
    drawn = {}
    for name, kind, type_, shape in module.tensors(op, settings, dtype):
        if type_ == "int32":
            drawn[name] = rng.integers(0, settings["V"], shape, dtype=np.int32)
            continue
        values = rng.standard_normal(shape)
        if kind == "input":
            values = _as_in_training(name, values)
        drawn[name] = stored(values, "bf16" if type_ == "uint16" else "float32")
    if op == "layernorm_backward":
        inp = read(drawn["inp"])
        drawn["mean"] = inp.mean(axis=1).astype(np.float32)
        drawn["rstd"] = (1 / np.sqrt(inp.var(axis=1) + EPS)).astype(np.float32)
    if op == "attention_backward":  # the results of a forward pass
        forward = attention_forward(settings, {"qkv": read(drawn["qkv"])})
        drawn["out"] = np.ascontiguousarray(stored(forward["out"], dtype))
        drawn["lse"] = forward["lse"].astype(np.float32)
    if op.startswith("softmax"):
        for name in ("pre", "att", "datt"):
            if name in drawn and not (op == "softmax_forward" and name == "att"):
                drawn[name][:, ~np.tril(np.ones(drawn[name].shape[1:], bool))] = stored(np.nan, dtype)
    if op == "classifier":
        drawn["logits"][:, settings["V"] :] = stored(np.nan, dtype)
    if op == "wte_backward":
        drawn["dwte_in"][np.setdiff1d(np.arange(settings["V"]), drawn["ids"])] = stored(np.nan, dtype)
    return drawn


def _as_in_training(name, values):
    if name == "gamma":
        return 1 + 0.3 * values
    if name == "inp":
        return 1.5 * values + 0.7  # a mean off zero
    if name == "att":  # rows of a causal softmax
        weights = np.tril(np.exp(values))
        return weights / weights.sum(axis=2, keepdims=True)
    return values


def hold(got, want, before, float32_error, rounding_error=HALF_STEP):
    """An output against the oracle's: within rounding of its element type plus `float32_error` of the largest
    value, and as it was `before` wherever the oracle has nothing."""
    assert got.shape == want.shape and got.dtype == before.dtype
    written = ~np.isnan(want)
    np.testing.assert_array_equal(got[~written], before[~written])
    got, want = read(got)[written], want[written]
    slack = float32_error * np.abs(want).max(initial=0)
    rounding = rounding_error if before.dtype == np.uint16 else 0
    worst = np.abs(got - want) - rounding * np.abs(want) - slack
    assert not np.isnan(got).any()
    assert worst.max(initial=-1) <= 0, f"{worst.max()} beyond {slack} + {rounding} * |value|"
