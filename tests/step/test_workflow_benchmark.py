"""The benchmark that takes steps through the workflow asks for studies that the workflow takes, and sets no clock."""

import importlib.util
from pathlib import Path

import pytest

from kernel_dvfs.plan.config import check
from kernel_dvfs.plan.study import load

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("own_step_workflow", ROOT / "benchmarks/own_step_workflow.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_step_is_one_of_the_users_file_and_its_study_one_that_may_be_configured(benchmark):
    text = (ROOT / benchmark.SOURCE).read_text(encoding="utf-8")
    for name in benchmark.STEPS:
        assert f"\ndef {name}(" in text
        config = load(str(ROOT / "config.yaml")) | benchmark.configuration(name, "nvml:1")
        check(config, str(ROOT / "workflow/schemas/config.schema.yaml"))
        assert (config["clocks"], config["gpu"]) == ("auto-only", "nvml:1")
