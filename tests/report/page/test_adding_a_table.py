"""A new table is one new module: registry, command and page find it, and nothing else is touched."""

import csv
import re
import sys

import pytest
from made_up_study import made_up
from page_reader import Page

from kernel_dvfs.cli.main import main
from kernel_dvfs.outputs import outputs
from kernel_dvfs.report import tables

NAME = "longest_kernels"
# the worked example of CONTRIBUTING.md
MODULE = '''\
"""The kernels that take most of an iteration's time."""

from kernel_dvfs.outputs import Output

OUTPUT = Output(
    caption="Kernels by their time in an iteration at auto clocks",
    title="Where the time goes",
    text="Time of all launches of a kernel in one iteration, clocks left to the GPU.",
    section="kernels",
    place=3,
    options=lambda plan: {"rows": 10},
)


def make(results, rows: int):
    """The `rows` kernels that take longest, the longest first: id, time_s (of an iteration, in seconds)."""
    auto = results.profile.query("study == 'kernel' and is_baseline")
    table = auto.assign(id=auto.target, time_s=auto.launches_per_iteration * auto.time_s)
    return table.nlargest(rows, "time_s")[["id", "time_s"]]
'''


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The module beside the package's own tables, for the length of a test."""
    folder = tmp_path / "more_tables"
    folder.mkdir()
    (folder / f"{NAME}.py").write_text(MODULE)
    monkeypatch.setattr(tables, "__path__", [*tables.__path__, str(folder)])
    yield outputs(tables)[NAME]
    sys.modules.pop(f"{tables.__name__}.{NAME}", None)
    vars(tables).pop(NAME, None)


@pytest.fixture
def study(tmp_path):
    return made_up(tmp_path / "sim-toy-1/toy-b40-tp1")


def test_the_registry_lists_it_with_its_files(added):
    assert added.formats == ("csv", "md")
    assert added.fits("simulated") and added.fits("nvml") and added.fits("table")
    assert added.inputs(None) == [] and added.options(None) == {"rows": 10}


def test_the_command_makes_it(added, study, capsys):
    assert main(["study", "table", NAME, str(study), "--options", '{"rows": 2}']) == 0
    rows = list(csv.DictReader((study / f"tables/{NAME}.csv").open()))
    assert [row["time_s"] for row in rows] == ["0.02", "0.02"]
    assert list(rows[0]) == ["id", "time_s", "gpu"]
    assert (study / f"tables/{NAME}.md").read_text().startswith("**Kernels by their time in an iteration")
    assert main(["study", "table", NAME, str(study), "--options", '{"rows": "all"}']) == 2
    assert 'rows is "all", expected a whole number >= 1' in capsys.readouterr().err


def test_the_page_shows_it_in_its_section(added, study):
    assert main(["study", "table", NAME, str(study), "--options", '{"rows": 3}']) == 0
    page = page_of(study)
    assert "Where the time goes Time of all launches of a kernel" in page.text
    assert len(page.rows(NAME)) == 3
    html = page.html
    assert html.index('id="kernels"') < html.index(f'id="table-{NAME}"') < html.index('id="choosing"')


def test_the_page_misses_it_where_it_was_not_made(added, study, capsys):
    assert f"tables {NAME}: not made yet" in page_of(study).text
    assert NAME in capsys.readouterr().err


def test_contributing_shows_this_module(root):
    shown = re.findall(r"```python\n(.*?)```", (root / "CONTRIBUTING.md").read_text("utf-8"), re.S)
    examples = [text for text in shown if "OUTPUT = Output(" in text]
    if not examples:
        pytest.skip("CONTRIBUTING.md has no worked example of a table")
    assert examples == [MODULE]


def page_of(study) -> Page:
    assert main(["report", str(study), "--without", "baseline,headline,passes,locking"]) == 0
    return Page((study / "report.html").read_text("utf-8"))
