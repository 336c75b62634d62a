"""A captured step in the configuration: named in three ways, refused in one line."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from listed_board import known

from kernel_dvfs.plan import config as configuration
from kernel_dvfs.plan.step import step_source
from kernel_dvfs.plan.study import in_minutes, plan, planned_s
from kernel_dvfs.workload.step import read
from kernel_dvfs.workload.step_workload import of_step
from kernel_dvfs_clocks.errors import InputError

RECORD = Path(__file__).resolve().parents[1] / "workload/steps/hand_made.json"


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("def make_step(): ...\n")
    (tmp_path / "step.json").write_bytes(RECORD.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(config, root, here):
    """The line that a changed configuration is refused with."""

    def line(**changed):
        values = config(**changed)
        with pytest.raises(InputError) as error:
            configuration.check(values, root / "workflow/schemas/config.schema.yaml")
            plan(values, str(here / "results"))
        assert "\n" not in str(error.value) and str(error.value).startswith("config: ")
        return str(error.value)

    return line


def test_a_step_is_a_function_of_a_file_or_a_record_and_names_its_folder(here):
    assert step_source("model") is None
    named = step_source("step:train.py:make_step")
    assert (named.file, named.function, named.name) == ("train.py", "make_step", "step-train-make-step")
    assert not named.is_recorded and named.called == "train.py:make_step"
    assert step_source({"step": "train.py:make_step", "name": "b8"}).name == "step-b8"
    record = step_source("step:step.json")
    assert record.is_recorded and record.name == "step-step"


@pytest.fixture
def board(here):
    """A real GPU, as the configuration names it; what is known of it lies in the results folder."""
    return known(here / "results")


def test_the_code_that_a_gpu_runs_is_the_configuration_s_and_never_the_record_s(here, refused, config, board):
    record = json.loads((here / "step.json").read_text()) | {"source": "evil.py:run"}
    (here / "step.json").write_text(json.dumps(record))
    named = step_source({"step": "step.json", "code": "train.py:make_step"})
    assert named.is_recorded and named.code == "train.py:make_step"
    assert (
        step_source("step:train.py:make_step").code == "train.py:make_step" and step_source("step:step.json").code == ""
    )
    line = refused(workload="step:step.json", gpu=board)
    assert "a record does not say which code a GPU runs" in line and "code: FILE.py:FUNCTION" in line
    made = plan(config(workload={"step": "step.json", "code": "train.py:make_step"}, gpu=board), str(here / "results"))
    setup = json.loads(made.setup.text)
    assert setup["workload"]["step"]["code"] == "train.py:make_step"


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("evil.py:run", "evil.py: no such file"),
        ("train.py", "names no function"),
        ("train.py:a b", "names no function"),
    ],
)
def test_code_that_is_not_there_is_refused(here, code, named):
    with pytest.raises(InputError, match=named):
        step_source({"step": "step.json", "code": code})


def test_the_record_that_a_study_made_leads_back_to_its_folder(here):
    folder = here / "results/gpu/step-train-make-step"
    folder.mkdir(parents=True)
    for name in ("step.json", "step-measured.json"):
        (folder / name).write_bytes(RECORD.read_bytes())
        assert step_source(f"step:results/gpu/step-train-make-step/{name}").name == "step-train-make-step"


@pytest.mark.parametrize(
    ("workload", "named"),
    [
        ("train.py:make_step", ["workload", "step:FILE.py:FUNCTION"]),
        ("step:train.py", ["no function of a Python file", "step:FILE.py:FUNCTION"]),
        ("step:train.py:make step", ["no function of a Python file"]),
        ("step:other.py:make_step", ["other.py: no such file"]),
        ("step:other.json", ["other.json: no such file"]),
        ({"step": "step.json", "name": "a/b"}, ["workload", "a/b", "name"]),
        ({"name": "x"}, ["workload"]),
        ("gpt4", ["workload", "a GPT-3 model by name"]),
        ("gpt3-xxl", ["workload", "a model by name"]),
    ],
)
def test_what_names_no_step_is_refused(refused, workload, named):
    line = refused(workload=workload, gpu="h200_sxm")
    assert all(word in line for word in named), line


def test_a_simulated_gpu_captures_nothing_and_the_remedy_says_what_does(refused):
    line = refused(workload="step:train.py:make_step", gpu="h200_sxm")
    assert "runs no step" in line and "kernel-dvfs capture train.py:make_step -o step.json" in line


def test_a_step_of_one_gpu_is_not_forecast_on_another(refused):
    line = refused(workload="step:step.json", gpu="rtx_3080_ti")
    assert "captured on NVIDIA H200" in line and "RTX 3080 Ti is another GPU" in line


def test_a_table_has_no_step(refused, here):
    (here / "mine.csv").write_text("kernel,core_mhz,time_s,energy_j\n")
    line = refused(workload="step:step.json", gpu={"kind": "table", "path": "mine.csv"})
    assert "a table of measurements" in line and "workload" in line


def test_a_damaged_record_is_named_with_what_is_wrong(refused, here):
    (here / "step.json").write_text(RECORD.read_text()[:400])
    assert "step.json" in refused(workload="step:step.json", gpu="h200_sxm")


def test_a_forecast_has_no_other_sizes_and_no_unknown_tensor_energy(config, here):
    study = plan(config(workload="step:step.json", gpu="h200_sxm"), str(here / "results"))
    assert study.is_forecast and study.title == "forecast on a simulated H200 SXM, power not measured"
    assert not study.variants and not study.batches and not study.degrees
    assert study.passes == ("forward", "backward", "optimiser", "step") and study.has_passes
    assert not list((here / "results").glob("**/*")), "planning writes nothing"


def test_minutes_are_for_a_step_on_a_real_gpu_at_auto(refused):
    assert "minutes = 10: is for a captured step on a real GPU with clocks: auto-only" in refused(minutes=10)
    assert "minutes = 0" in refused(minutes=0)


def protocol_of(values):
    return {name: values[name] for name in ("warmup_s", "window_s", "windows")}


def test_minutes_buy_so_many_kernels_beside_the_sections(config):
    step = read(RECORD)
    values = configuration.resolved(config(minutes=10))
    assert (values["windows"], values["max_windows"]) == (1, 1)
    # a record: 0.1 s of warm-up, 0.5 until clocks have settled, 2.1 of window, 0.7 for all else
    passes = len(step.passes) + len(step.by_difference)
    between_s = len(step.by_difference)  # a second between the two windows of a difference
    # 10 s for the clocks within the step; of each of two hot kernels two windows so, and 2.5 s to find its rest
    left_s = 600 - 40 - between_s - 10 - 2 * 10.3
    assert in_minutes(step, 10, protocol_of(values)) == (int(left_s / 3.4 - passes), 2, 2.0)
    # 26 s for 5 kernels, without which it is not 96 % of its time, and 5 records of passes: no time for the others
    assert in_minutes(step, 1.1, protocol_of(values)) == (int((66 - 40 - between_s) / 2.4 - passes), 0, 1.0)
    assert in_minutes(step, 0.5, protocol_of(values)) == (1, 0, 0.5)
    # a fifth of what is left beside passes, 103 s, pays the clocks and one of them
    assert (
        in_minutes(step, 2, protocol_of(values)).paced == 0 and in_minutes(step, 2.67, protocol_of(values)).paced == 1
    )
    cool = replace(step, targets=tuple(replace(each, core_mhz=None) for each in step.targets))
    assert in_minutes(cool, 10, protocol_of(values)) == (int((600 - 40 - between_s) / 3.4 - passes), 0, 2.0), (
        "no clock is known"
    )


@pytest.mark.parametrize(("minutes", "kernels"), [(10, 400), (10, 500), (20, 900)])
def test_a_large_step_is_measured_nearly_whole_in_its_minutes(config, minutes, kernels):
    """Planted: times and powers of kernels, of which the planner knows the times, and what each record takes."""
    draw, step = random.Random(kernels), read(RECORD)
    # of an H100's ResNet-50, 11 % of 509 kernels took 60 % of the energy
    times_us = [draw.lognormvariate(2.5, 1.48) for _ in range(kernels)]
    powers_w = [min(700.0, draw.uniform(250, 700) + 6 * time_us**0.5) for time_us in times_us]
    targets = tuple(
        replace(
            replace(step.targets[0], id=f"k{number}", launches=1, time_us=time_us, repeatable="yes", reason=""),
            # two of five are products, which the cap may hold lower alone
            **({} if draw.random() < 0.4 else {"flop": None, "core_mhz": 1700.0}),
        )
        for number, time_us in enumerate(times_us)
    )
    whole = replace(step.whole, time_us=sum(times_us), overlapped=())
    step = replace(step, targets=targets, order=tuple(range(kernels)), nodes=tuple(range(kernels)), whole=whole)
    most, paced, window_s = in_minutes(step, minutes, protocol_of(configuration.resolved(config(minutes=minutes))))
    energies = {each.id: power_w * each.time_us for each, power_w in zip(targets, powers_w)}
    measured = of_step(step, "mine", "step.json", most=most).kernels
    share = sum(energies[each] for each in measured) / sum(energies.values())
    assert share >= 0.94 and len(measured) == min(most, kernels)
    # capture and page; opening; clocks that settle in two to five slices; a window from edge to edge; the job
    spent_s = 100 + draw.uniform(25, 40)
    spent_s += 10 + paced * draw.uniform(1.5, 3.5)
    spent_s += len(step.by_difference) + paced  # between two windows of a difference
    for _ in range(len(measured) + len(step.passes) + len(step.by_difference) + 2 * paced):
        spent_s += draw.choice((0.5, 0.75, 1.0, 1.25)) + 0.1 + window_s + draw.uniform(0, 0.1) + draw.uniform(0.2, 0.6)
    assert spent_s <= 1.2 * 60 * minutes
    hot_us = [each.time_us for each in step.paced]
    assert 0 < paced < len(hot_us) and sum(hot_us[paced:]) <= 0.05 * sum(times_us), "few are hot and alone"
    # with the windows of a whole study too little would be measured
    few = of_step(step, "mine", "step.json", most=int((60 * minutes - 40) / 3.4)).kernels
    assert sum(energies[each] for each in few) / sum(energies.values()) < 0.95 and window_s < 2


@pytest.mark.parametrize(("minutes", "window_s", "paced"), [(10, 2.0, 2), (1.1, 1.0, 0), (1, 0.5, 0)])
def test_a_look_of_some_minutes_says_how_short_its_windows_may_be(board, config, here, minutes, window_s, paced):
    named = {"step": "step.json", "code": "train.py:make_step"}
    study = plan(config(workload=named, gpu=board, clocks="auto-only", minutes=minutes), str(here / "results"))
    told = json.loads(study.setup.text)["measurement"]
    assert (told["window_s"], told["least_periods"], len(study.kernels)) == (window_s, 4, 5)
    hot = [name for name in json.loads(study.setup.text)["targets"]["pass"] if name.startswith("paced_")]
    assert hot == ["paced_nvjet_linear_backward", "paced_nvjet_linear_forward"][:paced]
    # 40 s to open it, then windows, 0.1 s of warm-up, clocks that settle, edges, and the start of a job; of the section
    # that is a difference, and of hot kernels, two windows, a second between them, and of these more
    record_s = window_s + 0.1 + 0.5 + 0.1 + 0.7
    records, more_s = 5 + 4 + paced, (1 + paced) * (record_s + 1) + (10 + 2 * 2.5 if paced else 0)
    assert planned_s(study, records) == pytest.approx(40 + records * record_s + more_s)
    assert planned_s(study, 3) == pytest.approx(40 + 3 * (record_s + more_s / records))
    function = config(workload="step:train.py:make_step", gpu=board, clocks="auto-only", minutes=minutes)
    assert planned_s(plan(function, str(here / "results"))) == pytest.approx(75 + 60 * minutes), "not captured yet"
    whole = plan(config(workload=named, gpu=board, clocks="auto-only"), str(here / "results"))
    assert planned_s(whole, 3) is None
    assert "least_periods" not in json.loads(whole.setup.text)["measurement"]
