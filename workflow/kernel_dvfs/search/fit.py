"""Fit the GPU's constants and six parameters per kernel to measured points: least squares with priors that learn.

Kernels share a prior whose mean and spread are learnt from all of them (empirical Bayes): how far DRAM energy goes with
DRAM time, say, holds for every kernel of a GPU. Where the work of a kernel is known (FLOP, bytes), the mean follows it.
The joint Gauss-Newton step eliminates the kernels (Schur complement): its cost grows with their number, not its cube.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernel_dvfs.search.candidates import Candidates, Seen
from kernel_dvfs.search.gpu_model import (
    CLEAR_OF_CAP,
    KERNEL_MEAN,
    KERNEL_SPREAD,
    KERNEL_STRENGTH,
    NEAR_TOP,
    At,
    GpuModel,
    gpu_model_of,
    predict,
    with_slopes,
)

UNKNOWNS = 6  # per kernel, see gpu_model.py
_LARGEST_LOG_P = np.log(16.0)
_ROUNDS = 5  # of prior -> fit -> prior
_STEPS = 8  # Gauss-Newton steps in each
_HEAVY = 6.0  # degrees of freedom of the residuals' t-distribution: a strange point does not bend the GPU's constants
_SCATTER = (0.01, 10.0)  # expected relative misfit of the model, and how many points that is worth
_LEAST_SCATTER = 8e-4
_CLEAR = 3.0  # scatters beyond which a misfit is a kernel's own, not that of all
_STARTS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A fit of K kernels to N points, by F features of the kernels' work."""

    candidates: Candidates
    seen: Seen
    gpu: GpuModel
    theta: np.ndarray  # (K, 6) parameters of the kernels, see gpu_model
    g: np.ndarray  # (G,) constants of the GPU
    g_covariance: np.ndarray  # (G, G)
    weights: np.ndarray  # (F, 6) of the features, the first of which is the constant 1
    mean: np.ndarray  # (K, 6) prior mean of theta
    precision: np.ndarray  # (6, 6) inverse of the kernels' prior covariance
    scatter: np.ndarray  # (2,) misfit of log time and log power
    shared: np.ndarray  # (P, 2) misfit of log time and log power that all kernels have in common at a pair
    unfit: np.ndarray  # (K,) how many times larger a kernel's misfit is; above 2 the model does not describe it
    used: np.ndarray  # (N,) bool, the points that took part
    held: np.ndarray  # (N,) bool, the others that are known: held by the cap at a clock that was not recorded

    def without(self, out: np.ndarray) -> Fit:
        """The kernels fitted again without the points `out` (N,) bool; constants, priors and scatter as they are."""
        used = self.used & ~out
        points = Points(self.seen, self.gpu, used, self.shared)
        kept = (self.g, self.g_covariance)
        args = (points, self.gpu, self.theta, self.g, self.mean, self.precision, self.scatter, kept)
        return replace(self, theta=_descend(*args)[0], used=used, held=self.held & ~out)


