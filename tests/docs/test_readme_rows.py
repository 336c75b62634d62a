"""What README tells a newcomer to type, in a fresh clone and an empty environment: each command does what its row says,
or ends with one line that says what to do. A row that is not tried here fails.

By day the environment is the developers', emptied of its variables. At night it is also the one that `make install`
makes in the clone, and what takes minutes is run as well. A fake NVML stands for a GPU.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shell_commands import ROOT, in_blocks

README = ROOT / "README.md"
LEFT_OUT = (".git", ".venv", ".snakemake", "results", "logs", "site", "*.pyc.*", ".*_cache")
pytestmark = [pytest.mark.workflow, pytest.mark.slow]

TABLE = """gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto
example,product,,,10.0,3000,1
example,product,1400,5000,11.0,2500,0
example,norm,,,1.0,250,1
example,norm,1400,5000,1.0,200,0
"""
# a training: says its steps, as `--progress` of the row reads them
TRAIN = """
import time

def make_step():
    raise SystemExit("not reached without torch")

if __name__ == "__main__":
    for number in range(40):
        print("iter", number, flush=True)
        time.sleep(0.02)
"""


def rows() -> dict:
    """{command: the cells of its row} of the table of what people have; a row without its first cell has that above."""
    lines = README.read_text("utf-8").partition("## Use it on what you have")[2].partition("\n## ")[0].splitlines()
    found, have = {}, ""
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else []
        commands = re.findall(r"`([^`]+)`", cells[2]) if len(cells) == 4 else []
        have = cells[0].strip("| ") or have if commands else have
        found |= {command: [have, *cells[1:]] for command in commands}
    return found


ROWS = rows()


class Newcomer:
    """A clone, and a shell in which nothing is set but where programs, a home and the fake board are."""

    def __init__(self, folder: Path, programs: Path, home: Path):
        self.folder, self.programs, self.home = folder, programs, home
        self.board, self.fake = {}, None

    def types(self, line: str, **variables) -> subprocess.CompletedProcess:
        """Run a line of README; all that it says is in stdout."""
        environment = {"PATH": f"{self.programs}:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=environment | self.board | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1500,
        )

    def is_told(self, line: str) -> str:
        """The one line that refuses a command, without its first word."""
        done = self.types(line)
        errors = re.findall("^error: (.*)$", done.stdout, re.M)
        assert done.returncode and len(errors) == 1 and "Traceback" not in done.stdout, done.stdout
        return errors[0]

    def succeeds(self, line: str, **variables) -> str:
        done = self.types(line, **variables)
        assert done.returncode == 0 and "Traceback" not in done.stdout, done.stdout[-4000:]
        return done.stdout


def developers(folder: Path, base: Path) -> Path:
    """The programs of this Python, with the clone's modules, as `make install` writes them into .venv/bin."""
    programs = base / "bin"
    programs.mkdir()
    for name, words in (("kernel-dvfs", " -m kernel_dvfs"), ("snakemake", " -m snakemake"), ("python", "")):
        path = f"PYTHONPATH={folder / 'workflow'} "
        (programs / name).write_text(f'#!/bin/sh\n{path}exec "{sys.executable}"{words} "$@"\n')
        (programs / name).chmod(0o755)
    return programs


def installed(folder: Path, base: Path) -> Path:
    """Those that `make install` brings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(["make", "install"], cwd=folder, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / ".venv/bin"


@pytest.fixture(scope="module", params=[developers, pytest.param(installed, marks=pytest.mark.nightly)])
def clone(request, tmp_path_factory):
    """A newcomer's clone, for all rows."""
    base = tmp_path_factory.mktemp("newcomer")
    folder = base / "kernel-dvfs"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (folder / "mine.csv").write_text(TABLE)
    (folder / "train.py").write_text(TRAIN)
    (base / "home").mkdir()
    return Newcomer(folder, request.param(folder, base), base / "home")


@pytest.fixture
def newcomer(clone):
    """Without a GPU."""
    clone.board = {}
    return clone


@pytest.fixture
def owner(clone, boards, tmp_path):
    """With one: a fake H200."""
    made = boards("h200", time="real", utilisation=0.5)
    clone.fake = made
    clone.board = {
        "LD_LIBRARY_PATH": str(made.folder),
        "FAKENVML_STATE": str(made.path),
        "KERNEL_DVFS_LOCK_DIR": str(tmp_path),
    }
    yield clone
    assert made.locks == ("none", "none"), "clocks come back"


AUTO_ONLY, ANSWER = "snakemake --cores 1 all --config gpu=nvml clocks", "kernel-dvfs study nvml"
STEP, SLURM = "kernel-dvfs study train.py:", "snakemake --profile profiles/slurm"
STUDIES = ("snakemake --cores 1 all --config batch", "snakemake --cores 2 pipeline", "snakemake --cores 1 serving")
COMMANDS = tuple(f"kernel-dvfs {name}" for name in ("study mine.csv", "devices", "apply", "tune"))
# how the commands begin that are tried below
TRIED = (*COMMANDS, AUTO_ONLY, ANSWER, STEP, SLURM, *STUDIES)


