"""Each table and figure says of itself what rules, commands, pages and docs need to know."""

import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_dvfs import shipped
from kernel_dvfs.cli import output as command
from kernel_dvfs.layout import PUBLISHED, RELIED_ON, STRICT
from kernel_dvfs.outputs import Output, PlannedOutput
from kernel_dvfs.plan.asked import Study
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.step import StepSource
from kernel_dvfs.registry import outputs
from kernel_dvfs.report import comparison

OUTPUTS = outputs("gpu")
ALL = OUTPUTS | comparison.OUTPUTS
SHIPPED = load(Path(__file__).parents[2] / "config.yaml")


def study(kind, **more):
    """A study of the shipped configuration on such a GPU, planned by hand."""
    options = SHIPPED | {"clocks": "lock", "model": "gpt3-xl"} | more.pop("options", {})
    folder = f"results/{kind}-toy/toy-b40-tp1"
    common = {"gpu": f"{kind}-toy", "workload": "toy-b40-tp1", "folder": folder, "title": "Toy"}
    return Study(kind=kind, options=options, schedules=[STRICT, "kernel-global-edp"], **common, **more)


SWEPT = {"passes": ("forward",), "batches": (40, 20), "degrees": (1, 2), "omitted": (((630, 405), "it folds"),)}
SIMULATED = study("simulated", tensor_energy_pj=0.9, tensor_energies_pj=(0.5, 2.2), **SWEPT)
REAL = study("nvml", locked=("gemm",), **SWEPT)
TABLE = study("table")
AUTO_ONLY = study("nvml", options={"clocks": "auto-only"}, passes=("forward",))


def of_models(kind):
    return {name for name, each in OUTPUTS.of(kind).items() if each.workload != "step"}


def made(kind, plan):
    return set(OUTPUTS.of(kind, plan))


def test_reading_what_they_say_imports_nothing_heavy(root):
    code = (
        "import sys; from kernel_dvfs.registry import outputs; from kernel_dvfs.report import comparison;"
        "assert len(outputs('gpu') | comparison.OUTPUTS) >= 22;"
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


def test_a_simulated_study_of_the_papers_model_makes_all_but_what_needs_a_real_gpu():
    assert made("table", SIMULATED) == of_models("table") - {"baseline", "locking", "passes"}
    assert made("figure", SIMULATED) == of_models("figure")


def test_a_captured_step_has_its_own_tables_and_none_that_speak_of_a_model():
    step = StepSource("train.py", "make_step", "step-train-make-step", "train.py:make_step")
    found = made("table", study("nvml", step=step, **SWEPT | {"batches": (), "degrees": ()}))
    own = {name for name, each in OUTPUTS.of("table").items() if each.workload == "step"}
    at_auto = {"step_kernels", "step_totals", "step_check", "step_limits", "step_boards"}
    assert own == at_auto | {"step_saving"} and own <= found
    assert not {name for name, each in OUTPUTS.of("table").items() if each.workload == "model"} & found
    auto_only = study("nvml", step=step, options={"clocks": "auto-only"})
    assert made("table", auto_only) == {"baseline", "passes", *own} - {"step_saving"}


def test_a_real_gpu_has_no_unknown_tensor_core_energy():
    assert made("table", REAL) == of_models("table") - {"tensor_energy"}


def test_a_table_of_measurements_is_chosen_from_and_no_more():
    assert made("table", TABLE) == {"kernel_clocks", "chosen_clocks", "relaxed", "strategies"}
    assert made("figure", TABLE) == {"fig2_desirability", "fig5_kernels", "fig6_relaxed_waste"}


def test_auto_clocks_alone_give_their_costs():
    assert made("table", AUTO_ONLY) == {"baseline", "passes"}
    assert made("figure", AUTO_ONLY) == {"fig5_kernels"}


@pytest.mark.parametrize("model", ["llama2-7b", "captured"])
def test_the_papers_claims_are_checked_on_the_papers_models_only(model):
    other = dataclasses.replace(SIMULATED, options=SIMULATED.options | {"model": model})
    assert made("table", SIMULATED) - made("table", other) == {"claims"}


def test_claims_are_made_from_all_other_tables_but_those_of_what_is_relied_on():
    inputs = OUTPUTS["table", "claims"].made_from(SIMULATED)
    others = made("table", SIMULATED) - {"claims", "chosen_clocks", "headline", "deployable"}
    assert {path for path in inputs if "/tables/" in path} == {
        f"{SIMULATED.folder}/tables/{name}.json" for name in others
    }


def procedures_of(path):
    """The procedures that clocks were chosen by in an input: a schedule, what measured one again, a table of either."""
    part, _, name = path.split("/", 3)[3].partition("/")  # below results/<gpu>/<workload>
    if part == "schedules":
        return {PUBLISHED if name.startswith("published/") else RELIED_ON}
    if part == "measurements" and name.startswith("validation"):
        return {PUBLISHED if name.startswith("validation-published-") else RELIED_ON}
    if part == "variants" or name.startswith(("batch-", "tp-")):
        return {PUBLISHED}
    return {OUTPUTS["table", Path(name).stem].procedure} - {""} if part == "tables" else set()


@pytest.mark.parametrize("plan", [SIMULATED, REAL, TABLE, AUTO_ONLY], ids=lambda plan: f"{plan.kind}-{plan.is_chosen}")
def test_no_table_figure_or_claim_is_made_from_both_procedures(plan):
    """Inputs are all that one may read (test_results.py), so no function can mix what it does not declare."""
    found = {output: set().union(*map(procedures_of, output.made_from(plan))) for output in OUTPUTS.made_by(plan)}
    assert {output.name: read for output, read in found.items() if not read <= {output.procedure}} == {}
    if plan.is_chosen:
        assert set().union(*found.values()) == {PUBLISHED, RELIED_ON}


@pytest.mark.parametrize("plan", [SIMULATED, REAL, TABLE, AUTO_ONLY], ids=lambda plan: f"{plan.kind}-{plan.is_chosen}")
def test_each_is_given_the_options_that_it_takes(plan):
    for name, output in OUTPUTS.of("table", plan).items():
        command.checked(output, json.loads(PlannedOutput(output, plan).options))
        outside = [path for path in output.made_from(plan) if not path.startswith("results/")]
        assert outside == (
            [os.path.relpath(shipped.POSTERIOR_CLAIMS)] if (name, plan.kind) == ("claims", "simulated") else []
        ), name
    tables = {f"{plan.folder}/tables/{name}.json" for name in made("table", plan)}
    for name, output in OUTPUTS.of("figure", plan).items():
        assert set(output.made_from(plan)) <= tables, name


def test_one_that_is_edited_has_another_digest_and_no_other_has():
    def first(study):
        """One."""

    def second(study):
        """Two."""

    about = {"kind": "table", "name": "t", "caption": "c"}
    digests = [Output(make=make, **about).digest for make in (first, second, first)]
    assert digests[0] == digests[2] != digests[1]
    assert Output(make=first, **about | {"caption": "d"}).digest != digests[0], "what a constant puts into a caption"
    # captions stand above their functions, so they count
    assert "@OUTPUTS.table(" in inspect.getsource(OUTPUTS["table", "relaxed"].make)
    assert len({each.digest for each in OUTPUTS.values()}) == len(OUTPUTS)
