"""Sampling of a distribution that is known up to a constant: sequential Monte Carlo over powers of the likelihood.

Particles drawn from the prior are weighted, chosen anew and moved by Metropolis steps, from the prior (power 0) to the
posterior (power 1), each power as far as the weights stay even (Del Moral, Doucet, Jasra 2006). It finds several hills,
and the evidence comes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

EVEN = 0.6  # effective share of the particles that a step to the next power keeps
MOVED = 3.0  # moves that are taken, a particle and power, in the mean
MOST_ROUNDS = 14  # of proposals at a power
FAR = 0.15  # share of proposals along the difference of two particles, which may lead from one hill to another

# (N, d) -> N log densities; -inf outside
LogPrior = Callable[[np.ndarray], np.ndarray]
# (N, d) -> N (log likelihood, whatever else is to be kept of a point)
Likelihood = Callable[[np.ndarray], Iterable[tuple[float, object]]]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Particles of equal weight."""

    at: np.ndarray  # (N, d)
    log_likelihood: np.ndarray  # (N,)
    kept: list  # N, what the likelihood told of each
    log_evidence: float
    powers: list[float]
    evaluations: int

    @property
    def distinct(self) -> int:
        """Return how many different points there are."""
        return len(np.unique(self.at, axis=0))


def sample(start: np.ndarray, prior: LogPrior, likelihood: Likelihood, seed: int, say: Callable[[str], None]) -> Sample:
    """Return as many particles of the posterior as `start` has, which are draws from the prior.

    say: is told of each power.
    """
    draw = np.random.default_rng(seed)
    at, found = start.copy(), list(likelihood(start))
    likely, kept = np.array([value for value, _ in found]), [more for _, more in found]
    density = prior(at)
    power, powers, evidence, count = 0.0, [], 0.0, len(at)
    while power < 1:
        step = next_step(likely, 1 - power)
        weight = step * (likely - likely.max())
        evidence += step * likely.max() + np.log(np.exp(weight).mean())
        power += step
        powers.append(power)
        chosen = systematic(np.exp(weight), draw)
        at, likely, density = at[chosen], likely[chosen], density[chosen]
        kept = [kept[place] for place in chosen]
        moved, rounds = 0.0, 0
        while rounds < MOST_ROUNDS and moved < MOVED:
            proposed = propose(at, draw)
            new_density = prior(proposed)
            tried = np.flatnonzero(np.isfinite(new_density))
            results = list(likelihood(proposed[tried]))
            count += len(tried)
            new_likely = np.full(len(at), -np.inf)
            new_likely[tried] = [value for value, _ in results]
            ratio = power * (new_likely - likely) + new_density - density
            taken = np.log(draw.random(len(at))) < ratio
            for place, (_, more) in zip(tried, results):
                if taken[place]:
                    kept[place] = more
            at[taken], likely[taken], density[taken] = proposed[taken], new_likely[taken], new_density[taken]
            moved, rounds = moved + taken.mean(), rounds + 1
        spread = np.percentile(likely, [5, 50, 95]).round(1)
        say(f"power {power:.4f}: {rounds} rounds, {moved:.2f} moves, log likelihood {spread}")
    return Sample(at, likely, kept, float(evidence), powers, count)


def next_step(likely: np.ndarray, most: float) -> float:
    """Return the step of the power, at most `most`, that leaves weights of EVEN particles' worth."""

    def even(step: float) -> bool:
        weight = np.exp(step * (likely - likely.max()))
        return weight.sum() ** 2 / (weight**2).sum() >= EVEN * len(likely)

    if even(most):
        return most
    low, high = 0.0, most
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if even(middle) else (low, middle)
    return low or high


def systematic(weight: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return places of as many particles, each about as often as its weight asks."""
    edges = np.cumsum(weight) / weight.sum()
    return np.minimum(np.searchsorted(edges, (np.arange(len(weight)) + draw.random()) / len(weight)), len(weight) - 1)


def propose(at: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return a proposal for each particle: symmetric, so that none needs a correction.

    Along the difference of two particles, in some of the dimensions, and a little beside it (ter Braak 2006).
    """
    count, size = at.shape
    one, other = (draw.permutation(count) for _ in range(2))
    mask = draw.random(at.shape) < np.where(draw.random((count, 1)) < 0.6, 0.35, 1.0)
    mask[np.arange(count), draw.integers(size, size=count)] = True
    far = draw.random((count, 1)) < FAR
    scale = np.where(far, 1.0, 2.38 / np.sqrt(2 * mask.sum(1, keepdims=True)) * draw.uniform(0.3, 1.0, (count, 1)))
    noise = 0.02 * at.std(0) * draw.standard_normal(at.shape)
    return at + np.where(mask, scale * (at[one] - at[other]) + noise, 0.0)
