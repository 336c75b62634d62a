"""Every command in README.md and docs/ is one that works: parsed here, and run, or planned by Snakemake, as far as a
machine without a GPU can. A command of an unknown kind fails."""

import itertools
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from shell_commands import ROOT, all_commands

from kernel_dvfs.cli import main
from kernel_dvfs.plan import config as configuration
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan

COMMANDS = all_commands()
# what stands for something of the reader's own
PLACEHOLDERS = {"<UUID>": "GPU-0", "<index>": "0", "<gpu>": "g", "<workload>": "w", "<digest>": "d", "<URL>": "url"}
# options of Snakemake that the pages use: with a value, without
VALUED = {"--quiet", "--cores", "--profile", "--configfile", "--report"}
FLAGS = {"-n"}
# not a command to type as it stands: an option in a sentence
MENTIONS = {"snakemake --report", "python -S"}


def filled(line: str) -> list:
    for name, value in PLACEHOLDERS.items():
        line = line.replace(name, value)
    return shlex.split(line, comments=True)


def snakemake_words(words: list) -> tuple:
    """(targets, {key: value} of --config, values of options) of a command line; refuses options unknown here."""
    targets, settings, values, rest = [], {}, {}, words[1:]
    while rest:
        word = rest.pop(0)
        if word == "--config":
            while rest and not rest[0].startswith("-"):
                key, _, value = rest.pop(0).partition("=")
                settings[key] = yaml.safe_load(value)
        elif word in VALUED:
            values[word] = rest.pop(0)
        elif word in FLAGS:
            values[word] = True
        else:
            assert not word.startswith("-"), f"unknown option {word}"
            targets.append(word)
    return targets, settings, values


def rules() -> set:
    files = [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]
    return {name for file in files for name in re.findall(r"^(?:rule|checkpoint) (\w+):", file.read_text(), re.M)}


def check_kernel_dvfs(words, folder):
    known = main.every_command()
    if words[1:] in ([word] for word in (*known, *main.groups())) or words[1:] in (name.split() for name in known):
        return  # named only
    try:
        run, _ = main.parsed(words[1:])
    except SystemExit as end:
        assert not end.code, "the command's parser refuses it"
    else:
        assert callable(run)


def merged(settings: dict) -> dict:
    content = load(ROOT / "config.yaml")
    for key, value in settings.items():
        both = isinstance(value, dict) and isinstance(content.get(key), dict)
        content[key] = content[key] | value if both else value
    return content


def check_snakemake(words, folder):
    targets, settings, values = snakemake_words(words)
    assert set(targets) <= rules()
    if "--profile" in values:
        assert (ROOT / values["--profile"] / "profile.yaml").is_file()
    path = Path(values.get("--configfile", "mine.yaml"))
    # a user's own, and what `kernel-dvfs calibrate` writes: tests/real/test_calibration.py
    if path.name not in ("mine.yaml", "board.yaml"):
        settings = yaml.safe_load((ROOT / path).read_text("utf-8")) | settings
    content = merged(settings)
    if str(content["workload"]).startswith("step:") and content["workload"].endswith(".json"):
        content["workload"] = f"step:{ROOT / 'tests/workload/steps/hand_made.json'}"
    configuration.check(content, ROOT / "workflow/schemas/config.schema.yaml")
    if isinstance(content["gpu"], str) and not content["gpu"].startswith("nvml"):
        plan(content, str(folder))


def check_make(words, folder):
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)[1].split()
    for word in words[1:]:
        name, equals, value = word.partition("=")
        assert name in targets or (equals and name in ("ARGS", "CORES", "PYTHON")), word
        if name == "ARGS" and "run" in words:
            check_snakemake(["snakemake", *shlex.split(value)], folder)


def check_python(words, folder):
    if words[1] == "-c":
        compile(words[2], "-c", "exec")
        return
    if words[1:3] == ["-m", "http.server"]:  # tried by test_site.py
        site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["site_dir"]
        assert words[3:] == ["-d", site]
        return
    script = ROOT / words[1]
    assert script.is_file()
    if not any(word.startswith("-") for word in words[2:]):
        return
    said = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, cwd=ROOT)
    assert said.returncode == 0, said.stderr
    for word in words[2:]:
        assert not word.startswith("-") or re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", said.stdout), word


