"""The benchmark of cutting: its schedules are ones that a player takes, and cut a step into as many pieces as they
say."""

import json
from pathlib import Path

import pytest

from experiments.benchmarks import gpu_play
from kernel_dvfs.workload.step import read
from kernel_dvfs_deploy.playing import cut, iteration_of

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted((ROOT / "tests/workload/steps").glob("*.json"))


@pytest.mark.parametrize("changes", [2, 8])
@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_schedule_cuts_a_step_where_it_says(path, changes, tmp_path):
    step = read(path)
    (tmp_path / "s.json").write_text(json.dumps(gpu_play.schedule(step, changes)))
    iteration = iteration_of(str(tmp_path / "s.json"), step, None, 0.05)
    assert len(iteration.changes) == changes

    class Noted:
        def piece(self, nodes):
            return nodes

    pieces = cut(Noted(), step, [launch for launch, _ in iteration.changes])
    assert len(pieces) == changes
    assert [node for _, nodes in pieces for node in nodes] == list(range(len(step.nodes)))
