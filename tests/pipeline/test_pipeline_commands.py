"""The pipeline commands: what they write, and one line for what they refuse."""

import contextlib
import csv
import io
import json
import re
import shutil
import subprocess
import sys

import pytest
from PIL import Image

from kernel_dvfs.cli.main import main
from kernel_dvfs.registry import outputs
from kernel_dvfs_clocks.files import sealed_csv, unsealed
from kernel_dvfs_pipeline import planner as planner_module
from kernel_dvfs_pipeline import rounding
from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.schedules import orders
from kernel_dvfs_pipeline.stage_profile import read_stage_profile
from kernel_dvfs_pipeline.study import FILES, KEYS

SHAPE = ("--microbatches", "4", "--blocking-w", "80")


def run(*words) -> int:
    return main([str(word) for word in words])


def test_a_frontier_and_plans_come_from_a_csv_alone(stage_csv, tmp_path, capsys):
    assert run("pipeline", "frontier", stage_csv, *SHAPE, "-o", tmp_path / "f.csv") == 0
    with open(tmp_path / "f.csv", newline="") as file:
        times = [float(row["time_s"]) for row in csv.DictReader(file)]
    middle = (times[0] + times[-1]) / 2
    for asked, value in (("time", middle), ("straggler", middle), ("price", 100), ("energy", 1e9)):
        words = f"--{asked}", value, "--split", "-o", tmp_path / "p.json"
        assert run("pipeline", "plan", stage_csv, *SHAPE, *words) == 0
        plan = json.loads((tmp_path / "p.json").read_text())
        assert plan["asked"] == {asked: value} and plan["time_s"] <= plan["promised_time_s"] <= times[0]
    assert capsys.readouterr().err == ""


def test_frontier_and_plan_say_what_is_saved_at_the_same_time_and_how_well_that_is_known(stage_csv, tmp_path, capsys):
    planner = Planner(read_stage_profile(stage_csv), pipeline_graph("1f1b", 4, 4), 80)
    base = all_max(planner)
    assert run("pipeline", "frontier", stage_csv, *SHAPE, "-o", tmp_path / "f.csv") == 0
    saved = 100 * (1 - float(planner.frontier.energy_at(base.time_ticks)) / base.energy_j())
    told = capsys.readouterr().out
    assert f"at most {saved:.2f} % can be saved at the same time; exact" in told
    assert run("pipeline", "plan", stage_csv, *SHAPE, "--straggler", 1.2 * base.time_s, "-o", tmp_path / "p.json") == 0
    plan = json.loads((tmp_path / "p.json").read_text())
    # all-max waits for the straggler, too
    waits_j = 4 * 80 * (plan["time_s"] - base.time_s)
    saved = 100 * (1 - plan["energy_j"] / (base.energy_j() + waits_j))
    told = capsys.readouterr().out
    assert f": saves {saved:.2f} % at the same time, proven within {100 * plan['gap']:.2f} %" in told
    assert ("kernel-dvfs build --pipeline on" in told) == (plan["search"] == "Python")


