"""The figure of slow changes: every number of its table is drawn, or told where it lies above the axis."""

from itertools import product

import pandas as pd
import pytest
from matplotlib.text import Text

from kernel_dvfs.studies.report import switching

LATENCIES_MS = (0.0, 1.0, 10.0)
# (behaviour, latency) -> energy and time of the naive replay, percent
NAIVE = {("wait", 1.0): (-1.0, 17.0), ("wait", 10.0): (45.4, 149.2)}


@pytest.fixture(scope="module")
def table():
    rows = []
    for behaviour, latency_ms, jitter in product(switching.NAMES, LATENCIES_MS, (0.0, 30.0)):
        if jitter and behaviour == "wait":
            continue
        energy, time = NAIVE.get((behaviour, latency_ms), (-6.0, 2.2)) if not jitter else (None, None)
        rows.append(
            {"behaviour": behaviour, "latency_ms": latency_ms, "jitter_percent": jitter}
            | {"energy_change_percent": -2.5, "per_pass_energy_change_percent": None if jitter else -0.3}
            | {"naive_energy_change_percent": energy, "naive_time_change_percent": time}
        )
    return pd.DataFrame(rows)


def test_nothing_is_clipped_in_silence(table):
    lines, numbers, outside = switching.data(table)
    naive = lines[lines.way == "naive replay"].change
    given = table.naive_energy_change_percent.dropna()
    assert sorted([*naive, *outside.change]) == sorted(given)
    assert outside.text.tolist() == ["+45 %\ntime +149"]
    # each loss of time is told, inside and outside
    assert len(numbers) + len(outside) == len(given)
    figure = switching.draw(table, "simulated Toy 1", "toy").draw()
    said = [text.get_text() for text in figure.findobj(Text)]
    assert "+45 %\ntime +149" in said and said.count("+2.2") == 7
    for panel in figure.axes:
        low, high = panel.get_ylim()
        assert low < naive.min() and high > 0


def test_without_a_replay_above_the_axis_no_arrow_is_explained(table):
    calm = table[table.behaviour != "wait"]
    plot = switching.draw(calm, "simulated Toy 1", "toy")
    assert "arrows" not in plot.labels.caption and len(switching.data(calm)[2]) == 0


def test_a_profile_without_passes_is_drawn_without_them(table):
    without = table.assign(per_pass_energy_change_percent=None)
    lines, _, _ = switching.data(without)
    assert lines.change.dtype == float and set(lines.way) == {"chosen for it", "chosen, jitter 30 %", "naive replay"}
    switching.draw(without, "simulated Toy 1", "toy").draw()


def test_the_figure_has_units_and_the_one_sign_and_is_readable(table, cut_off):
    plot = switching.draw(table, "simulated Toy 1", "toy")
    assert "ms" in plot.labels.x and "% (negative: saved)" in plot.labels.y and "better: down" in plot.labels.subtitle
    assert cut_off(plot) == []
