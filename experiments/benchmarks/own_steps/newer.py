"""Training steps of kinds that captures were refused for, or did not add up: a diffusion transformer whose blocks are
recomputed, a recurrent net of cuDNN, a mixture of experts with grouped products, in bf16 and with fp8 products.

    kernel-dvfs capture experiments/benchmarks/own_steps/newer.py:moe_bf16
    python experiments/benchmarks/own_step.py -o out --steps experiments/benchmarks/own_steps/newer.py:dit --paced 13
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


class DiTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, e):
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.ada(e)[:, None].chunk(6, -1)
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x) * (1 + scale) + shift)
        q, k, v = qkv.view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + gate * self.out(y)
        return x + mlp_gate * self.mlp(self.norms[1](x) * (1 + mlp_scale) + mlp_shift)


class DiT(nn.Module):
    def __init__(self, width=768, heads=12, depth=8, patch=2, channels=4, side=32, classes=1000):
        super().__init__()
        self.patch, self.channels, self.side = patch, channels, side
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(DiTBlock(width, heads) for _ in range(depth))
        self.out = nn.Linear(width, patch * patch * channels)

    def forward(self, x, t, y):
        angles = torch.exp(-math.log(10000) * torch.arange(128, device=x.device, dtype=torch.float32) / 128)
        angles = t[:, None].float() * angles[None]
        e = self.time(torch.cat([angles.cos(), angles.sin()], -1).to(x.dtype)) + self.label(y)
        h = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            # a graph needs preserve_rng_state=False
            h = checkpoint(block, h, e, use_reentrant=False, preserve_rng_state=False)
        s, p = self.side // self.patch, self.patch
        return self.out(h).view(-1, s, s, p, p, self.channels).permute(0, 5, 1, 3, 2, 4).reshape(x.shape)


def dit(batch=64):
    torch.manual_seed(0)
    model = DiT().to(DEVICE).train()
    mean = [each.detach().clone() for each in model.parameters()]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True, capturable=True)
    x, noise = torch.randn(2, batch, 4, 32, 32, device=DEVICE)
    t, y = torch.randint(0, 1000, (2, batch), device=DEVICE)
    left = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=DEVICE), 0)

    def step():
        a = left[t][:, None, None, None]
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t, y).float(), noise)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(mean, list(model.parameters()), 1e-3)

    step.samples = batch
    return step


def gru(batch=128, length=256, hidden=1024):
    """Three layers, both directions, TF32."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    net = nn.GRU(80, hidden, 3, batch_first=True, bidirectional=True).to(DEVICE)
    head = nn.Linear(2 * hidden, 500).to(DEVICE)
    model = nn.ModuleList([net, head])
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=True)
    x, y = torch.randn(batch, length, 80, device=DEVICE), torch.randint(0, 500, (batch, length), device=DEVICE)

    def step():
        optimiser.zero_grad()
        F.cross_entropy(head(net(x)[0]).flatten(0, 1), y.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()

    step.samples = batch
    return step


def quantised(x, dtype):
    top = torch.finfo(dtype).max
    scale = top / x.abs().amax().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-top, top).to(dtype), scale.reciprocal()


class Fp8Product(torch.autograd.Function):
    """A factor for each tensor, found anew in each call; e4m3 forward, e5m2 for gradients."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        (xq, xs), (wq, ws) = quantised(x, E4M3), quantised(w, E4M3)
        return torch._scaled_mm(xq, wq.t(), xs, ws, out_dtype=torch.bfloat16, use_fast_accum=True)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        (gq, gs), (wq, ws) = quantised(g.contiguous(), E5M2), quantised(w.t().contiguous(), E4M3)
        dx = torch._scaled_mm(gq, wq.t(), gs, ws, out_dtype=torch.bfloat16)
        (gq, gs), (xq, xs) = quantised(g.t().contiguous(), E5M2), quantised(x.t().contiguous(), E4M3)
        return dx, torch._scaled_mm(gq, xq.t(), gs, xs, out_dtype=torch.bfloat16)


class Experts(nn.Module):
    """Two of eight for each token, none dropped: sorted by expert, grouped products whose sizes the GPU decides."""

    def __init__(self, width=1024, inner=2816, experts=8, chosen=2):
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.up, self.gate = (nn.Parameter(torch.randn(experts, width, inner) * 0.02) for _ in range(2))
        self.down = nn.Parameter(torch.randn(experts, inner, width) * 0.02)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        shares, chosen = torch.topk(torch.softmax(self.router(x).float(), -1), self.chosen, -1)
        chosen = chosen.flatten()
        order = torch.argsort(chosen, stable=True)
        counts = torch.zeros(self.experts, dtype=torch.int32, device=x.device)
        counts = counts.scatter_add_(0, chosen, torch.ones_like(chosen, dtype=torch.int32))
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        rows = x[order // self.chosen]
        h = F.silu(torch._grouped_mm(rows, self.up, offs=ends)) * torch._grouped_mm(rows, self.gate, offs=ends)
        y = torch._grouped_mm(h, self.down, offs=ends) * shares.flatten()[order][:, None].to(x.dtype)
        return torch.zeros_like(x).index_add(0, order // self.chosen, y).view(shape)


class MoEBlock(nn.Module):
    def __init__(self, fp8, width=1024, heads=16):
        super().__init__()
        self.heads, self.fp8 = heads, fp8
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.experts = Experts(width)

    def product(self, layer, x):
        if not self.fp8:
            return layer(x)
        return Fp8Product.apply(x.reshape(-1, x.shape[-1]), layer.weight).view(*x.shape[:-1], -1)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.product(self.qkv, self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        y = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.product(self.out, y.transpose(1, 2).reshape(batch, length, width))
        return x + self.experts(self.norms[1](x))


class MoE(nn.Module):
    def __init__(self, fp8, layers=4, width=1024, words=32000):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks, self.norm = nn.ModuleList(MoEBlock(fp8) for _ in range(layers)), nn.RMSNorm(width)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


def moe(fp8=True, batch=8, length=1024):
    torch.manual_seed(0)
    model = MoE(fp8).to(DEVICE, torch.bfloat16).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)
    ids = torch.randint(0, 32000, (batch, length + 1), device=DEVICE)

    def step():
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten()).backward()
        optimiser.step()

    step.tokens = batch * length
    return step


def moe_bf16():
    return moe(fp8=False)