def test_a_frontier_that_is_read_back_spares_solving_it_and_another_pipelines_is_refused(
    stage_csv, tmp_path, monkeypatch, refused, pipeline_core
):
    module = rounding.core(pipeline_core)
    monkeypatch.setattr(rounding, "core", lambda results_dir="results": module)
    planner = Planner(read_stage_profile(stage_csv), pipeline_graph("1f1b", 4, 4), 80)
    until_s = 1.13 * all_max(planner).time_s
    bound_j, least_j = float(planner.frontier.cost_at(int(until_s * 1e12))), float(planner.frontier.energy_j.min())
    assert run("pipeline", "frontier", stage_csv, *SHAPE, "-o", tmp_path / "f.csv") == 0

    def solved_again(*_):
        raise AssertionError("the frontier was solved again")

    monkeypatch.setattr(planner_module, "parametric_frontier", solved_again)
    words = "--frontier", tmp_path / "f.csv", "-o", tmp_path / "p.json"
    for asked in (
        ("--straggler", until_s),
        ("--straggler", until_s, "--synchronising-w", 50),
        ("--energy", 1.01 * least_j),
    ):
        assert run("pipeline", "plan", stage_csv, *SHAPE, *asked, *words) == 0
        plan = json.loads((tmp_path / "p.json").read_text())
        assert plan["time_s"] <= plan["promised_time_s"] and 0 <= plan["gap"] < 0.02
        if len(asked) == 2 and asked[0] == "--straggler":
            assert plan["least_effective_energy_j"] == pytest.approx(bound_j, rel=1e-9)
    said = f"{tmp_path / 'f.csv'}: the frontier of another pipeline"
    plan = "pipeline", "plan", stage_csv, "--straggler", until_s, *words
    assert said in refused(*plan, "--microbatches", 4, "--blocking-w", 81)
    assert said in refused(*plan, "--microbatches", 5, "--blocking-w", 80)
    header, first, *rows = unsealed((tmp_path / "f.csv").read_text())
    (tmp_path / "nan.csv").write_text(sealed_csv([header, ["nan", "1", "1", "1"], first, *rows]))
    (tmp_path / "one.csv").write_text(sealed_csv([header, first]))
    for name in ("nan.csv", "one.csv"):
        asked = *plan[:-4], "--frontier", tmp_path / name, *plan[-2:], *SHAPE
        assert f"{name}: the frontier of another pipeline" in refused(*asked)
    assert "nowhere.csv" in refused(*plan[:-4], "--frontier", "nowhere.csv", *plan[-2:], *SHAPE)
    (tmp_path / "cut.csv").write_text((tmp_path / "f.csv").read_text().rpartition("\n")[0].rpartition("\n")[0])
    said = refused(*plan[:-4], "--frontier", tmp_path / "cut.csv", *plan[-2:], *SHAPE)
    assert "cut.csv: was changed since it was written" in said
    # the same numbers, but the stages are not those that the frontier was made of
    other = tmp_path / "other.csv"
    other.write_text(stage_csv.read_text() + "# measured on Monday\n")
    said = refused(*plan[:2], other, *plan[3:], *SHAPE)
    assert f"f.csv: was made of another stages than {other} is now; write it with kernel-dvfs pipeline" in said


def test_parts_of_a_frontier_are_solved_by_jobs_of_their_own_and_joined(
    stage_csv, study_options, tmp_path, monkeypatch, refused, pipeline_core, capsys
):
    module = rounding.core(pipeline_core)
    monkeypatch.setattr(rounding, "core", lambda results_dir="results": module)
    asked = "pipeline", "frontier", stage_csv, *SHAPE
    parts = [tmp_path / f"{part}.csv" for part in (1, 2, 3)]
    for number, path in enumerate(parts, 1):
        assert run(*asked, "--part", f"{number}/3", "-o", path) == 0
    capsys.readouterr()
    assert run(*asked, "--join", *parts, "-o", tmp_path / "f.csv") == 0
    error = re.search(r"proven within ([\d.]+) %", capsys.readouterr().out)
    assert error and float(error[1]) <= 0.1
    assert (
        run(
            "pipeline",
            "plan",
            stage_csv,
            *SHAPE,
            "--no-slowdown",
            "--frontier",
            tmp_path / "f.csv",
            "-o",
            tmp_path / "p",
        )
        == 0
    )

    said = "not all parts of this pipeline's frontier"
    assert said in refused(*asked, "--join", *parts[:2], "-o", tmp_path / "no.csv")
    assert said in refused(
        *asked[:3], "--microbatches", 5, "--blocking-w", 80, "--join", *parts, "-o", tmp_path / "no.csv"
    )
    # where the ends in time are the same, only the digest tells that other energies were solved
    assert run(*asked, "--part", "1/1", "-o", tmp_path / "one.csv") == 0
    assert run(*asked, "--join", tmp_path / "one.csv", "-o", tmp_path / "f.csv") == 0
    other = *asked, "--scale-energy", 0.9995, "--join", tmp_path / "one.csv"
    assert said in refused(*other, "-o", tmp_path / "no.csv")
    whole = parts[1].read_text()
    parts[1].write_text(sealed_csv(unsealed(whole)[:-1]))
    assert said in refused(*asked, "--join", *parts, "-o", tmp_path / "no.csv")
    parts[1].write_text(whole)
    assert "--part: expected a whole number from 1 to 3" in refused(*asked, "--part", "4/3", "-o", tmp_path / "no.csv")
    monkeypatch.setattr(rounding, "core", lambda results_dir="results": None)
    for words in (("--part", "1/3"), ("--join", *parts)):
        assert "need the compiled core" in refused(*asked, *words, "-o", tmp_path / "no.csv")
    assert not (tmp_path / "no.csv").exists()

    # a study likewise
    monkeypatch.setattr(rounding, "core", lambda results_dir="results": module)
    options = json.dumps(study_options | {"name": "made-up"})
    assert run("pipeline", "profile", stage_csv, tmp_path, "--options", options) == 0
    for number in (1, 2):
        assert run("pipeline", "solve", tmp_path, 6, "--frontier-part", f"{number}/2") == 0
    bounds = [tmp_path / f"mb6/bounds-{number}of2.csv" for number in (1, 2)]
    monkeypatch.setattr(planner_module, "parametric_frontier", None)
    assert run("pipeline", "solve", tmp_path, 6, "plans", "--join", *bounds) == 0
    assert (tmp_path / "mb6/frontier.csv").is_file() and (tmp_path / "mb6/plans/split.json").is_file()
    assert said in refused("pipeline", "solve", tmp_path, 4, "plans", "--join", *bounds)


