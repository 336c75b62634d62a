"""The table of tolerated slowdowns is the frontier that was chosen, and nothing is chosen again for it."""

import json

import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.tables import relaxed

POINTS = [
    {"slack_percent": -1.25, "scope": "local", "time_change_percent": -1.5, "energy_change_percent": 2.0},
    {"slack_percent": 0.0, "scope": "global", "time_change_percent": -0.01, "energy_change_percent": -7.5},
]


def test_its_rows_are_the_points_in_their_order(tmp_path):
    frontier(tmp_path, {"schema": "kernel-dvfs/frontier/1", "points": POINTS})
    assert relaxed.make(Results(tmp_path)).to_dict("records") == POINTS


@pytest.mark.parametrize("content", [{}, {"schema": "kernel-dvfs/frontier/1"}, {"schema": "x", "points": []}, []])
def test_another_file_in_its_place_is_named(tmp_path, content):
    frontier(tmp_path, content)
    with pytest.raises(InputError, match=r"schedules/frontier.json: not a .*; delete it and run"):
        relaxed.make(Results(tmp_path))


def test_without_a_frontier_the_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"frontier.json"):
        relaxed.make(Results(tmp_path))


def frontier(folder, content):
    (folder / "schedules").mkdir()
    (folder / "schedules/frontier.json").write_text(json.dumps(content))
