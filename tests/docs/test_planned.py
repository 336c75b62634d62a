"""Snakemake plans every study that the docs tell a reader to run; those of a real GPU on the fake NVML."""

import json
import os
import shlex
import shutil
import sys

import pytest
from shell_commands import ROOT, all_commands
from test_documented_commands import MENTIONS, snakemake_words

from kernel_dvfs.measurement import latency_file
from kernel_dvfs.workload.models import MODELS

sys.path.insert(0, str(ROOT / "tests/workflow"))
from reduced_study import clone, snakemake

pytestmark = pytest.mark.workflow

# too long to plan in full, or of the reader's own: (what is in the command, what the test gives instead)
SUBSTITUTED = {
    "nvml:<UUID>": "nvml",
    "nvml:1": "nvml:0",
    "path: mine.csv": "path: table.csv",
    "profile: mine.csv": "profile: stages.csv",
    "AzureLLMInferenceTrace_conv.csv": "trace.csv",
    " --configfile mine.yaml": "",
}
# by what a machine without a cluster cannot plan: tests/slurm runs it on one of its own
ELSEWHERE = ("--profile profiles/slurm",)
TABLE = """gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto
example,product,,,10.0,3000,1
example,product,1400,5000,11.0,2500,0
"""


# what the fake board "h200" calls itself
BOARD = "Simulated H200 on a fake NVML"


def study_lines() -> list:
    lines = {each.line.partition(" #")[0].strip() for each in all_commands()} - MENTIONS
    return sorted(
        line for line in lines if line.startswith("snakemake --cores") and not any(each in line for each in ELSEWHERE)
    )


@pytest.fixture(scope="module")
def said_by():
    """{a command as it was run: what Snakemake said}: lines that differ in what only a reader has are one command."""
    return {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = clone(tmp_path_factory.mktemp("planned") / "clone")
    (made / "docs").mkdir()
    (made / "docs/tutorial.yaml").write_bytes((ROOT / "docs/tutorial.yaml").read_bytes())
    (made / "table.csv").write_text(TABLE)
    (made / "train.py").write_text("def make_step():\n    raise AssertionError('planning captures nothing')\n")
    for name in ("step.json", "step-measured.json"):
        shutil.copy(ROOT / "tests/workload/steps/hand_made.json", made / name)
    change = {"domain": "core", "from_mhz": 345, "to_mhz": 1980, "verdict": "ok"}
    about = {"gpu": {"name": BOARD, "uuid": "GPU-0", "driver": "580"}, "started_utc": "2026-11-22T10:00:00Z"}
    changes = [change | dict.fromkeys(latency_file.QUANTITIES, 0.01 * own) for own in (1, 2, 3)]
    (made / "latency.json").write_text(json.dumps(latency_file.content(about, changes)))
    # what `kernel-dvfs calibrate` wrote of a real board
    shutil.copy(ROOT / "experiments/results/calibrate_h100.yaml", made / "board.yaml")
    for name in ("stages.csv", "trace.csv"):
        (made / name).write_text("")
    return made


@pytest.mark.parametrize("line", study_lines())
def test_snakemake_plans_it(folder, said_by, line, request):
    for own, given in SUBSTITUTED.items():
        line = line.replace(own, given)
    targets, _, values = snakemake_words(shlex.split(line))
    settings = [word for word in shlex.split(line) if "=" in word and not word.startswith("-")]
    if "gpu=" in line or "board.yaml" in line:
        settings.append(
            "grid={core_mhz: {step: 5000}, mem_mhz: all, auto: false}"
        )  # each GPU's highest core clock alone
    environment = None
    if "gpu=nvml" in line:
        environment = request.getfixturevalue("boards")("h200").environment()
        environment["KERNEL_DVFS_LOCK_DIR"] = os.fspath(folder)
    options = ["--configfile", values["--configfile"]] if "--configfile" in values else []
    command = (*(targets or ["all"]), "--config", *settings, *options)
    if command not in said_by:
        done = snakemake(folder, *(targets or ["all"]), dry=True, config=settings, options=options, env=environment)
        said_by[command] = done.stdout
    assert "Job stats" in said_by[command] or "Nothing to be done" in said_by[command]


def test_there_are_studies_of_every_kind():
    lines = " ".join(study_lines())
    assert all(word in lines for word in ("gpu=nvml", "kind: table", "pipeline", "serving", "limits_percent"))
    assert any(f"model={name}" in lines for name in MODELS)
