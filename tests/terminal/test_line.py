"""What a person sees of a run: the plugin, given Snakemake's log records one by one."""

import io
import logging
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from snakemake.logging import DefaultFormatter
from snakemake_interface_logger_plugins.common import LogEvent

import snakemake_logger_plugin_kernel_dvfs as plugin


class Stream(io.StringIO):
    """A stream that says whether it is a terminal."""

    terminal = False

    def isatty(self):
        return self.terminal


class Seen:
    """A handler with a clock and a stream of its own, and short words for Snakemake's records."""

    def __init__(self, monkeypatch, terminal=False, quiet=(), term="xterm", **settings):
        self.stream, self.now_s = Stream(), 0.0
        self.stream.terminal = terminal
        monkeypatch.setattr("sys.stderr", self.stream)
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("COLUMNS", "100")
        asked = dict.fromkeys(("printshellcmds", "debug_dag", "verbose", "dryrun"), False) | settings
        asked["quiet"] = [SimpleNamespace(name=each) for each in quiet]

        class Handler(plugin.LogHandler):
            clock = staticmethod(lambda: self.now_s)
            intervals_s = (1e6, 1e6)  # tests call tick()

        self.handler = Handler(SimpleNamespace(**asked), None)
        self.handler.setFormatter(DefaultFormatter(show_failed_logs=True))

    def log(self, event=None, message=None, level=logging.INFO, thread=1, **fields):
        record = logging.LogRecord("snakemake.logging", level, __file__, 1, message, None, None)
        vars(record).update(fields, thread=thread, **({"event": event} if event else {}))
        self.handler.handle(record)
        return self

    def begin(self, **stats):
        self.log(LogEvent.WORKFLOW_STARTED)
        if stats:
            self.log(LogEvent.RUN_INFO, "Job stats: ...", stats=stats | {"total": sum(stats.values())})
        return self

    def start(self, job, rule, seconds=None, **fields):
        self.log(LogEvent.JOB_INFO, jobid=job, rule_name=rule, **fields)
        return self if seconds is None else self.tick(seconds)

    def finish(self, job, total):
        return self.log(LogEvent.JOB_FINISHED, job_id=job).log(LogEvent.PROGRESS, done=job, total=total)

    def fail(self, job, rule, thread=1, died="RuleException: false died", **fields):
        if died:
            self.log(LogEvent.ERROR, died, logging.ERROR, thread=thread, exception="RuleException")
        known = dict.fromkeys(("rule_msg", "conda_env"))
        known |= {"input": [], "output": [f"out/{rule}"], "log": [], "shellcmd": "false", "aux": {}, "indent": False}
        fields = known | fields | {"jobid": job, "rule_name": rule}
        return self.log(LogEvent.JOB_ERROR, f"Error in rule {rule}", logging.ERROR, thread=thread, **fields)

    def lose(self):
        """As Snakemake ends a run that has failed or was stopped."""
        self.log(message="Exiting because a job execution failed.", level=logging.ERROR)
        return self.log(LogEvent.ERROR, "WorkflowError: not complete", logging.ERROR, exception="WorkflowError")

    def tick(self, seconds=0.0):
        self.now_s += seconds
        self.handler.tick()
        return self

    def end(self):
        """The lines of the whole run. On a terminal: as they are once each has been erased that was to be."""
        self.handler.close()
        return [row.split("\r\x1b[K")[-1].rstrip() for row in self.stream.getvalue().split("\n")[:-1]]


@pytest.fixture
def seen(monkeypatch):
    """`seen(terminal=True, verbose=True)`: its answer, should it come to one, is `the answer`."""
    monkeypatch.setattr(plugin, "_answers", [lambda: None, lambda: "the answer"])
    before = signal.getsignal(signal.SIGINT)
    yield lambda **settings: Seen(monkeypatch, **settings)
    signal.signal(signal.SIGINT, before)
    signal.set_wakeup_fd(-1)


STOPPED = "What was made stays; the same command goes on."


