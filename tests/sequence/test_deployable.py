"""What a study can deploy: each way as it plays, none better than one that is freer, and files that can be played."""

import json

import numpy as np
import pandas as pd
import pytest
from whole_schedule import whole_schedule, whole_walk

from kernel_dvfs.cli.main import main
from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import iteration_name
from kernel_dvfs.measurement.latency_file import content
from kernel_dvfs.sequence.changes import Changes, Timing
from kernel_dvfs.sequence.costs import read_latency
from kernel_dvfs.sequence.deployable import FREE, LAUNCH, PASS, RUN, deployables
from kernel_dvfs.sequence.replay import replay
from kernel_dvfs.sequence.schedule import read_iteration

pytestmark = pytest.mark.slow

LATENCIES_S, STALL_S = (0.001, 0.01), 1e-4


@pytest.fixture(scope="module", params=["iteration", pytest.param("whole_iteration", marks=pytest.mark.nightly)])
def sequence(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def found(sequence):
    """(rows as a frame, choices)."""
    rows, choices = deployables(sequence, LATENCIES_S, (STALL_S, STALL_S), (0.0, STALL_S), 0.002)
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


def test_each_choice_plays_as_its_row_says(found, sequence):
    frame, choices = found
    rows = frame[(frame.way == LAUNCH) & frame.is_default]
    for (latency_s, choice), row in zip(choices.items(), rows.itertuples()):
        played = replay(sequence, Timing("ahead", latency_s, 0.0, STALL_S, STALL_S), choice.changes)
        assert 100 * (played.energy_j / sequence.baseline_energy_j - 1) == pytest.approx(row.energy_change_percent)
        assert 100 * (played.time_s / sequence.baseline_time_s - 1) == pytest.approx(row.time_change_percent, abs=1e-7)


def test_the_command_writes_the_list_and_schedules_that_play_as_promised(iteration_profile, iteration, tmp_path):
    strict = tmp_path / "strict.json"
    strict.write_text(json.dumps(whole_schedule(walk=whole_walk(reserve_percent=0.05))))
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
    strict.write_text(json.dumps(whole_schedule(walk=whole_walk(reserve_percent=60))))
    words = ["study", "deployable", str(iteration_profile), "--latencies", "0.02", "-o", str(tmp_path)]
    assert main([*words, "--reserve-of", str(strict)]) == 0
    assert "no choice keeps 60 %" in capsys.readouterr().err
    content = json.loads((tmp_path / "deployable.json").read_text())
    assert content["reserve_percent"] == 0 and all(row["time_change_percent"] <= 1e-6 for row in content["rows"])
    assert read_iteration(tmp_path / f"{iteration_name(0.02)}.json").totals["reserve_percent"] == 0


@pytest.fixture
def latency_file(tmp_path):
    """`latency_file(gpu name)`: a file as `kernel-dvfs latency` writes it, of made-up changes."""

    def write(name="G"):
        trials = [
            {"domain": domain, "from_mhz": 1, "to_mhz": 2, "verdict": "ok", "call_s": 0.001, "first_effect_s": 0.5 * s}
            | {"settled_s": s, "nvml_s": s, "stall_s": stall}
            for domain, base, stall in (("core", 0.004, 0.0002), ("mem", 0.009, 0.0005))
            for s in np.linspace(base, 2 * base, 21)
        ]
        gpu = {"name": name, "uuid": "GPU-0123456789ab", "driver": "580.1"}
        path = tmp_path / "latency.json"
        path.write_text(json.dumps(content({"gpu": gpu, "started_utc": "2026-11-22T10:00:00Z"}, trials)))
        return path

    return write


MEASURED = "measured on G (GPU-01234567, driver 580.1, 2026-11-22)"


def test_measured_latencies_and_stalls_stand_in_place_of_the_assumed_ones(iteration_profile, latency_file, tmp_path):
    words = ["study", "deployable", str(iteration_profile), "--measured", str(latency_file()), "-o", str(tmp_path)]
    assert main([*words, "--stalls", "0"]) == 0
    written = json.loads((tmp_path / "deployable.json").read_text())
    assert written["sources"] == {"latency": MEASURED, "stalls": MEASURED}
    launches = [row for row in written["rows"] if row["way"] == LAUNCH]
    # median and 95th percentile of the slower domain; the swept stall is no measurement
    assert [row["latency_ms"] for row in launches] == pytest.approx([13.5, 17.55] * 2)
    assert [row["costs"] for row in launches] == [MEASURED] * 2 + ["assumed"] * 2
    assert [launches[0][f"{domain}_stall_ms"] for domain in ("core", "mem")] == pytest.approx([0.2, 0.5])
    schedule = json.loads((tmp_path / f"{iteration_name(0.0135)}.json").read_text())
    assert schedule["switching"]["sources"] == {"latency": MEASURED, "stalls": MEASURED}


def test_choose_takes_latency_jitter_and_stalls_from_the_file(iteration_profile, latency_file, tmp_path):
    words = ["choose", str(iteration_profile), "--scope", "global", "--objective", "waste", "--sequence", "profile"]
    words += ["--switch-latency", str(latency_file()), "-o", str(tmp_path / "s.json")]
    assert main(words) == 0
    # between the 5th and the 95th percentile of the slower domain: 9.45 to 17.55 ms
    timing = read_iteration(tmp_path / "s.json").timing
    assert (timing.latency_s, timing.latency_s * timing.jitter) == pytest.approx((0.0135, 0.00405))
    assert (timing.core_stall_s, timing.mem_stall_s) == pytest.approx((0.0002, 0.0005))
    assert main([*words, "--core-stall", "0", "--switch-jitter", "0"]) == 0
    schedule = json.loads((tmp_path / "s.json").read_text())
    assert schedule["switching"]["sources"]["stalls"] == f"core assumed, memory {MEASURED}"
    assert schedule["switching"]["jitter"] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "{", "latency.json: truncated or not JSON ("),
        (lambda text: "[]", "latency.json: not a kernel-dvfs/latency/1 file; kernel-dvfs latency makes it"),
        (
            lambda text: text.replace("latency/1", "latency/9"),
            "(schema kernel-dvfs/latency/9, this one",
        ),
        (lambda text: text.replace('"median": ', '"median": -'), "settled_s.median is -"),
        (lambda text: text.replace('"n": 21', '"n": 0'), "no change of a clock was seen"),
        (lambda text: text.replace('"driver"', '"diver"'), "gpu.driver is missing; kernel-dvfs latency makes it"),
        (
            lambda text: text.replace('"domains": {"core": {', '"domains": {"core": [], "x": {'),
            "domains.core is [], expected a group of fields",
        ),
    ],
)
def test_a_broken_latency_file_is_one_line(iteration_profile, latency_file, tmp_path, refused, change, said):
    path = latency_file()
    path.write_text(change(path.read_text()))
    words = ["study", "deployable", iteration_profile, "--measured", path, "-o", tmp_path / "out"]
    assert said in refused(*words) and not (tmp_path / "out").exists()


def test_latencies_of_another_gpu_are_refused_for_clocks_of_a_real_one(latency_file):
    assert read_latency(latency_file("A"), {"kind": "simulated", "name": "B"}).gpu_name == "A", "and it says so"
    with pytest.raises(InputError, match=r"measured on A .* but these clocks are chosen for B"):
        read_latency(latency_file("A"), {"kind": "nvml", "name": "B"})
