"""`--log FILE`: what a command and what it starts say, its errors, and where a fault of the program is looked for."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kernel_dvfs.cli.main as program
from kernel_dvfs.cli import answer, tell
from kernel_dvfs.command import Command
from kernel_dvfs_clocks.errors import InputError


@pytest.fixture
def command(monkeypatch):
    """`command(run, **about)` makes `kernel-dvfs devices` run that."""

    def made(run, **about):
        monkeypatch.setitem(program.COMMANDS, "devices", Command("", lambda parser: None, run, **about))

    return made


def speak(_):
    print("an answer")
    print("a note", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo a compiler; echo its warning >&2"], check=True)


def test_all_that_is_said_goes_there_and_nothing_to_the_terminal(command, tmp_path, capfd):
    command(speak)
    log = tmp_path / "logs/job.log"
    assert program.main(["devices", "--log", str(log)]) == 0
    assert sorted(log.read_text().splitlines()) == ["a compiler", "a note", "an answer", "its warning"]
    assert capfd.readouterr() == ("", "")
    assert program.main(["devices"]) == 0
    assert "its warning" in capfd.readouterr().err


def test_what_talks_to_its_user_still_does_and_only_its_error_goes_there(command, tmp_path, capfd):
    def run(_):
        print("the GPU is being heated", file=sys.stderr)
        raise InputError("no clocks here; name another GPU")

    command(run, talks=True)
    assert program.main(["devices", "--log", str(tmp_path / "job.log")]) == 2
    assert (tmp_path / "job.log").read_text() == "error: no clocks here; name another GPU\n"
    assert capfd.readouterr().err == "the GPU is being heated\n"


def test_among_others_in_a_process_a_command_says_what_it_says_and_its_log_has_errors_of_now_alone(
    command, tmp_path, capfd
):
    log = tmp_path / "job.log"
    log.write_text("error: of the run before\n")
    command(speak)
    assert program.main(["devices", "--log", str(log)], alone=False) == 0
    assert "a note" in capfd.readouterr().err and not log.exists()

    def refuse(_):
        raise InputError("no clocks here; name another GPU")

    command(refuse)
    assert program.main(["devices", "--log", str(log)], alone=False) == 2
    assert log.read_text() == "error: no clocks here; name another GPU\n"
    assert capfd.readouterr() == ("", "")

    def fail(_):
        raise RuntimeError("never thought of")

    command(fail)
    with pytest.raises(RuntimeError):
        program.main(["devices", "--log", str(log)], alone=False)
    told = log.read_text()
    assert "never thought of" in told and "in fail" in told, "where a fault of the program is looked for"


def test_what_a_command_tells_among_others_is_in_its_own_log(command, tmp_path, capfd):
    """Two at a time, as jobs of one Snakemake are."""
    both = threading.Barrier(2, timeout=60)

    def run(_):
        name = threading.current_thread().name
        both.wait()
        tell(f"note: of {name}\nnot on a line of its own")
        both.wait()
        answer(f"the answer of {name}")

    command(run)
    words = {name: ["devices", "--log", str(tmp_path / "logs" / name)] for name in ("one", "other")}
    jobs = [
        threading.Thread(target=program.main, name=name, args=(own,), kwargs={"alone": False})
        for name, own in words.items()
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    for name in words:
        note, said = (tmp_path / "logs" / name).read_text().splitlines()
        assert note.startswith(f"note: of {name}") and said == f"the answer of {name}"
    assert capfd.readouterr() == ("", "")


def test_a_log_that_is_a_device_stays_one(command):
    command(lambda _: None, talks=True)
    assert program.main(["devices", "--log", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["measure", "measure compare"])
def test_measuring_talks_to_its_user(name):
    assert program.every_command()[name].talks


def test_a_fault_of_the_program_leaves_its_traceback_there_and_is_still_one(command, tmp_path):
    def run(_):
        raise RuntimeError("never thought of")

    command(run)
    with pytest.raises(RuntimeError):
        program.main(["devices", "--log", str(tmp_path / "job.log")])
    assert "never thought of" in (tmp_path / "job.log").read_text()


def test_a_mistake_on_the_command_line_is_there_too(tmp_path):
    assert program.main(["choose", "--scoep", "local", "--log", str(tmp_path / "job.log")]) == 2
    assert (tmp_path / "job.log").read_text().startswith("error: choose: ")


def test_a_log_that_cannot_be_written_is_one_line(command, tmp_path, capfd):
    command(speak)
    (tmp_path / "file").write_text("")
    assert program.main(["devices", "--log", str(tmp_path / "file/job.log")]) == 2
    said = capfd.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and str(tmp_path / "file") in said
