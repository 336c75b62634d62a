"""Fake boards on which commands run and schedules are played."""

import pytest
from laboratory import Lab


@pytest.fixture
def lab(boards, tmp_path, config):
    """`lab(profiles, **knobs)`: a laboratory on real time, its boards half loaded."""

    def make(profiles="h200", **knobs):
        return Lab(boards(profiles, **({"time": "real", "utilisation": 0.5} | knobs)), tmp_path / "work", config())

    return make
