"""The library for notebooks: a few names, one study from sweep to page, and what is refused."""

import json
import pkgutil
import re
import subprocess
import sys

import pandas as pd
import pytest

import kernel_dvfs as kd
from kernel_dvfs import api
from kernel_dvfs.cli.main import main
from kernel_dvfs.extensions import merged
from kernel_dvfs.measurement.again import compare_iteration
from kernel_dvfs.measurement.setup import read as read_setup
from kernel_dvfs.measurement.simulated_iteration import SimulatedVisitor
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import Pair


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return kd.simulate(
        "h200_sxm", tmp_path_factory.mktemp("sweep"), batch=8, core_mhz=[900, 1500, 1980], auto_repeats=3
    )


@pytest.fixture(scope="module")
def schedule(sweep):
    return kd.choose(str(sweep.profile), objective="energy", scope="local")


def test_the_names_are_offered_at_the_top_and_only_those():
    added = merged("api")
    assert len(api.__all__) == 11 and {*api.__all__, *added} <= set(dir(kd))
    for name in api.__all__:
        assert getattr(kd, name) is getattr(api, name)
    assert {*added} >= {"capture", "play", "tune"} and all(callable(getattr(kd, name)) for name in added)
    # a module of the same name would take its place once it is imported
    assert not {name for _, name, _ in pkgutil.iter_modules(kd.__path__)} & {*api.__all__, *added}
    with pytest.raises(AttributeError, match="no attribute 'chose'"):
        _ = kd.chose


def test_importing_the_package_imports_nothing_heavy(root):
    code = "import sys, kernel_dvfs; from kernel_dvfs import shipped; print('kernel_dvfs.api' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(root / "workflow")}
    )
    assert done.stdout.strip() == "False"


def test_a_sweep_is_a_profile_of_every_kernel_at_every_pair(sweep):
    rows = pd.DataFrame(kd.load_profile(sweep.profile))
    kernels = rows[rows.study == "kernel"]
    assert kernels.target.nunique() == sweep.kernels == 46
    assert (kernels.groupby("target").size() == sweep.pairs).all()
    assert kernels.is_baseline.sum() == 46


def true_changes(sweep, schedule) -> tuple[float, float]:
    """Change of energy and time of the iteration on the simulated GPU without noise, percent."""
    setup = read_setup(str(sweep.setup))
    kernels = setup.targets["kernel"]
    pairs = {MeasurementTarget("kernel", name): Pair(*own.values()) for name, own in schedule["targets"].items()}
    [comparisons] = compare_iteration(setup, SimulatedVisitor(setup, exact=True), [pairs], 0)
    totals = [
        [
            sum(
                kernels[each["target"]]["launches_per_iteration"] * each["points"][at]["summary"][field]
                for each in comparisons
            )
            for at in (0, 1)
        ]
        for field in ("energy_mj", "time_us")
    ]
    energy, time = (100 * (chosen / auto - 1) for auto, chosen in totals)
    return energy, time


def test_a_choice_is_measured_again_with_noise_of_its_own_about_what_is_true(sweep, schedule):
    checked = kd.validate(sweep, schedule, repeats=4)
    assert len(set(checked.energy_percent)) == 4  # repeats differ
    energy, time = true_changes(sweep, schedule)
    # half as much time again: the scatter of auto's counts by half as much again
    assert checked.energy_mean == pytest.approx(energy, abs=1) and checked.time_mean == pytest.approx(time, abs=0.5)
    assert kd.validate(sweep, schedule, repeats=4) == checked  # the same numbers for everyone
    mean = r"\S+ % \(\S+ to \S+ %\)"
    assert re.fullmatch(rf"measured again 4 times: energy {mean}, time {mean}", checked.words())
    at_auto = schedule | {"targets": {key: {"core_mhz": "auto", "mem_mhz": "auto"} for key in schedule["targets"]}}
    assert kd.validate(sweep, at_auto, repeats=2).energy_mean == 0, "what stays at auto is auto"


