"""How far a pooled mean may be off: scatter within campaigns, and what differs from one campaign to the next.

Repeats of one campaign share its conditions, so averaging them does not remove what is particular to that day. Only
repeats of other campaigns show it. Knows arrays, not records or files.
"""

import numpy as np


def standard_errors(target, cell, n, mean, squares) -> np.ndarray:
    """(cells,) standard error of each cell's mean, in the unit of `mean`; NaN where nothing tells.

    A cell is a target at a clock pair; each entry of the (G,) arrays is what one campaign measured of a cell: target,
    cell: indices; n: measurements; mean; squares: sum of (measurement - mean)^2. A cell's mean is weighted by n.

    Relative variances are pooled per target: `within` from campaigns with several measurements, `between` by the
    method of moments (DerSimonian and Laird 1986, with weights n) from cells that several campaigns measured:
    E sum_c n_c (m_c - m)^2 = (C - 1) within + (N - sum_c n_c^2 / N) between.
    """
    target, cell = np.asarray(target), np.asarray(cell)
    n, mean, squares = (np.asarray(values, dtype=float) for values in (n, mean, squares))
    cells, targets = cell.max() + 1, target.max() + 1
    total = np.bincount(cell, n, cells)
    centre = np.bincount(cell, n * mean, cells) / total
    owner = np.zeros(cells, dtype=np.intp)
    owner[cell] = target
    scale = centre[cell]

    freedom = np.bincount(target, n - 1, targets)
    within = _ratio(np.bincount(target, squares / scale**2, targets), freedom)
    campaigns = np.bincount(cell, minlength=cells)
    concentration = np.bincount(cell, n**2, cells) / total
    scatter = np.bincount(target, n * (mean / scale - 1) ** 2, targets)
    chances = np.bincount(owner, campaigns - 1, targets)
    spread = np.bincount(owner, total - concentration, targets)
    between = np.maximum(_ratio(scatter - chances * np.nan_to_num(within), spread), 0)
    variance = np.nan_to_num(between)[owner] * concentration / total + np.nan_to_num(within)[owner] / total
    known = (freedom > 0) | (chances > 0)
    return np.where(known[owner], centre * np.sqrt(variance), np.nan)


def _ratio(value: np.ndarray, by: np.ndarray) -> np.ndarray:
    return np.divide(value, by, out=np.full(len(value), np.nan), where=by > 0)
