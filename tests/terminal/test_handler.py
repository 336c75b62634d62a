"""What a person sees of a run: the handler, given Snakemake's log records one by one."""

import io
import logging
import os
import signal
from types import SimpleNamespace

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

import snakemake_logger_plugin_kernel_dvfs as plugin


class Stream(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


class Seen:
    """A handler with a clock and a stream of its own, and short words for Snakemake's records."""

    def __init__(self, monkeypatch, terminal=False, quiet=None, term="xterm", **settings):
        self.out, self.err = Stream(False), Stream(terminal)
        monkeypatch.setattr("sys.stdout", self.out)
        monkeypatch.setattr("sys.stderr", self.err)
        monkeypatch.setenv("TERM", term)
        off = dict.fromkeys(("printshellcmds", "nocolor", "debug_dag", "verbose", "show_failed_logs"), False)
        common = off | {"stdout": False, "dryrun": False} | settings
        common["quiet"] = quiet and [SimpleNamespace(name=each) for each in quiet]
        self.now_s = 0.0

        class Handler(plugin.LogHandler):
            ticks = False
            clock = staticmethod(lambda: self.now_s)

        self.handler = Handler(SimpleNamespace(**common), None)
        self.handler.setFormatter(logging.Formatter("%(message)s"))

    def log(self, event=None, message="None", level=logging.INFO, thread=1, **fields):
        record = logging.LogRecord("snakemake.logging", level, __file__, 1, message, None, None)
        record.thread = thread
        vars(record).update(fields)
        if event:
            record.event = event
        self.handler.handle(record)

    def begin(self, **stats):
        self.log(LogEvent.WORKFLOW_STARTED, "Workflow has started!")
        if stats:
            self.log(LogEvent.RUN_INFO, "Job stats: ...", stats=stats | {"total": sum(stats.values())})
            self.now_s += 1
        return self

    def start(self, job, rule):
        self.log(LogEvent.JOB_STARTED, "Execute 1 jobs...", jobs=[job])
        self.log(LogEvent.JOB_INFO, f"Rule: {rule}", jobid=job, rule_name=rule)

    def finish(self, job, total=0):
        self.log(LogEvent.JOB_FINISHED, f"Finished jobid: {job}", job_id=job)
        self.log(LogEvent.PROGRESS, done=1, total=total)

    def fail(self, job, rule, thread=1, **fields):
        known = {
            "output": [f"out/{rule}"],
            "log": [],
            "shellcmd": "false",
            "aux": {},
            "indent": False,
            "rule_msg": None,
        }
        self.log(LogEvent.ERROR, "RuleException: false died", logging.ERROR, thread=thread, exception="RuleException")
        fields = known | fields | {"jobid": job, "rule_name": rule}
        self.log(LogEvent.JOB_ERROR, f"Error in rule {rule}", logging.ERROR, thread=thread, **fields)

    def lose(self):
        """As Snakemake ends a run in which a job has failed."""
        self.log(message="Exiting because a job execution failed.", level=logging.ERROR)
        self.log(LogEvent.ERROR, "WorkflowError: not complete", logging.ERROR, exception="WorkflowError")

    def tick(self, seconds=0.0):
        self.now_s += seconds
        self.handler.tick()

    @property
    def said(self):
        return self.err.getvalue()

    @property
    def screen(self):
        """What a terminal shows: each row with what was erased gone."""
        return [row.split("\r\x1b[K")[-1].rstrip() for row in self.said.split("\n")]


@pytest.fixture
def seen(monkeypatch):
    """`seen(terminal=True, verbose=True)`; closed in the end, so that Ctrl-C is as before."""
    before, made = signal.getsignal(signal.SIGINT), []

    def make(**settings):
        made.append(Seen(monkeypatch, **settings))
        return made[-1]

    yield make
    for each in reversed(made):
        each.handler.close()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def answers(monkeypatch):
    """`at_end` as a Snakefile would call it, forgotten after the test."""
    monkeypatch.setattr(plugin, "_answers", [])
    return plugin.at_end


# --- on a terminal


def test_one_line_is_rewritten_in_place_from_start_to_end(seen):
    run = seen(terminal=True).begin()
    run.tick(3)
    assert run.screen == ["planning   3 s"]
    run.log(LogEvent.RUN_INFO, "Job stats", stats={"measure": 2, "all": 1, "total": 3})
    run.now_s = 5.0
    for job in (1, 2):
        run.start(job, "measure")
        run.tick(1)
        run.finish(job)
    run.tick()
    assert run.screen == ["measure 2 of 2   7 s"]
    run.handler.close()
    assert run.screen == ["measure 2 of 2   7 s", ""]
    assert "Execute" not in run.said and "Finished" not in run.said


def test_a_line_that_has_not_changed_is_not_written_again(seen):
    run = seen(terminal=True).begin(measure=2)
    run.tick()
    before = run.said
    run.tick(0.2)
    assert run.said == before


def test_notices_that_a_workflow_prints_when_it_starts_have_room(seen):
    run = seen(terminal=True).begin()
    run.tick(1)
    run.log(LogEvent.RUN_INFO, "Job stats", stats={"measure": 2})
    assert run.screen == [""]
    run.tick(0.1)
    assert run.screen == [""]
    run.tick(0.5)
    assert run.screen == ["measure 0 of 2   2 s"]


def test_what_is_said_meanwhile_stands_above_the_line(seen):
    run = seen(terminal=True).begin(measure=2)
    run.tick()
    run.log(message="A warning.", level=logging.WARNING)
    run.tick()
    assert run.screen == ["A warning.", "measure 0 of 2   1 s"]


def test_a_dumb_terminal_is_a_log(seen):
    run = seen(terminal=True, term="dumb").begin(measure=1)
    run.tick(60)
    assert "\r" not in run.said and "measure 0 of 1" in run.said


# --- in a log


def test_a_log_has_one_line_for_a_stage_that_begins_or_ends_and_one_a_minute(seen):
    run = seen().begin(measure=3, choose_a=1)
    for job in (1, 2, 3):
        run.start(job, "measure")
        for _ in range(50):
            run.tick(1)
        run.finish(job)
    run.start(4, "choose_a")
    run.finish(4)
    run.handler.close()
    assert run.said.splitlines() == [
        "measure: begins, 3 jobs",
        "measure 1 of 3 · choose 0 of 1   1 min 0 s, measure: about 2 min left",
        "measure 2 of 3 · choose 0 of 1   2 min 0 s, measure: about 30 s left",
        "measure: done, 3 jobs in 2 min 30 s",
        "choose: begins, 1 job",
        "choose: done, 1 job in 0 s",
    ]
    assert "\r" not in run.said and "\x1b" not in run.said


def test_a_log_of_a_run_that_was_not_finished_ends_with_how_far_it_came(seen):
    run = seen().begin(measure=3)
    run.start(1, "measure")
    run.finish(1)
    run.fail(2, "measure")
    run.lose()
    run.handler.close()
    assert run.said.splitlines()[-1] == "measure 1 of 3   1 s"


# --- errors


def test_a_failed_job_is_told_once_by_its_rule_with_what_it_logged(seen, tmp_path):
    log = tmp_path / "x.log"
    log.write_text("error: no such kernel\n")
    run = seen(show_failed_logs=True).begin(choose_a=1)
    run.start(1, "choose_a")
    run.fail(1, "choose_a", log=[str(log)])
    run.fail(1, "choose_a", log=[str(log)])  # tried again
    run.lose()
    run.handler.close()
    assert run.said.splitlines() == [
        "choose: begins, 1 job",
        "error: rule choose_a failed, which makes out/choose_a",
        "  command: false",
        f"  log: {log}",
        "    error: no such kernel",
        "Exiting because a job execution failed.",
        "WorkflowError: not complete",
        "choose 0 of 1 (1 failed)   1 s",
    ]


def test_without_failed_logs_the_log_is_named(seen, tmp_path):
    log = tmp_path / "x.log"
    log.write_text("error: no such kernel\n")
    run = seen().begin(choose_a=1)
    run.fail(1, "choose_a", log=[str(log)])
    assert f"  log: {log}\n" in run.said and "no such kernel" not in run.said


def test_a_long_log_and_a_long_command_are_cut_and_a_missing_log_is_said_to_be(seen, tmp_path):
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    run = seen(show_failed_logs=True).begin(profile=1)
    run.fail(1, "profile", log=[str(log), str(tmp_path / "gone.log")], shellcmd="pool " + "record.json " * 3000)
    assert "its last 40 of 1000 lines\n    line 960\n" in run.said and "line 959" not in run.said
    assert "gone.log (No such file or directory)" in run.said
    assert "… (36,004 characters)" in run.said and len(run.said) < 2000


def test_a_job_in_python_is_told_with_its_exception(seen):
    run = seen().begin(choose_a=1)
    run.fail(1, "choose_a", shellcmd=None)
    assert run.said.endswith("error: rule choose_a failed, which makes out/choose_a\n  RuleException: false died\n")


def test_an_exception_that_is_no_job_s_is_told_as_it_is(seen):
    run = seen().begin(choose_a=1)
    run.log(LogEvent.ERROR, "MissingOutputException: b", logging.ERROR, exception="MissingOutputException")
    run.log(LogEvent.PROGRESS, done=1, total=1)
    assert run.said.count("MissingOutputException: b") == 1


def test_exceptions_of_two_threads_go_to_their_own_jobs(seen):
    run = seen().begin(choose_a=2)
    for thread, word in ((1, "one"), (2, "two")):
        run.log(LogEvent.ERROR, f"exception {word}", logging.ERROR, thread=thread, exception="RuleException")
    for thread, word in ((2, "two"), (1, "one")):
        fields = {"rule_name": f"choose_{word}", "jobid": thread, "shellcmd": None}
        run.log(LogEvent.JOB_ERROR, "Error", logging.ERROR, thread=thread, **fields)
    assert run.said.splitlines() == [
        "error: rule choose_two failed",
        "  exception two",
        "error: rule choose_one failed",
        "  exception one",
    ]


def test_a_group_is_told_once_with_what_its_jobs_logged(seen, tmp_path):
    run = seen(show_failed_logs=True).begin(measure=3)
    logs = [tmp_path / f"{job}.log" for job in range(3)]
    for log, text in zip(logs, ("", "error: no such kernel\n", "")):
        log.write_text(text)
    members = [{"rule_name": "measure", "jobid": job, "log": [str(log)]} for job, log in enumerate(logs)]
    fields = {"groupid": "sweep", "external_jobid": "4711", "job_error_info": members}
    run.log(LogEvent.GROUP_ERROR, "Error in group sweep", logging.ERROR, **fields)
    for job in range(3):
        run.log(LogEvent.JOB_ERROR, "Error", logging.ERROR, indent=True, jobid=job, rule_name="measure")
    assert run.said.splitlines() == [
        "error: group sweep failed (measure)",
        "  external_jobid: 4711",
        f"  log: {logs[1]}",
        "    error: no such kernel",
    ]


def test_a_warning_is_told_once_and_chatter_never(seen):
    run = seen().begin(measure=1)
    for _ in range(2):
        run.log(message="Files are old.", level=logging.WARNING)
        run.log(message="Select jobs to execute...")
    assert run.said == "Files are old.\n"


# --- settings


def test_chatter_is_told_to_those_who_ask(seen):
    run = seen(verbose=True).begin(measure=1)
    run.log(message="Select jobs to execute...")
    assert run.said == "Select jobs to execute...\n"


def test_commands_are_told_to_those_who_ask(seen):
    for asked in (True, False):
        run = seen(printshellcmds=asked).begin(measure=1)
        run.log(LogEvent.SHELLCMD, "Shell command: measure this", shellcmd="measure this")
        assert run.said == "measure this\n" * asked


def test_quiet_about_everything_is_silence(seen, answers):
    answers(lambda: "the answer")
    run = seen(quiet=["ALL"]).begin(measure=1)
    run.tick(100)
    run.fail(1, "measure")
    run.handler.close()
    assert run.said == run.out.getvalue() == ""


def test_quiet_about_progress_leaves_errors_and_the_answer(seen, answers):
    answers(lambda: "the answer")
    run = seen(quiet=["PROGRESS", "RULES"], terminal=True).begin(measure=1)
    run.start(1, "measure")
    run.tick(100)
    run.log(message="A warning.", level=logging.WARNING)
    run.finish(1)
    run.handler.close()
    assert run.said == "A warning.\nthe answer\n"


def test_a_dry_run_reads_as_snakemake_writes_it(seen, answers):
    answers(lambda: "the answer")
    run = seen(dryrun=True, stdout=True)
    assert not run.handler.has_filter and not run.handler.has_formatter  # both are Snakemake's own then
    run.log(LogEvent.WORKFLOW_STARTED, "Workflow has started!")
    run.log(LogEvent.RUN_INFO, "Job stats:\njob  count\n", stats={"measure": 2})
    for _ in range(2):
        run.log(LogEvent.JOB_INFO, "rule measure:")
    run.log(LogEvent.PROGRESS)
    run.handler.close()
    assert run.said == ""
    assert run.out.getvalue() == ("Workflow has started!\nJob stats:\njob  count\n\n\nrule measure:\nrule measure:\n")


def test_what_snakemake_says_where_nothing_is_run_is_told(seen):
    run = seen()
    run.log(message="Unlocked working directory.")
    run.handler.close()
    assert run.said == "Unlocked working directory.\n"


def test_what_snakemake_says_before_a_run_is_not(seen):
    run = seen()
    run.log(message="Assuming unrestricted shared filesystem usage.")
    run.begin(measure=1)
    assert run.said == ""


# --- the end


def test_the_answer_closes_a_run_once(seen, answers):
    answers(lambda: "the answer")
    answers(lambda: None)
    run = seen().begin(measure=1)
    run.start(1, "measure")
    run.finish(1)
    run.handler.close()
    run.handler.close()
    assert run.said.splitlines()[-1] == "the answer" and run.said.count("the answer") == 1


def test_the_answer_is_given_where_nothing_was_to_be_done(seen, answers):
    answers(lambda: "the answer")
    run = seen().begin()
    run.log(message="Nothing to be done (all requested files are present and up to date).")
    run.handler.close()
    assert run.said.splitlines() == [plugin.NOTHING, "the answer"]


def test_the_answer_is_given_where_a_job_succeeded_when_tried_again(seen, answers):
    answers(lambda: "the answer")
    run = seen().begin(measure=1)
    run.start(1, "measure")
    run.fail(1, "measure")
    run.start(1, "measure")
    run.finish(1)
    run.handler.close()
    assert run.said.endswith("the answer\n")


def test_no_answer_follows_an_error_or_a_run_that_never_started(seen, answers):
    answers(lambda: "the answer")
    failed = seen().begin(measure=1)
    failed.fail(1, "measure")
    failed.lose()
    failed.handler.close()
    never = seen()
    never.handler.close()
    assert "the answer" not in failed.said + never.said


def test_ctrl_c_says_how_to_go_on_and_nothing_of_the_jobs_it_ended(seen, answers):
    answers(lambda: "the answer")
    run = seen().begin(measure=2)
    run.start(1, "measure")
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    run.fail(1, "measure")
    run.lose()
    run.handler.close()
    assert run.said.splitlines() == ["measure: begins, 2 jobs", "measure 0 of 2   1 s", plugin.STOPPED]


def test_where_ctrl_c_is_ignored_it_stays_so(seen):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        seen().handler.close()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_terminal_that_has_gone_stops_nothing(seen):
    run = seen(terminal=True).begin(measure=1)
    run.err.close()
    run.tick(1)
    run.fail(1, "measure")
    run.handler.close()


def test_a_run_that_is_refused_before_its_first_job_gives_no_answer(seen, answers):
    answers(lambda: "the answer of another day")
    run = seen().begin(measure=5)
    run.handler.close()
    assert "the answer" not in run.said


def test_jobs_that_have_nothing_to_do_after_a_checkpoint_are_not_shown_as_left(seen, answers):
    answers(lambda: "the answer")
    run = seen(terminal=True).begin(measure=1, choose_a=3)
    run.start(1, "measure")
    run.finish(1)
    run.handler.close()
    assert "choose" not in run.said.splitlines()[-2] and run.said.splitlines()[-1] == "the answer"
