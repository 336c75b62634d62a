"""Clocks per kernel inside an engine step: never slower than one clock for all, with the least energy.

At a price of time m (W), each kernel takes the clock with the least e + m t; for every composition of a step that is
the least energy for the time it takes, since both are sums (the Lagrangian of choice/relaxation.py). A ladder of prices
is tabulated; a step takes the cheapest rung that is as fast as the one clock it is compared with, and that clock where
no rung saves. Changes of clocks within a step are taken as free and instant: a bound on what such clocks can bring, not
what today's drivers do (a change takes milliseconds, a kernel tens of microseconds).
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs.serving.steps import KNOTS, Engine, Parts, StepModel, Table

# J per s and GPU that a second is worth: from nothing to "as fast as can be"
PRICES_W = (0.0, *np.geomspace(2, 20000, 56).tolist(), float("inf"))


def ladder(model: StepModel) -> list:
    """A Table for each price, fastest first."""
    if not hasattr(model, "_ladder"):
        tokens, linear = _options(model)
        model._ladder = [Table(_parts(tokens, linear, price), model.tp) for price in reversed(PRICES_W)]
    return model._ladder


def _options(model: StepModel) -> tuple:
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


def _parts(tokens: tuple, linear: dict, price: float) -> Parts:
    time_s, energy_j = tokens
    best = _best(time_s, energy_j, price)[..., None]
    sums = (np.take_along_axis(values, best, 2)[..., 0].sum(axis=1) for values in (time_s, energy_j))
    own = {name: _best(values[2], values[3], price) for name, values in linear.items()}
    return Parts(*sums, *(tuple(values[:, own[name]].tolist()) for name, values in linear.items()))


def _best(time_s: np.ndarray, energy_j: np.ndarray, price: float) -> np.ndarray:
    """Place of the least e + price t along the last axis; at an infinite price the least e of the least t."""
    if price == float("inf"):
        fastest = time_s.min(axis=-1, keepdims=True)
        return np.where(time_s <= fastest * (1 + 1e-12), energy_j, np.inf).argmin(axis=-1)
    return (energy_j + price * time_s).argmin(axis=-1)


class KernelEngine(Engine):
    """As Engine, each kernel at its own clock. core_mhz: the one clock whose times it keeps."""

    def __init__(self, uniform: Engine):
        super().__init__(uniform.model, uniform.core_mhz)
        self._ladder = ladder(self.model)

    def step(self, new_tokens: int, prompt_pairs: float, context_tokens: float) -> tuple:
        """See Engine.step; no slower, and no more energy."""
        one = super().step(new_tokens, prompt_pairs, context_tokens)
        limit_s, least_j = one
        fast, slow = -1, len(self._ladder)
        while slow - fast > 1:
            rung = (fast + slow) // 2
            if self._ladder[rung].step(new_tokens, prompt_pairs, context_tokens)[0] <= limit_s:
                fast = rung
            else:
                slow = rung
        if fast < 0:
            return one
        found = self._ladder[fast].step(new_tokens, prompt_pairs, context_tokens)
        return found if found[1] < least_j and found[1] <= self.cap_w * found[0] else one

    def _decode_table(self, batch: int, context_tokens: float) -> Table:
        """The slowest rung that keeps the one clock's time at this context and at a full cache, so at all between."""
        one = super()._decode_table(batch, context_tokens)
        ends = (context_tokens, max(context_tokens, self.model.kv_tokens))
        limits = [one.step(batch, 0, end) for end in ends]
        fast, slow = -1, len(self._ladder)
        while slow - fast > 1:
            rung = (fast + slow) // 2
            table = self._ladder[rung]
            if all(table.step(batch, 0, end)[0] <= limit[0] for end, limit in zip(ends, limits)):
                fast = rung
            else:
                slow = rung
        if fast < 0:
            return one
        found = [self._ladder[fast].step(batch, 0, end) for end in ends]
        saves = all(own[1] < limit[1] and own[1] <= self.cap_w * own[0] for own, limit in zip(found, limits))
        return self._ladder[fast] if saves else one
