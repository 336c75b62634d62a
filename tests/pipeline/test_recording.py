"""Stages of a training of one's own: what every rank takes becomes a CSV that a plan is made from."""

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.recording import Recorder, write_rows
from kernel_dvfs_pipeline.stage_profile import read_stage_profile


class Gpu:
    """Work is launched at once and done at the next wait; its power depends on the clock."""

    def __init__(self):
        self.now_s, self.used_j, self.queued_s, self.watt = 17.25, 5000.0, 0.0, 0.0

    def launch(self, time_s, watt):
        self.queued_s, self.watt = self.queued_s + time_s, watt

    def wait(self):
        self.now_s, self.used_j, self.queued_s = self.now_s + self.queued_s, self.used_j + self.watt * self.queued_s, 0

    def recorder(self, stage, dp_rank=0, tp_rank=0):
        return Recorder(stage, lambda: self.used_j, self.wait, dp_rank, tp_rank, lambda: self.now_s)


# how much longer each rank of a stage takes: the tensor-parallel ranks of a replica wait for the slower one
_SLOWER = {(0, 0): 1.0, (0, 1): 1.03, (1, 0): 1.1, (1, 1): 1.02}


def test_ranks_are_pooled_and_never_summed(tmp_path):
    rows = []
    for stage in (1, 0):
        for ranks, slower in _SLOWER.items():
            gpu = Gpu()
            for factor, instruction in ((1, "forward"), (2.1, "backward")):
                for core_mhz, stretch, watt in ((1410, 1.0, 390.0), (900, 1.37, 210.0)):
                    time_s = 0.043 * factor * stretch * slower
                    work = lambda: gpu.launch(time_s, watt)  # noqa: B023, E731
                    rows.append(gpu.recorder(stage, *ranks).measure(instruction, work, core_mhz, repeats=130))
    write_rows(tmp_path / "mine.csv", rows)
    profile = read_stage_profile(tmp_path / "mine.csv")
    own = profile.of(1, "backward")
    assert profile.stages == 2 and sorted(own.core_mhz.tolist()) == [900, 1410]
    slow = own.core_mhz.tolist().index(900)
    alone_s = 0.043 * 2.1 * 1.37
    assert own.time_s[slow] == pytest.approx((1.03 + 1.1) / 2 * alone_s)
    assert own.energy_j[slow] == pytest.approx(210 * alone_s * sum(_SLOWER.values()) / 4)
    words = "--microbatches", "4", "--blocking-w", "120", "--no-slowdown", "-o", tmp_path / "plan.json"
    assert main([str(word) for word in ("pipeline", "plan", tmp_path / "mine.csv", *words)]) == 0


def test_too_short_a_measurement_is_refused_with_the_remedy():
    gpu = Gpu()
    with pytest.raises(InputError, match=r"9 repeats take 0\.387 s, less than 5 s; ask for 117 repeats"):
        gpu.recorder(3).measure("forward", lambda: gpu.launch(0.043, 300), 1410, repeats=9)
    with pytest.raises(InputError, match="0 repeats"):
        gpu.recorder(3).measure("forward", lambda: None, 1410, repeats=0)
