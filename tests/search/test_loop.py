"""A study by clock on records measures nothing twice, goes on where it was stopped, and never rests on other data."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import KERNELS, OPTIONS, PAIRS, Board

from kernel_dvfs.choice.schedule import choose
from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement import visit as visits
from kernel_dvfs.measurement.visit import OPENING_S, Visit
from kernel_dvfs.profile import aggregate
from kernel_dvfs.profile.records import changed
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.search import loop, study_file
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import CHECKSUM

STRICT, RELAXED = "kernel-slack0", "kernel-slack6.5"


@pytest.fixture(scope="module")
def undisturbed(folder_of, tmp_path_factory):
    """The folder of a study that nobody disturbed, and what its board was asked for. Not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        made, folder = Board(), folder_of(tmp_path_factory.mktemp("undisturbed"))
        patch.setattr(loop, "open_visitor", lambda setup, path: made)
        patch.setattr(loop, "new_session", lambda setup, path: None)
        folder.run()
    return folder, made.visited


@pytest.fixture(scope="module")
def finished(undisturbed):
    """(records, bytes of the study's file) of it."""
    return undisturbed[0].records(), undisturbed[0].output.read_bytes()


def restored(folder, records) -> None:
    for name, content in records.items():
        path = Path(folder.measurements, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def resealed(path: Path, change) -> None:
    """A record that stands for one that was measured so, not edited. change(content): alters it."""
    content = json.loads(path.read_bytes())
    change(content)
    del content[CHECKSUM]
    path.write_text(visits.sealed_json(content) + "\n")


def test_each_visit_is_measured_once_and_its_record_is_listed(undisturbed):
    folder, visited = undisturbed
    found = study_file.read(str(folder.output))
    paths = [visits.path(each) for each in visited]
    assert len(set(paths)) == len(paths) == found.about["visits"]
    assert list(found.records) == paths and set(folder.records()) == set(paths)
    assert changed(folder.measurements, found.records) == []
    assert visited[-1].session + 1 == found.about["sessions"]
    spent_s = sum(json.loads(content)["spent_s"] for content in folder.records().values())
    assert found.about["minutes"] == pytest.approx((spent_s + OPENING_S * found.about["sessions"]) / 60)
    assert found.about["minutes"] < OPTIONS["minutes"] and found.setup == folder.setup.digest


def test_the_walk_of_each_limit_and_level_is_kept_and_says_something(undisturbed):
    found = study_file.read(str(undisturbed[0].output))
    assert list(found.walks) == [STRICT, RELAXED, "pass-slack0", "pass-slack6.5"]
    strict, relaxed = found.walks[STRICT], found.walks[RELAXED]
    assert 0 < strict["passed"] < relaxed["passed"] <= relaxed["schedules"]
    assert relaxed["energy_percent"] < strict["energy_percent"] < 0 < strict["energy_se_percent"]
    assert np.mean(strict["time_percent"]) < 0 < np.mean(relaxed["time_percent"]) < 6.5
    assert set(strict["pairs"]) == set(KERNELS)
    assert {tuple(pair) for pair in strict["pairs"].values()} <= set(PAIRS)


def test_rows_are_a_profile_that_the_chosen_schedule_is_found_in(undisturbed, tmp_path):
    folder = undisturbed[0]
    found = study_file.read(str(folder.output))
    profile = tmp_path / "profile.parquet"
    aggregate.from_visits(folder.setup, folder.measurements, found.records, found.rows, str(profile))
    rows = read_profile(profile).table.to_pylist()
    kernels = {row["target"] for row in rows if row["study"] == "kernel"}
    assert kernels == set(KERNELS) and {row["target"] for row in rows if row["study"] == "pass"} == {
        "forward",
        "backward",
    }
    baselines = [row for row in rows if row["is_baseline"]]
    assert len(baselines) == len(KERNELS) + 2 and all(row["core_mhz"] is None for row in baselines)
    for level in ("kernel", "pass"):
        for limit in (0, 6.5):
            walked = found.walks[study_file.name_of(level, limit)]
            schedule = choose(str(profile), level, slack_percent=limit, walked=walked)
            own = {name: list(pair.values()) for name, pair in schedule["targets"].items()}
            assert own == {name: list(pair) for name, pair in walked["pairs"].items()}
            assert schedule["energy_change_percent"] == pytest.approx(walked["energy_percent"])


def test_a_row_is_the_mean_of_all_visits_of_its_pair_and_a_pass_the_sum_of_its_kernels(undisturbed):
    folder, visited = undisturbed
    found, records = study_file.read(str(folder.output)), folder.records()
    rows = [dict(zip(found.rows, values)) for values in zip(*found.rows.values())]
    by_name = {(row["target"], row["core_mhz"], row["mem_mhz"]): row for row in rows}
    launches = {name: own["launches_per_iteration"] for name, own in folder.setup.targets["kernel"].items()}
    for pair in (BASELINE, Pair(2100, 9251)):
        key = (None, None) if pair == BASELINE else tuple(map(float, pair))
        measured = [json.loads(records[visits.path(each)]) for each in visited if each.pair == pair]
        assert len(measured) > 3
        for name in KERNELS:
            row = by_name[name, *key]
            times = [each["passes"]["time_us"][name] for each in measured]
            assert row["time_s"] == pytest.approx(1e-6 * np.mean(times), rel=1e-6), "logarithms are averaged"
            assert row["n"] == len({each.session for each in visited if each.pair == pair})
            assert row["reached_core_mhz"] == np.mean([each["reached"]["core_mhz"] for each in measured])
            assert row["time_sd_s"] == pytest.approx(row["time_se_s"] * row["n"] ** 0.5)
        for name, own in (("forward", list(KERNELS)[:2]), ("backward", list(KERNELS)[2:])):
            parts = [by_name[each, *key] for each in own]
            for field in ("time_s", "energy_j"):
                total = sum(launches[each] * part[field] for each, part in zip(own, parts))
                assert by_name[name, *key][field] == pytest.approx(total)
            errors = [launches[each] * part["time_se_s"] for each, part in zip(own, parts)]
            assert by_name[name, *key]["time_se_s"] == pytest.approx(np.hypot(*errors))


def test_a_second_run_measures_nothing_and_gives_the_same_bytes(folder, board, finished):
    restored(folder, finished[0])
    folder.run()
    assert board.visited == [] and (folder.records(), folder.output.read_bytes()) == finished


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.nightly), 11])
def test_a_study_that_was_stopped_before_any_visit_goes_on_and_ends_with_the_same_bytes(
    folder, undisturbed, finished, every
):
    """After so many visits, for each number or every eleventh: the records that were there are all that is left."""
    visited = undisturbed[1]
    paths = [visits.path(each) for each in visited]
    for after in [*range(0, len(paths), every), len(paths) - 1]:
        for name in paths[after:]:
            Path(folder.measurements, name).unlink(missing_ok=True)
        folder.output.unlink(missing_ok=True)
        restored(folder, {name: finished[0][name] for name in paths[:after]})
        with pytest.MonkeyPatch.context() as patch:
            made = Board()
            patch.setattr(loop, "open_visitor", lambda setup, path, made=made: made)
            patch.setattr(loop, "new_session", lambda setup, path: None)
            folder.run()
        assert made.visited == visited[after:], f"after {after}: what is missing, and nothing else"
        assert (folder.records(), folder.output.read_bytes()) == finished