def command(beginning: str) -> str:
    """The command of a row, as README has it."""
    assert beginning in TRIED
    (found,) = [line for line in ROWS if line.startswith(beginning)]
    return found


def test_a_table_of_measurements(newcomer):
    assert "against auto (claimed" in newcomer.succeeds(command("kernel-dvfs study mine.csv"))
    assert (newcomer.folder / "study-mine/report.html").is_file()


def test_a_gpu_says_what_it_can_do_and_what_is_missing(owner):
    said = owner.succeeds(command("kernel-dvfs devices"))
    assert "permission to lock clocks" in said and "clocks: auto-only: 48 targets x 1 clock pair, at least" in said
    assert re.search("missing: the CUDA kernels; .*(make cuda|snakemake builds them)", said)


@pytest.mark.parametrize("what", [AUTO_ONLY, ANSWER])
def test_a_study_of_a_gpu_says_at_once_what_it_needs_as_its_row_does(owner, what):
    from kernel_dvfs.native.build import lacks_cuda

    line = command(what)
    if not lacks_cuda():
        pytest.skip("nvcc and cuBLAS are here: it would compile for minutes; tests/gpu and tests/native do")
    assert "make cuda" in owner.is_told(line)
    assert not (owner.folder / "results/native").exists(), "nothing was compiled"
    needs = ROWS[line][1]
    assert "make cuda" in needs or "the same" in needs


@pytest.mark.nightly
@pytest.mark.parametrize("what", [AUTO_ONLY, ANSWER])
def test_a_study_of_a_gpu_runs_with_kernels_that_a_simulation_stands_for(owner, fake_library, what):
    import fake

    record = fake.build_record(fake_library.parent)
    owner.fake.set(time="virtual")
    said = owner.succeeds(command(what), KERNEL_DVFS_TEST_LOAD=str(record))
    folder = owner.folder / "results/simulated-h200-on-a-fake-nvml-fa4e0000/gpt3-xl-b40-tp1"
    assert "Stopped" not in said and (folder / "tables").is_dir()


def test_a_step_says_at_once_that_it_needs_torch_as_its_row_does(owner):
    line = command(STEP)
    if "no torch" not in owner.types("python -c 'import torch' 2> /dev/null || echo no torch").stdout:
        pytest.skip("torch is here: a step would be captured on a real GPU")
    told = owner.is_told(line)
    assert "has no torch" in told and "-m pip install 'torch>=2.8'" in told
    assert "`pip install 'torch>=2.8'`" in ROWS[line][1]


def test_a_cluster_that_is_not_there_is_a_line(owner):
    line = command(SLURM)
    told = owner.is_told(line)
    assert "profiles/slurm/site.yaml" in told or "sbatch" in told or "identify" in told
    assert "two lines" in ROWS[line][1]


def test_clocks_for_a_command(owner):
    said = owner.succeeds(command("kernel-dvfs apply"))
    assert "1410-auto: " in said and "against auto: time" in said


def test_a_running_training(owner):
    assert "kernel-dvfs: " in owner.succeeds(command("kernel-dvfs tune"))


@pytest.mark.parametrize("what", STUDIES)
def test_a_study_without_a_gpu_is_planned(newcomer, what):
    assert "Job stats" in newcomer.succeeds(f"{command(what)} -n")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "what", STUDIES[:2]
)  # that of serving takes a quarter of an hour: workflow/test_serving_target.py
def test_a_study_without_a_gpu_ends_with_its_page(newcomer, what):
    assert "report.html" in newcomer.succeeds(command(what)).splitlines()[-1]


def test_what_the_demo_prints_is_what_readme_shows(newcomer):
    (shown,) = re.findall(r"^```text\n(.*?)^```", README.read_text("utf-8"), re.S | re.M)
    lines = [each.line.partition(" #")[0].strip() for each in in_blocks(README)]
    assert lines.index("kernel-dvfs demo") < lines.index("make run")
    printed = newcomer.succeeds("kernel-dvfs demo")
    seconds = re.compile(r"\(\d+ s in all\)")
    assert seconds.sub("", printed) == seconds.sub("", shown)
    assert newcomer.succeeds("kernel-dvfs demo --step") and (newcomer.folder / "demo-step/report.html").is_file()


def test_the_lines_of_python_write_a_page(newcomer):
    (code,) = re.findall(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.S | re.M)
    assert len([line for line in code.splitlines() if line and "import" not in line]) <= 5
    (newcomer.folder / "lines.py").write_text(code)
    assert "% less energy" in newcomer.succeeds("python lines.py") and (newcomer.folder / "page.html").is_file()


def test_every_row_is_tried_and_says_what_it_needs_first():
    assert len(ROWS) == len(TRIED)
    for line, (have, needs, _, get) in ROWS.items():
        assert line.startswith(TRIED), f"try it here: {line}"
        assert have and needs and get, line