class Points:
    """The used points as arrays, less the misfit that all kernels share, and how they depend on the GPU's constants."""

    def __init__(self, seen: Seen, gpu: GpuModel, used: np.ndarray, shared: np.ndarray | None = None) -> None:
        pair, power_w = seen.pair[used], seen.power_w[used]
        self.target, self.pair = seen.target[used], pair
        self.log = np.stack([np.log(seen.time_s[used]), np.log(power_w)], -1)
        if shared is not None:
            self.log -= shared[pair]
        reached = seen.core_mhz[used] / 1000
        self.node, self.mem = gpu.core_node[pair], gpu.mem_node[pair]
        self.fixed = ~np.isnan(reached)
        self.log_reached = np.log(np.where(self.fixed, reached, 1.0))
        # a request sets the voltage, also where it reaches less than another kernel's; only the power cap lowers both
        free = power_w < CLEAR_OF_CAP * gpu.cap_w
        ghz = np.where(self.fixed & ~free, reached, gpu.core_ghz[self.node])
        self.voltage = gpu.voltage_weights(ghz)
        self.place = gpu.places
        self.auto = gpu.auto[pair]
        # of the fall of the top clock
        self.share = np.where(gpu.top[pair] & ~self.fixed, power_w / gpu.highest_w, 0.0)
        # a pooled point of n measurements scatters less, but the model's misfit does not average out
        self.precision = np.repeat(np.minimum(seen.n[used], 2.0)[:, None], 2, 1)
        # capped near the top: the clock hardly falls while the voltage does, so power does not tell what it is
        self.precision[self.fixed & ~free & (ghz > NEAR_TOP * gpu.core_ghz.max()), 1] = 0.0

    def at(self, g: np.ndarray) -> At:
        """The GPU at every point, for constants (..., G)."""
        place = self.place
        return At(
            np.where(
                self.fixed,
                self.log_reached,
                g[..., place["log_f"]][..., self.node] - g[..., place["fall"]] * self.share,
            ),
            g[..., place["log_b"]][..., self.mem],
            g[..., place["log_ps"]][..., self.mem],
            g[..., place["log_k"]],
            g[..., place["log_v"]] @ self.voltage.T,
            g[..., place["log_s"]][..., self.mem],
            g[..., place["log_x"]] * self.auto,
        )

    def by_g(self, by_at: np.ndarray, size: int) -> np.ndarray:
        """(N, G) slopes by g from slopes (N, 7) by the fields of At."""
        slopes, rows = np.zeros((len(by_at), size)), np.arange(len(by_at))
        place = self.place
        slopes[rows, place["log_f"].start + self.node] = np.where(self.fixed, 0, by_at[:, 0])
        slopes[:, place["fall"]] = -by_at[:, :1] * self.share[:, None]
        slopes[rows, place["log_b"].start + self.mem] = by_at[:, 1]
        slopes[rows, place["log_ps"].start + self.mem] = by_at[:, 2]
        slopes[:, place["log_k"]] = by_at[:, 3:4]
        slopes[:, place["log_v"]] = by_at[:, 4:5] * self.voltage
        slopes[rows, place["log_s"].start + self.mem] = by_at[:, 5]
        slopes[:, place["log_x"]] = by_at[:, 6:] * self.auto[:, None]
        return slopes


def fit(candidates: Candidates, seen: Seen, known: Fit | None = None) -> Fit:
    """Fit all that is seen; every target needs a point.

    known: a fit of other kernels on the same GPU and the same pairs: its constants, its prior of the kernels and its
    scatter are kept, and only the parameters of the kernels here are fitted (to score predictions of unseen kernels).
    """
    gpu = gpu_model_of(candidates, seen) if known is None else known.gpu
    used = _usable(seen, gpu)
    points = Points(seen, gpu, used, None if known is None else known.shared)
    scale = _scales(candidates, seen, gpu)
    features, slopes = _features(candidates, seen)
    if known is None:
        weights = np.concatenate([KERNEL_MEAN[None], slopes])  # (features, 6)
        precision, g, scatter = np.diag(KERNEL_SPREAD**-2.0), gpu.mean, np.full(2, 2.5 * _SCATTER[0])
    else:
        weights, precision, g, scatter = known.weights, known.precision, known.g, known.scatter
    kept = None if known is None else (known.g, known.g_covariance)
    mean = scale + features @ weights
    theta = _start(points, g, mean, precision, scatter, len(candidates.targets))
    for _ in range(_ROUNDS if known is None else 2):
        theta, g, hessian, g_covariance = _descend(points, gpu, theta, g, mean, precision, scatter, kept)
        own = np.linalg.inv(hessian)
        told = np.diag(g_covariance) * np.diag(gpu.precision) if known is None else np.ones(len(g))
        found, unfit = _scatter(points, theta, g, own, precision, 1 - told.clip(0, 1), gpu)
        if known is None:
            scatter = found
            weights, precision = _learn(theta - scale, features, weights, own, slopes)
            mean = scale + features @ weights
    shared = _shared(points, theta, g, scatter, len(gpu.core_node)) if known is None else known.shared
    covariance = g_covariance if known is None else known.g_covariance
    return Fit(
        candidates, seen, gpu, theta, g, covariance, weights, mean, precision, scatter, shared, unfit, used, ~used
    )


