"""What a session keeps is told apart from scatter: by hand, and where nothing is kept."""

import csv
import math
import statistics

import pytest


@pytest.fixture(scope="module")
def sessions(script):
    return script("experiments/benchmarks/gpu_sessions.py")


def test_each_level_is_what_the_one_within_it_does_not_explain(sessions):
    """Two processes of three allocations of two windows; mean squares worked out by hand."""
    groups = [[[10.0, 10.4], [11.0, 11.2], [9.0, 9.8]], [[15.0, 15.2], [14.0, 14.8], [17.0, 17.2]]]
    within = (0.08 + 0.02 + 0.32 + 0.02 + 0.32 + 0.02) / 6
    means = [[10.2, 11.1, 9.4], [15.1, 14.4, 17.1]]
    between = (statistics.variance(means[0]) + statistics.variance(means[1])) / 2
    apart = (sum(means[1]) / 3 - sum(means[0]) / 3) ** 2 / 2
    whole = (sum(means[0]) + sum(means[1])) / 6
    parts = within, between - within / 2, apart - between / 3
    assert min(parts) > 0
    assert sessions.components(groups) == pytest.approx([100 * math.sqrt(part) / whole for part in parts])


def test_what_windows_explain_is_no_difference_between_allocations_or_processes(sessions):
    groups = [[[10.0, 12.0], [12.0, 10.0]], [[9.0, 13.0], [13.0, 9.0]]]
    window, place, process = sessions.components(groups)
    assert window == pytest.approx(100 * math.sqrt(5) / 11) and place == process == 0


def test_the_kept_table_is_that_of_the_kept_windows(sessions, root):
    kept = root / "experiments/results/gpu_sessions_h100"
    with open(f"{kept}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert kept.with_suffix(".txt").read_text().splitlines()[2:] == sessions.table(rows)
