"""Where labels of points go so that no text overlaps: so near its point that no other can be meant, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

TEXT_PT = 5.8
# DejaVu Sans digits, inches at TEXT_PT, and the room that a marker takes
_CHARACTER, _LINE, _MARKER = 0.64 * TEXT_PT / 72, 1.0 * TEXT_PT / 72, 0.045
_GAP = 0.055  # from the point's centre to the text
_NEARER = 0.6  # how much nearer than to the next point
_SIDES = ((0, 1), (1, 0), (-1, 0), (0, -1), *((across, up) for up in (0.5, -0.5, 1, -1) for across in (1, -1)))


def place(
    wanted: pd.DataFrame,
    markers: np.ndarray,
    lines: Sequence[np.ndarray],
    limits: Sequence[float],
    size: tuple[float, float],
    apart: float,
) -> pd.DataFrame:
    """Return the labels that find room, in the order of `wanted`: its rows with x and y moved to the text's centre.

    wanted: columns x, y, label; markers: all points, n x 2, and lines, each n x 2, that are not to be covered; limits:
    (left, right, bottom, top) of the panel in data units; size: its width and height in inches. A label is left out too
    where the same text is already within `apart` inches.
    """
    left, right, bottom, top = limits
    origin, scale = np.array([left, bottom]), np.array(size) / np.array([right - left, top - bottom])
    spots = (markers - origin) * scale
    taken = [_box(spot, _MARKER, _MARKER) for spot in spots]
    taken += [_box(dot, _MARKER, _MARKER) for line in lines for dot in _dots((line - origin) * scale)]
    placed = []
    texts: list[tuple[str, np.ndarray]] = []
    for row in wanted.itertuples(index=False):
        point = (np.array([row.x, row.y]) - origin) * scale
        if any(text == row.label and np.abs(point - other).max() < apart for text, other in texts):
            continue
        wide, high = _CHARACTER * len(row.label), _LINE
        for across, up in _SIDES:
            gap = _GAP / 2 if abs(across) == abs(up) else _GAP
            centre = point + np.array([across * (gap + wide / 2), up * (gap + high / 2)])
            box = _box(centre, wide, high)
            fits = (box[:2] >= 0).all() and (box[2:] <= size).all() and not any(_overlap(box, other) for other in taken)
            if fits and _is_nearest(box, point, spots):
                taken.append(box)
                texts.append((row.label, point))
                x, y = centre / scale + origin
                placed.append(row._replace(x=x, y=y))
                break
    # numbers even if no row: plotnine takes an empty column of objects for names
    return pd.DataFrame(placed, columns=wanted.columns).astype({"x": float, "y": float})


def _is_nearest(box: np.ndarray, point: np.ndarray, spots: np.ndarray) -> bool:
    """Return whether a text is clearly nearer to its point than to any other that does not lie on it."""
    others = spots[np.linalg.norm(spots - point, axis=1) > _MARKER]
    return bool(_away(box, point[None])[0] <= _NEARER * _away(box, others).min(initial=np.inf))


def _away(box: np.ndarray, spots: np.ndarray) -> np.ndarray:
    """Return how far points (n x 2) are from a box, inches."""
    return np.linalg.norm(np.maximum(np.maximum(box[:2] - spots, spots - box[2:]), 0), axis=1)


def _dots(line: np.ndarray) -> np.ndarray:
    """Return points along a line (inches), no further apart than a marker."""
    dots = [line[:1]]
    for start, end in pairwise(line):
        count = int(np.linalg.norm(end - start) / _MARKER) + 1
        dots.append(start + (end - start) * np.linspace(0, 1, count + 1)[1:, None])
    return np.concatenate(dots)


def _box(centre: np.ndarray, wide: float, high: float) -> np.ndarray:
    half = np.array([wide, high]) / 2
    return np.concatenate([centre - half, centre + half])


def _overlap(box: np.ndarray, other: np.ndarray) -> bool:
    return bool((box[:2] < other[2:]).all() and (other[:2] < box[2:]).all())
