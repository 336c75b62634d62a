"""A field of a step's kernel is added where it is captured, in workload.step.Target and where it is used: nowhere else.

Target's annotation reads, checks and writes it; Target.about takes it through setup and profile to the report.
"""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.profile import aggregate
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.workload import step as steps
from kernel_dvfs.workload.step_workload import of_step
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError

RECORD = Path(__file__).resolve().parent.parent / "workload/steps/hand_made.json"


@pytest.mark.parametrize("name", [field.name for field in fields(steps.Target)])
def test_every_field_is_checked_by_its_annotation(tmp_path, name):
    content = json.loads(RECORD.read_text())
    content["targets"][0][name] = {"of": "no field"}
    (tmp_path / "step.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=rf"step\.json: targets\[0\]\.{name} is {{'of': 'no field'}}, expected "):
        steps.read(tmp_path / "step.json")


def test_every_field_is_written_as_it_is_read(tmp_path):
    step = steps.read(RECORD)
    steps.write(tmp_path / "step.json", step)
    assert steps.read(tmp_path / "step.json") == step
    assert json.loads((tmp_path / "step.json").read_text()) == json.loads(RECORD.read_text())


def test_what_a_kernel_says_about_itself_reaches_the_profile(setup_of, tmp_path, monkeypatch):
    own = steps.Target.about.fget
    monkeypatch.setattr(steps.Target, "about", property(lambda self: own(self) | {"registers": 96}))
    step = steps.read(RECORD)
    workload = of_step(step, "mine", "step.json")
    simulated = setup_of()
    path = setups.store(str(tmp_path), simulated.gpu, workload.about, workload.targets, simulated.measurement)
    setup = setups.read(path)
    aggregate.from_bench(setup, [BASELINE], 1, str(tmp_path / "profile.parquet"), ("kernel",))
    known = read_profile(tmp_path / "profile.parquet").metadata["workload"]["kernels"]
    assert known.keys() == {target.id for target in step.measured}
    assert all(about["registers"] == 96 for about in known.values())
    assert "work" not in known["gelu_forward"] and known["gelu_forward"]["step_time_s"] is not None
