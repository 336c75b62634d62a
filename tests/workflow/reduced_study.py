"""Snakemake on a reduced study: run once, then asked what it would do again."""

import compileall
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import forked
import yaml

ROOT = Path(__file__).resolve().parents[2]
REDUCED = tuple(
    f"{key}={json.dumps(value)}"
    for key, value in yaml.safe_load((ROOT / "tests/workflow/reduced.yaml").read_text("utf-8")).items()
)
FOLDER = Path("results/sim-rtx-3080-ti/gpt3-xl-b40-tp1")
RECORDS = 48 * 3


def command(*targets, config=(), dry=False, options=()) -> list:
    """A snakemake command line for a clone, as a user would type it there."""
    words = [sys.executable, "-m", "snakemake", "--cores", "2", *options]
    if dry:
        words.append("--dry-run")
    # a later value of a key wins
    settings = {each.partition("=")[0]: each for each in (*REDUCED, *config)}.values()
    return [*words, "--config", *settings, "--", *targets]


def clone(directory: Path) -> Path:
    """The files of the repository that a run reads, in a folder of their own."""
    directory.mkdir(parents=True, exist_ok=True)
    # milliseconds where that is done; what is not, each clone would compile for itself
    compileall.compile_dir(ROOT / "workflow", quiet=1)
    for name in ("Snakefile", "config.yaml"):
        shutil.copy2(ROOT / name, directory)
    for name in ("workflow", "profiles", "native", "envs", "config"):
        # compiled modules as well, but none that is being written
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    return directory


def snakemake(directory, *targets, check=True, env=None, dry=False, **more) -> subprocess.CompletedProcess:
    """Run it in a clone; the finished process with all its output in stdout. env: of the process, else this one's."""
    done = started(directory, command(*targets, dry=dry, **more), env)
    if check:
        assert done.returncode == 0, done.stdout[-4000:]
    return done


def planned(directory, *targets, **more) -> dict:
    """{rule: jobs} that Snakemake would run, the bare target `all` left out; {} where nothing is to be done.

    A table or figure is a job by its own name: {"tables/claims": 1, "figures/fig5_kernels": 1}. What is carried over is
    a rule a batch or degree, counted as carry_over.
    """
    said = snakemake(directory, *targets, dry=True, **more).stdout
    block = re.search(r"Job stats:\n.*?\n-+ +-+\n(.*?)\n\n", said, re.S)
    jobs: Counter[str] = Counter()
    for rule, count in map(str.split, block[1].splitlines() if block else ()):
        jobs[re.sub("^carry_over_.+", "carry_over", rule)] += int(count)
    drawn = re.findall(r"^ *rule (?:table|figure):\n(?: +input: .*\n)? +output: \S+/(\w+/\w+)\.", said, re.M)
    assert len(set(drawn)) == jobs.pop("table", 0) + jobs.pop("figure", 0), said[-4000:]
    return {rule: count for rule, count in jobs.items() if rule not in ("all", "total")} | dict.fromkeys(drawn, 1)


def started(directory, words, env=None) -> subprocess.CompletedProcess:
    """A snakemake command line in a process in which Snakemake lies imported. env: of the process, else this one's."""
    return forked.run("-m", "snakemake", _after(words), directory, dict(env or os.environ))


def begun(directory, words, log=os.devnull, env=None) -> multiprocessing.Process:
    """The same while it runs, in a process group of its own; what it says goes to a file."""
    return forked.start("snakemake", _after(words), directory, log, env)


def _after(words) -> list:
    return words[words.index("snakemake") + 1 :]
