"""Records measured ahead are those that their jobs would have made."""

import os
import subprocess
import sys

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement import ahead
from kernel_dvfs.measurement.setup import store

POINTS = [
    (target, clocks, campaign, repeat, f"results/{target}/{clocks}/r{repeat}.json")
    for target in ("kernel/forward_gelu", "kernel/forward_fc_gemm", "pass/forward")
    for clocks, campaign, repeat in (("1470-auto", "sweep", 0), ("auto-auto", "remeasure-2", 11))
]


@pytest.fixture
def setup_path(setup_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    setup = setup_of()
    return store("setup", setup.gpu, setup.workload, setup.targets, setup.measurement)


def test_a_record_measured_ahead_is_the_one_that_its_job_makes(setup_path, root):
    lines = "".join(" ".join(map(str, point)) + "\n" for point in POINTS)
    words = [sys.executable, "-S", "-m", "kernel_dvfs", "ahead", "--gpu", setup_path]
    subprocess.run(words, input=lines, text=True, check=True, env=os.environ | {"PYTHONPATH": str(root / "workflow")})
    for target, clocks, campaign, repeat, path in POINTS:
        words = ["measure", "--gpu", setup_path, "--target", target, "--clocks", clocks.replace("-", ",")]
        assert main([*words, "--campaign", campaign, "--repeat", str(repeat), "-o", path]) == 0
        with open(path, "rb") as made, open(f"{ahead.FOLDER}/{path}", "rb") as waiting:
            assert made.read() == waiting.read()


def test_a_few_points_are_left_to_their_jobs_and_nothing_is_left_over(setup_path, monkeypatch):
    os.makedirs(f"{ahead.FOLDER}/of/a/killed/run")
    helper = ahead.Ahead()
    helper.start(setup_path, POINTS)
    assert not os.path.exists(ahead.FOLDER), "what a killed run left may be of another setup"
    monkeypatch.setattr(ahead, "LEAST", 1)
    helper.start(setup_path, POINTS)
    helper.stop()
    assert not os.path.exists(ahead.FOLDER)


def test_only_a_simulated_gpu_is_measured_ahead(setup_of, tmp_path, capsys):
    setup = setup_of()
    path = store(str(tmp_path), setup.gpu | {"kind": "nvml"}, setup.workload, setup.targets, setup.measurement)
    assert main(["ahead", "--gpu", path]) == 2
    assert "only a simulated one is measured ahead" in capsys.readouterr().err
