"""The sweep of slacks runs from the largest saving of time to large slowdowns, and more slack never costs energy."""

import json

import numpy as np
import pytest
from instances import roofline

from kernel_dvfs.choice.frontier import frontier, largest_time_saving_percent, relaxed_frontier
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import SCOPES, solve
from kernel_dvfs.cli.main import main
from kernel_dvfs.profile.store import write_profile
from profiles import profile


@pytest.fixture(scope="module")
def problem():
    return roofline(np.random.default_rng(11), 46, 55)


@pytest.mark.parametrize("scope", SCOPES)
def test_more_slack_never_costs_energy_and_is_kept(problem, scope):
    slacks = [-largest_time_saving_percent(problem, scope), 0, 1, 2, 5, 10, 30]
    points = frontier(problem, slacks, scope)
    assert [point.status for point in points] == ["optimal"] * len(slacks)
    assert all(point.time_change_percent <= slack + 1e-6 for point, slack in zip(points, slacks))
    energies = [point.energy for point in points]
    assert energies == sorted(energies, reverse=True)
    for slack, point in zip(slacks, points):
        answer = solve(problem, scope, "waste", slack / 100)
        assert (answer.time, answer.energy) == pytest.approx((point.time, point.energy))


def test_too_much_saving_is_infeasible_point_by_point(problem):
    points = frontier(problem, [-largest_time_saving_percent(problem) - 0.1, 0])
    assert [point.status for point in points] == ["infeasible", "optimal"]
    assert points[0].energy is None


def test_saving_of_time_by_hand():
    problem = Problem.of([[4.0, 2.0], [4.0, 3.0]], [[1.0, 2.0], [1.0, 2.0]], [0, 0], [["a", "b"], ["a", "c"]])
    assert largest_time_saving_percent(problem, "global") == pytest.approx(37.5)
    assert largest_time_saving_percent(problem, "local") == pytest.approx(25)
    assert largest_time_saving_percent(problem, "single") == pytest.approx(0)


@pytest.mark.parametrize(
    ("keys", "percent"),
    [
        # both at b: 1.5 and 3.5 of 2 + 6 units of time
        ([["a", "b", "c"], ["a", "b", "d"]], 37.5),
        # both at b, the one faster, the other slower: 3 + 4; at a nothing is saved
        ([["a", "c", "b"], ["a", "d", "b"]], 12.5),
        ([["a", "b", "c"], ["a", "d", "e"]], 0.0),
        ([["a", "b", "c"], ["d", "e", "f"]], 0.0),
    ],
)
def test_saving_of_time_at_one_setting_for_all_is_that_of_the_fastest_that_all_know(keys, percent):
    problem = Problem.of([[2.0, 1.5, 3.0], [6.0, 3.5, 4.0]], [[1.0] * 3] * 2, [0, 0], keys)
    assert largest_time_saving_percent(problem, "single") == pytest.approx(percent)
    # of a quarter and five twelfths; 1.5 + 3.5 of 8
    assert largest_time_saving_percent(problem, "local") == pytest.approx(25)
    assert largest_time_saving_percent(problem, "global") == pytest.approx(37.5)


def test_a_sweep_of_forty_slacks_falls_from_one_to_the_next(problem):
    points = frontier(problem, np.linspace(-2, 30, 40))
    energies = [point.energy for point in points if point.status == "optimal"]
    assert len(energies) > 30 and energies == sorted(energies, reverse=True)


# --- the frontier of a profile ---

ROWS = [
    (name, count, core, 5001.0 if core else None, size * time, 100 * size * energy)
    for name, count, size, saving, slower in (("a", 1, 1e-3, 0.98, 1.17), ("b", 3, 2e-3, 0.99, 1.05))
    for core, time, energy in ((None, 1.0, 1.0), (1470.0, saving, 1.1), (1260.0, 1.02, 0.8), (1050.0, slower, 0.7))
]
SLACKS = [*(0.5 * step for step in range(10)), *map(float, range(5, 31))]
# (slack from which a point is chosen, time change, energy change), percent
LOCAL = [
    (-0.9999999000000009, -1.1428571428571455, 10.000000000000009),
    (0.0, 0.0, 0.0),
    (2.0, 2.0000000000000018, -19.999999999999996),
    (5.0, 4.571428571428582, -28.57142857142858),
    (17.0, 6.714285714285717, -30.000000000000014),
]
GLOBAL = [
    (-1.1428570428571454, -1.1428571428571455, 10.000000000000009),
    (-0.5, -0.5714285714285783, 5.714285714285738),
    (0.0, 0.0, 0.0),
    (0.5, 0.28571428571428914, -2.857142857142847),
    (1.5, 1.4285714285714235, -15.714285714285714),
    (2.0, 2.0000000000000018, -19.999999999999996),
    (4.0, 4.0000000000000036, -24.28571428571431),
    (4.5, 4.285714285714293, -25.714285714285733),
    (5.0, 4.571428571428582, -28.57142857142858),
    (7.0, 6.714285714285717, -30.000000000000014),
]


