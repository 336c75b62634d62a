"""What every operation computes, in PyTorch and float32 (long sums in float64), on whole tensors of any size.

A second opinion besides the C reference, which is too slow for full size: no formula here is taken from it. `excess`
holds a kernel's outputs against it, element by element.
"""

import torch
import torch.nn.functional as F

from kernel_dvfs.native import check

torch.backends.cuda.matmul.allow_tf32 = False

# sequences of attention worked on at a time: their squares of scores are float32
_SEQUENCES = 4


def expected(op, settings, t):
    """{output: its values} of an operation, float32; those of a permute as they are."""
    return globals()[f"_{op}"](settings, t)


def excess(op, settings, t):
    """{output: (largest deviation as a share of the allowed one, relative norm of all deviations)} of the outputs in
    `t`. Allowed as in kernel_dvfs.native.check. What an operation must not write is not compared."""
    found = {}
    for name, want in expected(op, settings, t).items():
        got = t[name]
        if op == "wte_backward":
            rows = torch.unique(t["ids"].long())
            got, want = got[rows], want[rows]
        elif name == "dlogits":
            got = got[:, : settings["V"]]
        elif op.startswith("softmax"):
            lower = _lower(settings["T"], got.device)
            if not _is_zero_beyond_the_diagonal(op, settings, got, lower):
                found[name] = (float("inf"), float("nan"))
                continue
            got = got.masked_fill(~lower, 0)
        found[name] = _deviation(op, name, got, want.reshape(got.shape))
    return found


def _deviation(op, name, got, want):
    if op in check.EXACT:
        same = torch.equal(got, want)
        return (0.0, 0.0) if same else (float("inf"), float("nan"))
    is_bf16 = got.dtype == torch.bfloat16
    relative = check.RELATIVE if is_bf16 else check.FLOAT32_RELATIVE
    of_typical = check.FUSED_OF_TYPICAL if is_bf16 and op in check.FUSED_OPERATIONS else check.OF_TYPICAL
    norm = torch.linalg.vector_norm(want, dtype=torch.float64)
    typical = float(norm) / want.numel() ** 0.5
    error = torch.sub(got, want).abs_()
    of_norm = float(torch.linalg.vector_norm(error, dtype=torch.float64) / norm)
    worst = error.div_(want.abs().mul_(relative).add_(of_typical * typical)).max()
    return float(worst), of_norm  # a NaN stays one and is refused by who compares with 1


def _lower(T, device):
    return torch.ones(T, T, dtype=torch.bool, device=device).tril()


