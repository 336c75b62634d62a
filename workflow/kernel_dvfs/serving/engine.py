"""What an instance runs on: steps of continuous batching at one setting of the clocks, each with its time and energy.

Two kinds exist: steps added up from kernels on a simulated GPU (steps.py, kernel_clocks.py), and steps worked out of a
measured profile (measured.py). Where nothing but the context of a decoding batch grows, the steps of a whole run have a
closed form, and simulations live on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import sqrt
from typing import NamedTuple


class Linear(NamedTuple):
    """Step of a decoding batch as a line over its context, whole instance: s = time_s + time_per_token_s x tokens."""

    time_s: float
    time_per_token_s: float
    energy_j: float
    energy_per_token_j: float


class Engine(ABC):
    """Plain floats in and out, about a microsecond a call. idle_w: of the whole instance without a request."""

    idle_w: float

    @abstractmethod
    def step(self, new_tokens: int, prompt_pairs: float, context_tokens: float) -> tuple[float, float]:
        """(s, J of the whole instance) of one step of continuous batching.

        new_tokens: prompt tokens of this step and one for each decoding sequence, at least 1. prompt_pairs: n s +
        n (n + 1) / 2 summed over prompt chunks of n tokens that start at position s. context_tokens: cached tokens of
        all decoding sequences together.
        """

    @abstractmethod
    def linear(self, batch: int, context_tokens: float = 0) -> Linear:
        """A decode step of `batch` as a line over context that holds near `context_tokens`."""

    def run(self, batch: int, context_tokens: float, steps: int) -> tuple[float, float]:
        """(s, J) of `steps` decode steps in a row, each adding `batch` to the context: their sum in closed form."""
        line = self.linear(batch, context_tokens)
        context = steps * context_tokens + batch * steps * (steps - 1) / 2
        return (
            steps * line.time_s + line.time_per_token_s * context,
            steps * line.energy_j + line.energy_per_token_j * context,
        )

    def steps_within(self, batch: int, context_tokens: float, seconds: float) -> int:
        """How many whole decode steps of such a run end within `seconds`."""
        line = self.linear(batch, context_tokens)
        # n t0 + t1 (n c + b n (n - 1) / 2) = seconds, for n
        square = line.time_per_token_s * batch / 2
        once = line.time_s + line.time_per_token_s * context_tokens - square
        steps = int(2 * seconds / (once + sqrt(once * once + 4 * square * seconds)))
        # rounding may miss a boundary by one
        limit = seconds * (1 + 1e-12)
        if self.run(batch, context_tokens, steps + 1)[0] <= limit:
            return steps + 1
        if steps and self.run(batch, context_tokens, steps)[0] > limit:
            return steps - 1
        return steps
