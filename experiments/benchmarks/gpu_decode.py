"""Time and energy of the kernels of an LLM engine's step on this GPU, at its default clocks: one rank of a model.

Sets nothing on the GPU: no clock, no power limit. Needs PyTorch and Triton (dev tools of the benchmark alone).

    python experiments/benchmarks/gpu_decode.py -o experiments/results/gpu_decode_h200.csv

Parts, in this order (--only names some). `linear`, `attention`, `prompt`, `small`, `grouped`: single operators in a
CUDA graph, weights or caches rotated so that none is found in the L2 cache; time alone. `step`: a whole decode step of
a rank (all layers, their own weights and caches; no all-reduce, no host); `stack`: its linear layers alone; `operator`:
some operators; these with energy, windows cut at the edges of the energy counter. `clock`: linear layers and attention
between large products that hold the board at its power limit, so at the clocks that the limit leaves. `host`: a small
model's step from token to token, with and without a CUDA graph. Weights, caches, activations: random normal numbers.

serving_steps.py fits the simulated GPU's serving figures to some of these rows and holds it to the others.
"""

# ruff: noqa: E402 - options are read before torch is imported
import argparse
import csv
import datetime
import itertools
import os
import statistics
import sys
import time
from collections import deque
from contextlib import suppress

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--budget-s", type=float, default=240, help="measure nothing later than this (default: 240)")
    parser.add_argument("--only", help="some of the parts, with commas")
    parser.add_argument("-o", "--output", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    OPTIONS = parsed()  # before torch, which --help does without

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernel_dvfs.measurement.counter import EnergyCounter
from kernel_dvfs_clocks.nvml.board import resolve
from kernel_dvfs_clocks.nvml.library import Library

# fmt: off
COLUMNS = (
    "part", "layout", "operator", "tokens", "context", "note",
    "time_us", "energy_mj", "power_w", "sm_mhz", "sm_mhz_min", "sm_mhz_max", "temp_c", "cap_share", "window_s",
    "read_byte", "tensor_flop", "gpu", "date", "driver", "cuda", "torch", "error",
)
# fmt: on
HEAD = 128
# one rank: layers, width of the residual stream, heads of queries, of keys and values, MLP, vocabulary
LAYOUTS = {
    "llama2-70b-tp8": (80, 8192, 8, 1, 3584, 4000),
    "llama2-70b-tp4": (80, 8192, 16, 2, 7168, 8000),
    "llama2-7b-tp1": (32, 4096, 32, 32, 11008, 32000),
}
# Mixtral 8x7B: degree of tensor parallelism: (width, MLP of an expert on a rank, experts, of them a token takes)
MIXTRAL = {tp: (4096, 14336 // tp, 8, 2) for tp in (2, 4)}
TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
WEIGHT_NUMBERS, CACHE_NUMBERS = 18_500_000_000, 35_000_000_000  # of the pools that all weights and caches are cut from
ROTATED_BYTE = 400e6  # several times the L2 cache
GRAPH_S, REPLAY_S = 5e-3, 15e-3  # of one graph in a timing, of what is queued at once in an energy window
QUEUED = 4
DEVICE, BF16 = "cuda", torch.bfloat16


# --- kernels that PyTorch has no single one for -----------------------------------------------------------------------


@triton.jit
def _norm(x, residual, out, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * width + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < width
    added = tl.load(x + at, mask=inside, other=0).to(tl.float32) + tl.load(residual + at, mask=inside, other=0).to(
        tl.float32
    )
    tl.store(residual + at, added.to(tl.bfloat16), mask=inside)
    scale = 1 / tl.sqrt(tl.sum(added * added, 0) / width + 1e-5)
    tl.store(out + at, (added * scale).to(tl.bfloat16), mask=inside)


@triton.jit
def _silu(gate_up, out, width, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(gate_up + row * 2 * width + column, mask=inside, other=0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + column, mask=inside, other=0).to(tl.float32)
    tl.store(out + row * width + column, (gate / (1 + tl.exp(-gate)) * up).to(tl.bfloat16), mask=inside)


@triton.jit
def _rotate(qkv, keys, values, position, stride, heads, kv_heads, HALF: tl.constexpr):
    """Rotate queries and keys of a token in place; keys and values go to the cache as well."""
    row, head = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, HALF)
    base = qkv + row * (heads + 2 * kv_heads) * 2 * HALF + head * 2 * HALF
    low = tl.load(base + i).to(tl.float32)
    high = tl.load(base + HALF + i).to(tl.float32)
    if head < heads + kv_heads:
        angle = position * tl.exp(-9.21034 * i.to(tl.float32) / HALF)
        cosine = tl.cos(angle)
        sine = tl.sin(angle)
        turned = low * cosine - high * sine
        high = high * cosine + low * sine
        low = turned
        tl.store(base + i, low.to(tl.bfloat16))
        tl.store(base + HALF + i, high.to(tl.bfloat16))
    if head >= heads:
        kept = row.to(tl.int64) * stride + position * kv_heads * 2 * HALF
        if head < heads + kv_heads:
            cache = keys + kept + (head - heads) * 2 * HALF
        else:
            cache = values + kept + (head - heads - kv_heads) * 2 * HALF
        tl.store(cache + i, low.to(tl.bfloat16))
        tl.store(cache + HALF + i, high.to(tl.bfloat16))


def norm(x, residual, out):
    _norm[(x.shape[0],)](x, residual, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)


def silu(gate_up, out):
    _silu[(out.shape[0], triton.cdiv(out.shape[1], 1024))](gate_up, out, out.shape[1], BLOCK=1024)


def rotate(qkv, keys, values, heads, kv_heads):
    """keys, values: (sequences, cached tokens, kv_heads, HEAD); the new token is the last cached one."""
    grid = (qkv.shape[0], heads + 2 * kv_heads)
    _rotate[grid](qkv, keys, values, keys.shape[1] - 1, keys.stride(0), heads, kv_heads, HALF=HEAD // 2)


def flash(queries, keys, values, causal=False):
    """PyTorch's FlashAttention, (sequences, tokens, heads, HEAD); with one query token it splits over the cache."""
    own, cached = queries.shape[1], keys.shape[1]
    return torch.ops.aten._flash_attention_forward(queries, keys, values, None, None, own, cached, 0.0, causal, False)[
        0
    ]


def linear(x, weight, out):
    torch.mm(x, weight.t(), out=out)


# --- the pools, and one rank of a model -------------------------------------------------------------------------------


class Pool:
    """Random numbers that tensors are cut from, one after the other."""

    def __init__(self, count, sd):
        self._numbers = torch.empty(count, dtype=BF16, device=DEVICE)
        for part in self._numbers.split(2**30):
            part.normal_(0, sd)
        self.used = 0

    def __call__(self, *shape):
        count = 1
        for size in shape:
            count *= size
        if self.used + count > self._numbers.numel():
            raise MemoryError(f"{count} numbers of a pool that has {self._numbers.numel() - self.used} left")
        cut = self._numbers[self.used : self.used + count].view(shape)
        self.used += count + -count % 64
        return cut

    def free(self):
        self.used = 0


class Rank:
    """A rank's weights and caches, and its decode step as one function without arguments."""

    def __init__(self, layout, tokens, context, weights, caches):
        self.layers, width, self.heads, self.kv, ffn, vocab = LAYOUTS[layout]
        weights.free()
        caches.free()
        self.context = context
        outputs = (self.heads + 2 * self.kv) * HEAD
        shapes = ((outputs, width), (width, self.heads * HEAD), (2 * ffn, width), (width, ffn))
        self.weights = [[weights(*shape) for shape in shapes] for _ in range(self.layers)]
        self.table, self.logits_weight = weights(vocab, width), weights(vocab, width)
        self.caches = [
            (caches(tokens, context, self.kv, HEAD), caches(tokens, context, self.kv, HEAD))
            for _ in range(self.layers if context else 0)
        ]
        new = torch.empty
        self.ids = torch.randint(0, vocab, (tokens,), device=DEVICE)
        self.residual = torch.zeros((tokens, width), dtype=BF16, device=DEVICE)
        self.x = torch.randn((tokens, width), dtype=BF16, device=DEVICE)
        self.normed = torch.randn((tokens, width), dtype=BF16, device=DEVICE)
        self.qkv = new((tokens, outputs), dtype=BF16, device=DEVICE)
        self.attended = torch.randn((tokens, self.heads * HEAD), dtype=BF16, device=DEVICE)
        self.gate_up = new((tokens, 2 * ffn), dtype=BF16, device=DEVICE)
        self.activated = torch.randn((tokens, ffn), dtype=BF16, device=DEVICE)
        self.logits = new((tokens, vocab), dtype=BF16, device=DEVICE)
        self.next = self.ids.clone()

    def step(self):
        """One new token of each sequence."""
        tokens = self.ids.shape[0]
        torch.index_select(self.table, 0, self.ids, out=self.x)
        self.residual.zero_()
        for (qkv, out, gate_up, down), (keys, values) in zip(self.weights, self.caches):
            norm(self.x, self.residual, self.normed)
            linear(self.normed, qkv, self.qkv)
            rotate(self.qkv, keys, values, self.heads, self.kv)
            queries = self.qkv[:, : self.heads * HEAD].view(tokens, 1, self.heads, HEAD)
            attended = flash(queries, keys, values).view(tokens, -1)
            linear(attended, out, self.x)
            norm(self.x, self.residual, self.normed)
            linear(self.normed, gate_up, self.gate_up)
            silu(self.gate_up, self.activated)
            linear(self.activated, down, self.x)
        norm(self.x, self.residual, self.normed)
        linear(self.normed, self.logits_weight, self.logits)
        torch.argmax(torch.softmax(self.logits.float(), -1), -1, out=self.next)

    def stack(self):
        """The linear layers alone."""
        for qkv, out, gate_up, down in self.weights:
            linear(self.normed, qkv, self.qkv)
            linear(self.attended, out, self.x)
            linear(self.normed, gate_up, self.gate_up)
            linear(self.activated, down, self.x)
        linear(self.normed, self.logits_weight, self.logits)


def linears(layout):
    """{operator: (columns, inner)} of a rank."""
    _, width, heads, kv, ffn, vocab = LAYOUTS[layout]
    return {
        "qkv_linear": ((heads + 2 * kv) * HEAD, width),
        "output_linear": (width, heads * HEAD),
        "gate_up_linear": (2 * ffn, width),
        "down_linear": (width, ffn),
        "logits_linear": (vocab, width),
    }


# --- measuring --------------------------------------------------------------------------------------------------------


def captured(body):
    """`body` as a CUDA graph, after it has run as it is."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        body()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def event():
    made = torch.cuda.Event(enable_timing=True)
    made.record()
    return made


def timed(bodies, repeats=7):
    """Seconds of one of `bodies` (rotated), within a CUDA graph that runs for about GRAPH_S."""
    graph = captured(lambda: [body() for body in bodies])
    graph.replay()
    begin = event()
    graph.replay()
    end = event()
    end.synchronize()
    once_s = begin.elapsed_time(end) / 1e3
    rounds = min(40, max(1, round(GRAPH_S / once_s)))
    marks = [event()]
    for _ in range(repeats):
        for _ in range(rounds):
            graph.replay()
        marks.append(event())
    marks[-1].synchronize()
    # the first is left out: clocks may still rise
    found = [a.elapsed_time(b) for a, b in itertools.pairwise(marks[1:])]
    return statistics.median(found) / 1e3 / rounds / len(bodies)


class Bench:
    """The output, the board and the clock of the whole run."""

    def __init__(self, board, nvml, options):
        self.board, self.options = board, options
        self.start_s = time.monotonic()
        versions = nvml.versions
        self.common = {
            "gpu": board.name(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "driver": versions["driver"],
            "cuda": versions["cuda"],
            "torch": torch.__version__,
        }
        self._file = open(options.output, "w", newline="")  # noqa: SIM115 - kept open, a line at a time
        self._table = csv.DictWriter(self._file, COLUMNS, restval="", lineterminator="\n")
        self._table.writeheader()

    def spent(self):
        return time.monotonic() - self.start_s > self.options.budget_s

    def write(self, **line):
        for name, value in line.items():
            if isinstance(value, float):
                line[name] = f"{value:.6g}"
        self._table.writerow(self.common | line)
        self._file.flush()
        said = " ".join(str(line.get(name, "")) for name in COLUMNS[:11])
        print(f"[{time.monotonic() - self.start_s:5.1f} s] {said} {line.get('error', '')}", flush=True)

    def attempt(self, line, measure, *arguments):
        """A line of the table: what is known of it and what `measure` finds; a failed one says so."""
        if self.spent():
            return
        try:
            found = measure(self, *arguments)
        except Exception as error:  # the GPU is lent once: what the others say must not be lost
            found = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
            with suppress(Exception):
                torch.cuda.synchronize()
        self.write(**line, **found)

    def time(self, bodies):
        """A line's time alone."""
        seconds = timed(bodies)
        return {"time_us": 1e6 * seconds, "sm_mhz": self.board.sm_mhz(), "temp_c": self.board.temperature_c()}

    def energy(self, replay, per_replay, warm_up_s=0.5):
        """Time, energy and clocks of one of `per_replay` runs of `replay`, kept busy over a window of the counter."""
        replay()
        begin = event()
        replay()
        end = event()
        end.synchronize()
        grouped = max(1, round(REPLAY_S / (begin.elapsed_time(end) / 1e3)))
        events, waiting, clocks = [], deque(), []

        def feed():
            while waiting and waiting[0].query():
                events.append(waiting.popleft())
            while len(waiting) < QUEUED:
                for _ in range(grouped):
                    replay()
                waiting.append(event())

        until_s = time.monotonic() + warm_up_s
        while time.monotonic() < until_s:
            feed()
            time.sleep(2e-3)
        counter = EnergyCounter(
            self.board.energy_mj, time.monotonic, time.sleep, feed, lambda: clocks.append(self.board.sm_mhz())
        )
        before_ns, first = self.board.throttled()[0], len(events)
        window = counter.window(self.options.window_s)
        after_ns, last = self.board.throttled()[0], len(events) - 1
        clocks.append(self.board.sm_mhz())
        temperature_c = self.board.temperature_c()
        torch.cuda.synchronize()
        seconds = events[first].elapsed_time(events[last]) / 1e3 / (last - first) / grouped / per_replay
        duration_s = window.end_s - window.start_s
        power_w = window.energy_mj / 1e3 / duration_s
        return {
            "time_us": 1e6 * seconds,
            "energy_mj": 1e3 * power_w * seconds,
            "power_w": power_w,
            "sm_mhz": statistics.median(clocks),
            "sm_mhz_min": min(clocks),
            "sm_mhz_max": max(clocks),
            "temp_c": temperature_c,
            "cap_share": None if before_ns is None else min(1.0, (after_ns - before_ns) / 1e9 / duration_s),
            "window_s": duration_s,
        }


# --- the parts --------------------------------------------------------------------------------------------------------


def together(bodies):
    """One after the other, as one CUDA graph."""
    return captured(lambda: [body() for body in bodies])


def rotated(byte):
    """How many copies it takes to be several times the L2 cache."""
    return int(min(64, max(2, -(-ROTATED_BYTE // byte))))


def line(part, layout, operator, tokens, context="", **more):
    return {"part": part, "layout": layout, "operator": operator, "tokens": tokens, "context": context, **more}


def warm_up_s(tokens):
    """Many tokens reach the power limit, where clocks take a while to settle."""
    return 1.0 if tokens > 128 else 0.4


def linear_bodies(weights, columns, inner, tokens):
    weights.free()
    x = torch.randn((tokens, inner), dtype=BF16, device=DEVICE)
    out = torch.empty((tokens, columns), dtype=BF16, device=DEVICE)
    copies = [weights(columns, inner) for _ in range(rotated(2 * columns * inner))]
    return [lambda w=w: linear(x, w, out) for w in copies]


def linear_time(bench, *shape):
    return bench.time(linear_bodies(*shape))


def linear_part(bench, weights, caches):
    for layout in LAYOUTS:
        for operator, (columns, inner) in linears(layout).items():
            for tokens in TOKENS:
                if operator == "logits_linear" and tokens > 512:
                    continue
                work = {
                    "read_byte": 2 * (columns * inner + tokens * inner),
                    "tensor_flop": 2 * tokens * columns * inner,
                }
                known = line("linear", layout, operator, tokens, **work)
                bench.attempt(known, linear_time, weights, columns, inner, tokens)


def attention_bodies(caches, layout, tokens, context):
    _, _, heads, kv, _, _ = LAYOUTS[layout]
    caches.free()
    queries = torch.randn((tokens, 1, heads, HEAD), dtype=BF16, device=DEVICE)
    shape = (tokens, context, kv, HEAD)
    copies = [(caches(*shape), caches(*shape)) for _ in range(rotated(4 * tokens * context * kv * HEAD))]
    return [lambda k=k, v=v: flash(queries, k, v) for k, v in copies]


def attention_time(bench, *shape):
    return bench.time(attention_bodies(*shape))


def attention_energy(bench, *shape):
    bodies = attention_bodies(*shape)
    return bench.energy(together(bodies).replay, len(bodies))


def attention_part(bench, weights, caches):
    for layout, (_, _, heads, kv, _, _) in LAYOUTS.items():
        for tokens in (1, 4, 16, 32, 64, 128, 256, 512):
            for context in (128, 512, 1024, 2048, 4096, 8192):
                if tokens * context * max(kv, 32) > 36e6:
                    continue
                work = {
                    "read_byte": 4 * tokens * context * kv * HEAD,
                    "tensor_flop": 4 * heads * HEAD * tokens * context,
                }
                known = line("attention", layout, "decode_attention", tokens, context, **work)
                bench.attempt(known, attention_time, caches, layout, tokens, context)


def prompt_bodies(caches, layout, tokens, kernel):
    _, _, heads, kv, _, _ = LAYOUTS[layout]
    caches.free()
    queries = torch.randn((1, tokens, heads, HEAD), dtype=BF16, device=DEVICE)
    keys, values = caches(1, tokens, kv, HEAD), caches(1, tokens, kv, HEAD)

    def cudnn():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(
                queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), is_causal=True, enable_gqa=True
            )

    return [cudnn if kernel == "cudnn" else lambda: flash(queries, keys, values, causal=True)] * 4


def prompt_time(bench, *shape):
    return bench.time(prompt_bodies(*shape))


def prompt_energy(bench, *shape):
    bodies = prompt_bodies(*shape)
    return bench.energy(together(bodies).replay, len(bodies), 1.0)


def prompt_part(bench, weights, caches):
    for layout, (_, _, heads, _, _, _) in LAYOUTS.items():
        for tokens in (256, 512, 1024, 2048, 4096, 8192):
            for kernel in ("flash", "cudnn"):
                flop = 2 * heads * HEAD * tokens * (tokens + 1)
                known = line("prompt", layout, "prompt_attention", tokens, note=kernel, tensor_flop=flop)
                bench.attempt(known, prompt_time, caches, layout, tokens, kernel)


def small_bodies(weights, caches, layout, tokens):
    """{operator: function} of all that is neither linear layer nor attention."""
    _, width, heads, kv, ffn, vocab = LAYOUTS[layout]
    caches.free()
    weights.free()
    x, residual, out = (caches(tokens, width) for _ in range(3))
    gate_up, activated = caches(tokens, 2 * ffn), caches(tokens, ffn)
    qkv = caches(tokens, (heads + 2 * kv) * HEAD)
    keys, values = caches(tokens, 16, kv, HEAD), caches(tokens, 16, kv, HEAD)
    ids = torch.randint(0, vocab, (tokens,), device=DEVICE)
    table, logits = weights(vocab, width), caches(min(tokens, 256), vocab)
    return {
        "norm": lambda: norm(x, residual, out),
        "silu": lambda: silu(gate_up, activated),
        "rotary_cache": lambda: rotate(qkv, keys, values, heads, kv),
        "embedding": lambda: torch.index_select(table, 0, ids, out=out),
        "sample": lambda: torch.argmax(torch.softmax(logits.float(), -1), -1),
    }


def small_time(bench, operator, *shape):
    return bench.time([small_bodies(*shape)[operator]] * 40)


def small_part(bench, weights, caches):
    for layout in ("llama2-70b-tp8", "llama2-7b-tp1"):
        for operator in ("norm", "silu", "rotary_cache", "embedding", "sample"):
            for tokens in (1, 16, 64, 256, 1024, 4096, 8192):
                known = line("small", layout, operator, tokens)
                bench.attempt(known, small_time, operator, weights, caches, layout, tokens)


def mixtral_bodies(weights, tp, tokens):
    """(functions: both grouped products of an MLP; experts that a step hits, mean)."""
    width, ffn, experts, taken = MIXTRAL[tp]
    weights.free()
    bodies, hits = [], []
    for _ in range(3):
        up, down = weights(experts, 2 * ffn, width).transpose(1, 2), weights(experts, width, ffn).transpose(1, 2)
        routed = torch.rand((tokens, experts), device=DEVICE).topk(taken, 1).indices.flatten()
        counts = torch.bincount(routed, minlength=experts)
        hits.append(int((counts > 0).sum()))
        ends = counts.cumsum(0).to(torch.int32)
        x = torch.randn((taken * tokens, width), dtype=BF16, device=DEVICE)
        middle = torch.randn((taken * tokens, ffn), dtype=BF16, device=DEVICE)

        def run(x=x, middle=middle, up=up, down=down, ends=ends):
            F.grouped_mm(x, up, offs=ends)
            F.grouped_mm(middle, down, offs=ends)

        bodies.append(run)
    return bodies, statistics.fmean(hits)


def mixtral_time(bench, *shape):
    bodies, hits = mixtral_bodies(*shape)
    return bench.time(bodies) | {"note": f"{hits:.3g} experts hit"}


def mixtral_energy(bench, *shape):
    bodies, hits = mixtral_bodies(*shape)
    return bench.energy(together(bodies).replay, len(bodies)) | {"note": f"{hits:.3g} experts hit"}


def grouped_part(bench, weights, caches):
    for tp, (width, ffn, _, taken) in MIXTRAL.items():
        for tokens in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096):
            flop = 6 * taken * tokens * width * ffn
            known = line("grouped", f"mixtral-8x7b-tp{tp}", "expert_mlp", tokens, tensor_flop=flop)
            bench.attempt(known, mixtral_time, weights, tp, tokens)


def step_energy(bench, weights, caches, layout, tokens, context):
    graph = captured(Rank(layout, tokens, context, weights, caches).step)
    return bench.energy(graph.replay, 1, warm_up_s(tokens))


def step_part(bench, weights, caches):
    grid = {
        "llama2-70b-tp8": ((1, 512), (8, 512), (32, 512), (64, 512), (128, 512), (256, 512), (512, 512), (64, 4096)),
        "llama2-7b-tp1": ((1, 512), (8, 512), (32, 512), (64, 512), (128, 512), (256, 512), (512, 128), (16, 4096)),
        "llama2-70b-tp4": ((1, 512), (16, 512), (64, 512), (256, 512), (512, 512), (32, 4096)),
    }
    for layout, points in grid.items():
        for tokens, context in points:
            known = line("step", layout, "step", tokens, context)
            bench.attempt(known, step_energy, weights, caches, layout, tokens, context)


def stack_energy(bench, weights, caches, layout, tokens):
    graph = captured(Rank(layout, tokens, 0, weights, caches).stack)
    return bench.energy(graph.replay, 1, warm_up_s(tokens))


def stack_part(bench, weights, caches):
    for layout in ("llama2-70b-tp8", "llama2-7b-tp1"):
        for tokens in (1, 16, 64, 128, 256, 512, 1024, 4096):
            bench.attempt(line("stack", layout, "linears", tokens), stack_energy, weights, caches, layout, tokens)


def clock_time(bench, graph, count, products):
    """Time of one of a graph's `count` operators after so many `products`, at the clock that they leave."""
    begin = event()
    graph.replay()
    end = event()
    end.synchronize()
    replays = max(1, round(3 / begin.elapsed_time(end)))
    marks, clocks, begun_s = [], [], time.monotonic()
    while time.monotonic() - begun_s < 1.1:
        for product in products:
            product()
        first = event()
        for _ in range(replays):
            graph.replay()
        marks.append((first, event()))
        if len(marks) > QUEUED:
            marks[-QUEUED][1].synchronize()
        if time.monotonic() - begun_s > 0.7:
            clocks.append(bench.board.sm_mhz())
    torch.cuda.synchronize()
    late = marks[len(marks) * 2 // 3 :]
    return {
        "time_us": 1e3 * statistics.median(a.elapsed_time(b) for a, b in late) / replays / count,
        "sm_mhz": statistics.median(clocks),
        "sm_mhz_min": min(clocks),
        "sm_mhz_max": max(clocks),
        "temp_c": bench.board.temperature_c(),
        "note": f"{len(products)} products",
    }


def norm_bodies(caches, tokens, width):
    caches.free()
    x, residual, out = (caches(tokens, width) for _ in range(3))
    return [lambda: norm(x, residual, out)] * 8


def clock_part(bench, weights, caches):
    a, b, c = (torch.randn((8192, 8192), dtype=BF16, device=DEVICE) for _ in range(3))
    layout = "llama2-70b-tp8"
    gate_up = linears(layout)["gate_up_linear"]
    for operator, tokens, context, bodies_of, shape in (
        ("gate_up_linear", 1, "", linear_bodies, (weights, *gate_up, 1)),
        ("gate_up_linear", 32, "", linear_bodies, (weights, *gate_up, 32)),
        ("gate_up_linear", 128, "", linear_bodies, (weights, *gate_up, 128)),
        ("decode_attention", 64, 4096, attention_bodies, (caches, layout, 64, 4096)),
        ("norm", 8192, "", norm_bodies, (caches, 8192, 8192)),
    ):
        bodies = bodies_of(*shape)
        graph = together(bodies)
        for products in (0, 1, 2, 4, 10):
            product = [lambda: torch.mm(a, b, out=c)] * products
            bench.attempt(line("clock", layout, operator, tokens, context), clock_time, graph, len(bodies), product)


def operator_part(bench, weights, caches):
    for layout, tokens, context in (
        ("llama2-70b-tp8", 64, 4096),
        ("llama2-70b-tp4", 32, 2048),
        ("llama2-7b-tp1", 16, 2048),
        ("llama2-7b-tp1", 128, 512),
    ):
        known = line("operator", layout, "decode_attention", tokens, context)
        bench.attempt(known, attention_energy, caches, layout, tokens, context)
    for kernel in ("flash", "cudnn"):
        known = line("operator", "llama2-70b-tp4", "prompt_attention", 4096, note=kernel)
        bench.attempt(known, prompt_energy, caches, "llama2-70b-tp4", 4096, kernel)
    for tokens in (16, 256):
        bench.attempt(line("operator", "mixtral-8x7b-tp4", "expert_mlp", tokens), mixtral_energy, weights, 4, tokens)


def host_time(bench, weights, caches, layout, tokens, context, kind):
    """From one token to the next: tokens to the host, its lists kept, the next step's inputs back to the GPU."""
    rank = Rank(layout, tokens, context, weights, caches)
    run = captured(rank.step).replay if kind == "graph" else rank.step
    written = [[] for _ in range(tokens)]
    pinned = torch.empty(tokens, dtype=torch.int64, pin_memory=True)
    took, busy = [], []
    for _ in range(40):
        begun_s, begin = time.perf_counter(), event()
        run()
        end = event()
        drawn = rank.next.tolist()
        for own, token in zip(written, drawn):
            own.append(token)
        pinned.copy_(torch.tensor(drawn))
        rank.ids.copy_(pinned, non_blocking=True)
        took.append(time.perf_counter() - begun_s)
        busy.append(begin.elapsed_time(end) / 1e3)
    gpu_us = 1e6 * statistics.median(busy[8:])
    return {"time_us": 1e6 * statistics.median(took[8:]), "note": f"{kind}, of it on the GPU {gpu_us:.1f} us"}


def host_part(bench, weights, caches):
    for tokens in (1, 64):
        for kind in ("graph", "eager"):
            known = line("host", "llama2-7b-tp1", "step", tokens, 512)
            bench.attempt(known, host_time, weights, caches, "llama2-7b-tp1", tokens, 512, kind)


PARTS = {
    "linear": linear_part,
    "attention": attention_part,
    "prompt": prompt_part,
    "small": small_part,
    "grouped": grouped_part,
    "step": step_part,
    "stack": stack_part,
    "clock": clock_part,
    "operator": operator_part,
    "host": host_part,
}


def main(options: argparse.Namespace) -> None:
    torch.manual_seed(1)
    with Library() as nvml, torch.no_grad():
        bench = Bench(resolve(nvml, ""), nvml, options)
        weights, caches = Pool(WEIGHT_NUMBERS, 0.02), Pool(CACHE_NUMBERS, 1)
        for name, part in PARTS.items():
            if options.only and name not in options.only.split(","):
                continue
            try:
                part(bench, weights, caches)
            except Exception as error:  # what the other parts say must not be lost
                bench.write(part=name, error=" ".join(f"{type(error).__name__}: {error}".split())[:200])


if __name__ == "__main__":
    main(OPTIONS)