@pytest.mark.parametrize("latency_s", [0, 0.001, 0.1])
def test_a_plan_without_slowdown_needs_no_time_and_keeps_it_with_slow_changes(stage_csv, tmp_path, latency_s):
    planner = Planner(read_stage_profile(stage_csv), pipeline_graph("1f1b", 4, 4), 80)
    words = "--no-slowdown", "--split", "--switch-latency", latency_s, "-o", tmp_path / "p.json"
    assert run("pipeline", "plan", stage_csv, *SHAPE, *words) == 0
    plan, base = json.loads((tmp_path / "p.json").read_text()), all_max(planner)
    assert plan["time_s"] <= plan["promised_time_s"] <= base.time_s
    assert plan["effective_energy_j"] <= base.cost_j and (latency_s == 0.1 or plan["energy_j"] < base.energy_j())
    if latency_s:
        taken_s = float(plan["note"].rpartition("takes ")[2].removesuffix(" s"))
        assert taken_s <= base.time_s * (1 + 1e-9) and f"changes of clocks of {latency_s:g} s" in plan["note"]


def test_a_schedule_comes_from_a_file_too(stage_csv, tmp_path, refused):
    lines = [
        f"{stage},{item.instruction},{item.microbatch}"
        for stage, order in enumerate(orders("gpipe", 4, 4))
        for item in order
    ]
    (tmp_path / "mine.csv").write_text("\n".join(["stage,instruction,microbatch", *lines]))
    for name, words in (("mine.csv", ()), ("gpipe", ("--microbatches", 4))):
        schedule = tmp_path / name if words == () else name
        asked = "--schedule", schedule, *words, "--blocking-w", 80, "-o", tmp_path / f"{name}.f"
        assert run("pipeline", "frontier", stage_csv, *asked) == 0
    assert (tmp_path / "mine.csv.f").read_text() == (tmp_path / "gpipe.f").read_text()
    bad = "pipeline", "frontier", stage_csv, "--blocking-w", 80, "-o", tmp_path / "no.csv"
    assert "--microbatches: " in refused(*bad, "--schedule", tmp_path / "mine.csv", "--microbatches", 4)
    assert "--microbatches is missing" in refused(*bad)
    assert "nowhere.csv" in refused(*bad, "--schedule", "nowhere.csv")


@pytest.mark.slow
def test_a_study_is_made_and_solved(stage_csv, study_options, tmp_path):
    options = json.dumps(study_options | {"name": "made-up"})
    assert run("pipeline", "profile", stage_csv, tmp_path, "--options", options) == 0
    assert run("pipeline", "solve", tmp_path, 6) == 0
    assert (tmp_path / "mb6/plans/split.json").is_file()
    # kernels are not known, so neither are levels
    files = {path.name for path in (tmp_path / "mb6").iterdir()}
    assert files == {*FILES.values(), "plans"} - {"levels.csv"}
    assert run("output", tmp_path, "tables/certificate") == 2  # of 4 microbatches, too


@pytest.mark.slow
def test_a_study_with_constant_work_without_a_clock_has_every_table_and_figure(stage_csv, study_options, tmp_path):
    loads = "".join(f"{stage},load,,,0.02,2,made up\n" for stage in range(4))
    (tmp_path / "mine.csv").write_text(stage_csv.read_text() + loads)
    options = json.dumps(study_options | {"name": "loads", "constant": ["load"], "microbatches": [4]})
    assert run("pipeline", "profile", tmp_path / "mine.csv", tmp_path, "--options", options) == 0
    assert run("pipeline", "solve", tmp_path, 4) == 0
    for name in set(outputs("pipeline").of("table")) - {"levels"}:
        assert run("output", tmp_path, f"tables/{name}") == 0
    assert run("output", tmp_path, "figures/timeline") == 0


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [None, {}, "x y", [[]], -1, True])
def test_an_option_of_the_wrong_type_is_one_line(refused, stage_csv, study_options, tmp_path, key, value):
    if isinstance(study_options[key], str if value == "x y" else bool if value is True else ()):
        pytest.skip("possible")
    options = json.dumps(study_options | {"name": "made-up", key: value})
    said = refused("pipeline", "profile", stage_csv, tmp_path, "--options", options)
    assert re.search(rf"--options: {key}(\[0\])? is .*, expected ", said)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["breakdown", "emulation", "no_straggler", "straggler"])
