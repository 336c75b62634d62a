"""A GPT of a few stages for tests: its blocks compute on the CPU, and besides use up cycles of a fake board, forward
once and backward twice, so that it takes time and energy at the clocks that the board really runs. torchrun runs it.

TOY_SCHEDULE: 1f1b, interleaved or zero-bubble. TOY_REPLICAS: data-parallel pipelines, rank by rank. TOY_SLOW=1.3@20:
the last replica takes so much longer from that iteration on. TOY_MS: of each stage's forward pass at the top clock.
"""

import ctypes
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import Schedule1F1B, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble
from torch.nn import functional

WORDS, WIDE, LONG, BATCH, MICROBATCHES = 17, 16, 8, 2, 8
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
REPLICAS = int(os.environ.get("TOY_REPLICAS", 1))
FORWARD_MS = [float(each) for each in os.environ.get("TOY_MS", "14,11,12,17").split(",")]
TOP_MHZ, LOW_MHZ, STEP_MHZ, MEMORIES = 1980, 345, 15, 2


def power_w(core_mhz):
    """Of a busy board."""
    ghz = core_mhz / 1000
    return 140 + 90 * ghz * (1 + 0.5 * max(0.0, ghz - 1.0)) ** 2


class Board:
    """The fake board of this rank."""

    def __init__(self):
        self._fake = ctypes.CDLL("libnvidia-ml.so.1")
        self._uuid = b"GPU-fa4e%04x-0000-4000-8000-00000000fa4e" % RANK
        assert self._fake.fakenvml_open(self._uuid) == 0
        watts = [power_w(mhz) for mhz in range(LOW_MHZ, TOP_MHZ + 1, STEP_MHZ)] * MEMORIES
        self._busy = (ctypes.c_double * len(watts))(*watts)
        self.slower = 1.0

    def _cycles(self):
        values = (ctypes.c_double * 4)()
        assert self._fake.fakenvml_now(self._uuid, values) == 0
        return values[1], values[2]

    def work(self, milliseconds):
        """As much work as takes so long at the top clock."""
        fixed_s = 0.0001 * milliseconds * self.slower  # a tenth waits for memory, whatever the clock
        self._fake.fakenvml_load(self._uuid, self._busy, MEMORIES, len(self._busy) // MEMORIES)
        until = self._cycles()[0] + 0.9 * milliseconds * self.slower * TOP_MHZ / 1000
        time.sleep(fixed_s)
        while True:
            cycles, mhz = self._cycles()
            if cycles >= until:
                break
            time.sleep(min(0.002, max(2e-5, (until - cycles) / mhz)))
        self._fake.fakenvml_load(self._uuid, None, 0, 0)


class OnBoard(torch.autograd.Function):
    @staticmethod
    def forward(context, x, board, milliseconds):
        context.work = board, milliseconds
        board.work(milliseconds)
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        board, milliseconds = context.work
        board.work(2 * milliseconds)
        return gradient, None, None


class Part(torch.nn.Module):
    """A transformer block, with the embedding before the first and the head after the last."""

    def __init__(self, index, count, board, milliseconds):
        super().__init__()
        self.board, self.milliseconds = board, milliseconds
        self.embedding = torch.nn.Embedding(WORDS, WIDE) if index == 0 else None
        self.block = torch.nn.TransformerEncoderLayer(WIDE, 2, 2 * WIDE, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(WIDE, WORDS) if index == count - 1 else None

    def forward(self, x):
        x = self.embedding(x) if self.embedding else x
        x = OnBoard.apply(self.block(x), self.board, self.milliseconds)
        return self.head(x) if self.head else x


def training(follow):
    torch.manual_seed(5)
    torch.set_num_threads(1)
    board, device = Board(), torch.device("cpu")
    depth = RANKS // REPLICAS  # replica by replica
    replica, rank = divmod(RANK, depth)
    groups = [dist.new_group([one * depth + own for own in range(depth)]) for one in range(REPLICAS)]
    peers = [dist.new_group([one * depth + own for one in range(REPLICAS)]) for own in range(depth)]
    name = os.environ.get("TOY_SCHEDULE", "1f1b")
    chunks = 1 if name == "1f1b" else 2
    parts = [
        Part(index, chunks * depth, board, FORWARD_MS[index % len(FORWARD_MS)] / chunks)
        for index in range(rank, chunks * depth, depth)
    ]
    stages = [
        follow.stage(part, rank + at * depth, chunks * depth, device, group=groups[replica], dp_rank=replica)
        for at, part in enumerate(parts)
    ]
    loss = follow.loss(lambda output, target: functional.cross_entropy(output.flatten(0, 1), target.flatten()))
    if name == "1f1b":
        schedule = Schedule1F1B(stages[0], MICROBATCHES, loss_fn=loss)
    else:
        kind = ScheduleInterleaved1F1B if name == "interleaved" else ScheduleInterleavedZeroBubble
        schedule = kind(stages, MICROBATCHES, loss_fn=loss)
    optimizer = torch.optim.SGD([own for part in parts for own in part.parameters()], lr=0.05)
    slower, _, since = os.environ.get("TOY_SLOW", "1@0").partition("@")
    count = 0

    def iteration():
        nonlocal count
        board.slower = float(slower) if count >= int(since) and replica == REPLICAS - 1 else 1.0
        count += 1
        words = torch.randint(WORDS, (MICROBATCHES * BATCH, LONG))
        target = {"target": words} if rank == depth - 1 else {}
        schedule.step(*([words] if rank == 0 else []), **target)
        if REPLICAS > 1:
            for own in (own for part in parts for own in part.parameters()):
                dist.all_reduce(own.grad, group=peers[rank])
        optimizer.step()
        optimizer.zero_grad()

    return iteration
