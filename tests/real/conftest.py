"""Fake boards on virtual time to measure on."""

import pytest
from fake import Boards
from laboratory import Lab

# short: what a test does not ask about
QUICK = {"window_s": 2, "windows": 1, "max_windows": 1, "warmup_s": 0.1}


@pytest.fixture(scope="module")
def module_lab(fake_library, tmp_path_factory, config):
    """`module_lab(profiles, **knobs)`: a Lab on virtual time that a whole module looks at; it starts no server."""

    def make(profiles, **knobs):
        folder = tmp_path_factory.mktemp("lab")
        return Lab(
            Boards(fake_library, folder / "state", profiles, time="virtual", **knobs), folder / "work", config(**QUICK)
        )

    return make


@pytest.fixture
def lab(boards, tmp_path, config):
    """`lab(profiles, **knobs)` on virtual time; what is left running is ended. On real time the counters move often:
    commands wait for several moves."""
    made = []

    def make(profiles="h200", folder="work", reuse=None, **knobs):
        quick = {"period_ms": 20} if knobs.get("time") == "real" else {"time": "virtual"}
        on = reuse.boards if reuse else boards(profiles, **(quick | knobs))
        made.append(Lab(on, tmp_path / folder, config(**QUICK)))
        return made[-1]

    yield make
    for each in made:
        each.boards.set(fail="", deny=0)
        each.stop()
        each.end()
