"""A new table is one new function: registry, command, plan and page find it, and no second file is touched."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from made_up_study import made_up
from page_reader import Page

from kernel_dvfs_serving.study import write_experiment

pytestmark = pytest.mark.slow

# the worked example of CONTRIBUTING.md
LONGEST_KERNELS = '''\
@OUTPUTS.table(
    "Kernels by their time in an iteration at auto clocks",
    title="Where the time goes",
    text="Time of all launches of a kernel in one iteration, clocks left to the GPU.",
    section="kernels",
    place=3,
    options=lambda plan: {"rows": 10},
)
def longest_kernels(results: Results, rows: int) -> pd.DataFrame:
    """The `rows` kernels that take longest, the longest first: id, time_s (of an iteration, in seconds)."""
    auto = results.profile.query("study == 'kernel' and is_baseline")
    table = auto.assign(id=auto.target, time_s=auto.launches_per_iteration * auto.time_s)
    return table.nlargest(rows, "time_s")[["id", "time_s"]]
'''
WORST_ANCHOR = '''\
@OUTPUTS.table("The published measurement that is met worst", reads=["anchors"], subject=_of("anchors"))
def worst_anchor(study: ServingStudy) -> pd.DataFrame:
    """One row: the anchor with the largest error."""
    found = anchors(study)
    return found.loc[[found.error_percent.abs().idxmax()]]
'''
# {kind of study: (the one file that is edited, what is added at its end)}
ADDED = {
    "gpu": ("kernel_dvfs/report/tables.py", LONGEST_KERNELS),
    "serving": ("kernel_dvfs_serving/report/tables.py", WORST_ANCHOR),
}
# prints what the registry has under a name, and the files that a study of a configuration asks for
ASKED = """\
import json, sys
from kernel_dvfs.outputs import asked_by
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan
from kernel_dvfs.registry import outputs
from kernel_dvfs_serving.study_plan import plan_serving

kind, name, path = sys.argv[1:]
study = {"gpu": plan, "serving": plan_serving}[kind](load(path))
found = outputs(kind)["table", name]
asked = [each for each in asked_by(outputs(kind), study).values() if each.output is found]
print(json.dumps({"caption": found.caption, "files": [each.files for each in asked],
                  "inputs": [each.inputs for each in asked], "options": [each.options for each in asked]}))
"""


@pytest.fixture(scope="module")
def run(root, tmp_path_factory):
    """`run(*words)` starts Python on a copy of workflow/ with both tables in it, and gives (exit code, out, err)."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(root / "workflow", folder / "workflow", ignore=shutil.ignore_patterns("__pycache__"))
    for path, function in ADDED.values():
        with (folder / "workflow" / path).open("a") as file:
            file.write(f"\n\n{function}")
    environment = os.environ | {"PYTHONPATH": str(folder / "workflow")}

    def started(*words):
        done = subprocess.run(
            [sys.executable, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    return started


@pytest.fixture
def command(run):
    """`command(*words)` is kernel-dvfs of that copy."""
    return lambda *words: run("-m", "kernel_dvfs", *words)


@pytest.fixture
def study(tmp_path):
    return made_up(tmp_path / "sim-toy-1/toy-b40-tp1")


def rows_of(study, name):
    with (study / f"tables/{name}.csv").open() as file:
        return list(csv.DictReader(file))


def asked(run, root, kind, name):
    code, out, err = run("-c", ASKED, kind, name, root / "config.yaml")
    assert code == 0, err
    return json.loads(out)


def test_registry_and_plan_list_it_with_its_files(run, root):
    found = asked(run, root, "gpu", "longest_kernels")
    folder = "results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    assert found == {
        "caption": "Kernels by their time in an iteration at auto clocks",
        "files": [[f"{folder}/tables/longest_kernels.{form}" for form in ("json", "csv", "md", "tex")]],
        "inputs": [[]],
        "options": ['{"rows": 10}'],
    }


def test_the_command_makes_it(command, study):
    code, _, err = command("output", study, "longest_kernels", "--options", '{"rows": 2}')
    assert code == 0, err
    rows = rows_of(study, "longest_kernels")
    assert [row["time_s"] for row in rows] == ["2.371338", "2.2"]
    assert list(rows[0]) == ["id", "time_s", "gpu"]
    title = "Kernels by their time in an iteration"
    assert (study / "tables/longest_kernels.md").read_text().startswith(f"**{title}")
    assert title in (study / "tables/longest_kernels.tex").read_text()
    code, _, err = command("output", study, "longest_kernels", "--options", '{"rows": "all"}')
    assert code == 2 and 'rows is "all", expected a whole number >= 1' in err


def test_the_page_shows_it_in_its_section(command, study):
    assert command("output", study, "longest_kernels", "--options", '{"rows": 3}')[0] == 0
    page, _ = page_of(command, study)
    assert "Where the time goes Time of all launches of a kernel" in page.text
    assert len(page.rows("longest_kernels")) == 3
    html = page.html
    assert html.index('id="kernels"') < html.index('id="table-longest_kernels"') < html.index('id="choosing"')


def test_the_page_misses_it_where_it_was_not_made(command, study):
    page, said = page_of(command, study)
    assert "tables longest_kernels: not made yet" in page.text
    assert "longest_kernels" in said


def test_another_study_s_table_is_found_the_same_way(run, command, root, tmp_path):
    found = asked(run, root, "serving", "worst_anchor")
    (files,), (inputs,) = found["files"], found["inputs"]
    folder = "results/serving/sim-h100-sxm-llama2-70b"
    assert files == [f"{folder}/tables/worst_anchor.{form}" for form in ("json", "csv", "md", "tex")]
    assert inputs == [f"{folder}/experiments/anchors.json"]

    (tmp_path / "experiments").mkdir()
    anchors = [{"setting": name, "published": 100.0, "ours": ours} for name, ours in (("a", 90.0), ("b", 130.0))]
    content = {"subject": "simulated toy", "anchors": anchors}
    write_experiment(tmp_path / "experiments/anchors.json", content)
    code, _, err = command("output", tmp_path, "worst_anchor")
    assert code == 0, err
    (row,) = rows_of(tmp_path, "worst_anchor")
    assert (row["setting"], float(row["error_percent"]), row["gpu"]) == ("b", pytest.approx(30), "simulated toy")


def test_contributing_shows_this_function(root):
    shown = re.findall(r"```python\n(.*?)```", (root / "CONTRIBUTING.md").read_text("utf-8"), re.S)
    assert [text for text in shown if "@OUTPUTS" in text] == [LONGEST_KERNELS]


def page_of(command, study) -> tuple[Page, str]:
    code, _, err = command("report", study, "--without", "baseline,headline,passes,locking")
    assert code == 0, err
    return Page((study / "report.html").read_text("utf-8")), err
