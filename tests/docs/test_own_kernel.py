"""The worked example of docs/extend.md: its patch applies, its page shows it, and the study has one kernel more."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from shell_commands import ROOT

PATCH = ROOT / "docs/examples/dropout.patch"
PAGE = ROOT / "docs/extend.md"
# in the patched library: the setup, a sweep of three pairs in one process, a choice
STUDY = """
import json
from kernel_dvfs.choice.schedule import choose
from kernel_dvfs_clocks.clocks import parse
from kernel_dvfs.measurement.setup import read
from kernel_dvfs.profile.aggregate import from_bench
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan

study = plan(load("config.yaml") | {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []})
pairs = [parse(text, "-") for text in ("auto-auto", "1470-9251", "1050-9251")]
from_bench(read(study.setup.write()), pairs, 2, "p.parquet", ("kernel",))
chosen = choose("p.parquet", scope="local", objective="edp")["targets"]["forward_attention_dropout"]
print(json.dumps({"kernels": study.kernels, "chosen": chosen}))
"""


@pytest.fixture(scope="module")
def patched(tmp_path_factory):
    if not shutil.which("git"):
        pytest.skip("no git for the patch")
    folder = tmp_path_factory.mktemp("patched")
    shutil.copytree(ROOT / "workflow", folder / "workflow", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "config.yaml", folder)
    subprocess.run(["git", "apply", str(PATCH)], cwd=folder, check=True)
    return folder


def study(folder) -> dict:
    words = [sys.executable, "-c", STUDY]
    environment = {"PYTHONPATH": str(folder / "workflow"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_study_has_a_47th_kernel_and_chooses_clocks_for_it(patched):
    made = study(patched)
    assert len(made["kernels"]) == 47
    # between the projection and the residual
    at = made["kernels"].index("forward_attention_dropout")
    assert made["kernels"][at - 1 : at + 2 : 2] == ["forward_attproj_gemm", "forward_attention_residual"]
    # it waits for memory, so it gains by giving up core clock
    assert made["chosen"]["core_mhz"] in (1050, 1470)


def test_the_patch_can_be_taken_back(patched, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(patched, copy, ignore=shutil.ignore_patterns("results", "*.parquet", "__pycache__"))
    subprocess.run(["git", "apply", "-R", str(PATCH)], cwd=copy, check=True)
    for path in (copy / "workflow/kernel_dvfs/workload").glob("*.py"):
        assert path.read_bytes() == (ROOT / "workflow/kernel_dvfs/workload" / path.name).read_bytes()


def test_the_page_shows_what_the_patch_adds():
    added = [line[1:].strip() for line in PATCH.read_text("utf-8").splitlines() if re.match(r"\+(?!\+\+)", line)]
    page = PAGE.read_text("utf-8")
    assert added and all(line in page for line in added)