@pytest.mark.parametrize(
    ("beyond_percent", "verdict"),
    [(-0.5, "breaks its limit"), (0.02, "not shown to keep its limit"), (0.5, "keeps its limit")],
)
def test_a_choice_with_a_limit_has_one_verdict_in_words_and_on_its_page(
    sweep, schedule, beyond_percent, verdict, tmp_path
):
    """The same clocks, promised at limits below, at and beyond what twelve repeats say."""
    assert kd.validate(sweep, schedule, repeats=2).verdict is None, "of no limit"
    mean = kd.validate(sweep, schedule, repeats=12).time_mean
    promised = schedule | {"objective": "waste", "slack_percent": mean + beyond_percent}
    checked = kd.validate(sweep, promised, repeats=12)
    assert checked.verdict == verdict and checked.words().endswith(f" %); {checked.limit}")
    assert checked.limit.endswith(verdict) and kd.validate(sweep, promised, repeats=1).verdict is None
    page = kd.write_page(tmp_path / "page.html", sweep.profile, promised, checked).read_text()
    assert f"Of the time limit: {checked.limit}." in page


def test_the_page_has_the_answer_every_kernel_and_says_that_it_is_simulated(sweep, schedule, tmp_path):
    checked = kd.validate(sweep, schedule, repeats=2)
    page = kd.write_page(tmp_path / "page.html", sweep.profile, schedule, checked).read_text()
    claimed = f"claimed {schedule['energy_change_percent']:+.2f} %".replace("-", "\N{MINUS SIGN}")
    assert claimed in page and "simulated" in page and "Measured again 2 times" in page
    assert "Of the time limit" not in page, "it has none"
    said = checked.words().removeprefix("measured again 2 times: ")  # in the terminal: the same numbers on the page
    for each in said.split(", "):
        assert each.replace("-", "\N{MINUS SIGN}") in page, each
    assert all(name in page for name in schedule["targets"])
    shares = [float(own) for own in re.findall(r'data-value="([-0-9.e]+)"', page)]
    assert shares
    # shares of the saving, one a row, add up to all of it in the whole table
    table = page.partition('data-table="kernels_by_saving"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.S)
    values = [re.findall(r'data-value="([^"]*)"', row) for row in rows]
    assert sum(float(row[5]) for row in values) == pytest.approx(100)
    assert [float(row[5]) for row in values] == sorted((float(row[5]) for row in values), reverse=True)


def test_a_plot_marks_the_chosen_pair(sweep, schedule, cut_off):
    drawn = kd.plot(sweep.profile, "forward_gelu", [schedule])
    assert "forward_gelu" in drawn.labels.title and "simulated" in drawn.labels.subtitle
    assert "time over auto (logarithmic" in drawn.labels.x and "(negative: saved)" in drawn.labels.y
    assert cut_off(drawn) == []
    chosen = schedule["targets"]["forward_gelu"]
    mark = drawn.data[
        (drawn.data.core_mhz.fillna(0) == (chosen["core_mhz"] or 0))
        & (drawn.data.mem_mhz.fillna(0) == (chosen["mem_mhz"] or 0))
    ].iloc[0]
    # drawn last, over the points
    offsets = drawn.draw().axes[0].collections[-1].get_offsets()
    assert len(offsets) == 1
    assert offsets[0].tolist() == pytest.approx([mark.log_time, mark.energy_change_percent])
    with pytest.raises(kd.InputError, match="no target 'gelu'"):
        kd.plot(sweep.profile, "gelu")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda folder: kd.simulate("nvml:0", folder), "nvml:0 is a real GPU"),
        (lambda folder: kd.simulate("gtx_1", folder), "gtx_1"),
        (lambda folder: kd.simulate("h200_sxm", folder, core_mhz=[1]), "1"),
        (lambda folder: kd.simulate("h200_sxm", folder, batch=0), "batch = 0"),
    ],
)
def test_a_sweep_that_cannot_be_is_one_line(tmp_path, call, named):
    with pytest.raises(kd.InputError, match=named) as refused:
        call(tmp_path)
    assert "\n" not in str(refused.value)


def test_repeats_are_bounded(sweep, schedule):
    with pytest.raises(kd.InputError, match="repeats = 0"):
        kd.validate(sweep, schedule, repeats=0)


