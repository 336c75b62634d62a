"""Each table and figure says of itself what rules, commands, pages and docs need to know."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_dvfs.cli.table import _read
from kernel_dvfs.layout import STRICT
from kernel_dvfs.outputs import FIGURE_FORMATS, modules, outputs
from kernel_dvfs.plan.asked import Study
from kernel_dvfs.plan.step import StepSource
from kernel_dvfs.plan.study import load
from kernel_dvfs.report import comparison, figures, tables

ALL = outputs(tables) | outputs(figures) | outputs(comparison)
SHIPPED = load(Path(__file__).parents[2] / "config.yaml")


def study(kind, **more):
    """A study of the shipped configuration on such a GPU, planned by hand."""
    options = SHIPPED | {"clocks": "lock", "model": "gpt3-xl"} | more.pop("options", {})
    folder = f"results/{kind}-toy/toy-b40-tp1"
    common = {"gpu": f"{kind}-toy", "workload": "toy-b40-tp1", "folder": folder, "title": "Toy"}
    return Study(kind=kind, options=options, schedules=[STRICT, "kernel-global-edp"], **common, **more)


SWEPT = {"passes": ("forward",), "batches": (40, 20), "degrees": (1, 2), "omitted": (((630, 405), "it folds"),)}
AXES = {"tensor_energy_pj": [0.5, 2.2], "gemm_traffic": [1, 4], "auto_core_mhz": [1950]}
SIMULATED = study("simulated", tensor_energy_pj=0.9, tensor_energies_pj=(0.5, 2.2), headline_axes=AXES, **SWEPT)
REAL = study("nvml", locked=("gemm",), **SWEPT)
TABLE = study("table")
AUTO_ONLY = study("nvml", options={"clocks": "auto-only"}, passes=("forward",))


def of_models(package):
    return {name for name, each in outputs(package).items() if each.workload != "step"}


def test_reading_what_they_say_imports_nothing_heavy(root):
    code = (
        "import sys; from kernel_dvfs.outputs import outputs;"
        "from kernel_dvfs.report import comparison, figures, tables;"
        "assert len(outputs(tables) | outputs(figures) | outputs(comparison)) >= 22;"
        "print(*sorted({'pandas', 'plotnine', 'numpy', 'pyarrow', 'scipy', 'ortools'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root / "workflow", capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_each_says_what_it_is():
    for name, output in ALL.items():
        assert output.caption and output.title and output.text, name
        assert "\n" not in output.caption, name
        # the report of Snakemake takes both for reStructuredText
        assert not re.search(r"[*`|]|\w_(\W|$)", output.caption + output.text), name
    assert all(each.formats == FIGURE_FORMATS for each in outputs(figures).values())
    assert all("csv" in each.formats for each in outputs(tables).values())


def test_a_simulated_study_of_the_papers_model_makes_all_but_what_needs_a_real_gpu():
    assert set(SIMULATED.tables()) == of_models(tables) - {"baseline", "locking", "passes"}
    assert set(SIMULATED.figures()) == of_models(figures)


def test_a_captured_step_has_its_own_tables_and_none_that_speak_of_a_model():
    step = StepSource("train.py", "make_step", "step-train-make-step")
    made = set(study("nvml", step=step, **SWEPT | {"batches": (), "degrees": ()}).tables())
    own = {name for name, each in outputs(tables).items() if each.workload == "step"}
    assert own == {"step_kernels", "step_totals", "step_check", "step_saving"} and own <= made
    assert not {name for name, each in outputs(tables).items() if each.workload == "model"} & made
    auto_only = study("nvml", step=step, options={"clocks": "auto-only"})
    assert set(auto_only.tables()) == {"baseline", "passes", *own} - {"step_saving"}


def test_a_real_gpu_has_no_unknown_tensor_core_energy():
    assert set(REAL.tables()) == of_models(tables) - {"tensor_energy", "headline_band"}
    assert "headline_map" not in REAL.figures()


def test_a_table_of_measurements_is_chosen_from_and_no_more():
    assert TABLE.tables() == ["kernel_clocks", "relaxed", "strategies"]
    assert TABLE.figures() == ["fig2_desirability", "fig5_kernels", "fig6_relaxed_waste"]


def test_auto_clocks_alone_give_their_costs():
    assert AUTO_ONLY.tables() == ["baseline", "passes"]
    assert AUTO_ONLY.figures() == ["fig5_kernels"]


@pytest.mark.parametrize("model", ["llama2-7b", "captured"])
def test_the_papers_claims_are_checked_on_the_papers_models_only(model):
    other = dataclasses.replace(SIMULATED, options=SIMULATED.options | {"model": model})
    assert set(SIMULATED.tables()) - set(other.tables()) == {"claims"}


def test_claims_are_made_from_all_other_tables():
    inputs = outputs(tables)["claims"].inputs(SIMULATED)
    assert {f"{SIMULATED.folder}/tables/{name}.csv" for name in SIMULATED.tables() if name != "claims"} < set(inputs)
    assert not any(path.endswith("claims.csv") for path in inputs)


@pytest.mark.parametrize("plan", [SIMULATED, REAL, TABLE, AUTO_ONLY], ids=lambda plan: f"{plan.kind}-{plan.is_chosen}")
def test_each_is_given_the_options_that_it_takes(plan):
    found = modules(tables)
    for name in plan.tables():
        output = found[name].OUTPUT
        _read(name, json.dumps(output.options(plan)), found[name].make)  # as the command reads them
        assert all(path.startswith("results/") for path in output.inputs(plan)), name
    made = {f"{plan.folder}/tables/{name}.csv" for name in plan.tables()} | {plan.headline_map}
    for name in plan.figures():
        assert set(outputs(figures)[name].inputs(plan)) <= made, name
