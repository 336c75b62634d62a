"""The price of time at which a budget binds, for many tables of times and energies at once.

The linear relaxation of the choice (choice.relaxation, one table, exact) by halving the price: for draws of a posterior
speed matters more than the last digit.
"""

import numpy as np

_HALVINGS = 45


def price_of_time(time: np.ndarray, energy: np.ndarray, budget) -> tuple[np.ndarray, np.ndarray]:
    """(price (S,), bound (S,)) of tables (S, K, P), weighted; infinite where a pair is not to be had.

    price: least price, J/s, at which the pairs of least energy + price x time keep the budget (s, scalar or (S,)); the
    highest tried where none does. bound: sum of those scores - price x budget, a lower bound of the energy.
    """
    draws = len(time)
    budget = np.broadcast_to(budget, draws)
    reference = energy.min(-1).sum(-1) / time.min(-1).sum(-1)
    low, high = np.zeros(draws), 1e4 * reference

    def spent(price):
        score = energy + price[:, None, None] * np.where(np.isfinite(time), time, 0)
        best = score.argmin(-1)[..., None]
        return np.take_along_axis(time, best, -1)[..., 0].sum(-1)

    free = spent(low) <= budget * (1 + 1e-12)
    for step in range(_HALVINGS):
        # a price may be far below the highest: first find its order of magnitude
        middle = np.sqrt(np.maximum(low, 1e-6 * reference) * high) if step < 15 else (low + high) / 2
        keeps = spent(middle) <= budget * (1 + 1e-12)
        high, low = np.where(keeps, middle, high), np.where(keeps, low, middle)
    price = np.where(free, 0.0, high)
    score = energy + price[:, None, None] * np.where(np.isfinite(time), time, 0)
    return price, score.min(-1).sum(-1) - price * budget
