"""Benchmarks say what they do on any machine."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("name", ["gemm_choices", "gpu_decode", "gpu_table", "own_step_workflow", "robustness"])
def test_help_needs_neither_a_gpu_nor_torch(name):
    words = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--help"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("usage: ")