def _is_zero_beyond_the_diagonal(op, settings, got, lower):
    """Up to the end of the diagonal's sector; the whole rest of a row where the operation writes all of it."""
    T = settings["T"]
    column = torch.arange(T, device=got.device)
    whole_rows = op == "softmax_backward" and not settings["skip_upper"]
    end = torch.full((T,), T, device=got.device) if whole_rows else (column // 16 + 1) * 16
    return not bool(got.masked_fill(lower | (column >= end[:, None]), 0).any())


def _gemm(s, t):
    a, b = t["a"].float(), t["b"].float()
    d = torch.matmul(a.mT if s["layout"] == "NT" else a, b.mT if s["layout"] == "TN" else b)
    if s["has_bias"]:
        d += t["bias"]
    if s["accumulate"]:
        d += t["c"]
    return {"d": d}


def _normed(x, t, eps):
    mean = x.mean(-1, keepdim=True)
    rstd = (x.var(-1, unbiased=False, keepdim=True) + eps).rsqrt()
    out = ((x - mean) * rstd).mul_(t["gamma"].float()).add_(t["beta"].float())
    return {"out": out, "mean": mean[:, 0], "rstd": rstd[:, 0]}


def _layernorm_forward(s, t):
    return _normed(t["inp"].float(), t, s["eps"])


def _residual_layernorm(s, t):
    total = (t["a"].float() + t["b"].float()).to(t["a"].dtype)
    return {"sum": total.float(), **_normed(total.float(), t, s["eps"])}


def _layernorm_backward(s, t):
    dout, norm = t["dout"].float(), (t["inp"].float() - t["mean"][:, None]) * t["rstd"][:, None]
    dnorm = dout * t["gamma"].float()
    inner = dnorm - dnorm.mean(-1, keepdim=True) - norm * (dnorm * norm).mean(-1, keepdim=True)
    return {
        "dinp_out": t["dinp_in"].float() + t["rstd"][:, None] * inner,
        "dgamma_out": t["dgamma_in"].float() + _column_sums(dout * norm),
        "dbeta_out": t["dbeta_in"].float() + _column_sums(dout),
    }


def _column_sums(x):
    return x.sum(0, dtype=torch.float64).float()


def _embedding_forward(s, t):
    looked_up = t["wte"].float()[t["ids"].long()].view(-1, s["T"], s["C"])
    return {"out": looked_up + t["wpe"].float()}


def _permute_qkv_forward(s, t):
    return dict(zip("qkv", t["inp"].permute(2, 0, 3, 1, 4)))


def _permute_qkv_backward(s, t):
    return {"dinp": torch.stack([t[name].transpose(1, 2) for name in ("dq", "dk", "dv")], 2)}


def _permute_heads_forward(s, t):
    return {"out": t["inp"].transpose(1, 2)}


def _permute_heads_backward(s, t):
    return {"dinp": t["dout"].transpose(1, 2)}


def _softmax_forward(s, t):
    future = ~_lower(s["T"], t["pre"].device)
    return {"att": torch.softmax(t["pre"].float().mul_(s["scale"]).masked_fill_(future, float("-inf")), -1)}


def _softmax_backward(s, t):
    future = ~_lower(s["T"], t["att"].device)
    att, datt = (t[name].float().masked_fill_(future, 0) for name in ("att", "datt"))
    return {"dpre": s["scale"] * att * (datt - (att * datt).sum(-1, keepdim=True))}


def _parts(qkv):
    """q, k, v as (B, NH, T, HS)."""
    return (part.float() for part in qkv.permute(2, 0, 3, 1, 4))


def _scores(s, q, k):
    future = ~_lower(s["T"], q.device)
    return (s["scale"] * (q @ k.mT)).masked_fill_(future, float("-inf"))


def _attention_forward(s, t):
    outs, sums = [], []
    for qkv in t["qkv"].split(_SEQUENCES):
        q, k, v = _parts(qkv)
        score = _scores(s, q, k)
        outs.append((torch.softmax(score, -1) @ v).transpose(1, 2))
        sums.append(torch.logsumexp(score, -1))
    return {"out": torch.cat(outs), "lse": torch.cat(sums)}


def _attention_backward(s, t):
    gradients = []
    for qkv, out, dout, lse in zip(*(t[name].split(_SEQUENCES) for name in ("qkv", "out", "dout", "lse"))):
        q, k, v = _parts(qkv)
        dout, out = dout.float().transpose(1, 2), out.float().transpose(1, 2)
        weight = torch.exp(_scores(s, q, k) - lse[..., None])
        dscore = s["scale"] * weight * (dout @ v.mT - (dout * out).sum(-1, keepdim=True))
        parts = dscore @ k, dscore.mT @ q, weight.mT @ dout
        gradients.append(torch.stack([part.transpose(1, 2) for part in parts], 2))
    return {"dqkv": torch.cat(gradients)}


def _gelu_forward(s, t):
    return {"out": F.gelu(t["inp"].float(), approximate="tanh")}


def _gelu_backward(s, t):
    return {"dinp": torch.ops.aten.gelu_backward(t["dout"].float(), t["inp"].float(), approximate="tanh")}


def _classifier(s, t):
    log_p = torch.log_softmax(t["logits"][:, : s["V"]].float(), -1)
    target = t["targets"].long()[:, None]
    losses = t["losses_in"] - log_p.gather(1, target)[:, 0]
    gradient = log_p.exp_()
    gradient.scatter_add_(1, target, torch.full_like(target, -1, dtype=torch.float32))
    return {"dlogits": gradient.mul_(s["dloss"]), "losses_out": losses}


def _bias_backward(s, t):
    if s["G"] == 1:
        return {"dbias_out": t["dbias_in"].float() + _column_sums(t["dout"])}
    rows = -(-s["M"] // s["G"])
    parts = [_column_sums(t["dout"][g * rows : (g + 1) * rows]) for g in range(s["G"])]
    return {"partials": torch.stack(parts)}


def _bias_reduce(s, t):
    return {"dbias_out": t["dbias_in"].float() + _column_sums(t["partials"])}


def _wpe_backward(s, t):
    return {"dwpe_out": t["dwpe_in"].float() + t["dout"].float().view(-1, s["T"], s["C"]).sum(0)}


def _wte_backward(s, t):
    return {"dwte_out": t["dwte_in"].float().index_add_(0, t["ids"].long(), t["dout"].float())}