@pytest.mark.parametrize("after", [0, 1, 29])
def test_a_study_that_is_killed_leaves_whole_records_and_no_file(folder, board, finished, after):
    text = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from small_study import OPTIONS, Board\n"
        "from kernel_dvfs.search import loop\n"
        "class Killed(Board):\n"
        "    def visit(self, visit):\n"
        f"        if len(self.visited) == {after}:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().visit(visit)\n"
        "killed = Killed()\n"
        "loop.open_visitor, loop.new_session = lambda setup, path: killed, lambda setup, path: None\n"
        f"loop.run({folder.path!r}, {folder.measurements!r}, OPTIONS, {str(folder.output)!r})\n"
    )
    library = str(Path(loop.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", text], env=os.environ | {"PYTHONPATH": library}, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert not folder.output.exists() and len(folder.records()) == after
    folder.run()
    assert (folder.records(), folder.output.read_bytes()) == finished


def test_sessions_are_opened_anew_and_only_those_in_which_something_is_missing(folder, board, finished, monkeypatch):
    opened = []
    monkeypatch.setattr(loop, "new_session", lambda setup, path: opened.append(len(board.visited)))
    folder.run()
    sessions = [each.session for each in board.visited]
    assert opened == [place for place, own in enumerate(sessions) if not place or sessions[place - 1] != own]
    gone = [visits.path(each) for each in board.visited if each.session == sessions[-1]][1:3]
    for name in gone:
        Path(folder.measurements, name).unlink()
    del opened[:], board.visited[:]
    folder.run()
    assert len(opened) == 1 and [visits.path(each) for each in board.visited] == gone
    assert (folder.records(), folder.output.read_bytes()) == finished


def test_a_record_of_another_setup_is_measured_again(folder, board, finished):
    restored(folder, finished[0])
    other = folder.another(seed=77)
    found = other.run()
    assert len(board.visited) == len(found.records) and found.setup == other.setup.digest != folder.setup.digest


@pytest.mark.parametrize(
    "change",
    [{"pass_s": 2.75}, {"window_s": 0.75}, {"metered": [["forward_gelu"]]}, {"core_mhz": 1905}, {"session": 1}],
    ids=lambda change: next(iter(change)),
)
def test_a_record_of_another_question_is_measured_again_alone(folder, board, finished, change):
    restored(folder, finished[0])
    name = next(name for name in finished[0] if name.startswith("visit/s0/") and name.endswith("2100-9251.json"))
    path = Path(folder.measurements, name)
    resealed(path, lambda content: content["request"].update(change))
    folder.run()
    assert [visits.path(each) for each in board.visited] == [name]
    assert (folder.records(), folder.output.read_bytes()) == finished


@pytest.mark.parametrize(("kernels", "again"), [("", 0), ("a" * 64, 0), ("b" * 64, 1)])
def test_a_record_of_another_build_is_measured_again_where_one_is_named(folder, board, kernels, again):
    board.library = "a" * 64
    before = folder.run()
    del board.visited[:]
    board.library = kernels or board.library
    after = folder.run(kernels=kernels)
    assert len(board.visited) == again * len(before.records)
    assert (before.records != after.records) == bool(again) and before.walks == after.walks


def test_a_damaged_record_is_refused_in_one_line_and_stays(folder, board, finished):
    restored(folder, finished[0])
    path = Path(folder.measurements, "visit/s0/0-auto-auto.json")
    whole = path.read_bytes()
    for damaged in (
        whole[:-40],
        b"",
        whole.replace(b'"n": 7', b'"n": 8'),
        whole.replace(b"kernel-dvfs/visit/1", b"kernel-dvfs/visit/0"),
    ):
        assert damaged != whole
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"record .*visit/s0/0-auto-auto\.json: .*; delete it and run") as refused:
            folder.run()
        assert "\n" not in str(refused.value)
        assert path.read_bytes() == damaged and not folder.output.exists() and board.visited == []


def test_a_record_that_stands_for_another_measurement_changes_what_comes_after(folder, board, finished):
    restored(folder, finished[0])

    def dearer(content):
        for each in content["powers"]:
            each["power_mw"] *= 1.25

    # one with windows of power, of a pair that is not auto
    name = next(name for name, held in finished[0].items() if b'"powers": [{' in held and "auto" not in name)
    resealed(Path(folder.measurements, name), dearer)
    found = folder.run()
    was = json.loads(finished[1])
    assert found.records[name] != was["records"][name]
    assert found.walks != was["walks"]


def test_a_disturbed_visit_is_asked_for_again_and_each_try_has_a_record_and_counts_its_time(folder, board):
    pair = Pair(2100, 9251)
    board.disturbed[pair] = 2
    found = folder.run()
    tries = [each for each in board.visited if each.pair == pair][:3]
    assert [each.place - tries[0].place for each in tries] == [0, 1, 2] and len({each.session for each in tries}) == 1
    kept = [json.loads(folder.records()[visits.path(each)])["verdict"] for each in tries]
    assert kept == ["disturbed", "disturbed", "ok"] and {visits.path(each) for each in tries} <= found.records.keys()
    spent_s = sum(json.loads(each)["spent_s"] for each in folder.records().values())
    assert 60 * found.about["minutes"] == pytest.approx(spent_s + visits.OPENING_S * found.about["sessions"])
    again, count = folder.run(), len(board.visited)
    assert again == found and len(board.visited) == count, "nor is any measured again"


def test_damaged_and_foreign_visits_are_found_among_the_records_and_deleted_on_request(folder, finished, capsys):
    restored(folder, finished[0])
    check = ["measure", "records", folder.measurements, "--gpu", folder.path]
    assert main(check) == 0 and f"{len(finished[0])} records, 0 bad" in capsys.readouterr().out
    damaged, moved, *_ = (Path(folder.measurements, name) for name in sorted(finished[0]))
    damaged.write_bytes(damaged.read_bytes().replace(b'"spent_s": ', b'"spent_s": 1', 1))
    elsewhere = moved.with_name("99-" + moved.name.split("-", 1)[1])
    moved.rename(elsewhere)
    assert main(check) == 2
    said = capsys.readouterr().err
    assert f"{damaged}: was changed since it was written" in said and f"{elsewhere}: foreign: it is visit/" in said
    assert main([*check, "--delete-bad"]) == 0
    assert not damaged.exists() and not elsewhere.exists() and len(folder.records()) == len(finished[0]) - 2
    another = folder.another(warmup_s=26)
    assert main([*check[:-1], another.path]) == 2
    assert "foreign: its setup is " + folder.setup.digest in capsys.readouterr().err


def test_auto_that_cannot_be_measured_ends_the_study_in_one_line(folder, board):
    board.disturbed[BASELINE] = 99
    with pytest.raises(InputError, match="auto could not be measured in 3 tries; see the records of its visits"):
        folder.run()
    assert not folder.output.exists() and {each.pair for each in board.visited} == {BASELINE}


def test_a_line_a_visit_tells_minutes_that_end_where_the_study_does_and_a_line_a_limit_what_was_shown(folder, board):
    lines: list[str] = []
    found = folder.run(say=lines.append)
    told, shown = lines[: len(board.visited)], lines[len(board.visited) :]
    assert told[0].startswith("session 1: auto-auto: 7 passes; 0.4 minutes so far")
    assert told[-1].endswith(f"; {found.about['minutes']:.1f} minutes so far")
    assert any("passes, 4 windows of power; " in line for line in told)
    assert [line.split(": ")[1] for line in shown] == list(found.walks)
    strict = found.walks[STRICT]
    assert f"energy {strict['energy_percent']:+.2f} %, time {np.mean(strict['time_percent']):+.3f} % over" in shown[0]
    board.visited.clear()
    again: list[str] = []
    folder.run(say=again.append)
    assert again == lines, "by the records, so the same where they were there"


def test_records_that_nothing_asks_for_are_ignored_and_stay(folder, board, finished):
    restored(folder, finished[0])
    stale = Path(folder.measurements, "visit/s99/0-auto-auto.json")
    stale.parent.mkdir(parents=True)
    stale.write_text("of another study")
    folder.run()
    assert stale.read_text() == "of another study" and folder.output.read_bytes() == finished[1]


def test_the_token_is_kept_and_changes_nothing_else(folder, board, finished):
    restored(folder, finished[0])
    found, was = folder.run(token="another"), json.loads(finished[1])
    assert (found.token, was["token"]) == ("another", "")
    assert (found.records, found.rows) == (was["records"], was["rows"])


@pytest.mark.parametrize(
    ("changed_options", "said"),
    [
        ({"pairs": "2100-9251"}, "pairs: expected auto-auto first"),
        ({"pairs": "auto-auto"}, "at least one pair of locked clocks"),
        ({"pairs": "auto-auto,auto-9251"}, "locked core clock"),
        ({"minutes": 0}, "minutes is 0"),
        ({"limits_percent": []}, r"limits_percent is \[\]"),
        ({"limits_percent": [-1]}, "limits_percent"),
        ({"over_percent": 0}, "over_percent is 0, expected a number from 0.001 to 50"),
        ({"over_percent": 60}, "over_percent is 60, expected a number from 0.001 to 50"),
        ({"worth_percent": -0.1}, "worth_percent is -0.1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"ties": "loose"}, "ties is 'loose', expected one of tied, untied"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_options_that_cannot_be_are_refused_in_one_line_before_anything_is_measured(
    folder, board, changed_options, said
):
    with pytest.raises(InputError, match=said) as refused:
        folder.run(OPTIONS | changed_options)
    assert "\n" not in str(refused.value) and board.visited == [] and not folder.output.exists()


def test_the_command_makes_the_study_and_refuses_options_that_say_too_little(folder, board, refused, capsys, finished):
    words = ["measure", "by-clock", "--gpu", folder.path, "--records", folder.measurements, "-o", str(folder.output)]
    assert main([*words, "--options", json.dumps(OPTIONS)]) == 0 and folder.output.read_bytes() == finished[1]
    capsys.readouterr()
    few = {name: value for name, value in OPTIONS.items() if name != "minutes"}
    assert "study by clock: options: minutes is missing" in refused(*words, "--options", json.dumps(few))
    assert "not JSON" in refused(*words, "--options", "{")


def test_a_missing_option_is_named(folder, board):
    with pytest.raises(InputError, match="study by clock: options: seed is missing"):
        folder.run({name: value for name, value in OPTIONS.items() if name != "seed"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": "kernel-dvfs/by-clock/1", "walks": [["ker', "truncated or not JSON"),
        ('{"schema": "kernel-dvfs/search/2"}', "not a kernel-dvfs/by-clock/1 file"),
    ],
)
def test_a_file_that_is_no_study_by_clock_is_named(tmp_path, text, said):
    path = tmp_path / "by_clock.json"
    with pytest.raises(InputError, match=r"by_clock\.json: missing; run snakemake again"):
        study_file.read(str(path))
    path.write_text(text)
    with pytest.raises(InputError, match=rf"by_clock\.json: {said}.*; run snakemake again, which makes it again"):
        study_file.read(str(path))


def test_a_study_that_was_edited_is_none_any_more(tmp_path, finished):
    path, content = tmp_path / "by_clock.json", json.loads(finished[1])
    for change in ({"token": "other"}, {"options": content["options"] | {"ties": "untied"}}, {"sha256": "0" * 64}):
        path.write_text(json.dumps(content | change))
        with pytest.raises(InputError, match=r"by_clock\.json: was changed.*which makes it again"):
            study_file.read(str(path))
    path.write_text(json.dumps({name: value for name, value in content.items() if name != "sha256"}))
    with pytest.raises(InputError, match=r"sha256 is missing"):
        study_file.read(str(path))


def test_a_study_with_a_number_that_json_cannot_hold_is_not_written(tmp_path, finished):
    path = tmp_path / "by_clock.json"
    path.write_bytes(finished[1])
    found = study_file.read(str(path))
    study_file.write(str(path), found)
    assert path.read_bytes() == finished[1]
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            study_file.write(str(path), replace(found, about=found.about | {"minutes": number}))
    assert path.read_bytes() == finished[1]


def test_what_is_answered_is_in_s_and_w_in_the_order_of_the_kernels_and_windows(folder):
    space = loop.space_of(folder.setup, PAIRS)
    groups = (("embedding_layernorm",), ("forward_gelu", "forward_fc_gemm"))
    visit = Visit(2, 3, Pair(1680, 5001), 2.5, 0.5, groups)
    visited = Board().visit(visit)
    visited["passes"]["time_us"] = dict(reversed(visited["passes"]["time_us"].items()))
    answer = loop.answer_of(folder.setup, space, visit, visited)
    assert answer.time_s.tolist() == [1e-6 * visited["passes"]["time_us"][name] for name in KERNELS]
    assert answer.power_w == pytest.approx(
        [
            Board.power_w("embedding_layernorm", 1680, 5001),
            Board().round_w(groups[1], 1680, 5001),
        ]
    )
    assert answer.spent_s == visited["spent_s"] == pytest.approx(0.7 + 2.5 + 1.25) and answer.is_usable


def test_launches_of_a_kernel_that_a_pass_names_twice_are_added(folder):
    setup = folder.setup
    forward = [["forward_gelu", 5], ["forward_fc_gemm", 7], ["forward_gelu", 19]]
    setup = setup._replace(targets=setup.targets | {"pass": {"forward": forward}})
    space = loop.space_of(setup, PAIRS)
    assert space.passes == {"forward": {"forward_gelu": 24, "forward_fc_gemm": 7}}
    assert space.names == tuple(KERNELS) and space.pairs == tuple(PAIRS)
    assert space.launches.tolist() == [own["launches_per_iteration"] for own in setup.targets["kernel"].values()]