def _usable(seen: Seen, gpu: GpuModel) -> np.ndarray:
    """Points whose clock is known: recorded, or surely the requested one because the power is clear of the cap."""
    return ~np.isnan(seen.core_mhz) | (seen.power_w < CLEAR_OF_CAP * gpu.cap_w)


def _scales(candidates: Candidates, seen: Seen, gpu: GpuModel) -> np.ndarray:
    """(K, 6) what the priors of theta are relative to: the fastest point of each target."""
    fastest = _fastest(candidates, seen)
    log_t, log_e = np.log(seen.time_s[fastest]), np.log(seen.energy_j[fastest])
    return np.stack([log_t + np.log(gpu.core_ghz.max()), log_t, log_t, 0 * log_t, log_e, log_e], -1)


def _fastest(candidates: Candidates, seen: Seen) -> np.ndarray:
    """(K,) the point of least time of each target."""
    order = np.lexsort((seen.time_s, seen.target))
    targets, first = np.unique(seen.target[order], return_index=True)
    if len(targets) < len(candidates.targets):
        missing = min(set(range(len(candidates.targets))) - set(targets.tolist()))
        raise ValueError(f"target {candidates.targets[missing]} has no point yet; measure its baseline first")
    return order[first]


def _features(candidates: Candidates, seen: Seen) -> tuple[np.ndarray, np.ndarray]:
    """(K, F) features of the work, the first 1; (F - 1, 6) slopes expected of the others."""
    count = len(candidates.targets)
    ones = np.ones((count, 1))
    if candidates.work is None or any(work is None for work in candidates.work):
        return ones, np.zeros((0, UNKNOWNS))
    time = seen.time_s[_fastest(candidates, seen)]
    flop, byte = np.array(candidates.work, dtype=float).T
    rate = np.log(np.maximum(byte, 1.0) / time)
    tensor = flop > 0
    flop_rate = np.zeros(count)
    if tensor.any():
        flop_rate[tensor] = np.log(flop[tensor] / time[tensor])
        flop_rate[tensor] -= np.median(flop_rate[tensor])
    columns = [rate - np.median(rate), tensor - tensor.mean(), flop_rate]
    slopes = np.zeros((3, UNKNOWNS))
    slopes[0, [1, 5]] = 1.0  # DRAM time and energy go with the bytes
    slopes[2, [0, 4]] = 0.5  # core time and energy of a GEMM with its FLOP
    return np.concatenate([ones, np.stack(columns, -1)], -1), slopes


def _start(
    points: Points,
    g: np.ndarray,
    mean: np.ndarray,
    precision: np.ndarray,
    scatter: np.ndarray,
    count: int,
) -> np.ndarray:
    """(K, 6) the best of many draws from the prior."""
    spread = np.linalg.cholesky(np.linalg.inv(precision))
    # the same draws each time: a fit is a function of its points
    draws = np.random.default_rng(0).standard_normal((_STARTS, UNKNOWNS)) @ spread.T
    draws[0] = 0
    at = points.at(g)
    theta = mean.copy()
    for kernel in range(count):
        own = np.flatnonzero(points.target == kernel)
        if not len(own):
            continue
        tried = bounded(mean[kernel] + draws)
        here = At(*(field[own] if field.size > 1 else field for field in at))
        found = np.stack(predict(tried[:, None], here), -1)
        misfit = ((found - points.log[own]) / (4 * scatter)) ** 2 * (points.precision[own] > 0)
        theta[kernel] = tried[(misfit.sum((1, 2)) + ((draws @ precision) * draws).sum(1)).argmin()]
    return theta


