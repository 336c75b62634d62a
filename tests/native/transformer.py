"""A GPT-2-like transformer's loss in NumPy, written from the definition: no gradient formulas, no layout of the
kernels. Complex input gives derivatives to the last digit by a complex step (Squire, Trapp 1998)."""

import numpy as np

EPS = 1e-5
STEP = 1e-30


def loss(layers, heads, vocab):
    """Mean cross-entropy of `targets`, for parameters by layer as iteration.given names them. The first layer holds
    the embedding, and may hold a shift of its input, `res1`; the last one the last layernorm."""
    first, last = layers[0], layers[-1]
    x = first["wte"][first["ids"]] + first["wpe"] + first.get("res1", 0)
    for p in layers:
        x = x + attention(normed(x, p, "ln1"), p, heads)
        x = x + perceptron(normed(x, p, "ln2"), p)
    logits = normed(x, last, "lnf") @ first["wte"][:vocab].T
    shifted = logits - logits.real.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, first["targets"][..., None].astype(np.int64), axis=-1)[..., 0]
    return np.mean(np.log(np.exp(shifted).sum(axis=-1)) - chosen)


def normed(x, p, name):
    """Ba, Kiros, Hinton 2016 Eqs. 3-4."""
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPS) * p[f"{name}_gamma"] + p[f"{name}_beta"]


def attention(x, p, heads):
    """Vaswani et al. 2017 section 3.2, causal."""
    B, T, C = x.shape
    q, k, v = (
        (x @ p["wqkv"][i].reshape(C, C).T + p["bqkv"][i].reshape(C)).reshape(B, T, heads, -1).swapaxes(1, 2)
        for i in range(3)
    )
    scores = q @ k.swapaxes(2, 3) / np.sqrt(C // heads)
    weights = np.tril(np.exp(scores - scores.real.max(axis=-1, keepdims=True)))
    y = weights / weights.sum(axis=-1, keepdims=True) @ v
    return y.swapaxes(1, 2).reshape(B, T, C) @ p["wo"].reshape(C, C).T + p["bo"]


def perceptron(x, p):
    """Hendrycks, Gimpel 2016 section 2 between two linear layers."""
    h = x @ p["wfc"].T + p["bfc"]
    return h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))) @ p["wp"].T + p["bp"]


def slope(layers, heads, vocab, layer, name, direction):
    """Derivative of the loss as tensor `name` of a layer (the first for what they share) moves in a direction."""
    moved = layers[layer].get(name, 0) + 1j * STEP * direction
    changed = [*layers[:layer], {**layers[layer], name: moved}, *layers[layer + 1 :]]
    return loss(changed, heads, vocab).imag / STEP