def expected(scope, known, below_zero):
    """Every point of a scope: each slack has the change of the last entry that begins at it or below."""
    for slack in [known[0][0], *below_zero, *SLACKS]:
        _, time, energy = [each for each in known if each[0] <= slack][-1]
        yield {
            "slack_percent": pytest.approx(slack, rel=1e-12),
            "scope": scope,
            "time_change_percent": pytest.approx(time, rel=1e-9, abs=1e-12),
            "energy_change_percent": pytest.approx(energy, rel=1e-9, abs=1e-12),
        }


def test_a_relaxed_frontier_goes_from_the_largest_time_saving_of_each_scope_to_thirty_percent():
    found = relaxed_frontier(profile(ROWS))
    assert list(found) == ["schema", "points"] and found["schema"] == "kernel-dvfs/frontier/1"
    assert found["points"] == [*expected("local", LOCAL, [-0.5]), *expected("global", GLOBAL, [-1.0, -0.5])]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_relaxed_frontier_of_a_gpu_that_auto_wastes_no_time_on_begins_at_no_slack():
    slower = [row for row in ROWS if row[2] != 1470.0]
    points = relaxed_frontier(profile(slower))["points"]
    assert [point["slack_percent"] for point in points] == SLACKS * 2


def test_weights_and_ties_are_those_of_a_schedule():
    twins = [(*row, {"replicate_group": "g"}) for row in ROWS if row[0] == "b"]
    twins += [("c", *row[1:]) for row in twins]
    tied, untied = (relaxed_frontier(profile(twins), ties)["points"] for ties in ("tied", "untied"))
    # two targets on their own have choices between those of one
    assert {point["time_change_percent"] for point in tied} < {point["time_change_percent"] for point in untied}
    assert relaxed_frontier(profile(ROWS), weights="raw") != relaxed_frontier(profile(ROWS))
    assert relaxed_frontier(profile(ROWS), weights="raw") == relaxed_frontier(profile(ROWS, kind="table"))


@pytest.fixture
def stored(tmp_path):
    """The profile of ROWS as a file."""
    columns = profile(ROWS)
    metadata = columns.pop("metadata")
    columns |= dict.fromkeys(("reached_core_mhz", "reached_mem_mhz", "time_sd_s", "energy_sd_j"), [None] * len(ROWS))
    path = tmp_path / "profile.parquet"
    write_profile(path, columns, metadata["gpu"], metadata["workload"], metadata["settings"])
    return path


def unsealed(path):
    """What a file holds besides its checksum and what it was made of."""
    return {name: each for name, each in json.loads(path.read_text()).items() if name not in ("sha256", "made_of")}


def test_the_command_writes_the_frontier_of_a_profile_and_says_its_ends_and_its_file(stored, tmp_path, capsys):
    output = tmp_path / "schedules/frontier.json"
    assert main(["choose", str(stored), "--frontier", "-o", str(output)]) == 0
    assert unsealed(output) == relaxed_frontier(stored)
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and said.endswith(f" points in {output}\n")
    for end, slack in (("no slower: ", "0"), ("at most 30 % slower: ", "30")):
        assert main(["choose", str(stored), "--slack", slack]) == 0
        # what a schedule of the same limit says
        energy = capsys.readouterr().out.split(": ")[1].partition(",")[0]
        assert f"{end}{energy}" in said
    assert main(["choose", str(stored), "--frontier", "--weights", "raw", "-o", str(output)]) == 0
    assert unsealed(output) == relaxed_frontier(stored, weights="raw")


@pytest.mark.parametrize(
    "words",
    [
        ("--scope", "global"),
        ("--objective", "waste"),
        ("--slack", "0"),
        ("--granularity", "kernel"),
        ("--walk", "search.json"),
    ],
)
def test_a_frontier_takes_no_question_of_a_schedule(stored, tmp_path, refused, words):
    assert f"{words[0]} does not go with --frontier" in refused(
        "choose", stored, "--frontier", *words, "-o", tmp_path / "f.json"
    )
    assert not (tmp_path / "f.json").exists()


def test_a_schedule_is_of_all_together_and_of_waste_unless_told_and_is_written_where_asked(stored, tmp_path, capsys):
    assert main(["choose", str(stored)]) == 0
    answered = capsys.readouterr()
    assert "least energy, no slower; all kernels together" in answered.out and "add -o schedule.json" in answered.err
    assert main(["choose", str(stored), "-o", str(tmp_path / "s.json")]) == 0
    assert capsys.readouterr().out == answered.out
    told = json.loads((tmp_path / "s.json").read_text())
    assert (told["granularity"], told["scope"], told["objective"], told["slack_percent"]) == (
        "kernel",
        "global",
        "waste",
        0,
    )


def test_what_is_no_answer_in_a_line_needs_a_file(stored, refused):
    assert "-o is missing" in refused("choose", stored, "--frontier")
