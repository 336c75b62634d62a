"""Fake boards on which commands run and schedules are played."""

import pytest
from laboratory import Lab


@pytest.fixture
def lab(boards, tmp_path, config):
    """`lab(profiles, **knobs)`: a laboratory on real time, its boards half loaded; what it has started is ended."""
    made = []

    def make(profiles="h200", **knobs):
        made.append(
            Lab(boards(profiles, **({"time": "real", "utilisation": 0.5} | knobs)), tmp_path / "work", config())
        )
        return made[-1]

    yield make
    for each in made:
        each.end_daemons()
