"""Each table and figure says of itself what rules, commands, pages and docs need to know."""

import dataclasses
import re
import subprocess
import sys
from dataclasses import dataclass, field
from inspect import signature

import pytest

from kernel_dvfs.layout import PASS_STRICT, STRICT
from kernel_dvfs.outputs import FIGURE_FORMATS, modules, outputs
from kernel_dvfs.report import comparison, figures, tables

ALL = outputs(tables) | outputs(figures) | outputs(comparison)


@dataclass
class Plan:
    """A study as a configuration plans it (plan.study.Study), as far as tables and figures ask."""

    kind: str = "simulated"
    is_chosen: bool = True
    is_compared: bool = True
    has_passes: bool = True
    reoptimised: bool = True
    repeats: int = 10
    folder: str = "results/sim-toy/toy-b40-tp1"
    workload: str = "toy-b40-tp1"
    locked: list = field(default_factory=list)
    batches: list = field(default_factory=lambda: [40, 20])
    degrees: list = field(default_factory=lambda: [1, 2])
    schedules: list = field(default_factory=lambda: [STRICT, "kernel-global-edp"])
    pass_schedules: list = field(default_factory=lambda: [PASS_STRICT])
    headline: list = field(default_factory=lambda: [STRICT, PASS_STRICT])
    omitted: list = field(default_factory=lambda: [((630, 405), "it folds")])
    variants: dict = field(default_factory=dict)
    tensor_energies_pj: list = field(default_factory=lambda: [1.0, 3.6])
    tensor_energy_pj: float = 2.2
    options: dict = field(default_factory=lambda: {"model": "gpt3-xl", "skip_capped": True})

    @property
    def is_real(self):
        return self.kind == "nvml"

    def schedule(self, name):
        return f"{self.folder}/schedules/{name}.json"

    def schedule_files(self):
        return [self.schedule(name) for name in self.schedules]

    def validation(self, names):
        return [f"{self.folder}/measurements/validation-{name}/repeat-0.json" for name in names]

    def carried(self, kind):
        return [f"{self.folder}/measurements/{kind}-20/gemm.json"]

    def chosen_again(self, kind):
        return [f"{self.folder}/variants/{kind}-20/schedule.json"]

    def setup_digests(self, kind):
        return {"20": f"digest of {kind}"}

    def elsewhere(self, workload):
        return [f"results/other/{workload}/profile.parquet"]

    def tables(self):
        return [name for name, each in outputs(tables).items() if each.made_by(self)]

    def figures(self):
        return [name for name, each in outputs(figures).items() if each.made_by(self)]


SIMULATED = Plan()
REAL = Plan(kind="nvml", locked=["gemm"])
TABLE = Plan(kind="table", is_compared=False, has_passes=False, headline=[], batches=[], degrees=[], options={})
AUTO_ONLY = dataclasses.replace(REAL, is_chosen=False, is_compared=False, headline=[], locked=[])


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
    assert set(SIMULATED.tables()) == set(outputs(tables)) - {"baseline", "locking", "passes"}
    assert SIMULATED.figures() == sorted(outputs(figures))


def test_a_real_gpu_has_no_unknown_tensor_core_energy():
    assert set(REAL.tables()) == set(outputs(tables)) - {"tensor_energy"}


def test_a_table_of_measurements_is_chosen_from_and_no_more():
    assert TABLE.tables() == ["kernel_clocks", "relaxed", "strategies"]
    assert TABLE.figures() == ["fig2_desirability", "fig5_kernels", "fig6_relaxed_waste"]


def test_auto_clocks_alone_give_their_costs():
    assert AUTO_ONLY.tables() == ["baseline", "passes"]
    assert AUTO_ONLY.figures() == ["fig5_kernels"]


@pytest.mark.parametrize("model", ["llama2-7b", "captured"])
def test_the_papers_claims_are_checked_on_the_papers_models_only(model):
    other = dataclasses.replace(SIMULATED, options={"model": model})
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
        signature(found[name].make).bind("results", **output.options(plan))
        assert all(path.startswith("results/") for path in output.inputs(plan)), name
    made = {f"{plan.folder}/tables/{name}.csv" for name in plan.tables()}
    for name in plan.figures():
        assert set(outputs(figures)[name].inputs(plan)) <= made, name