def test_a_terminal_has_one_line_that_is_rewritten_and_then_the_answer(seen):
    run = seen(terminal=True).begin().tick(3)
    run.log(LogEvent.RUN_INFO, stats={"measure": 1, "validate": 1, "all": 1, "total": 3}).tick(1)
    assert run.stream.getvalue().endswith("3 s  \r\x1b[K"), "room for what the Snakefile says when it starts"
    run.start(1, "measure_1470_9251_r0", 1).finish(1, 3).start(2, "validate", 1).finish(2, 3)
    run.start(3, "all", 0).finish(3, 3)
    assert run.end() == ["3 of 3 jobs in 6 s", "the answer"]
    drawn = [row.rstrip() for row in run.stream.getvalue().split("\n")[0].split("\r\x1b[K")]
    assert drawn == [
        "planning, 3 s",
        "0 of 3 jobs in 5 s, now measure",
        "1 of 3 jobs in 6 s, now measure again",
        "2 of 3 jobs in 6 s, now all",
        "3 of 3 jobs in 6 s",
    ]


def test_what_is_said_meanwhile_stands_above_the_line_which_fits_the_terminal(seen, monkeypatch):
    run = seen(terminal=True).begin(measure=2).start(1, "measure", 1)
    run.log(message="Files are old.", level=logging.WARNING).log(message="Files are old.", level=logging.WARNING)
    run.log(message="Select jobs to execute...").tick()
    monkeypatch.setenv("COLUMNS", "20")
    run.tick()
    above, line = run.stream.getvalue().split("\n")
    assert above.endswith("\r\x1b[KFiles are old."), "a warning once, chatter never"
    assert line.split("\r\x1b[K")[-1] == "0 of 2 jobs in 1 " + "  ", "20 columns with the cursor"


def test_what_is_planned_is_told_until_the_jobs_tell_more_and_the_first_does_not_count(seen, monkeypatch):
    monkeypatch.setattr(plugin, "_planned_s", {})
    monkeypatch.setattr(plugin, "_expected", {})
    run = seen().begin(capture=1, choose=1)
    plugin.expect("capture", 1, 400.0)
    run.start(1, "capture", 60).finish(1, 2)
    plugin.expect("measure", 100, 230.0)
    # the first opens what the others find open: 30 s, then 2 s each
    run.start(2, "measure", 30).finish(2, 102)
    for job in range(3, 23):
        run.start(job, "measure").finish(job, 102)
        run.now_s += 2
    run.tick()
    assert run.end()[:3] == [
        "0 of 2 jobs in 1 min, now capture (about 6 min left)",  # of 340 s
        "1 of 2 jobs in 1 min 30 s, now measure (about 3 min 20 s left)",
        # 79 jobs of 2 s, and none of the one that runs is left
        "22 of 102 jobs in 2 min 10 s, now measure (about 2 min 40 s left)",
    ]


@pytest.mark.parametrize("settings", [{}, {"terminal": True, "term": "dumb"}])
def test_a_log_has_plain_lines_and_time_left_after_a_minute_of_the_same_kind_of_job(seen, settings):
    run = seen(**settings).begin(measure=9, choose=1)
    for job in (1, 2, 3):
        run.start(job, "measure", 30).finish(job, 10)
    # the others prove to have nothing to do
    run.start(4, "choose", 60).finish(4, 10).start(5, "measure", 60).finish(5, 10)
    assert run.end() == [
        "0 of 10 jobs in 30 s, now measure",
        "1 of 10 jobs in 1 min, now measure (about 3 min 30 s left)",
        "2 of 10 jobs in 1 min 30 s, now measure (about 3 min left)",
        "3 of 10 jobs in 2 min 30 s, now choose",
        "4 of 10 jobs in 3 min 30 s, now measure",
        "5 of 5 jobs in 3 min 30 s",
        "the answer",
    ]


# --- errors


def test_a_failed_job_is_told_once_by_the_line_of_its_own_log(seen, tmp_path):
    log = tmp_path / "x.log"
    log.write_text("note: nothing\nerror: no such kernel\n")
    run = seen().begin(choose_a=2).start(1, "choose_a").finish(1, 2)
    for _ in range(2):  # it is tried again
        run.start(2, "choose_a").fail(2, "choose_a", log=[str(log)])
    run.lose()
    assert run.end() == ["error: no such kernel", f"Stopped: 1 of 2 jobs (1 failed) in 0 s. {STOPPED}"]


