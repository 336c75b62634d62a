"""Fake boards on which commands run and schedules are played."""

import pytest
from fake import Boards
from laboratory import Lab


@pytest.fixture
def lab(fake_library, tmp_path, config):
    """`lab(profiles, name, **knobs)`: a laboratory on real time, its boards half loaded, apart from those of other
    names; what it has started is ended. Their counters move often, since commands wait for several moves."""
    made = []

    def make(profiles="h200", name="", **knobs):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        boards = Boards(
            fake_library,
            folder / "boards.state",
            profiles,
            **({"time": "real", "utilisation": 0.5, "period_ms": 20} | knobs),
        )
        made.append(Lab(boards, folder / "work", config()))
        return made[-1]

    yield make
    for each in made:
        each.end()
