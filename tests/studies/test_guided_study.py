"""The study of guided search: its ways keep their budget and see nothing more, specimens differ, its files say all."""

import csv

import numpy as np
import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.gpu import specimen
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.studies import guided_study, strategies
from kernel_dvfs.studies.testbed import of_setup, of_table

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


@pytest.mark.parametrize("way", ["random", "coarse", "around"])
def test_every_way_keeps_its_budget_and_has_the_baselines(bed, way):
    budget = bed.measurements // 2
    ways = {
        "random": lambda: strategies.random(bed, budget, 1, 1),
        "coarse": lambda: strategies.coarse(bed, budget, 1, 1),
        "around": lambda: strategies.around(bed, budget, 1, bed.oracle(0.0), 1),
    }
    measured = ways[way]()
    assert bed.candidates.spent(measured, 1) <= budget and bed.candidates.spent(measured, 1) > 0.9 * budget
    assert measured[np.arange(len(measured)), bed.candidates.baseline].all()
    assert not (measured & ~bed.candidates.offered).any()


def test_what_is_around_an_optimum_holds_it(bed):
    best = bed.oracle(0.0)
    measured = strategies.around(bed, bed.measurements // 3, 1, best, 1)
    assert measured[np.arange(len(best)), best].all()


def test_no_way_is_better_than_the_oracle_and_none_breaks_the_limit_of_a_table(table):
    rows = guided_study.of_tables(table, "raw", 0.02, 0.5, [1, 2], without=("bayesian",))
    assert {row["way"] for row in rows} == {"oracle", "exhaustive", "guided", "random", "coarse grid"}
    assert all(row["of_oracle_percent"] <= 100 + 1e-6 for row in rows)
    assert all(row["time_change_percent"] <= 2 + 1e-6 for row in rows)
    guided = [row for row in rows if row["way"] == "guided"]
    assert all(row["measurements_percent"] <= 50 for row in guided)


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
    assert specimen.overrides(spec, 0) == {}
    boards = [resolve("rtx_3080_ti", specimen.overrides(spec, seed)) for seed in range(1, 40)]
    static = np.array([board["memory"]["static_w"]["9251"] for board in boards]) / spec["memory"]["static_w"]["9251"]
    assert abs(static.mean() - 1) < 0.03 and 0.03 < static.std() < 0.07
    assert all(board["clocks"] == spec["clocks"] and board["rates"] == spec["rates"] for board in boards)
    assert all(board["core"]["v_over_v0"][0] == [1050, 1.0] for board in boards)
    assert specimen.overrides(spec, 7) == specimen.overrides(spec, 7) != specimen.overrides(spec, 8)


def test_the_command_writes_rows_and_means(table, tmp_path):
    out = tmp_path / "g.csv"
    words = ["--budget", "50", "--seeds", "1", "--slack", "2", "--weights", "raw", "--without", "bayesian"]
    assert main(["study", "guided", "--table", str(table), *words, "-o", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert [row["way"] for row in rows] == ["oracle", "exhaustive", "guided", "random", "coarse grid"]
    assert "| guided |" in (tmp_path / "g.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "either --gpu SETUP"),
        (["--table", "T", "--budget", "0"], "0 < budget"),
        (["--table", "T", "--seeds", "0"], "at least one seed"),
        (["--table", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_the_command_refuses_what_makes_no_study(words, said, tmp_path, capsys):
    assert main(["study", "guided", *words, "-o", str(tmp_path / "g.csv")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "g.csv").exists()


def test_without_scikit_learn_the_bayesian_way_is_one_clear_line(bed, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sklearn.gaussian_process", None)
    with pytest.raises(Exception, match="needs scikit-learn"):
        strategies.bayesian(bed, 0.0, 50, 1, 1)