@pytest.mark.slow
def test_a_study_by_clock_gives_a_schedule_for_each_limit_that_its_walk_has_shown(tmp_path):
    sweep = kd.simulate("h200_sxm", tmp_path, batch=8, core_mhz=[1095, 1500, 1980], mem_mhz=[], auto_repeats=1)
    swept, lines = sweep.profile.read_bytes(), []
    found = kd.by_clock(sweep, [5, 0], say=lines.append)
    assert list(found) == [0, 5]
    strict, relaxed = found.values()
    assert relaxed["energy_change_percent"] < strict["energy_change_percent"] <= 0
    for limit, schedule in found.items():
        assert schedule["slack_percent"] == limit and schedule["walk"]["time_bound_percent"] <= limit
        checked = kd.validate(sweep, schedule, repeats=3)
        assert checked.time_mean < limit + 0.3 and "by data that did not choose it" in kd.summary(schedule)
        assert checked.verdict == "does not contradict" and checked.limit.endswith("does not contradict this")
        # near a power cap a claim is optimistic: of kernels that the cap holds alone the luckiest are chosen
        assert checked.energy_mean == pytest.approx(schedule["energy_change_percent"], abs=2.5)
    # it has a profile of its own, of clocks that the sweep lacks, and the page holds
    profile = tmp_path / api.BY_CLOCK
    rows = pd.DataFrame(kd.load_profile(profile))
    assert set(rows.core_mhz.dropna()) - {1095, 1500, 1980} and sweep.profile.read_bytes() == swept
    assert kd.write_page(tmp_path / "page.html", profile, relaxed).is_file()
    assert lines[0].startswith("session 1: auto-auto: ") and lines[-1].startswith("walk: pass-slack5: ")
    # what is there is not measured again
    again: list[str] = []
    assert kd.by_clock(sweep, [5, 0], say=again.append) == found and again == lines


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"minutes": 0}, "minutes = 0: expected a number > 0; choose\\(\\) needs none"),
        ({"minutes": float("nan")}, "minutes = nan: expected a number > 0"),
        ({"over_percent": 51}, "over_percent = 51: expected a number from 0.001 to 50"),
        ({"limits_percent": [0, -1]}, r"limits_percent = \[0, -1\]: expected at least one number, each 0 or more"),
        ({"limits_percent": []}, r"limits_percent = \[\]: expected at least one number"),
    ],
)
def test_a_study_by_clock_that_cannot_be_is_one_line(sweep, options, said):
    with pytest.raises(kd.InputError, match=f"by_clock: {said}") as refused:
        kd.by_clock(sweep, **options)
    assert "\n" not in str(refused.value) and not (sweep.profile.parent / "by_clock.json").exists()


# --- the commands that stand on it ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_leaves_a_schedule_that_was_measured_again_and_its_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--gpu", "h200_sxm", "--repeats", "2"]) == 0
    said = capsys.readouterr().out
    assert (
        "measured (simulated): 46 kernels" in said and "measured again 2 times" in said and "demo/report.html" in said
    )
    schedule = json.loads((tmp_path / "demo/schedule.json").read_text())
    assert f"{abs(schedule['energy_change_percent']):.2f} % less energy" in said
    assert main(["report", "demo/by_clock.parquet", "demo/schedule.json", "-o", "again.html"]) == 0
    assert (tmp_path / "again.html").is_file()
    capsys.readouterr()
    words = ["--scope", "local", "--objective", "edp", "--json", "-o", "s.json"]
    assert main(["choose", "demo/profile.parquet", *words]) == 0
    answer = json.loads(capsys.readouterr().out)
    chosen = json.loads((tmp_path / "s.json").read_text())
    assert answer["schema"] == "kernel-dvfs/answer/1" and answer["slack_percent"] is None
    assert answer["simulated"] and answer["energy_change_percent"] == chosen["energy_change_percent"]
    assert main(["report", "demo/profile.parquet", "s.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        **{"schema": "kernel-dvfs/page/1", "page": "demo/report.html"},
        "missing": [],
    }


def test_a_package_that_is_not_installed_is_named_with_the_extra_that_brings_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "ortools", None)
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    for name in [own for own in sys.modules if own.startswith("kernel_dvfs_pipeline")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "s.csv").write_text("stage,instruction,core_mhz,mem_mhz,time_s,energy_j\n")
    words = ["pipeline", "plan", str(tmp_path / "s.csv"), "--blocking-w", "1", "--microbatches", "2", "--time", "1"]
    assert main([*words, "-o", str(tmp_path / "p.json")]) == 2
    assert capsys.readouterr().err == "error: this needs ortools: pip install 'kernel-dvfs[solver]'\n"


