"""The line on a long run: what it says, and that it keeps out of the way of everything else."""

import io
import logging
import time

import pytest

from kernel_dvfs.files import write_json
from kernel_dvfs.progress import _ERASE, Progress, Reporter, Task


class Run:
    """Tasks of a weight each, finished from outside, on a clock of its own."""

    def __init__(self, weights_s, record=""):
        self.now_s, self.done = 0.0, 0
        self.tasks = [
            Task(
                weight_s=weight_s,
                what=f"task {number}",
                record=record,
                is_done=lambda number=number: number < self.done,
                is_running=lambda number=number: number == self.done,
            )
            for number, weight_s in enumerate(weights_s)
        ]
        self.progress = Progress(lambda: list(self.tasks), lambda: self.now_s)

    def at(self, now_s, done) -> str:
        self.now_s, self.done = now_s, done
        return self.progress.line()


def test_done_of_total_and_what_is_at_work():
    assert Run([1] * 4).at(5.0, 2).startswith("2 of 4 done (50 %) | task 2")


def test_what_is_left_goes_by_the_weights_at_the_pace_of_late():
    # twice as slow as expected: 3 x 10 s took 60 s, so the 100 s that are left take 200 s
    run = Run([10, 10, 10, 100])
    assert "left" not in run.at(10.0, 1)
    assert "about 3 min 20 s left, until " in run.at(60.0, 3)


def test_before_anything_is_measured_a_real_gpu_s_windows_say_how_long_it_takes():
    assert "about 9 h 26 min left" in Run([17] * 2000, record="r0.json").at(0.0, 0)
    assert "left" not in Run([17] * 2000).at(0.0, 0)


def test_the_temperature_is_that_of_the_last_window_measured(tmp_path):
    path = str(tmp_path / "r0.json")
    write_json(path, {"windows": [{"temp_c": [60, 65]}, {"temp_c": [66, 71]}]})
    assert Run([1] * 3, record=path).at(1.0, 1).endswith("| GPU 71 C")
    assert "GPU" not in Run([1] * 3, record=str(tmp_path / "gone.json")).at(1.0, 1)


def test_jobs_that_are_added_on_the_way_count():
    run = Run([1] * 3)
    assert run.at(1.0, 1).startswith("1 of 3 done")
    run.tasks += Run([1] * 5).tasks[3:]
    assert run.at(20.0, 3).startswith("3 of 5 done")


def test_jobs_that_are_replaced_on_the_way_are_not_waited_for():
    run = Run([1] * 3)
    run.at(1.0, 1)
    run.tasks[2:] = [Task(1, "task 2, made anew", "", is_done=lambda: True, is_running=lambda: False)]
    assert run.at(20.0, 2) == "3 of 3 done (100 %)"


def test_a_finished_run_has_nothing_left():
    line = Run([1] * 3).at(3.0, 3)
    assert line == "3 of 3 done (100 %)"


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


def record(message, **more):
    made = logging.LogRecord("snakemake", logging.INFO, "", 0, message, (), None)
    made.__dict__ |= more
    return made


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("kernel_dvfs.progress._TERMINAL_EVERY_S", 0.01)
    monkeypatch.setattr("kernel_dvfs.progress._LOG_EVERY_S", 0.01)


def shown(terminal) -> str:
    """What two seconds' worth of lines look like, an error between them."""
    stream = Stream(terminal)
    reporter = Reporter(Run([1] * 4).progress, stream)
    reporter.start()
    end = time.monotonic() + 10
    while "of 4" not in stream.getvalue() and time.monotonic() < end:
        time.sleep(0.005)
    assert reporter.filter(record("error: something is wrong"))
    stream.write("error: something is wrong\n")
    reporter.stop()
    return stream.getvalue()


def test_on_a_terminal_the_line_is_erased_before_anything_else_is_said_and_at_the_end(quick):
    said = shown(terminal=True)
    assert said.index("0 of 4 done") < said.index(f"{_ERASE}error: something is wrong\n")
    assert said.endswith((_ERASE, "wrong\n"))


def test_a_line_is_no_wider_than_the_terminal(quick, monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    assert f"{_ERASE}0 of 4 done" in shown(terminal=True)
    assert "(0 %)" not in shown(terminal=True)


def test_in_a_log_every_line_is_a_line(quick):
    said = shown(terminal=False)
    assert _ERASE not in said
    assert {"0 of 4 done (0 %) | task 0", "error: something is wrong"} == set(said.splitlines())


def test_what_is_said_of_every_job_is_dropped_and_nothing_else():
    reporter = Reporter(Run([1]).progress, Stream(False))
    assert not reporter.filter(record("Finished jobid: 3", event="job_finished"))
    assert not reporter.filter(record("Select jobs to execute..."))
    assert reporter.filter(record("Error in rule measure", event="job_error"))
    assert reporter.filter(record("Nothing to be done"))
