"""`kernel-dvfs sequence`: what it writes, and bad input refused in one line, with nothing written."""

import json

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs_deploy.sequence.changes import Timing
from kernel_dvfs_deploy.sequence.costs import ASSUMED_STALL_S
from kernel_dvfs_deploy.sequence.schedule import read_iteration


@pytest.fixture
def small_profile(tmp_path):
    """`small_profile(changed rows)`: two kernels at auto and two locked pairs, as a profile."""

    def write(change=lambda rows: rows, settings=("core_mhz", "mem_mhz")):
        rows = [
            dict.fromkeys([*COLUMNS, *settings])
            | {"study": "kernel", "target": name, "launches_per_iteration": count, "n": 1, "verdict": "ok"}
            | {"core_mhz": core, "is_baseline": core is None, "time_s": size * time, "energy_j": 100 * size * energy}
            for name, count, size in (("a", 1, 1e-3), ("b", 3, 2e-3))
            for core, time, energy in (
                (None, 1.0, 1.0),
                (1470.0, 1.02, 0.8),
                (1050.0, 1.3 if name == "a" else 1.0, 0.7),
            )
        ]
        rows = change(rows)
        path = tmp_path / "profile.parquet"
        columns = {name: [row[name] for row in rows] for name in [*COLUMNS, *settings[2:]]}
        write_profile(path, columns, {"kind": "table", "name": "G", "slug": "table-g"}, {"name": "w"}, list(settings))
        return path

    return write


def choose(profile, output, *more):
    return ["sequence", str(profile), "--order", "profile", *map(str, more), "-o", str(output)]


@pytest.mark.slow
def test_an_iteration_schedule_keeps_its_limit_and_says_how_far_from_best_it_is(whole_profile, tmp_path):
    output = tmp_path / "it.json"
    assert main(choose(whole_profile, output, "--switch-latency", 0.005, "--switch-jitter", 0.1)) == 0
    content = json.loads(output.read_text())
    assert content["time_change_percent"] <= 1e-6 and content["energy_change_percent"] < -2
    assert 0 <= content["gap_points"] < 0.05
    schedule = read_iteration(output)
    assert len(schedule.names) == 897 and schedule.timing == Timing(
        "ahead", 0.005, 0.1, ASSUMED_STALL_S, ASSUMED_STALL_S
    )
    assert len(schedule.changes) == content["change_count"] > 3
    assert sum(schedule.time_s) == pytest.approx(content["time_s"], rel=0.01)


def test_launches_may_come_in_an_order_of_ones_own(small_profile, tmp_path, capsys):
    order = tmp_path / "order.json"
    order.write_text(json.dumps(["b", "a", "b"]))
    words = choose(small_profile(), tmp_path / "it.json", "--switch-latency", 0, "--slack", 5)
    words[words.index("profile")] = str(order)
    assert main(words) == 0
    schedule = read_iteration(tmp_path / "it.json")
    assert schedule.names == ["b", "a", "b"]
    assert [schedule.pairs[pair] for pair in schedule.wanted] == [(1050, "auto"), (1470, "auto"), (1050, "auto")]
    made = json.loads((tmp_path / "it.json").read_text())
    saved, count = -made["energy_change_percent"], made["change_count"]
    said = capsys.readouterr().out
    assert f": {saved:.2f} % less energy and " in said and f" {count} change" in said and said.count("\n") == 1


def test_layers_of_a_profile_are_run_through_as_often_as_they_are_launched(small_profile, tmp_path):
    assert main(choose(small_profile(), tmp_path / "it.json", "--switch-latency", 0.001)) == 0
    assert read_iteration(tmp_path / "it.json").names == ["a", "b", "b", "b"]


def without(**which):
    return lambda rows: [row for row in rows if any(row[key] != value for key, value in which.items())]


def with_verdict(verdict, **which):
    def change(rows):
        for row in rows:
            if all(row[key] == value for key, value in which.items()):
                row["verdict"] = verdict
        return rows

    return change


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without(target="b", core_mhz=None), "target b has 0 usable baseline rows"),
        (
            without(target="b", core_mhz=1050.0),
            "kernel b has no usable row at pair 1050-auto (columns core_mhz, mem_mhz; 1",
        ),
        (with_verdict("disturbed", target="a", core_mhz=None), "target a has 0 usable baseline rows"),
        (with_verdict("counter", target="a", core_mhz=1470.0), "kernel a has no usable row at pair 1470-auto"),
        (with_verdict("unsupported"), "no usable rows"),
    ],
)
def test_a_profile_that_lacks_what_an_iteration_needs_is_refused(small_profile, tmp_path, refused, change, named):
    path = small_profile(change)
    said = refused(*choose(path, tmp_path / "it.json", "--switch-latency", 0.01))
    assert named in said and str(path) in said and not (tmp_path / "it.json").exists()


def test_pairs_that_a_kernel_lacks_are_left_out_on_request(small_profile, tmp_path, capsys):
    path = small_profile(without(target="b", core_mhz=1050.0))
    assert main(choose(path, tmp_path / "it.json", "--switch-latency", 0, "--shared-pairs", "--slack", 5)) == 0
    assert "1050-auto" in capsys.readouterr().err
    assert (1050, "auto") not in read_iteration(tmp_path / "it.json").pairs


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ([], "the following arguments are required: --switch-latency"),
        (["--switch-latency", -0.01], "--switch-latency: expected a number of seconds"),
        (["--switch-latency", "nan"], "--switch-latency: expected a number of seconds"),
        (["--switch-latency", 0.01, "--switch-jitter", 2], "--switch-jitter: expected a number from 0 to 1"),
        (["--switch-latency", 0.01, "--stall-w", -1], "--stall-w: expected a number of W"),
        (["--switch-latency", 0.01, "--mem-stall", -1], "--mem-stall: expected a number of seconds"),
        (["--switch-latency", 0.01, "--slack", -50], "no choice keeps -50 % slowdown"),
    ],
)
def test_impossible_wishes_for_an_iteration_are_refused(small_profile, tmp_path, refused, more, named):
    said = refused(*choose(small_profile(), tmp_path / "it.json", *more))
    assert named in said and not (tmp_path / "it.json").exists()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "missing; a JSON list of kernel ids"),
        ("{", "truncated or not JSON ("),
        ("[]", "it is empty; a JSON list of kernel ids"),
        ('["a", 1]', "[1] is 1, expected a text"),
        ('["a", "z"]', "kernel z is not in"),
    ],
)
def test_an_order_that_cannot_be_used_is_refused(small_profile, tmp_path, refused, text, named):
    order = tmp_path / "order.json"
    if text is not None:
        order.write_text(text)
    words = choose(small_profile(), tmp_path / "it.json", "--switch-latency", 0.01)
    words[words.index("profile")] = str(order)
    said = refused(*words)
    assert named in said and str(order) in said


def test_a_profile_with_further_settings_cannot_be_played_launch_by_launch(small_profile, tmp_path, refused):
    def capped(rows):
        return [row | {"power_cap_w": 300.0} for row in rows]

    path = small_profile(capped, ("core_mhz", "mem_mhz", "power_cap_w"))
    said = refused(*choose(path, tmp_path / "it.json", "--switch-latency", 0.01))
    assert "settings power_cap_w cannot be changed from launch to launch" in said
