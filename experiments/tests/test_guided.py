"""The study of guided search: its ways keep their budget and see nothing more, specimens differ, its files say all."""

import csv
import sys

import numpy as np
import pytest

from experiments.searches import guided, strategies
from experiments.searches.testbed import of_setup, of_table
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.gpu.noise import specimen_overrides
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.search.propose import Options, is_small

PAIRS = [BASELINE] + [Pair(core, mem) for mem in (5001, 9251) for core in (1050, 1470, 1680, 1890)]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of eight kernels at 13 pairs that the model of the search never saw, with an auto row each."""
    path = tmp_path_factory.mktemp("table") / "made.csv"
    rng = np.random.default_rng(5)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["kernel", "core_mhz", "mem_mhz", "time_s", "energy_j"])
        for kernel in range(8):
            core_s, mem_s = rng.uniform(0.2, 2, 2)
            for core, mem in [("", ""), *((c, m) for m in (810, 5001, 9251) for c in (630, 1050, 1470, 1890))]:
                ghz, share = (core or 1950) / 1000, (mem or 9251) / 9251
                time_s = core_s / ghz + mem_s / share
                energy_j = time_s * (40 + 40 * share + 25 * ghz * (1 + max(ghz - 1.4, 0)) ** 2)
                rows.writerow([f"k{kernel}", core, mem, time_s, energy_j])
    return path


@pytest.fixture(scope="module")
def bed(table):
    return of_table(table, "raw")


@pytest.mark.parametrize("way", ["random", "grid", "around"])
def test_every_way_keeps_its_budget_and_has_the_baselines(bed, way):
    budget = bed.measurements // 2
    ways = {
        "random": lambda: strategies.random(bed, budget, 1, 1),
        "grid": lambda: strategies.grid(bed, budget, 1, 1),
        "around": lambda: strategies.around(bed, budget, 1, bed.oracle(0.0), 1),
    }
    measured = ways[way]()
    assert bed.candidates.spent(measured, 1) <= budget and bed.candidates.spent(measured, 1) > 0.9 * budget
    assert measured[np.arange(len(measured)), bed.candidates.baseline].all()
    assert not (measured & ~bed.candidates.offered).any()


def shown_at(bed, measured, target):
    return {bed.candidates.pairs[pair] for pair in np.flatnonzero(measured[target])}


def test_a_grid_has_two_dimensions_and_lies_in_the_upper_half_of_the_core_clocks(bed):
    kernels = len(bed.candidates.targets)
    measured = strategies.grid(bed, 5 * kernels, 1, 1)
    shown = shown_at(bed, measured, 0)
    assert shown == {(None, None), *((core, mem) for core in (1050.0, 1470.0) for mem in (9251.0, 5001.0))}
    assert all(shown_at(bed, measured, target) == shown for target in range(kernels))
    assert bed.candidates.spent(measured, 1) == 5 * kernels


def test_the_three_clocks_are_shares_of_the_range_and_stop_at_the_budget(bed):
    kernels = len(bed.candidates.targets)
    three = {(None, None), (1890.0, 9251.0), (1470.0, 9251.0), (1050.0, 9251.0)}
    assert shown_at(bed, strategies.rule(bed, 4 * kernels, 1, 1), 3) == three
    lower = {(core, mem) for core in (1890.0, 1470.0) for mem in (5001.0, 810.0)}
    assert shown_at(bed, strategies.rule(bed, bed.measurements, 1, 1), 3) == three | lower


@pytest.fixture(scope="module")
def capped_table(tmp_path_factory):
    """Six kernels at four core clocks and three power caps, without an auto row; 300 W is never reached."""
    path = tmp_path_factory.mktemp("capped") / "capped.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["kernel", "core_mhz", "mem_mhz", "power_cap_w", "time_s", "energy_j", "is_reference"])
        for kernel in range(6):
            for core in (750, 1005, 1200, 1410):
                for cap in (300, 200, 120):
                    ghz, share = core / 1000, 0.2 + 0.1 * kernel
                    free_w = 60 + 100 * (1 - 0.5 * share) * ghz**2
                    power_w = min(free_w, cap)
                    time_s = (share + (1 - share) / ghz) * (free_w / power_w) ** (0.4 * (1 - share))
                    row = [f"k{kernel}", core, "", cap, time_s, time_s * power_w, int(core == 1410 and cap == 300)]
                    rows.writerow(row)
    return path


def test_a_power_cap_makes_another_pair(capped_table):
    bed = of_table(capped_table, "raw")
    assert len(bed.candidates.pairs) == 12 and bed.measurements == 72
    assert bed.candidates.offered.all() and bed.candidates.pairs[bed.candidates.baseline[0]] == (1410.0, None, 300.0)
    place = {pair: number for number, pair in enumerate(bed.candidates.pairs)}
    slow, fast = (bed.time_s[0, place[1410.0, None, cap]] for cap in (120.0, 300.0))
    assert slow > 1.05 * fast
    assert set(map(tuple, bed.candidates.steps)) == {(core, 0, cap) for core in range(4) for cap in range(3)}
    assert bed.candidates.beside_baseline(0).sum() == 4


@pytest.mark.parametrize("slack", [0.0, 0.05])
def test_the_study_of_a_table_with_power_caps_runs_in_every_way(capped_table, slack):
    rows = guided.of_tables(capped_table, "equal-time", slack, 0.4, [1], ["bayesian"])
    assert {"oracle", "exhaustive", "guided", "random", "grid", "three clocks"} <= {row["way"] for row in rows}
    assert all(row["time_change_percent"] <= 100 * slack + 1e-6 for row in rows)
    oracle = next(row for row in rows if row["way"] == "oracle")
    assert oracle["energy_change_percent"] < 0 or slack == 0


def test_bayesian_optimisation_takes_power_caps_for_what_they_are(capped_table):
    pytest.importorskip("sklearn", reason="the Bayesian baseline needs scikit-learn")
    bed = of_table(capped_table, "raw")
    assert bed.candidates.spent(strategies.bayesian(bed, 0.02, 40, 1, 1), 1) == 40


def test_the_measured_table_with_power_caps_keeps_all_its_points(measured):
    bed = of_table(measured("a100pcie_clock_powercap.csv"), "raw")
    assert bed.candidates.offered.shape == (4, 35) and bed.measurements == 140
    rows = guided.of_tables(measured("a100pcie_clock_powercap.csv"), "raw", 0.02, 0.25, [1], ["bayesian"])
    assert {row["way"]: row for row in rows}["guided"]["of_oracle_percent"] > 90


def test_where_nothing_can_be_saved_no_share_of_it_is_given(tmp_path):
    path = tmp_path / "best.csv"
    lines = [f"k{k},{settings}" for k in range(3) for settings in (",,1,90", "900,,2,95")]
    path.write_text("\n".join(["kernel,core_mhz,mem_mhz,time_s,energy_j", *lines]))
    rows = guided.of_tables(path, "raw", 0.0, 1.0, [1], ["bayesian"])
    assert {row["energy_change_percent"] for row in rows} == {0.0}
    assert {row["of_oracle_percent"] for row in rows} == {None}
    assert "| guided |" in guided.markdown_of(guided.summarised(rows))


def test_with_few_points_a_kernel_guided_search_is_better_than_a_grid(bed):
    kernels, saved, of_grid = len(bed.candidates.targets), [], []
    for points in (3, 4, 5):
        options = Options(budget=(points * kernels + 0.5) / bed.measurements)
        assert is_small(bed.candidates, options)
        measured = strategies.guided(bed, 0.02, options)[0]
        assert bed.candidates.spent(measured, 1) <= points * kernels
        saved.append(bed.score(bed.choose(measured, 1, 0.02))[0])
        grid = strategies.grid(bed, points * kernels, 1, 1)
        of_grid.append(bed.score(bed.choose(grid, 1, 0.02))[0])
    assert all(own >= 0.999 * other for own, other in zip(saved, of_grid)) and sum(saved) > 1.01 * sum(of_grid)


def test_what_is_around_an_optimum_holds_it(bed):
    best = bed.oracle(0.0)
    measured = strategies.around(bed, bed.measurements // 3, 1, best, 1)
    assert measured[np.arange(len(best)), best].all()


def test_no_way_is_better_than_the_oracle_and_none_breaks_the_limit_of_a_table(table):
    rows = guided.of_tables(table, "raw", 0.02, 0.5, [1], without=("bayesian",))
    few = {"guided, full probes"}  # half of 13 pairs a kernel is a small budget
    assert {row["way"] for row in rows} == {"oracle", "exhaustive", "guided", "random", "grid", "three clocks"} | few
    assert all(row["of_oracle_percent"] <= 100 + 1e-6 for row in rows)
    assert all(row["time_change_percent"] <= 2 + 1e-6 for row in rows)
    assert all(row["measurements_percent"] <= 50 for row in rows if row["way"] == "guided")


def test_the_exhaustive_search_of_a_simulated_gpu_counts_every_measurement(setup_of):
    setup = setup_of()
    one = of_setup(setup, PAIRS, 3)
    kernels = len(setup.targets["kernel"])
    assert one.measurements == kernels * (len(PAIRS) - 1 + 3)
    one_of_each = kernels * 3 + len(one.candidates.targets) * (len(PAIRS) - 1)
    assert len(one.candidates.targets) < kernels and one.candidates.spent(one.candidates.offered, 3) == one_of_each
    tied = one.candidates.copies > 1
    assert (one.all_time_s[tied, 1:] != one.time_s[tied, 1:]).all()
    assert (one.all_time_s[~tied] == one.time_s[~tied]).all()
    assert np.abs(one.time_s / one.true_time_s - 1).max() < 0.1
    assert (one.time_s != one.true_time_s).all()


def test_specimens_are_other_boards_of_the_same_model():
    spec = resolve("rtx_3080_ti")
    assert specimen_overrides(spec, 0) == {}
    boards = [resolve("rtx_3080_ti", specimen_overrides(spec, seed)) for seed in range(1, 40)]
    static = np.array([board["memory"]["static_w"]["9251"] for board in boards]) / spec["memory"]["static_w"]["9251"]
    assert abs(static.mean() - 1) < 0.03 and 0.03 < static.std() < 0.07
    assert all(board["clocks"] == spec["clocks"] and board["rates"] == spec["rates"] for board in boards)
    assert all(board["core"]["v_over_v0"][0] == [1050, 1.0] for board in boards)
    assert specimen_overrides(spec, 7) == specimen_overrides(spec, 7) != specimen_overrides(spec, 8)


def test_the_command_writes_rows_and_means(table, tmp_path, monkeypatch):
    out = tmp_path / "g.csv"
    words = ["--budget", "50", "--seeds", "1", "--slack", "2", "--weights", "raw", "--without", "bayesian"]
    monkeypatch.setattr(sys, "argv", ["guided.py", "--table", str(table), *words, "-o", str(out)])
    guided.main()
    rows = list(csv.DictReader(out.open()))
    ways = ["oracle", "exhaustive", "guided", "guided, full probes", "random", "grid", "three clocks"]
    assert [row["way"] for row in rows] == ways
    assert "| guided |" in (tmp_path / "g.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "either --gpu SETUP"),
        (["--table", "T.csv", "--gpu", "S.json"], "either --gpu SETUP"),
        (["--gpu", "S.json"], "--gpu needs --pairs"),
        (["--gpu", "S.json", "--points", "3"], "--points are measurements a kernel of a table"),
        (["--table", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_the_command_refuses_what_makes_no_study(words, said, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["guided.py", *words, "-o", str(tmp_path / "g.csv")])
    with pytest.raises(InputError, match=said):
        guided.main()
    assert not (tmp_path / "g.csv").exists()


def test_without_scikit_learn_the_bayesian_way_is_one_clear_line(bed, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.gaussian_process", None)
    with pytest.raises(InputError, match="needs scikit-learn"):
        strategies.bayesian(bed, 0.0, 50, 1, 1)
