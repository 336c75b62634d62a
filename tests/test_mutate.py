"""Breaks made on purpose: each changes the code in one place, the same ones for the same code, and messages stay."""

import ast
import faulthandler
import sys
from pathlib import Path

import pytest

import mutate

pytestmark = pytest.mark.slow

TEXT = '''
LIMIT = 3

def gain(mean, sd, count: int = 2, name=f"{1 + 1}") -> float:
    """Words."""
    if not mean > 0 and count >= 2:
        raise ValueError(f"{mean + 1} is wrong" + "!")
    return max(mean, -sd ** 2) / count * 0.5
'''


def test_every_place_is_broken_once_and_words_and_types_are_left_alone():
    changes = [mutate.in_words(node) for node in mutate.places(ast.parse(TEXT))]
    assert sorted(changes) == sorted(
        [
            "2 -> 3",
            "not mean > 0 and count >= 2 -> not mean > 0 or count >= 2",
            "not mean > 0 -> not not mean > 0",
            "mean > 0 -> mean >= 0",
            "0 -> 1",
            "count >= 2 -> count > 2",
            "2 -> 3",
            "max(mean, -sd ** 2) / count * 0.5 -> max(mean, -sd ** 2) / count / 0.5",
            "max(mean, -sd ** 2) / count -> max(mean, -sd ** 2) * count",
            "max -> min",
            "-sd ** 2 -> --sd ** 2",
            "sd ** 2 -> sd * 2",
            "2 -> 3",
            "0.5 -> 0.75",
        ]
    )


def test_a_broken_file_differs_in_one_place():
    whole = ast.unparse(ast.parse(TEXT)).splitlines()
    for number, function in enumerate(mutate.places(ast.parse(TEXT)).values()):
        broken = mutate.changed(TEXT, number).splitlines()
        assert sum(one != other for one, other in zip(whole, broken, strict=True)) == 1 and function == 4


@pytest.mark.parametrize("room", ["choice", "choice/schedule", "kernel_dvfs_pipeline"])
def test_a_room_has_the_same_breaks_each_time_each_in_a_function_that_can_be_called(room):
    breaks = mutate.breaks_of(room, [])
    assert breaks == mutate.breaks_of(room, []) and len(set(map(str, breaks))) > 0.9 * len(breaks)
    assert all(each.function <= each.line for each in breaks)
    fewer = mutate.breaks_of("choice", ["schedule.py"])
    assert len(fewer) == len(mutate.breaks_of("choice", [])) - len(mutate.breaks_of("choice/schedule", []))


def test_tests_come_file_by_file_the_quickest_first_as_long_as_their_time_allows():
    seconds = {"slow.py::a": 5.0, "slow.py::b": 1.0, "quick.py::a": 2.0, "quick.py::b": 0.5}
    order = ["quick.py::b", "quick.py::a", "slow.py::b", "slow.py::a"]
    assert mutate.quickest_first(set(seconds), seconds, 60) == order
    assert mutate.quickest_first(set(seconds), seconds, 3.6) == order[:3]
    assert mutate.quickest_first({"slow.py::a"}, seconds, 3.6) == ["slow.py::a"], "one at least"


@pytest.mark.parametrize("room", ["chioce", "../../nowhere", "kernel_dvfs_pipelin", "rules"])
def test_a_room_that_is_not_there_is_refused_in_one_line(room, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["mutate.py", room])
    with pytest.raises(SystemExit, match="2"):
        mutate.main()
    assert f"error: {room}: nothing to break there; name a folder or file below" in capsys.readouterr().err


def test_a_break_is_not_taken_for_the_one_before_which_is_as_long(tmp_path, monkeypatch):
    """Both within a second: compiled code is told from other code by its source's size and time, in whole seconds."""
    # the watch over this test is a thread, which the process that is forked has not and would wait for
    faulthandler.cancel_dump_traceback_later()
    (tmp_path / "own.py").write_text("def f(a, b):\n    return a + b\n\n\ndef g(a, b):\n    return a * b\n")
    (tmp_path / "test_own.py").write_text("from own import f\n\n\ndef test_f():\n    assert f(2, 3) == 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(mutate, "QUIET", ["-q", "-p", "no:cacheprovider"])
    for number, noticed in ((0, "test_own.py::test_f"), (1, "")):
        each = mutate.Break(Path("own.py"), number, 2, 1, "")
        assert mutate.broken(each, tmp_path, ["test_own.py"], 1.0) == noticed


@pytest.mark.parametrize("code", pytest.ExitCode)
def test_a_run_that_does_not_get_to_its_end_has_failed(monkeypatch, code):
    monkeypatch.setattr(pytest, "main", lambda words, plugins: code)
    ended = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    assert mutate.forked(mutate.Watch(), [], 30)["failed"] == ([] if ended else ["the run itself"])
