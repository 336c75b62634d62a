"""The one sign of the project: what a change against a baseline is, in percent. Negative: less was spent, so saved."""

from __future__ import annotations

from typing import TypeVar

Number = TypeVar("Number")  # a number, an array or a column of numbers


def change_percent(value: Number, baseline: Number) -> Number:
    """Return `value` against `baseline` in percent of it: -5 is 5 % saved, +5 is 5 % lost. Arrays go element by
    element."""
    return 100 * (value / baseline - 1)  # type: ignore[operator]


def change_of_reduction(percent: float) -> float:
    """Return a published "reduction" or "saving" in percent, which is positive where less was spent, as a change."""
    return 0.0 - percent  # of nothing: 0, not -0
