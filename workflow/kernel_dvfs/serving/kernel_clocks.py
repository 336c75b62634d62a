"""Clocks per kernel inside an engine step: as long as at one clock for all, with the least energy.

At a price of time m (W), each kernel takes the clock with the least e + m t; for every composition of a step that is
the least energy for the time it takes, since both are sums (the Lagrangian of choice/relaxation.py). Negative prices
belong to it: at a given load, steps that end sooner only make more steps of smaller batches, each of which reads all
weights again, so time saved is not energy saved. A ladder of prices is tabulated; a step runs some of its layers on one
rung and the others on the next, so that it takes the time of the one clock it is compared with (to a layer: 1/80), or
keeps that clock where nothing is saved. Changes of clocks within a step are taken as free and instant: a bound on what
such clocks can bring, not what today's drivers do (a change takes milliseconds, a kernel tens of microseconds).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from kernel_dvfs.serving.engine import Engine, Linear
from kernel_dvfs.serving.steps import KNOTS, ClockEngine, Parts, StepModel, Table

# J per s and GPU that a second is worth, ascending: from "as slow as can be" to "as fast as can be"
PRICES_W = (*(-np.geomspace(1000, 2, 48)).tolist(), 0.0, *np.geomspace(2, 20000, 64).tolist(), float("inf"))


def engine(model: StepModel, core_mhz: int, kernel_level: bool = True) -> Engine:
    """The engine of `model` at a clock: of each kernel at its own with no step slower, or all at the one (see at)."""
    uniform = model.at(core_mhz)
    return _kernel_engine(uniform) if kernel_level else uniform


@cache
def _kernel_engine(uniform: ClockEngine) -> KernelEngine:
    return KernelEngine(uniform)


@cache
def ladder(model: StepModel) -> list[Table]:
    """A Table for each price, fastest first."""
    tokens, linear = _options(model)
    return [Table.of(_parts(tokens, linear, price), model.tp) for price in reversed(PRICES_W)]


def _options(model: StepModel) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
    """Times and energies at every clock: of token rows (knots, rows, clocks), and of attention {name: (4, clocks)}."""
    shape = (len(KNOTS), len(model.token_kernels[0]), len(model.clocks))
    time_s, energy_j = np.empty(shape), np.empty(shape)
    for knot, own in enumerate(model.token_kernels):
        for row, (_, kernel, count) in enumerate(own):
            for place, core_mhz in enumerate(model.clocks):
                one_s, one_j = model.launch(kernel, core_mhz)
                time_s[knot, row, place], energy_j[knot, row, place] = count * one_s, count * one_j
    linear = {
        name: np.array([model.linear_part(name, core_mhz) for core_mhz in model.clocks]).T
        for name in ("prompt", "context")
    }
    return (time_s, energy_j), linear


def _parts(tokens: tuple[np.ndarray, np.ndarray], linear: dict[str, np.ndarray], price: float) -> Parts:
    time_s, energy_j = tokens
    best = _best(time_s, energy_j, price)[..., None]
    tokens_s, tokens_j = (np.take_along_axis(values, best, 2)[..., 0].sum(axis=1) for values in (time_s, energy_j))
    own = {name: values[:, _best(values[2], values[3], price)].tolist() for name, values in linear.items()}
    return Parts(tokens_s, tokens_j, tuple(own["prompt"]), tuple(own["context"]))


def _best(time_s: np.ndarray, energy_j: np.ndarray, price: float) -> np.ndarray:
    """Place of the least e + price t along the last axis; at an infinite price the least e of the least t."""
    if price == float("inf"):
        fastest = time_s.min(axis=-1, keepdims=True)
        return np.where(time_s <= fastest * (1 + 1e-12), energy_j, np.inf).argmin(axis=-1)
    return (energy_j + price * time_s).argmin(axis=-1)


class KernelEngine(ClockEngine):
    """As ClockEngine, each kernel at its own clock. core_mhz: the one clock whose times it keeps."""

    def __init__(self, uniform: ClockEngine):
        super().__init__(uniform.model, uniform.core_mhz)
        self._uniform = uniform
        self._ladder = ladder(self.model)
        self._last = 0

    def step(self, new_tokens: int, prompt_pairs: float, context_tokens: float) -> tuple[float, float]:
        """See Engine.step; no slower, and no more energy."""
        one = self._uniform.step(new_tokens, prompt_pairs, context_tokens)
        limit_s = one[0]
        fast = self._rung(lambda table: table.step(new_tokens, prompt_pairs, context_tokens)[0] <= limit_s)
        if fast < 0:
            return one
        found = self._ladder[fast].step(new_tokens, prompt_pairs, context_tokens)
        if fast + 1 < len(self._ladder):
            slow = self._ladder[fast + 1].step(new_tokens, prompt_pairs, context_tokens)
            share = (limit_s - found[0]) / (slow[0] - found[0])
            found = limit_s, found[1] + share * (slow[1] - found[1])
        return found if found[1] < one[1] and found[1] <= self.cap_w * found[0] else one

    def linear(self, batch: int, context_tokens: float = 0) -> Linear:
        """See Engine.linear; where the cap takes the one clock down, that clock."""
        capped = self._uniform.capped_line(batch, context_tokens)
        if capped is not None:
            return capped
        line = self._lines.get(batch)
        if line is None:
            line = self._lines[batch] = self._cheaper(batch)
        return line

    def _cheaper(self, batch: int) -> Linear:
        """No slower and no more energy than at one clock, alone and at a full cache, so at every context between."""
        one = self._uniform.uncapped_line(batch)
        ends = (0, self.model.kv_tokens)
        limits = [_at(one, end) for end in ends]
        fast = self._rung(
            lambda table: all(_at(table.linear(batch), end)[0] <= limit[0] for end, limit in zip(ends, limits))
        )
        if fast < 0:
            return one
        line = self._ladder[fast].linear(batch)
        if fast + 1 < len(self._ladder):
            slow = self._ladder[fast + 1].linear(batch)
            shares = [1.0]
            for end, limit in zip(ends, limits):
                begun_s, longer_s = _at(line, end)[0], _at(slow, end)[0]
                if longer_s > limit[0]:
                    # the share of layers on the slower rung that is just in time here
                    shares.append((limit[0] - begun_s) / (longer_s - begun_s))
            line = Linear(*(a + min(shares) * (b - a) for a, b in zip(line, slow)))
        return line if all(_at(line, end)[1] < limit[1] for end, limit in zip(ends, limits)) else one

    def _rung(self, in_time: Callable[[Table], bool]) -> int:
        """Place of the slowest rung whose table is `in_time`; -1 if none is. Looked for near the last one found."""
        place = self._last
        if in_time(self._ladder[place]):
            while place + 1 < len(self._ladder) and in_time(self._ladder[place + 1]):
                place += 1
        else:
            place -= 1
            while place >= 0 and not in_time(self._ladder[place]):
                place -= 1
        self._last = max(place, 0)
        return place


def _at(line: Linear, context_tokens: float) -> tuple[float, float]:
    """(s, J) of a decode step on a line."""
    return (
        line.time_s + line.time_per_token_s * context_tokens,
        line.energy_j + line.energy_per_token_j * context_tokens,
    )
