"""Claimed values beside fresh ones with their intervals, as positions on one axis: what a small chart is drawn from."""

import math
from collections import namedtuple

from kernel_dvfs.report.page.cells import signed

Chart = namedtuple("Chart", "ticks rows")
Chart.__doc__ = "ticks: [(position, label)]; rows: [Row]. Positions in percent of the chart's width."
Row = namedtuple("Row", "label claimed fresh low width said")
Row.__doc__ = "claimed, fresh, low (of the interval) and its width: positions, None where there is no value."

_TICKS = 6


def chart(changes: list) -> Chart | None:
    """changes: [(label, answer.Change)]; None if there is none with a value."""
    values = [value for _, change in changes for value in change if value is not None]
    if not values:
        return None
    ticks = _ticks(min(0.0, *values), max(0.0, *values))
    first, span = ticks[0], ticks[-1] - ticks[0]

    def place(value):
        return None if value is None else round(100 * (value - first) / span, 3)

    rows = []
    for label, change in changes:
        low, high = place(change.low), place(change.high)
        width = None if low is None else round(high - low, 3)
        rows.append(Row(label, place(change.claimed), place(change.fresh), low, width, _said(change)))
    return Chart([(place(tick), signed(tick, _digits(ticks))) for tick in ticks], rows)


def _ticks(low: float, high: float) -> list:
    """Round numbers about [low, high], 0 among them."""
    rough = max(high - low, 1e-3) / _TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * number for number in range(math.floor(low / step - 1e-9), math.ceil(high / step + 1e-9) + 1)]


def _digits(ticks: list) -> int:
    return max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))


def _said(change) -> str:
    """The same in words, for those who cannot see the chart."""
    text = [] if change.claimed is None else [f"claimed {signed(change.claimed)} %"]
    if change.fresh is not None:
        text.append(f"fresh {signed(change.fresh)} % ({signed(change.low)} to {signed(change.high)} %)")
    return ", ".join(text)
