"""relu(x)^2 and its gradient, each one Triton kernel of our own."""

import torch
import triton
import triton.language as tl

_BLOCK = 1024


@triton.jit
def _forward(x, y, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.maximum(tl.load(x + at, mask=at < count).to(tl.float32), 0.0)
    tl.store(y + at, (value * value).to(tl.bfloat16), mask=at < count)


@triton.jit
def _backward(x, dy, dx, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.maximum(tl.load(x + at, mask=at < count).to(tl.float32), 0.0)
    given = tl.load(dy + at, mask=at < count).to(tl.float32)
    tl.store(dx + at, (2.0 * value * given).to(tl.bfloat16), mask=at < count)


class _SquaredRelu(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        y = torch.empty_like(x)
        _forward[(triton.cdiv(x.numel(), _BLOCK),)](x, y, x.numel(), BLOCK=_BLOCK)
        return y

    @staticmethod
    def backward(context, dy):
        (x,) = context.saved_tensors
        dx = torch.empty_like(x)
        _backward[(triton.cdiv(x.numel(), _BLOCK),)](x, dy.contiguous(), dx, x.numel(), BLOCK=_BLOCK)
        return dx


squared_relu = _SquaredRelu.apply
