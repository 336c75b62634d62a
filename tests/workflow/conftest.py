"""Snakemake on a reduced study: run once, then asked what it would do again."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# four clock pairs, two fresh repeats, one other batch, degree and tensor-core energy
REDUCED = (
    "grid={core_mhz: [1470], mem_mhz: [9251], auto: true}",
    "auto_repeats=1",
    "validation_repeats=2",
    "data_parallel_batches=[40, 20]",
    "tensor_parallel_degrees=[1, 2]",
    "tensor_energy_pj=[1.0]",
)
FOLDER = Path("results/sim-rtx-3080-ti/gpt3-xl-b40-tp1")
RECORDS = 48 * 4


def command(directory, *targets, config=(), dry=False, options=()) -> list:
    """A snakemake command line on the repository's Snakefile in another working directory."""
    words = [sys.executable, "-m", "snakemake", "--cores", "2", "--directory", str(directory), *options]
    words += ["--snakefile", str(ROOT / "Snakefile"), "--workflow-profile", str(ROOT / "profiles/default")]
    if dry:
        words.append("--dry-run")
    # a later --config key wins
    return [
        *words,
        "--config",
        *{each.partition("=")[0]: each for each in (*REDUCED, *config)}.values(),
        "--",
        *targets,
    ]


def snakemake(directory, *targets, check=True, **more) -> subprocess.CompletedProcess:
    """Run it; the finished process with all its output in stdout."""
    done = subprocess.run(
        command(directory, *targets, **more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory
    )
    if check:
        assert done.returncode == 0, done.stdout[-4000:]
    return done


def planned(directory, *targets, **more) -> dict:
    """{rule: jobs} that Snakemake would run, the bare target `all` left out; {} where nothing is to be done."""
    said = snakemake(directory, *targets, dry=True, **more).stdout
    block = re.search(r"Job stats:\n.*?\n-+ +-+\n(.*?)\n\n", said, re.S)
    jobs = dict(line.split() for line in block[1].splitlines()) if block else {}
    return {rule: int(count) for rule, count in jobs.items() if rule not in ("all", "total")}


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A working directory in which the reduced study is complete. Not to be changed: use `study`."""
    directory = tmp_path_factory.mktemp("finished")
    snakemake(directory, "all")
    return directory


@pytest.fixture
def study(finished, tmp_path) -> Path:
    """A copy of the complete study, times of files included, to change."""
    directory = tmp_path / "study"
    shutil.copytree(finished, directory, symlinks=True)
    return directory
