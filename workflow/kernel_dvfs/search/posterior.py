"""What a fit leaves open: draws of the table of times and energies of every target at every pair.

A draw perturbs constants, points and priors as far as they are uncertain and fits again (randomise, then optimise), so
that it follows the curvature that a single linearisation misses. What the model cannot express is a smooth misfit over
the clocks, conditioned on the points (Matheron's rule). A kernel that the model does not describe gets wider draws.
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs.search.fit import UNKNOWNS, Fit, Points, bounded
from kernel_dvfs.search.gpu_model import At, GpuModel, predict, with_slopes

_STEPS = 6
_TAILS = 4.0  # degrees of freedom of the kernels' prior when drawn from
_LENGTH = 0.7  # change of log core clock, and of log memory clock, over which misfits are alike
_LENGTH_MEM = 1.4
_NUGGETS = (0.1, 0.2, 0.4, 0.6, 0.8, 0.95)  # shares of the misfit's variance that may be particular to a point
_CALM = 6.0  # points that "the draws are wide enough" is worth, against points left out
_LARGEST_Z = 8.0
_FINE_GHZ = 96  # clocks at which the governor looks for the power cap


def tables(
    fitted: Fit, draws: int = 0, seed: int = 0, wider: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(S, K, P) log time (s) and log energy (J) predicted at every pair.

    draws: how many; 0: one table, the best fit with the misfit expected there. Measured points are predicted too.
    wider: (K, 2) factors of the draws' spread, see calibrate.
    """
    gpu, count = fitted.gpu, len(fitted.candidates.targets)
    points = Points(fitted.seen, gpu, fitted.used, fitted.shared)
    rng = np.random.default_rng(seed)
    number = max(draws, 1)
    if draws:
        g = fitted.g + rng.standard_normal((draws, len(fitted.g))) @ _root(fitted.g_covariance).T
        theta = _refit(fitted, points, g, rng)
    else:
        g, theta = fitted.g[None], fitted.theta[None]
    found = np.stack(predict(theta[:, points.target], _by_draw(points.at(g))), -1)
    off = (points.log - found) * (points.precision > 0)
    log_time, log_power = _under_the_cap(gpu, theta, g)
    # where the cap held a clock that was not recorded, the governor's model answers for both
    seen, held = fitted.seen, fitted.held
    capped = seen.target[held], seen.pair[held]
    there = np.stack([each[:, *capped] for each in (log_time, log_power)], -1)
    measured = np.log(np.stack([seen.time_s[held], seen.power_w[held]], -1)) - fitted.shared[capped[1]]
    off = np.concatenate([off, measured - there], 1)
    target, pair = np.concatenate([points.target, capped[0]]), np.concatenate([points.pair, capped[1]])
    misfit = fitted.shared + _misfit(fitted, target, pair, off, rng if draws else None, number, count)
    log_time, log_power = log_time + misfit[..., 0], log_power + misfit[..., 1]
    if wider is not None:
        log_time = log_time.mean(0) + wider[:, None, 0] * (log_time - log_time.mean(0))
        log_power = log_power.mean(0) + wider[:, None, 1] * (log_power - log_power.mean(0))
    if np.isfinite(gpu.cap_w):
        log_power = np.minimum(log_power, np.log(1.03 * gpu.cap_w))
    return log_time, log_time + log_power


def calibrate(fitted: Fit, draws: int = 32, seed: int = 0, folds: int = 4) -> np.ndarray:
    """(K, 2) factors, at least 1, by which draws of log time and log power are too narrow: by points left out.

    Each fold leaves out one point of every target, predicts it from the others, constants and prior kept, and compares
    with what was measured. A target's factor leans on those of all.
    """
    candidates, seen = fitted.candidates, fitted.seen
    squares, number = np.zeros((len(candidates.targets), 2)), np.zeros(len(candidates.targets))
    base = seen.pair == candidates.baseline[seen.target]
    turn = np.zeros(len(seen.target), dtype=int)
    for target in range(len(candidates.targets)):
        own = np.flatnonzero((seen.target == target) & ~base)
        # the latest points are near the optimum: those are to be predicted
        turn[own] = np.arange(len(own)) % folds
    for fold in range(folds):
        out = ~base & (turn == fold) & fitted.used
        if not out.any():
            continue
        few = fitted.without(out)
        log_time, log_energy = tables(few, draws, seed + 1 + fold)
        both = np.stack([log_time, log_energy - log_time], -1)[:, seen.target[out], seen.pair[out]]
        truth = np.stack([np.log(seen.time_s[out]), np.log(seen.power_w[out])], -1)
        z2 = ((truth - both.mean(0)) ** 2 / both.var(0, ddof=1)).clip(max=_LARGEST_Z**2)
        np.add.at(squares, seen.target[out], z2)
        np.add.at(number, seen.target[out], 1)
    overall = (_CALM + squares.sum(0)) / (_CALM + number.sum())
    own = (_CALM * overall + squares) / (_CALM + number[:, None])
    return np.sqrt(np.maximum(own, 1.0))


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return vectors * np.sqrt(values.clip(0))


