"""The tutorial, typed as it stands in a fresh clone: its commands work and its printed numbers come out."""

import csv
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shell_commands import ROOT, in_blocks

from kernel_dvfs_clocks.environment import prepare

sys.path.insert(0, str(ROOT / "tests/workflow"))
from reduced_study import clone

FOLDER = Path("results/sim-rtx-3080-ti/gpt3-xl-b40-tp1")
PAGE = ROOT / "docs/tutorial.md"
# by day the release check in CI follows the page, from the wheel
pytestmark = [pytest.mark.workflow, pytest.mark.nightly]


def typed(line: str) -> str | None:
    """What the test runs in place of a line: the environment is this one, and the native layer is built elsewhere."""
    if line.startswith("source "):
        return None
    make = re.fullmatch(r'make run ARGS="(.*)"', line)
    line = f"snakemake --cores 1 all {make[1]}" if make else line
    program, _, rest = line.partition(" ")
    if program == "snakemake":
        rest = rest.replace("--cores 1", "--cores 2") + ("" if "--config " in rest else " --config")
        rest, dry, _ = rest.partition(" -n")
        rest += f" 'native={{cpu: off, cuda: off, pipeline: off}}'{dry}"
    modules = {"snakemake": "-m snakemake", "kernel-dvfs": "-m kernel_dvfs", "python": ""}
    if program in modules:
        program = f"{shlex.quote(sys.executable)} {modules[program]}"
    return f"{program} {rest}"


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """{line of the page: what it printed}, and the folder where it ran."""
    folder = clone(tmp_path_factory.mktemp("tutorial") / "clone")
    shutil.copytree(ROOT / "docs", folder / "docs")
    said = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", "")
        prepare(str(folder / "workflow"))
        for command in in_blocks(PAGE):
            line = typed(command.line)
            if line:
                done = subprocess.run(
                    line, shell=True, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
                assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}"
                said[command.line] = done.stdout
    return folder, said


def rows_on_page(first: str) -> list:
    """The rows of the page's table whose head begins with `first`."""
    lines = PAGE.read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append([word.strip() for word in line.strip("|").split("|")])
    return rows


def table(folder, name: str, key: str) -> dict:
    with open(folder / FOLDER / f"tables/{name}.csv", newline="") as file:
        return {row[key]: row for row in csv.DictReader(file)}


def two(text: str) -> str:
    return f"{float(text) + 0.0:.2f}"


def test_the_headings_are_those_of_the_files(followed):
    for name, first in (("headline", "schedule"), ("chosen_clocks", "row")):
        shown = followed[0].joinpath(FOLDER, f"tables/{name}.md").read_text("utf-8")
        (head,) = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| {first} |")]
        words = {word.strip() for word in head.strip("|").split("|")} - {"low to high"}  # two columns in one
        there = next(line for line in shown.splitlines() if line.startswith(f"| {first} "))
        assert words <= {word.strip() for word in there.strip("|").split("|")}


def test_the_headline_is_the_one_printed(followed):
    made = table(followed[0], "headline", "schedule")
    rows = rows_on_page("schedule")
    assert [row[0] for row in rows] == list(made)
    for row in rows:
        own = made[row[0]]

        def change(kind, what, own=own):
            return two(own[f"{kind}_{what}_change_percent"])

        def interval(what, own=own):
            return f"{two(own[f'fresh_{what}_low_percent'])} to {two(own[f'fresh_{what}_high_percent'])}"

        expected = [change("claimed", "energy"), change("fresh", "energy"), interval("energy")]
        expected += [change("claimed", "time"), change("fresh", "time"), interval("time"), own["verdict"]]
        assert row[1:] == expected


def test_the_kernels_are_those_printed(followed):
    made = table(followed[0], "chosen_clocks", "id")
    for number, name, mem, core, time, energy in rows_on_page("row"):
        own = made[name]
        assert (number, mem, core) == (own["row"], own["mem_mhz"], own["core_mhz"])
        assert (time, energy) == (two(own["time_change_percent"]), two(own["energy_change_percent"]))


def test_a_slack_of_two_percent_buys_what_is_printed(followed):
    (line,) = [line for line in followed[1] if line.startswith("python -c")]
    assert followed[1][line].strip() in PAGE.read_text("utf-8")


def test_what_a_relaxed_study_would_run_is_shown_and_not_run(followed):
    (line,) = [line for line in followed[1] if line.endswith("-n")]
    assert "Job stats" in followed[1][line]


def test_the_page_on_trust_quotes_this_study(followed):
    text = (ROOT / "docs/choosing.md").read_text("utf-8")
    made = table(followed[0], "strategies", "schedule")
    quoted = [
        ("kernel-global-edp", "energy"),
        ("kernel-global-edp", "time"),
        ("kernel-local-waste-slack1", "energy"),
        ("kernel-global-waste-slack1", "energy"),
    ]
    for name, what in quoted:
        assert f"{abs(float(made[name][f'{what}_change_percent'])):.2f} %" in text, (name, what)
    assert two(made["kernel-single-waste-slack1"]["energy_change_percent"]) == "0.00"
    assert "one pair for all kernels saves nothing there" in text
    fresh = table(followed[0], "headline", "schedule")["kernel-global-waste-slack1"]["fresh_energy_change_percent"]
    assert f"{abs(float(fresh)):.2f} %, measured again" in text


def test_the_page_to_mail_is_there(followed):
    assert "simulated" in (followed[0] / FOLDER / "report.html").read_text("utf-8")
