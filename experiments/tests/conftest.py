"""Fake boards on virtual time, for a script that measures."""

import pytest
from laboratory import Lab

# short: what a test does not ask about
QUICK = {"window_s": 2, "windows": 2, "max_windows": 2, "warmup_s": 0.1}
QUICK["energy_ci_percent"] = 20


@pytest.fixture
def lab(boards, tmp_path, config):
    """`lab(profiles, **knobs)` on virtual time; what is left running is ended."""
    made = []

    def make(profiles="h200", **knobs):
        made.append(Lab(boards(profiles, **({"time": "virtual"} | knobs)), tmp_path / "work", config(**QUICK)))
        return made[-1]

    yield make
    for each in made:
        each.stop()
        each.end()
