"""What a study can deploy: each way as it plays, none better than one that is freer, and files that can be played."""

import json

import numpy as np
import pandas as pd
import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.layout import iteration_name
from kernel_dvfs.sequence.changes import Changes, Timing
from kernel_dvfs.sequence.deployable import FREE, LAUNCH, PASS, RUN, deployables
from kernel_dvfs.sequence.replay import replay
from kernel_dvfs.sequence.schedule import read_iteration

LATENCIES_S, STALL_S = (0.001, 0.01), 1e-4


@pytest.fixture(scope="module")
def found(iteration):
    """(rows as a frame, choices)."""
    rows, choices = deployables(iteration, LATENCIES_S, (STALL_S, STALL_S), (0.0, STALL_S), 0.002)
    return pd.DataFrame(rows), choices


def test_there_is_a_row_for_each_way_latency_and_stall(found):
    frame, choices = found
    default = frame[frame.is_default]
    assert default.way.tolist() == [FREE, RUN, PASS, PASS, LAUNCH, LAUNCH]
    assert default.latency_ms[default.way == LAUNCH].tolist() == [1, 10]
    others = frame[~frame.is_default]
    assert len(others) == 2 and set(others.core_stall_ms) == {0.0}, "the default stalls are not repeated"
    assert list(choices) == list(LATENCIES_S)


def test_none_saves_more_than_a_freer_one_could(found):
    frame, _ = found
    frame = frame.assign(bound=frame.energy_change_percent - frame.gap_points)
    (free,) = frame.bound[frame.way == FREE]
    fast, slow = frame.bound[(frame.way == LAUNCH) & frame.is_default]
    prompt = frame.bound[(frame.way == LAUNCH) & ~frame.is_default].tolist()
    assert free <= prompt[0] + 1e-9 <= fast + 2e-9, "without stalls, then with"
    assert fast <= frame.energy_change_percent[(frame.way == LAUNCH) & frame.is_default].iloc[1] + 1e-9
    by_pass = frame.energy_change_percent[frame.way == PASS].tolist()
    assert fast <= by_pass[0] and slow <= by_pass[1]
    (run,) = frame.energy_change_percent[frame.way == RUN]
    assert max(by_pass) <= run + 1e-9, "one pair for both passes is one of them"
    assert (frame.time_change_percent <= 0.2 + 1e-6).all() and (frame.gap_points >= 0).all()
    assert frame.gap_points.max() < 0.1


def test_each_choice_plays_as_its_row_says(found, iteration):
    frame, choices = found
    rows = frame[(frame.way == LAUNCH) & frame.is_default]
    for (latency_s, choice), row in zip(choices.items(), rows.itertuples()):
        played = replay(iteration, Timing("ahead", latency_s, 0.0, STALL_S, STALL_S), choice.changes)
        assert 100 * (played.energy_j / iteration.baseline_energy_j - 1) == pytest.approx(row.energy_change_percent)
        assert 100 * (played.time_s / iteration.baseline_time_s - 1) == pytest.approx(row.time_change_percent, abs=1e-7)


def test_the_command_writes_the_list_and_schedules_that_play_as_promised(iteration_profile, iteration, tmp_path):
    strict = tmp_path / "strict.json"
    strict.write_text(json.dumps({"margin": {"time_percent": 0.05}}))
    words = ["study", "deployable", str(iteration_profile), "--latencies", "0.02", "--mem-stall", "0.0003"]
    assert main([*words, "--reserve-of", str(strict), "-o", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "deployable.json").read_text())
    assert content["reserve_percent"] == 0.05
    assert all(row["time_change_percent"] <= -0.05 + 1e-6 for row in content["rows"])
    schedule = read_iteration(tmp_path / f"{iteration_name(0.02)}.json")
    assert schedule.totals["slack_percent"] == 0, "the limit to judge by: the reserve is not part of it"
    assert schedule.totals["reserve_percent"] == 0.05
    assert schedule.timing == Timing("ahead", 0.02, 0.0, 1e-4, 3e-4)
    place = {clocks: number for number, clocks in enumerate(_listed(iteration))}
    changes = Changes(
        place[schedule.pairs[schedule.first]],
        tuple(launch for launch, _ in schedule.changes),
        tuple(place[schedule.pairs[pair]] for _, pair in schedule.changes),
    )
    played = replay(iteration, schedule.timing, changes)
    assert played.time_s == pytest.approx(schedule.totals["time_s"], rel=1e-9)
    assert played.energy_j == pytest.approx(schedule.totals["energy_j"], rel=1e-9)
    assert schedule.until_s()[-1] == pytest.approx(schedule.totals["time_s"], rel=1e-9), "as the player counts"
    assert np.diff(schedule.until_s()).min() > 0


def _listed(iteration):
    return [tuple("auto" if mhz is None else int(mhz) for mhz in pair) for pair in iteration.pairs]


def test_a_reserve_that_cannot_be_read_is_refused_in_one_line(iteration_profile, tmp_path, refused):
    words = ["study", "deployable", str(iteration_profile), "--latencies", "0.02", "-o", str(tmp_path)]
    said = refused(*words, "--reserve-of", str(tmp_path / "none.json"))
    assert "none.json" in said and not (tmp_path / "deployable.json").exists()


def test_a_reserve_that_no_choice_keeps_is_given_up_aloud_and_the_list_says_so(iteration_profile, tmp_path, capsys):
    strict = tmp_path / "strict.json"
    strict.write_text(json.dumps({"margin": {"time_percent": 60}}))
    words = ["study", "deployable", str(iteration_profile), "--latencies", "0.02", "-o", str(tmp_path)]
    assert main([*words, "--reserve-of", str(strict)]) == 0
    assert "no choice keeps 60 %" in capsys.readouterr().err
    content = json.loads((tmp_path / "deployable.json").read_text())
    assert content["reserve_percent"] == 0 and all(row["time_change_percent"] <= 1e-6 for row in content["rows"])
    assert read_iteration(tmp_path / f"{iteration_name(0.02)}.json").totals["reserve_percent"] == 0