def bounded(theta: np.ndarray) -> np.ndarray:
    """Parameters (..., 6) with the exponent p between 1 and its highest."""
    theta = theta.copy()
    theta[..., 3] = theta[..., 3].clip(0.0, _LARGEST_LOG_P)
    return theta


def _residuals(points: Points, theta: np.ndarray, g: np.ndarray, scatter: np.ndarray) -> np.ndarray:
    found = np.stack(predict(theta[points.target], points.at(g)), -1)
    return (points.log - found) / scatter


def _cost(
    points: Points,
    theta: np.ndarray,
    g: np.ndarray,
    mean: np.ndarray,
    precision: np.ndarray,
    scatter: np.ndarray,
    gpu: GpuModel,
) -> float:
    r2 = _residuals(points, theta, g, scatter) ** 2
    misfit = ((_HEAVY + 1) * np.log1p(r2 / _HEAVY) * points.precision).sum()
    off, moved = theta - mean, g - gpu.mean
    return float(misfit + ((off @ precision) * off).sum() + moved @ gpu.precision @ moved)


def _descend(
    points: Points,
    gpu: GpuModel,
    theta: np.ndarray,
    g: np.ndarray,
    mean: np.ndarray,
    precision: np.ndarray,
    scatter: np.ndarray,
    constants: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(theta, g, Hessians (K, 6, 6) of the kernels, covariance (G, G) of g) after Gauss-Newton steps.

    constants: (g, its covariance) where g is kept.
    """
    count, size = len(theta), len(g)
    best = _cost(points, theta, g, mean, precision, scatter, gpu)
    damping = 1e-3
    step = 0
    while True:
        slopes = with_slopes(theta[points.target], points.at(g))
        r = (points.log - np.stack([slopes.log_time, slopes.log_power], -1)) / scatter
        w = (_HEAVY + 1) / (_HEAVY + r**2) * points.precision / scatter**2
        r = r * scatter
        j = np.stack([slopes.by_theta_time, slopes.by_theta_power], 1)  # (N, 2, 6)
        jg = np.stack([points.by_g(slopes.by_at_time, size), points.by_g(slopes.by_at_power, size)], 1)
        hessian, mixed = np.tile(precision, (count, 1, 1)), np.zeros((count, UNKNOWNS, size))
        np.add.at(hessian, points.target, np.einsum("nqi,nq,nqj->nij", j, w, j))
        np.add.at(mixed, points.target, np.einsum("nqi,nq,nqj->nij", j, w, jg, optimize=True))
        down = -(theta - mean) @ precision
        np.add.at(down, points.target, np.einsum("nqi,nq,nq->ni", j, w, r))
        flat = jg.reshape(-1, size)
        of_g = flat.T @ (flat * w.reshape(-1, 1)) + gpu.precision
        down_g = flat.T @ (w * r).ravel() - gpu.precision @ (g - gpu.mean)
        if step == _STEPS:
            solved = np.linalg.solve(hessian, mixed)
            schur = of_g - np.einsum("kig,kih->gh", mixed, solved)
            return theta, g, hessian, np.linalg.inv(schur)
        step += 1
        for _ in range(6):
            damped = hessian + damping * np.einsum("kii->ki", hessian)[..., None] * np.eye(UNKNOWNS)
            inverse = np.linalg.inv(damped)
            if constants is None:
                solved = inverse @ mixed
                schur = of_g + damping * np.diag(np.diag(of_g)) - np.einsum("kig,kih->gh", mixed, solved)
                rest = down_g - np.einsum("kig,ki->g", solved, down)
                move_g = np.clip(np.linalg.solve(schur, rest), -0.5, 0.5)
            else:
                move_g = np.zeros(size)
            move = np.einsum("kij,kj->ki", inverse, down - mixed @ move_g)
            new, new_g = bounded(theta + np.clip(move, -1.5, 1.5)), g + move_g
            cost = _cost(points, new, new_g, mean, precision, scatter, gpu)
            if cost < best:
                theta, g, best, damping = new, new_g, cost, damping * 0.2
                break
            damping = max(damping * 8, 1e-4)
        else:
            step = _STEPS


def _scatter(
    points: Points,
    theta: np.ndarray,
    g: np.ndarray,
    own: np.ndarray,
    precision: np.ndarray,
    told: np.ndarray,
    gpu: GpuModel,
) -> tuple[np.ndarray, np.ndarray]:
    """(scatter (2,), unfit (K,)): how far points lie from the fit, degrees of freedom counted.

    told: (G,) the degree of freedom that each constant takes.
    """
    told_of = points.precision > 0
    r = (points.log - np.stack(predict(theta[points.target], points.at(g)), -1)) * told_of
    taken = 1 - np.einsum("kij,ji->ki", own, precision).clip(0, 1)  # degrees of freedom that each unknown takes
    of_time, of_power = taken[:, :4].sum(1), taken[:, 4:].sum(1)
    expected, worth = _SCATTER
    scatter = np.empty(2)
    clocks = gpu.places["log_b"].stop  # constants up to here act on time
    for quantity, spent in ((0, of_time.sum() + told[:clocks].sum()), (1, of_power.sum() + told[clocks:].sum())):
        size = np.abs(r[told_of[:, quantity], quantity])
        # robust: the scatter of the many, not of the few that the model does not describe
        kept = np.minimum(size, 3 * 1.4826 * np.median(size) + 1e-12)
        free = max(len(size) - spent, 0.25 * len(size))
        scatter[quantity] = np.sqrt((worth * expected**2 + (kept**2).sum()) / (worth + free))
    scatter = scatter.clip(_LEAST_SCATTER)
    squares = np.bincount(points.target, ((r / scatter) ** 2).sum(1), len(theta))
    freedom = np.maximum(np.bincount(points.target, told_of.sum(1), len(theta)) - of_time - of_power, 0)
    unfit = np.sqrt((4 + squares) / (4 + freedom))
    return scatter, unfit


def _shared(points: Points, theta: np.ndarray, g: np.ndarray, scatter: np.ndarray, pairs: int) -> np.ndarray:
    """(P, 2) mean misfit of the kernels at each of so many pairs, as far as their number tells it from chance."""
    told = points.precision > 0
    r = (points.log - np.stack(predict(theta[points.target], points.at(g)), -1)) * told
    r = r.clip(-_CLEAR * scatter, _CLEAR * scatter)
    total, count = np.zeros((2, pairs, 2))
    np.add.at(total, points.pair, r)
    np.add.at(count, points.pair, told)
    return total / (count + KERNEL_STRENGTH)


def _learn(
    relative: np.ndarray, features: np.ndarray, weights: np.ndarray, own: np.ndarray, slopes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(weights (F, 6), precision (6, 6)) of the kernels' prior from their parameters and what these leave open."""
    strength, spread = KERNEL_STRENGTH, np.diag(KERNEL_SPREAD**2)
    expected = np.concatenate([KERNEL_MEAN[None], slopes])
    off = relative - features @ weights
    covariance = (strength * spread + off.T @ off + own.sum(0)) / (strength + len(off))
    new = np.empty_like(weights)
    for unknown in range(UNKNOWNS):
        noise = covariance[unknown, unknown]
        ridge = np.diag([1 / KERNEL_SPREAD[unknown] ** 2, *[4.0] * len(slopes)])
        left = features.T @ features / noise + ridge
        new[:, unknown] = np.linalg.solve(
            left, features.T @ relative[:, unknown] / noise + ridge @ expected[:, unknown]
        )
    return new, np.linalg.inv(covariance)
