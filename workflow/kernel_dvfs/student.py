"""Quantiles of Student's t, for intervals and tests."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist


@cache
def t_quantile(freedom: float, probability: float) -> float:
    """The value below which Student's t with `freedom` degrees of freedom lies with this probability, 0.5 to below 1.

    From the regularised incomplete beta function: P(T > t) = I(nu / (nu + t^2); nu / 2, 1 / 2) / 2.
    Raises ValueError outside.
    """
    if not (freedom > 0 and 0.5 <= probability < 1):
        raise ValueError(f"t_quantile({freedom}, {probability}): expected freedom > 0 and 0.5 <= probability < 1")
    # imported when it is needed, which it seldom is
    import mpmath

    def beyond(value: float) -> float:
        share = mpmath.betainc(freedom / 2, 0.5, 0, freedom / (freedom + value**2), regularized=True) / 2
        return share - (1 - probability)

    # the tails are never lighter than the normal distribution's
    low = NormalDist().inv_cdf(probability)
    high = max(2 * low, 1.0)
    while beyond(high) > 0:
        low, high = high, 2 * high
    return float(mpmath.findroot(beyond, (low, high), solver="anderson", tol=1e-25))