def check_pip(words, folder):
    """Only what pyproject.toml asks for as well."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    wanted = {(each.name, frozenset(each.extras)) for each in map(Requirement, wanted)}
    assert words[1] == "install"
    own = [word for word in words[2:] if not word.startswith("-")]
    if own == ["pre-commit"]:
        return  # a tool of one's own, not of the project
    for word in own:
        if word.startswith(".["):  # a clone, with extras
            assert {*word[2:-1].split(",")} <= {*project["optional-dependencies"]}, word
        else:
            each = Requirement(word)
            assert (each.name, frozenset(each.extras)) in wanted, each


def check_uv(words, folder):
    """Makes a lock that is there, from extras that are there; tests/test_envs.py holds the locks to pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    given = dict(itertools.pairwise(words))
    assert words[1:3] == ["pip", "compile"] and (ROOT / given["-o"]).is_file()
    assert given.get("--extra", "dev") in project["optional-dependencies"]


def check_git(words, folder):
    if words[1] == "clone":  # README's own rows are tried in a fresh clone: test_readme_rows.py
        return
    assert words[1] == "apply"  # tried by test_own_kernel.py
    assert (ROOT / words[-1]).is_file()


def check_cd(words, folder):
    assert words == ["cd", "kernel-dvfs"]


def check_activate(words, folder):
    assert words == ["source", ".venv/bin/activate"]
    assert re.search(r"^VENV := \.venv$", (ROOT / "Makefile").read_text("utf-8"), re.M)


def check_tutorial_file(words, folder):
    """Reads what the study writes: run by test_tutorial.py."""
    assert words[-1].startswith("results/sim-rtx-3080-ti/gpt3-xl-b40-tp1/")


def check_pre_commit(words, folder):
    assert words[1] in ("install", "run")
    assert (ROOT / ".pre-commit-config.yaml").is_file()


def check_setting_up_a_broker(words, folder):
    """What `kernel-dvfs devices` tells to paste: tests/real/test_transcripts.py."""
    said = (ROOT / "tests/real/transcripts/container-without-rights.txt").read_text("utf-8")
    assert shlex.join(words).replace("'", "") in said
    if words[0].endswith("/python"):
        check_kernel_dvfs(["kernel-dvfs", *words[4 : words.index(">")]], folder)


def check_torchrun(words, folder):
    """A command in every rank: tests/pipeline/test_torch_pipeline.py runs them."""
    assert words[1:4:2] == ["--nproc-per-node", "--no-python"]
    check_kernel_dvfs(words[4:], folder)


CHECKS = {
    "torchrun": check_torchrun,
    "kernel-dvfs": check_kernel_dvfs,
    "snakemake": check_snakemake,
    "make": check_make,
    "python": check_python,
    "pip": check_pip,
    "uv": check_uv,
    "git": check_git,
    "cd": check_cd,
    "source": check_activate,
    "cat": check_tutorial_file,
    "head": check_tutorial_file,
    "pre-commit": check_pre_commit,
    "python3": check_setting_up_a_broker,
    "/opt/kernel-dvfs/bin/python": check_setting_up_a_broker,
    "cp": check_setting_up_a_broker,
    "systemctl": check_setting_up_a_broker,
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: {command.line}"[:100])
def test_a_command_in_the_docs_is_one_that_the_project_takes(command, tmp_path):
    if command.line in MENTIONS:
        return
    words = filled(command.line)
    assert words[0] in CHECKS, f"{command.page}: a command of unknown kind; say in CHECKS how it is tested: {words[0]}"
    CHECKS[words[0]](words, tmp_path)


def test_the_pages_do_hold_commands():
    assert {each.words[0] for each in COMMANDS} >= {"kernel-dvfs", "snakemake", "make"}
    assert len(COMMANDS) > 40
