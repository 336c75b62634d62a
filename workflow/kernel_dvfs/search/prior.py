"""The prior of a study by clock: boards that never were, and what kernels on them have in common.

Of no make and no specification: 160 boards of 40 kernels each are drawn, with relations that hold on every GPU. A
kernel takes ((C / f)^p + (M / b)^p)^(1 / p) + t0 at core clock f and bandwidth b, both as shares of the highest. The
board draws Ps + k V^2 f + (A V^2 + s B) / t, with voltage V by core clock; where that is above its power cap, the core
clock falls until it is not. What is kept of them: the mean of log time and log power against auto, the covariance
between boards, that between kernels of a board, and a misfit, since no real board is like these.

A function of pairs and a seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernel_dvfs_clocks.clocks import AUTO, Clock, Pair

BOARDS, KERNELS = 160, 40
MISFIT = 0.006, 0.010  # sd of log time and log power that varies smoothly with the clocks
NUGGET = 0.0015, 0.003  # sd of what varies from pair to pair
_REACH = 0.5, 1.0  # over so much of the logarithm of core and memory clock the misfit changes
# voltage against that of the lowest clocks, of a usual board
_SHARES = np.array([0, 0.40, 0.55, 0.62, 0.72, 0.81, 0.90, 1.0])
_LOG_VOLTS = np.log([1.0, 1.0, 1.01, 1.03, 1.08, 1.19, 1.29, 1.48])
_FINE = np.linspace(0.3, 1.0, 57)  # core clocks that a power cap may lead to, shares of the highest
_CAPPED = 0.75  # share of boards with a power cap that kernels may reach


class Field(NamedTuple):
    """What is known beforehand of log time, or log power, at C pairs against that at auto."""

    mean: np.ndarray  # (C,)
    boards: np.ndarray  # (C, C) covariance of what a board's kernels have in common
    kernels: np.ndarray  # (C, C) covariance of a kernel's own part
    misfit: np.ndarray  # (C, C) covariance of what these boards do not show and varies smoothly with the clocks
    nugget: np.ndarray  # (C, C) likewise, of what varies from pair to pair


class Prior(NamedTuple):
    """The two fields."""

    time: Field
    power: Field


def prior(pairs: Sequence[Pair], seed: int = 1) -> Prior:
    """Draw the boards and return their means and covariances at these pairs, of which the first is auto."""
    core, mem = (_shares([pair[domain] for pair in pairs]) for domain in (0, 1))
    is_auto = np.array([pair[0] == AUTO for pair in pairs])
    logs = _boards(core, mem, is_auto, np.random.default_rng(seed))
    x, z = np.log(core), np.log(mem)
    smooth = np.exp(-abs(x[:, None] - x) / _REACH[0] - abs(z[:, None] - z) / _REACH[1])
    fields = []
    # relative to auto, where it is 0
    smooth = smooth - smooth[:1] - smooth[:, :1] + smooth[0, 0]
    alone = np.diag((~is_auto).astype(float))
    for values, misfit, nugget in zip(logs, MISFIT, NUGGET):
        fields.append(_field(values, misfit**2 * smooth, nugget**2 * alone))
    return Prior(*fields)


def _shares(clocks: Sequence[Clock]) -> np.ndarray:
    """Return clocks as shares of the highest that is asked for; auto counts as the highest."""
    top = max((float(clock) for clock in clocks if clock != AUTO), default=1.0)
    return np.array([1.0 if clock == AUTO else float(clock) / top for clock in clocks])


def _field(logs: np.ndarray, misfit: np.ndarray, nugget: np.ndarray) -> Field:
    """Return the mean and covariances of logarithms (boards, kernels, C) against auto."""
    common = logs.mean(1)
    within = (logs - common[:, None]).reshape(-1, logs.shape[2])
    kernels = within.T @ within / (logs.shape[0] * (logs.shape[1] - 1))
    values, vectors = np.linalg.eigh(np.cov(common.T) - kernels / logs.shape[1])
    boards = (vectors * np.maximum(values, 0)) @ vectors.T
    return Field(common.mean(0), boards, kernels, misfit, nugget)


def _boards(core: np.ndarray, mem: np.ndarray, is_auto: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return (2, boards, kernels, C): log time and log power against the first pair's, of boards drawn at random."""

    def of_board(middle: float, sd: float) -> np.ndarray:
        return middle * np.exp(sd * draw.standard_normal((BOARDS, 1, 1)))

    def of_kernel(middle: float, sd: float) -> np.ndarray:
        return middle * np.exp(sd * draw.standard_normal((BOARDS, KERNELS, 1)))

    bend, static, dynamic = of_board(1.0, 0.4), of_board(0.25, 0.5), of_board(0.08, 0.6)
    cap = np.where(draw.random((BOARDS, 1, 1)) < _CAPPED, draw.uniform(0.75, 1.1, (BOARDS, 1, 1)), 9.0)
    bandwidth = mem ** of_board(1.0, 0.15)
    static = static * mem ** of_board(0.4, 0.5)
    traffic = 1 + (1 - mem) * 0.3 * draw.standard_normal((BOARDS, 1, 1))
    extra, fall = (0.02 * abs(draw.standard_normal((BOARDS, 1, 1))) for _ in range(2))
    compute, memory, fixed = of_kernel(0.5, 1.0), of_kernel(0.4, 1.0), of_kernel(0.05, 1.3)
    sharp = np.clip(of_kernel(3.0, 0.35), 1, 16)
    per_core, per_byte = of_kernel(0.35, 0.6), of_kernel(0.15, 0.8)
    whole = (compute**sharp + memory**sharp) ** (1 / sharp) + fixed
    waits = (memory / bandwidth) ** sharp

    def volts(share: np.ndarray) -> np.ndarray:
        """Return the voltage squared, against that of the highest clock."""
        return np.exp(2 * bend * (np.interp(share, _SHARES, _LOG_VOLTS) - _LOG_VOLTS[-1]))

    def time(share: np.ndarray, waiting: np.ndarray) -> np.ndarray:
        return ((compute / share) ** sharp + waiting) ** (1 / sharp) + fixed

    def power(share: np.ndarray, squared: np.ndarray, taken: np.ndarray, at: np.ndarray | slice) -> np.ndarray:
        busy = (per_core * squared + traffic[..., at] * per_byte) * whole / taken
        return static[..., at] + dynamic * squared * share + busy

    # the highest clocks give way a little
    reached = np.where(is_auto | (core > 0.98), core * (1 - fall), core)
    taken = time(reached, waits)
    drawn = power(reached, volts(core), taken, slice(None)) * (1 + extra * is_auto)
    # the cap: the highest clock that keeps it, at each memory clock
    for share in np.unique(mem):
        at = np.flatnonzero(mem == share)
        slower = time(_FINE, waits[..., at[:1]])
        below = power(_FINE, volts(_FINE), slower, at[:1]) < cap
        place = np.maximum(below.sum(2, keepdims=True) - 1, 0)
        capped = drawn[..., at] > cap
        least = np.take_along_axis(slower, place, 2)
        taken[..., at] = np.where(capped, np.maximum(least, taken[..., at]), taken[..., at])
    drawn = np.minimum(drawn, cap)
    logs = np.log(np.stack([taken, drawn]))
    return np.clip(logs - logs[..., :1], -3, 3)
