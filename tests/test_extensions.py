"""A package beside the road can be taken away: what it adds is gone, and all else is as before."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_dvfs.cli.main import every_command
from kernel_dvfs.extensions import PARTS, extensions, packages

ROOT = Path(__file__).resolve().parents[1]
# where the tests of an extension lie
TESTS = {name: (f"tests/{name}",) for name in extensions()} | {"deploy": ("tests/deploy", "tests/sequence")}
# what the project's own files need of it to run
KEPT = ("Snakefile", "config.yaml", "config", "native", "profiles", "workflow", "experiments", "envs", "conftest.py")


def without(folder, *names):
    """A copy of the project without these extensions, and without tests."""
    # compiled modules come with them, but none that is being written
    ignored = shutil.ignore_patterns("*.pyc.*", "results", *(f"kernel_dvfs_{name}" for name in names))
    for each in KEPT:
        path = ROOT / each
        if path.is_dir():
            shutil.copytree(path, folder / each, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(path, folder / each)
    return folder


def run(folder, *words):
    environment = os.environ | {"PYTHONPATH": str(folder / "workflow")}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The road alone."""
    return without(tmp_path_factory.mktemp("alone"), *extensions())


def test_each_says_what_it_adds_and_has_tests_of_its_own():
    assert len(extensions()) >= 5
    for name, added in extensions().items():
        assert any(added), f"kernel_dvfs_{name} adds nothing"
        assert {*added.parts} <= {*PARTS}
        assert all((ROOT / folder).is_dir() for folder in TESTS[name])
    asked = [part for added in extensions().values() for part in added.parts]
    assert sorted(asked) == sorted(PARTS), "a part that nobody adds, or two do"
    given = [
        (field, key)
        for added in extensions().values()
        for field in ("commands", "groups", "kinds", "api")
        for key in getattr(added, field)
    ]
    assert len(given) == len({*given}), "two packages add one name"


def test_the_road_names_no_extension():
    """In code: comments may."""
    for package in ("kernel_dvfs", "kernel_dvfs_clocks"):
        for path in (ROOT / "workflow" / package).rglob("*.py"):
            code = re.sub(r"#[^\n]*", "", path.read_text("utf-8"))
            assert not [name for name in packages() if re.search(rf"^\s*(from|import) {name}\b", code, re.M)], path


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(extensions()))
def test_without_one_only_what_it_adds_is_gone(tmp_path, name):
    added, folder = extensions()[name], without(tmp_path, name)
    code = "from kernel_dvfs.cli.main import every_command; print(*every_command(), sep='|')"
    found = run(folder, "-c", code)
    assert found.returncode == 0, found.stderr
    lost = [added, *(each for each in extensions().values() if name in each.needs)]
    gone = {word for each in lost for word in each.commands}
    gone |= {word for word in every_command() if any(word.partition(" ")[0] in each.groups for each in lost)}
    assert {*found.stdout.strip().split("|")} == {*every_command()} - gone


@pytest.mark.slow
def test_the_road_alone_makes_a_study(alone):
    """From a sweep to the page, as a newcomer does."""
    made = run(alone, "-m", "kernel_dvfs", "demo", "--repeats", "2", "-o", "made")
    assert made.returncode == 0, made.stderr
    assert (alone / "made/report.html").is_file() and "measured again 2 times" in made.stdout


@pytest.mark.workflow
def test_the_road_alone_plans_the_paper_s_study(alone):
    """All but what the extensions make."""
    small = "grid={core_mhz: [1470], mem_mhz: [9251], auto: false}"
    planned = run(alone, "-m", "snakemake", "--cores", "1", "-n", "--quiet", "rules", "all", "--config", small)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    counted = dict(re.findall(r"^(\w+) +(\d+)$", planned.stdout, re.M))
    assert {"build", "measure", "aggregate", "choose_schedule", "measure_again", "table", "figure"} <= {*counted}
    assert not {"choose_deployable", "pipeline_stages", "serving_profile"} & {*counted}


@pytest.mark.nightly
@pytest.mark.slow
def test_the_road_s_own_tests_pass_without_extensions(tmp_path):
    """All that say nothing of an extension; those that do are of both."""
    folder = without(tmp_path, *extensions())
    of_extensions = {path for paths in TESTS.values() for path in paths}
    for path in sorted((ROOT / "tests").rglob("*")):
        own = path.relative_to(ROOT).as_posix()
        if "__pycache__" in own or not path.is_file() or any(own.startswith(f"{each}/") for each in of_extensions):
            continue
        text = path.read_text("utf-8", errors="replace") if path.suffix == ".py" else ""
        if "/fakenvml/" in f"/{own}" or not any(name in text for name in packages()):
            (folder / own).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, folder / own)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    rooms = [f"tests/{name}" for name in ("workload", "gpu", "measurement", "profile", "choice", "search", "plan")]
    marks = "not workflow and not compiles and not boards and not nightly"
    done = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marks, *rooms, "tests/report")
    assert done.returncode == 0, done.stdout[-4000:]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed > 1000, json.dumps({"passed": passed})