def test_a_group_is_told_once_by_the_lines_of_its_jobs_logs(seen, tmp_path):
    logs = [tmp_path / f"{job}.log" for job in range(3)]
    for log, text in zip(logs, ("", "error: no such kernel\n", "error: no such clock\n")):
        log.write_text(text)
    run = seen().begin(measure=3)
    members = [{"rule_name": "measure", "jobid": job, "log": [str(log)]} for job, log in enumerate(logs)]
    run.log(LogEvent.GROUP_ERROR, level=logging.ERROR, groupid="sweep", aux_logs=[], job_error_info=members)
    for job in range(3):
        run.fail(job, "measure", died=None, indent=True)
    stopped = f"Stopped: 0 of 3 jobs (3 failed) in 0 s. {STOPPED}"
    assert run.lose().end() == ["error: no such kernel", "error: no such clock", stopped]


def test_a_job_that_broke_without_a_line_of_its_own_is_told_with_all_that_snakemake_says(seen, tmp_path):
    log = tmp_path / "x.log"
    log.write_text("Traceback (most recent call last):\nZeroDivisionError: division by zero\n")
    run = seen().begin(choose_a=2)
    # two at once: each exception belongs to the job that its thread names next
    for thread in (1, 2):
        run.log(LogEvent.ERROR, f"died {thread}", logging.ERROR, thread=thread, exception="RuleException")
    run.fail(2, "choose_b", 2, died=None).fail(1, "choose_a", 1, died=None, log=[str(log), str(tmp_path / "gone.log")])
    rows = run.end()
    assert rows.index("died 2") < rows.index("Error in rule choose_b:") < rows.index("died 1")
    assert "ZeroDivisionError: division by zero" in rows and f"Logfile {tmp_path}/gone.log not found." in rows


@pytest.mark.parametrize("after_failed_job", [False, True])
@pytest.mark.parametrize("exception", ["MissingOutputException", "KeyError", "RuleException"])
def test_an_exception_that_is_no_job_s_is_told_as_it_is(seen, exception, after_failed_job):
    run = seen().begin(choose_a=2)
    if after_failed_job:
        run.fail(1, "choose_a")
    run.log(LogEvent.ERROR, "broken inside", logging.ERROR, exception=exception)
    assert "broken inside" in run.lose().end() and "the answer" not in run.end()


def test_a_run_that_was_stopped_without_a_failed_job_repeats_snakemake_s_summary(seen):
    rows = seen().begin(measure=2).start(1, "measure").finish(1, 2).lose().end()
    assert rows[-2:] == ["WorkflowError: not complete", f"Stopped: 1 of 2 jobs in 0 s. {STOPPED}"]


# --- settings


@pytest.mark.parametrize("asked", ["dryrun", "verbose", "printshellcmds", "debug_dag"])
def test_a_dry_run_and_who_asks_for_more_get_snakemake_s_own_output(seen, asked):
    assert seen().handler.writes_to_stream
    run = seen(**{asked: True})
    assert not run.handler.writes_to_stream
    run.begin(measure=2).start(
        1, "measure", reason="Missing output files: out/1", output=["out/1"], is_checkpoint=False
    )
    run.log(message="Careful.", level=logging.WARNING).finish(1, 2)
    assert run.end() == ([] if asked == "dryrun" else ["the answer"]), "ours follows, and repeats nothing"


def test_quiet_is_silence_or_leaves_errors_and_the_answer(seen):
    for quiet, rows in ((["ALL"], []), (["PROGRESS", "RULES"], ["A warning.", "the answer"])):
        run = seen(quiet=quiet, terminal=True).begin(measure=1).start(1, "measure")
        assert run.log(message="A warning.", level=logging.WARNING).finish(1, 1).end() == rows