def test_rows_of_the_paper_are_never_labelled_with_our_gpu(solved_study, name):
    assert run("output", solved_study, f"tables/{name}") == 0
    with open(solved_study / f"tables/{name}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert (row["gpu"] == "simulated A100 SXM, emulated pipeline") == (row["source"] == "ours")
    assert {row["source"] == "ours" for row in rows} == {True, False}


@pytest.mark.parametrize("name", outputs("pipeline").of("table"))
def test_every_table_is_written_and_says_whose_numbers_it_holds(solved_study, name):
    assert run("output", solved_study, f"tables/{name}") == 0
    text = (solved_study / f"tables/{name}.csv").read_text()
    assert "simulated A100 SXM, emulated pipeline" in text and "nan" not in text
    assert "simulated A100 SXM" in (solved_study / f"tables/{name}.md").read_text()


@pytest.fixture(scope="module")
def without_levels(solved_study, tmp_path_factory):
    """(folder with all that can be made of the study, lines on stderr) where levels.csv is missing."""
    folder = shutil.copytree(
        solved_study,
        tmp_path_factory.mktemp("without-levels") / "study",
        ignore=shutil.ignore_patterns("tables", "figures", "levels.csv"),
    )
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert run("output", folder) == 0
    return folder, said.getvalue().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", outputs("pipeline").of("figure"))
def test_every_figure_is_drawn(solved_study, without_levels, name):
    folder, _ = without_levels
    if name == "levels":
        folder = solved_study
        assert run("output", folder, "figures/levels") == 0
    assert (folder / f"figures/{name}.pdf").read_bytes().startswith(b"%PDF")
    with Image.open(folder / f"figures/{name}.png") as image:
        assert image.text["Title"] == f"{name} (simulated A100 SXM, emulated pipeline)"
        darkest, lightest = image.convert("L").getextrema()
        assert darkest < 64 and lightest == 255, "an empty page"


@pytest.mark.slow
def test_without_names_all_is_made_and_what_cannot_be_is_told(without_levels):
    folder, said = without_levels
    without = {"levels"}
    assert {path.stem for path in (folder / "tables").glob("*.tex")} == set(outputs("pipeline").of("table")) - without
    assert {path.stem for path in (folder / "figures").glob("*.pdf")} == set(outputs("pipeline").of("figure")) - without
    assert len(said) == 2 and all(line.startswith("note: left out: ") and "levels.csv" in line for line in said)


@pytest.mark.slow
def test_a_figure_is_the_same_each_time(solved_study, without_levels):
    assert run("output", solved_study, "figures/timeline") == 0
    for form in ("pdf", "png"):
        first, second = (folder / f"figures/timeline.{form}" for folder in (without_levels[0], solved_study))
        assert first.read_bytes() == second.read_bytes()


def test_levels_without_kernels_are_refused(refused, stage_study):
    assert "knows no kernels" in refused("pipeline", "solve", stage_study, 4, "levels")


def test_a_table_of_what_is_not_solved_names_the_file_and_the_command(refused, stage_study):
    said = refused("output", stage_study, "tables/switching")
    assert "mb4/switching.csv: No such file" in said and "kernel-dvfs pipeline solve" in said


@pytest.mark.parametrize(
    ("words", "named"),
    [((4, "plan"), "unknown part plan; allowed: plans"), ((0,), "M: expected a whole number from 1 to 65536")],
)
def test_what_cannot_be_solved_is_one_line(refused, stage_study, words, named):
    assert named in refused("pipeline", "solve", stage_study, *words)


@pytest.mark.parametrize(
    "words", [("measure", "-o", "measured"), ("run", "plan.json", "--iterations", "1", "-o", "c.json")]
)
def test_what_runs_in_a_training_needs_no_solver(words):
    """A Python that has torch seldom has OR-Tools or SciPy: only what plans needs them."""
    code = "import sys\nsys.modules['ortools'] = sys.modules['scipy'] = None\n"
    code += "from kernel_dvfs.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "pipeline", words[0], "train.py", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "torchrun" in done.stderr, done.stderr
