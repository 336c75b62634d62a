"""Training steps as users write them, for `kernel-dvfs capture experiments/benchmarks/own_steps/steps.py:NAME`.

Each function builds a model on the GPU and returns the step: a function without arguments, with static inputs.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "cuda"


class Attention(nn.Module):
    """Causal self-attention; kv_heads < heads: grouped-query; rope: rotary positions."""

    def __init__(self, width, heads, kv_heads=None, rope=False, bias=True):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.rope = heads, kv_heads or heads, width // heads, rope
        self.qkv = nn.Linear(width, (heads + 2 * self.kv_heads) * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x, angles=None):
        batch, length, _ = x.shape
        sizes = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        q, k, v = (part.view(batch, length, -1, self.size).transpose(1, 2) for part in self.qkv(x).split(sizes, -1))
        if self.rope:
            q, k = rotate(q, angles), rotate(k, angles)
        if self.kv_heads != self.heads:
            repeat = self.heads // self.kv_heads
            k, v = (part.repeat_interleave(repeat, 1) for part in (k, v))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


def rotate(x, angles):
    cos, sin = angles
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary=50304):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.apply(_initialised)

    def forward(self, ids, wanted):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), wanted.view(-1))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        full = x.float()
        return (full * torch.rsqrt(full.square().mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        hidden = 256 * math.ceil(8 * width / 3 / 256)
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.attention = Attention(width, heads, kv_heads, rope=True, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, angles):
        x = x + self.attention(self.norm1(x), angles)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, length, vocabulary=32000):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        rates = 10000.0 ** -(torch.arange(0, width // heads, 2) / (width // heads))
        turns = torch.outer(torch.arange(length), rates)
        self.register_buffer("cos", turns.cos())
        self.register_buffer("sin", turns.sin())
        self.apply(_initialised)

    def forward(self, ids, wanted):
        x, angles = self.tokens(ids), (self.cos, self.sin)
        for block in self.blocks:
            x = block(x, angles)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), wanted.view(-1))


def _initialised(module):
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def training_step(model, loss_of):
    """zero_grad, loss, backward, fused AdamW: the step."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss_of().backward()
        optimiser.step()

    return step


def language_step(model, batch, length, vocabulary, compiled=False):
    ids, wanted = (torch.randint(0, vocabulary, (batch, length), device=DEVICE) for _ in range(2))
    run = torch.compile(model) if compiled else model
    return training_step(model, lambda: run(ids, wanted))


def gpt_eager(compiled=False, batch=8):
    """Two layers of GPT-3 XL's width, flash attention, fused AdamW."""
    torch.manual_seed(1)
    model = Gpt(2, 2048, 16, 1024).to(DEVICE, torch.bfloat16)
    return language_step(model, batch, 1024, 50304, compiled)


def gpt_compiled():
    """The same, by torch.compile."""
    return gpt_eager(compiled=True)


def llama():
    """Two Llama-style layers: RMSNorm, RoPE, SwiGLU, grouped-query attention."""
    torch.manual_seed(1)
    model = Llama(2, 2048, 16, 4, 1024).to(DEVICE, torch.bfloat16)
    return language_step(model, 8, 1024, 32000)


def conv():
    """A small convolutional net with batch norm."""
    torch.manual_seed(1)
    model = nn.Sequential(
        *(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU()),
        *(nn.Conv2d(128, 256, 3, stride=2, padding=1), nn.BatchNorm2d(256), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)),
    ).to(DEVICE, torch.bfloat16, memory_format=torch.channels_last)
    images = torch.randn(256, 64, 56, 56, device=DEVICE, dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (256,), device=DEVICE)
    return training_step(model, lambda: F.cross_entropy(model(images).float(), labels))


def triton_kernel():
    """An MLP whose activation and its gradient are hand-written Triton kernels."""
    from squared_relu import squared_relu

    torch.manual_seed(1)

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(2048, 8192), nn.Linear(8192, 2048)

        def forward(self, x):
            return self.down(squared_relu(self.up(x)))

    model = nn.Sequential(Mlp(), nn.LayerNorm(2048), Mlp()).to(DEVICE, torch.bfloat16)
    x = torch.randn(8192, 2048, device=DEVICE, dtype=torch.bfloat16)
    y = torch.randn(8192, 2048, device=DEVICE, dtype=torch.bfloat16)
    return training_step(model, lambda: F.mse_loss(model(x).float(), y.float()))


def gpt3_xl(batch=24):
    """GPT-3 XL (24 layers, 1.3 billion parameters) by torch.compile, flash attention."""
    torch.manual_seed(1)
    model = Gpt(24, 2048, 16, 1024).to(DEVICE, torch.bfloat16)
    return language_step(model, batch, 1024, 50304, compiled=True)