def test_what_is_shipped_is_what_lies_at_the_top(root):
    from kernel_dvfs import shipped

    assert shipped.CONFIG.read_text() == (root / "config.yaml").read_text()
    assert shipped.SCHEMA.read_text() == (root / "workflow/schemas/config.schema.yaml").read_text()
    assert root == shipped.WORKFLOW
    beside = shipped.CONFIG.parent
    for name in (
        "Snakefile",
        "workflow/rules/common.smk",
        "workflow/report/workflow.rst",
        "profiles/default/profile.yaml",
    ):
        assert (beside / name).read_text() == (root / name).read_text()
    assert (shipped.NATIVE / "CMakeLists.txt").read_text() == (root / "native/CMakeLists.txt").read_text()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            {"status": "infeasible", "energy_change_percent": None, "targets": {}},
            "schedule: status is infeasible: it holds no choice",
        ),
        ({"status": "infeasible"}, "schedule: status is infeasible: it holds no choice"),
        ({"targets": []}, r"schedule: targets is \[\], expected a group of fields: it holds no"),
        ({"gpu": None}, "schedule: gpu is None, expected a group of fields"),
        ({"granularity": "section"}, "schedule: granularity is 'section', expected one of kernel, pass"),
    ],
)
def test_a_schedule_that_is_no_choice_is_one_line_everywhere(sweep, schedule, tmp_path, change, named):
    broken = schedule | change
    calls = (
        lambda: kd.summary(broken),
        lambda: kd.validate(sweep, broken),
        lambda: kd.write_page(tmp_path / "p.html", sweep.profile, broken),
    )
    for call in calls:
        with pytest.raises(kd.InputError, match=named):
            call()
    with pytest.raises(kd.InputError, match="schedule: proof is missing: it holds no choice"):
        kd.summary({name: value for name, value in schedule.items() if name != "proof"})
    assert not (tmp_path / "p.html").exists()


def test_a_schedule_of_another_profile_is_refused(sweep, schedule, tmp_path):
    (tmp_path / "t.csv").write_text("kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto\na,,,1,2,1\na,900,5000,1,1,0\n")
    foreign = kd.choose(str(kd.import_table(tmp_path / "t.csv", tmp_path / "t.parquet")))
    with pytest.raises(kd.InputError, match="weights raw are of no iteration"):
        kd.validate(sweep, foreign)
    with pytest.raises(kd.InputError, match="the schedule is not of gpt3-xl"):
        kd.validate(sweep, foreign | {"weights": "counts"})
    with pytest.raises(kd.InputError, match="give the profile that it was chosen from"):
        kd.write_page(tmp_path / "p.html", sweep.profile, foreign)
    with pytest.raises(kd.InputError, match="give the profile that it was chosen from"):
        kd.write_page(tmp_path / "p.html", sweep.profile, schedule | {"energy_change_percent": -50.0})


def test_weights_that_make_no_iteration_are_said(sweep, tmp_path):
    raw = kd.choose(str(sweep.profile), weights="raw")
    assert "each kernel launched once, against auto" in kd.summary(raw)
    equal = kd.choose(str(sweep.profile), weights="equal-time")
    page = kd.write_page(tmp_path / "p.html", sweep.profile, equal).read_text()
    assert "energy_at_auto_j" not in page and "share_of_the_saving_percent" in page


def test_a_slack_that_is_no_number_is_refused_and_one_like_a_fraction_is_told(sweep, capsys):
    for bad in ("2", None, True):
        with pytest.raises(kd.InputError, match=r"slack_percent = .*: expected a number of percent, such as 2"):
            kd.choose(str(sweep.profile), slack_percent=bad)
    with pytest.warns(UserWarning, match="a slack of 0.02 is 0.02 percent of the time; for 2 % give 2"):
        kd.choose(str(sweep.profile), slack_percent=0.02)
    assert main(["choose", str(sweep.profile), "--slack", "0.02"]) == 0
    assert "note: a slack of 0.02 is 0.02 percent" in capsys.readouterr().err
    assert main(["choose", str(sweep.profile), "--slack", "0.6"]) == 0
    assert "a slack of" not in capsys.readouterr().err


def test_a_plot_without_plotnine_is_refused_with_what_to_install(sweep, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotnine", None)  # as Python has it of a module that cannot be imported
    with pytest.raises(kd.InputError, match=r"plot: this needs plotnine: pip install .kernel-dvfs.figures"):
        kd.plot(sweep.profile, "fwd_qkv")