def test_what_snakemake_says_is_told_where_nothing_is_run_and_not_before_a_run(seen):
    assert seen().log(message="Unlocked working directory.").end() == ["Unlocked working directory."]
    run = seen().log(message="Assuming unrestricted shared filesystem usage.").begin()
    rows = ["Nothing to be done: all that was asked for is there.", "the answer"]
    assert run.end() == rows and run.end() == rows, "closed twice, it speaks once"


# --- the end


def test_the_answer_is_given_where_a_job_succeeded_when_tried_again(seen):
    run = seen().begin(measure=1).start(1, "measure").fail(1, "measure").start(1, "measure").finish(1, 1)
    assert run.end()[-2:] == ["1 of 1 jobs in 0 s", "the answer"]


def test_a_run_that_is_refused_before_its_first_job_gives_no_answer(seen):
    assert seen().begin(measure=5).end() == [], "the Snakefile has said why"
    run = seen().begin().log(LogEvent.ERROR, "No rule to produce x", logging.ERROR, exception="MissingRuleException")
    assert run.end() == ["No rule to produce x"]


@pytest.mark.parametrize("total", [0, 2])
def test_ctrl_c_says_how_to_go_on_and_nothing_of_the_jobs_it_ended(seen, total):
    run = seen(terminal=True).begin(**{"measure": 2} if total else {})
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    run.fail(1, "measure").lose()
    at = "0 of 2 jobs in" if total else "planning,"
    assert run.end() == [f"Stopped: {at} 0 s. {STOPPED}"]


def test_where_ctrl_c_is_ignored_it_stays_so(seen):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = seen(terminal=True).begin(measure=1)
    os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert "Stopped" not in "".join(run.start(1, "measure").finish(1, 1).end())


def test_asyncio_may_take_ctrl_c_in_order_so_that_none_of_its_tasks_is_lost(seen):
    seen(terminal=True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "asyncio.Runner asks for this very one"


def test_it_is_closed_by_one_who_holds_its_lock_as_logging_does_at_the_end_of_a_process(seen):
    run = seen(terminal=True)
    run.handler.intervals_s = (0.001, 0.001)
    run.begin(measure=1).start(1, "measure")

    def shut_down():
        run.handler.acquire()
        time.sleep(0.1)  # until the ticker waits for the lock
        run.handler.close()
        run.handler.release()

    ending = threading.Thread(target=shut_down, daemon=True)
    ending.start()
    ending.join(20)
    assert not ending.is_alive()
    before = run.stream.getvalue()
    run.tick()
    assert run.stream.getvalue() == before, "it said something after its end"


def test_a_terminal_that_has_gone_stops_nothing(seen):
    run = seen(terminal=True).begin(measure=1).start(1, "measure")
    run.stream.close()
    run.tick(1).fail(1, "measure")
    run.handler.close()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (44, "44 s"), (60, "1 min"), (130, "2 min 10 s"), (7500, "2 h 5 min"), (300000, "3 d 11 h")],
)
def test_a_duration_has_two_units_at_most(seen, seconds, words):
    run = seen().begin(measure=1).start(1, "measure", seconds)
    assert run.end()[0] == f"0 of 1 jobs in {words}, now measure"


def test_jobs_that_are_not_alike_are_told_by_what_they_cost(seen, monkeypatch):
    """A profile of 20, then a search of 70: the first 93 s say 326 s, and what runs longer is not told at all."""
    monkeypatch.setattr(plugin, "_costs", {})
    plugin.weigh("serving_profile", 20.0)
    plugin.weigh("serving_search", 70.0)
    run = seen().begin(serving_profile=1, serving_study=1, serving_search=1)
    run.start(1, "serving_profile", 90).finish(1, 3).start(2, "serving_study", 3).finish(2, 3)
    run.start(3, "serving_search", 60)
    run.now_s += 400
    run.tick()
    assert run.end()[:3] == [
        "0 of 3 jobs in 1 min 30 s, now serving",
        "1 of 3 jobs in 1 min 33 s, now serving (about 5 min left)",
        "2 of 3 jobs in 2 min 33 s, now serving (about 4 min 30 s left)",
    ]
