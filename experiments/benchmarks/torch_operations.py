"""The operations of workload rows in PyTorch, on the very tensors of our plans: what a user without our kernels calls.

Where PyTorch needs more than one kernel, all are in the call. Where a choice is open, the one with less work for
PyTorch is taken: softmax without a mask (it has no causal one), the token table's gradient without adding it to what
is there.
"""

import torch

aten = torch.ops.aten


class _Signed:
    """bf16 bits as int16: PyTorch reads no uint16 from the array interface."""

    def __init__(self, array):
        self._array = array  # keeps the memory
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | {"typestr": "<i2"}


def tensors(plan):
    """The plan's tensors as PyTorch's, by name, where they lie."""
    found = {}
    for name, _, dtype, _ in plan.tensors():
        array = plan.device_array(name)
        tensor = torch.as_tensor(_Signed(array) if dtype == "uint16" else array, device="cuda")
        found[name] = tensor.view(torch.bfloat16) if dtype == "uint16" else tensor
    return found


def operation(row, plan):
    """(function, operands): what PyTorch does for `row`, and the tensors it is called with."""
    # token ids as PyTorch wants them
    operands = {
        name: tensor.long() if tensor.dtype == torch.int32 else tensor for name, tensor in tensors(plan).items()
    }
    return _OPERATIONS[row.op](row.settings, operands)


def _gemm(s, t):
    a = t["a"].mT if s["layout"] == "NT" else t["a"]
    b = t["b"].mT if s["layout"] == "TN" else t["b"]
    if s["count"] > 1:
        return torch.bmm, (a, b)
    if s["has_bias"]:
        return torch.addmm, (t["bias"], a[0], b[0])
    if s["accumulate"]:
        return torch.addmm, (t["c"][0], a[0], b[0])
    return torch.mm, (a[0], b[0])


def _embedding_forward(s, t):
    def embed(ids, wte, wpe):
        return torch.nn.functional.embedding(ids.view(-1, s["T"]), wte) + wpe

    return embed, (t["ids"], t["wte"], t["wpe"])


def _layernorm_forward(s, t):
    def normalise(inp, gamma, beta):
        return torch.native_layer_norm(inp, [s["C"]], gamma, beta, s["eps"])

    return normalise, (t["inp"], t["gamma"], t["beta"])


def _residual_layernorm(s, t):
    def add_and_normalise(a, b, gamma, beta):
        total = a + b
        return total, torch.native_layer_norm(total, [s["C"]], gamma, beta, s["eps"])

    return add_and_normalise, (t["a"], t["b"], t["gamma"], t["beta"])


def _layernorm_backward(s, t):
    def backward(dout, inp, mean, rstd, gamma, beta, dinp_in):
        dinp, dgamma, dbeta = aten.native_layer_norm_backward(
            dout, inp, [s["C"]], mean, rstd, gamma, beta, [True, True, True]
        )
        return dinp_in + dinp, dgamma, dbeta

    mean, rstd = t["mean"][:, None], t["rstd"][:, None]
    return backward, (t["dout"], t["inp"], mean, rstd, t["gamma"], t["gamma"], t["dinp_in"])


def _permute_qkv_forward(s, t):
    return (lambda inp: inp.permute(2, 0, 3, 1, 4).contiguous(), (t["inp"],))


def _permute_qkv_backward(s, t):
    def join(dq, dk, dv):
        return torch.stack([part.transpose(1, 2) for part in (dq, dk, dv)], dim=2)

    return join, (t["dq"], t["dk"], t["dv"])


def _permute_heads_forward(s, t):
    return (lambda inp: inp.transpose(1, 2).contiguous(), (t["inp"],))


def _permute_heads_backward(s, t):
    return (lambda dout: dout.transpose(1, 2).contiguous(), (t["dout"],))


def _softmax_forward(s, t):
    return (lambda pre: torch.softmax(pre, -1), (t["pre"],))


def _softmax_backward(s, t):
    def backward(datt, att):
        return aten._softmax_backward_data(datt, att, -1, torch.bfloat16)

    return backward, (t["datt"], t["att"])


def _attention_forward(s, t):
    return (lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True), _heads(t["qkv"]))


def _attention_backward(s, t):
    q, k, v = _heads(t["qkv"])
    out, lse, cum_q, cum_k, most_q, most_k, seed, offset, _ = aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, True
    )

    def backward(dout, q, k, v, out, lse):
        return aten._scaled_dot_product_flash_attention_backward(
            dout, q, k, v, out, lse, cum_q, cum_k, most_q, most_k, 0.0, True, seed, offset
        )

    return backward, (t["dout"].transpose(1, 2), q, k, v, out, lse)


def _heads(qkv):
    """q, k, v as (B, NH, T, HS), where they lie."""
    return tuple(qkv.permute(2, 0, 3, 1, 4))


def _gelu_forward(s, t):
    return (lambda inp: torch.nn.functional.gelu(inp, approximate="tanh"), (t["inp"],))


def _gelu_backward(s, t):
    return (lambda dout, inp: aten.gelu_backward(dout, inp, approximate="tanh"), (t["dout"], t["inp"]))


def _classifier(s, t):
    def loss_and_gradient(logits, targets):
        log_p = torch.log_softmax(logits, -1)
        loss, weight = aten.nll_loss_forward(log_p, targets, None, 1, -100)
        dlog_p = aten.nll_loss_backward(torch.ones_like(loss), log_p, targets, None, 1, -100, weight)
        return loss, aten._log_softmax_backward_data(dlog_p, log_p, -1, torch.bfloat16)

    return loss_and_gradient, (t["logits"], t["targets"])


def _bias_backward(s, t):
    return (lambda dout: dout.sum(0), (t["dout"],))


def _bias_reduce(s, t):
    def reduce(partials, dbias_in):
        return (dbias_in + partials.sum(0)).to(torch.bfloat16)

    return reduce, (t["partials"], t["dbias_in"])


def _wpe_backward(s, t):
    def backward(dout, dwpe_in):
        return dwpe_in + dout.view(-1, s["T"], s["C"]).sum(0)

    return backward, (t["dout"], t["dwpe_in"])


def _wte_backward(s, t):
    def backward(dout, ids):
        return aten.embedding_dense_backward(dout, ids, s["V"], -1, False)

    return backward, (t["dout"], t["ids"])


_OPERATIONS = {
    name[1:]: function
    for name, function in list(globals().items())
    if name.startswith("_") and callable(function) and not name.startswith(("__", "_Signed", "_heads"))
}
