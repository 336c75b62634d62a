"""The study of slow changes: a row for each behaviour, latency and jitter."""

import sys

import pandas as pd
import pytest

from experiments.searches import switching
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.profile import aggregate
from kernel_dvfs_clocks.clocks import BASELINE, Pair


@pytest.mark.nightly
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
