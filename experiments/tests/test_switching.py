"""The study of slow changes: a row each, and a figure that draws every number, or tells it above the axis."""

import sys
from itertools import product

import pandas as pd
import pytest
from matplotlib.text import Text

from experiments.searches import switching
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.profile import aggregate

LATENCIES_MS = (0.0, 1.0, 10.0)
# (behaviour, latency) -> energy and time of the naive replay, percent
NAIVE = {("lag", 1.0): (-1.0, 17.0), ("lag", 10.0): (45.4, 149.2)}


@pytest.fixture(scope="module")
def table():
    rows = []
    for behaviour, latency_ms, jitter in product(switching.NAMES, LATENCIES_MS, (0.0, 30.0)):
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
    assert "+45 %\ntime +149" in said and said.count("+2.2") == 4
    for panel in figure.axes:
        low, high = panel.get_ylim()
        assert low < naive.min() and high > 0


def test_without_a_replay_above_the_axis_no_arrow_is_explained(table):
    calm = table[table.behaviour != "lag"]
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


def test_the_study_has_a_row_for_each_behaviour_latency_and_jitter(setup_of, tmp_path, monkeypatch):
    pairs = [BASELINE, *(Pair(core, mem) for core in (1050, 1470, 1890) for mem in (5001, 9251))]
    aggregate.from_bench(setup_of(), pairs, 10, str(tmp_path / "p.parquet"), ("kernel",))
    words = ["--latencies", "0", "0.005", "--jitters", "0", "0.1", "-o", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["switching.py", str(tmp_path / "p.parquet"), *words])
    switching.main()
    table = pd.read_csv(tmp_path / "switching.csv")
    assert len(table) == 2 * (2 + 2) and set(table.gpu) == {"simulated RTX 3080 Ti, gpt3-xl-b40-tp1"}
    assert (table.time_change_percent <= 1e-6).all() and (table.core_stall_ms == 0.1).all()
    assert (table.energy_change_percent < 0.001).all() and (table.gap_points >= 0).all()
    slow = table[table.latency_ms > 0]
    assert (slow.naive_time_change_percent > 0.3).all(), "replayed as it is, the latency-free choice loses time"
    known = pd.read_csv(tmp_path / "switching_known.csv")
    assert set(known.trust) >= {"assumed", "unverified: recalled, not read again"}


def test_beyond_the_longest_latency_studied_one_pair_for_the_run_is_what_is_left():
    rows = [
        {"behaviour": "ahead", "jitter_percent": 0.0, "latency_ms": latency_ms}
        | {"energy_change_percent": change, "single_energy_change_percent": single}
        for latency_ms, change, single in ((10.0, -2.6, -0.25), (50.0, -2.4, -0.25))
    ]
    known = {row["latency_of"]: row for row in switching.known_rows(rows)}
    own = known["simulated RTX 3080 Ti and RTX A4000, core"]
    assert (own["energy_change_at_from_percent"], own["energy_change_at_to_percent"]) == (-2.4, -0.25)
    without = switching.known_rows([row | {"single_energy_change_percent": None} for row in rows])
    assert {row["energy_change_at_to_percent"] for row in without if row["to_ms"] > 50} == {0.0}


@pytest.mark.parametrize(("domain", "words"), [("core", "core"), ("mem", "memory")])
def test_the_latencies_told_of_simulated_gpus_are_those_of_their_specs(domain, words):
    (known,) = (each for each in switching.KNOWN if each.what == f"simulated RTX 3080 Ti and RTX A4000, {words}")
    for name in ("rtx_3080_ti", "rtx_a4000"):
        own = resolve(name, {})["switching"][domain]
        assert (own["median_s"], own["p99_s"]) == (known.low_s, known.high_s)
