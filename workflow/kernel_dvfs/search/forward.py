"""Time and power of many kernels at many clocks at once, with slopes: gpu.model in arrays.

t = ((C/f)^p + (M/b)^p)^(1/p) + t0,  P = Ps + k V^2 f + (A V^2 + s B)/t. Unknowns are logarithms:
theta = log(C, M, t0, p, A, B), C in s GHz, M and t0 in s, A and B in J.
"""

from collections import namedtuple

import numpy as np

At = namedtuple("At", "log_f log_b log_ps log_k log_v log_s")
At.__doc__ = """What the GPU is at some clocks (arrays of one shape): log of core GHz, of bandwidth relative to the
highest memory clock, of static W, of W/GHz of the clock tree, of V/V0, of DRAM energy relative to the same."""

Slopes = namedtuple("Slopes", "log_time log_power by_theta_time by_theta_power by_at_time by_at_power")
Slopes.__doc__ = """log t, log P; slopes by theta (..., 6); slopes by the fields of At (..., 6)."""


def predict(theta: np.ndarray, at: At) -> tuple:
    """(log t in s, log P in W) of kernels theta (..., 6) at clocks `at` (..., broadcast against theta's)."""
    log_core, _, _ = _core(theta, at)
    log_time = np.logaddexp(log_core, theta[..., 2])
    return log_time, _power(theta, at, log_time)[0]


def with_slopes(theta: np.ndarray, at: At) -> Slopes:
    """As `predict`, with slopes."""
    log_core, share_c, share_m = _core(theta, at)
    log_time = np.logaddexp(log_core, theta[..., 2])
    work = np.exp(log_core - log_time)  # share of the time that is not latency
    with np.errstate(invalid="ignore", divide="ignore"):
        of_p = share_c * np.log(share_c) + share_m * np.log(share_m)
    by_p = work * np.nan_to_num(of_p) / np.exp(theta[..., 3])
    zero = np.zeros_like(log_time)
    time = np.stack([work * share_c, work * share_m, 1 - work, by_p, zero, zero], -1)
    log_power, static, tree, core, dram = _power(theta, at, log_time)
    power = -(core + dram)[..., None] * time
    power[..., 4] = core
    power[..., 5] = dram
    at_time = np.stack([-work * share_c, -work * share_m, zero, zero, zero, zero], -1)
    at_power = -(core + dram)[..., None] * at_time
    at_power[..., 0] += tree
    at_power[..., 2] = static
    at_power[..., 3] = tree
    at_power[..., 4] = 2 * (tree + core)
    at_power[..., 5] = dram
    return Slopes(log_time, log_power, time, power, at_time, at_power)


def _core(theta, at):
    """log of ((C/f)^p + (M/b)^p)^(1/p), and the shares of both terms in the sum."""
    p = np.exp(theta[..., 3])
    core, memory = p * (theta[..., 0] - at.log_f), p * (theta[..., 1] - at.log_b)
    both = np.logaddexp(core, memory)
    return both / p, np.exp(core - both), np.exp(memory - both)


def _power(theta, at, log_time):
    """log P and the shares of its parts: static, clock tree, core, DRAM."""
    parts = [
        at.log_ps + 0 * log_time,
        at.log_k + 2 * at.log_v + at.log_f + 0 * log_time,
        theta[..., 4] + 2 * at.log_v - log_time,
        theta[..., 5] + at.log_s - log_time,
    ]
    log_power = np.logaddexp(np.logaddexp(parts[0], parts[1]), np.logaddexp(parts[2], parts[3]))
    return log_power, *(np.exp(part - log_power) for part in parts)
