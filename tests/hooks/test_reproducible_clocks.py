"""docs/reproducible-clocks.md as it is written: its files, its commands and its CI job, beside a fake board."""

import re
import shlex
import subprocess
import sys

import pytest
import yaml

from kernel_dvfs_deploy.schedules import slows


@pytest.fixture
def page(root):
    """Its blocks: [(language, text)]."""
    text = (root / "docs/reproducible-clocks.md").read_text("utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture
def done(page):
    """`done(made)`: what each step of the CI job came to, in a folder with the page's files."""

    def run(made):
        for language, text in page:
            if language == "python":
                (made.folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
        ci = next(yaml.safe_load(text) for language, text in page if language == "yaml")
        found = []
        for step in ci["jobs"]["benchmark"]["steps"]:
            if "run" in step:
                words = [sys.executable if word == "python" else word for word in shlex.split(step["run"])]
                program = [sys.executable, "-m", "kernel_dvfs"] if words[0] == "kernel-dvfs" else [words[0]]
                words = [*program, *words[1:], *(["-p", "no:cacheprovider"] if "pytest" in words else [])]
                own = {"env": made.environment(), "cwd": made.folder, "capture_output": True, "text": True}
                found.append(subprocess.run(words, timeout=300, **own))
        return found

    return run


def test_a_board_that_keeps_its_clocks_passes_and_the_commands_are_those_of_the_job(lab, page, done):
    made = lab()
    benchmark, judged = done(made)
    assert benchmark.returncode == 0, benchmark.stderr
    assert re.search(r"1500-auto: .* J \(\d+ W over .* s\), core 1500 MHz, memory 3201 MHz: ok", benchmark.stderr)
    assert judged.returncode == 0 and "1 passed" in judged.stdout and made.restored()
    first, second = next(text for language, text in page if not language).splitlines()
    assert first in [step.get("run") for language, text in page if language == "yaml"
                     for step in yaml.safe_load(text)["jobs"]["benchmark"]["steps"]]  # fmt: skip
    before = made.boards.get("sets")
    dry = made.command(*[sys.executable if word == "python" else word for word in shlex.split(second)[1:]])
    assert dry.returncode == 0 and made.boards.get("sets") == before, dry.stderr


def test_a_board_that_ignores_its_lock_fails_the_job_with_the_reason(lab, done):
    benchmark, judged = done(lab(ignore="core,mem"))
    assert benchmark.returncode == 0 and "1500-auto" in benchmark.stderr and "not_reached" in benchmark.stderr
    assert judged.returncode == 1 and "core clock: asked 1500 MHz, reached 1980 MHz" in judged.stdout


@pytest.mark.parametrize(
    ("capability", "pair", "warns"),
    [
        ("12.0", (900, 2201), True),
        ("10.0", (900, 2201), True),
        ("12.0", (900, "auto"), False),
        ("9.0", (900, 2201), False),
    ],
)
def test_a_locked_memory_clock_is_warned_of_on_blackwell_alone(capability, pair, warns):
    about = {"name": "B", "compute_capability": capability}
    assert bool(slows(about, [("auto", "auto"), pair])) == warns


def test_the_warning_comes_before_the_clocks(lab):
    made = lab(capability=12.0)
    words = ["--pair", "1500,2201", "--dry-run", "--", sys.executable, "-c", "import time; time.sleep(1)"]
    assert "note: " in (said := made.command("apply", *words).stderr) and "Blackwell" in said
    words[1] = "1500,auto"
    assert "Blackwell" not in made.command("apply", *words).stderr