def _by_draw(at: At) -> At:
    return At(*(np.broadcast_to(field, (field.shape[0], *field.shape[1:])) for field in at))


def _refit(fitted: Fit, points: Points, g: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(S, K, 6) kernels fitted to perturbed points under perturbed priors, constants g (S, G) given."""
    number, count = len(g), len(fitted.theta)
    told = points.precision > 0
    sd = fitted.scatter * fitted.unfit[points.target, None] / np.sqrt(np.where(told, points.precision, 1.0))
    log = points.log + rng.standard_normal((number, *points.log.shape)) * sd
    # kernels scatter around their prior with heavy tails: now and then one is unlike all others
    tails = rng.chisquare(_TAILS, (number, count)) / _TAILS
    precision = tails[..., None, None] * fitted.precision
    prior = np.linalg.cholesky(np.linalg.inv(fitted.precision)).T
    mean = fitted.mean + rng.standard_normal((number, count, UNKNOWNS)) @ prior / np.sqrt(tails)[..., None]
    at = _by_draw(points.at(g))
    weight = told * sd**-2.0
    theta = np.tile(fitted.theta, (number, 1, 1))
    owner = np.eye(count)[points.target]  # (N, K)

    def cost(theta: np.ndarray) -> np.ndarray:
        r = log - np.stack(predict(theta[:, points.target], at), -1)
        off = theta - mean
        return (r**2 * weight).sum(-1) @ owner + tails * ((off @ fitted.precision) * off).sum(-1)

    best = cost(theta)
    damping = np.full((number, count), 1e-2)
    for _ in range(_STEPS):
        slopes = with_slopes(theta[:, points.target], at)
        r = log - np.stack([slopes.log_time, slopes.log_power], -1)
        j = np.stack([slopes.by_theta_time, slopes.by_theta_power], 2)  # (S, N, 2, 6)
        weighted = j * weight[:, :, None]
        squares = np.einsum("snqi,snqj->snij", weighted, j, optimize=True).reshape(number, len(owner), -1)
        hessian = (owner.T @ squares).reshape(number, count, UNKNOWNS, UNKNOWNS) + precision
        down = owner.T @ np.einsum("snqi,snq->sni", weighted, r) - tails[..., None] * (
            (theta - mean) @ fitted.precision
        )
        diagonal = np.einsum("skii->ski", hessian)
        damped = hessian + (damping[..., None] * diagonal)[..., None] * np.eye(UNKNOWNS)
        move = np.linalg.solve(damped, down[..., None])[..., 0].clip(-1.5, 1.5)
        new = bounded(theta + move)
        now = cost(new)
        better = now < best
        theta = np.where(better[..., None], new, theta)
        best = np.where(better, now, best)
        damping = np.where(better, damping * 0.2, damping * 8)
    return theta


def _under_the_cap(gpu: GpuModel, theta: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(S, K, P) log time and log power: the top clock falls with power, and the governor lowers the clock until the
    power cap is kept."""
    cold = At(*(field[:, None] for field in gpu.at_pairs(g)))
    log_time, log_power = predict(theta[:, :, None], cold)
    place = gpu.places
    fall = g[:, None, place["fall"]] * gpu.top
    for _ in range(2):  # power hardly depends on the clock where the voltage stays
        share = np.minimum(np.exp(log_power), gpu.cap_w) / gpu.highest_w
        log_time, log_power = predict(theta[:, :, None], cold._replace(log_f=cold.log_f - fall * share))
    if not np.isfinite(gpu.cap_w):
        return log_time, log_power
    # the highest clock that keeps the cap, per memory node; power rises with the clock
    log_cap = np.log(gpu.cap_w)
    ghz = np.linspace(gpu.core_ghz.min(), gpu.core_ghz.max(), _FINE_GHZ)
    log_v = g[:, place["log_v"]] @ gpu.voltage_weights(ghz).T
    for mem in range(len(gpu.mem_mhz)):
        own = gpu.mem_node == mem
        if not (log_power[:, :, own] > log_cap).any():
            continue

        def of(name: str, mem: int = mem) -> np.ndarray:
            return g[:, place[name]][:, mem][:, None, None]

        tree = g[:, place["log_k"]][:, :, None]
        fine = At(np.log(ghz), of("log_b"), of("log_ps"), tree, log_v[:, None], of("log_s"), np.zeros(1))
        fine_time, fine_power = predict(theta[:, :, None], fine)
        keeps = (fine_power <= log_cap).sum(-1).clip(1, _FINE_GHZ - 1)[..., None]
        low, high = (np.take_along_axis(fine_power, keeps - one, -1) for one in (1, 0))
        share = ((log_cap - low) / np.maximum(high - low, 1e-9)).clip(0, 1)
        before, after = (np.take_along_axis(fine_time, keeps - one, -1) for one in (1, 0))
        held = before + share * (after - before)
        capped = (log_power > log_cap) & own
        log_time = np.where(capped, np.maximum(held, log_time), log_time)
        log_power = np.where(capped, log_cap, log_power)
    return log_time, log_power


def _misfit(
    fitted: Fit,
    target: np.ndarray,
    pair: np.ndarray,
    off: np.ndarray,
    rng: np.random.Generator | None,
    number: int,
    count: int,
) -> np.ndarray:
    """(S, K, P, 2) what to add to log time and log power: misfit expected from the points, drawn if rng is given.

    off: (S, N, 2) misfit of N points, of `target` (N,) at `pair` (N,).
    """
    gpu = fitted.gpu
    log_f = np.log(gpu.core_ghz)[gpu.core_node]
    log_m = np.log(gpu.mem_mhz)[gpu.mem_node]
    pairs = len(log_f)
    apart = np.abs(log_f[:, None] - log_f) / _LENGTH + np.abs(log_m[:, None] - log_m) / _LENGTH_MEM
    smooth = np.exp(-apart)
    added = np.zeros((number, count, pairs, 2))
    sd = fitted.unfit[:, None] * fitted.scatter  # (K, 2)
    for quantity in range(2):
        rest = off[..., quantity]
        nugget = _nugget(smooth, target, pair, rest.mean(0) / sd[target, quantity])
        alike = (1 - nugget) * smooth
        if rng is not None:
            root = np.linalg.cholesky(alike + 1e-9 * np.eye(pairs))
            scaled = sd[:, quantity][:, None]
            drawn = (rng.standard_normal((number, count, pairs)) @ root.T) * scaled
            drawn += np.sqrt(nugget) * rng.standard_normal((number, count, pairs)) * scaled
            added[..., quantity] = drawn
            rest = rest - drawn[:, target, pair]
        for kernel in range(count):
            own = np.flatnonzero(target == kernel)
            at = pair[own]
            gain = np.linalg.solve(alike[np.ix_(at, at)] + nugget * np.eye(len(own)), alike[at]).T  # (P, n)
            added[:, kernel, :, quantity] += rest[:, own] @ gain.T
    return added


def _nugget(smooth: np.ndarray, target: np.ndarray, pair: np.ndarray, z: np.ndarray) -> float:
    """The most likely share of scaled misfits z (N,) that neighbouring pairs do not have in common."""
    best, found = np.inf, _NUGGETS[1]
    own = [np.flatnonzero(target == kernel) for kernel in np.unique(target)]
    size = max((z**2).mean(), 1e-12)
    for nugget in _NUGGETS:
        cost = 0.0
        for rows in own:
            at = pair[rows]
            covariance = size * ((1 - nugget) * smooth[np.ix_(at, at)] + nugget * np.eye(len(rows)))
            cost += np.linalg.slogdet(covariance)[1] + z[rows] @ np.linalg.solve(covariance, z[rows])
        if cost < best:
            best, found = cost, nugget
    return found
