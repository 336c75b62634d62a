"""What a person sees of a run: one line that says how far it is, each error once, and in the end the answer.

A logger plugin of Snakemake, `logger: kernel-dvfs` in a profile. It takes the place of Snakemake's own output and uses
what `snakemake_interface_logger_plugins` documents. On a terminal the line is rewritten in place, in a log there is one
a minute. A run with --verbose, --printshellcmds or --debug-dag is left to Snakemake's own output. So is a dry run, but
for a last line: how many of its jobs are only looked at.
"""

import logging
import os
import shutil
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGINT, set_wakeup_fd
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

# what is left is estimated once jobs of one kind have run this long: a first slow or quick one says little
_SAME_KIND_S = 60.0
# of more jobs than these the first is left out: it may have opened what the others find open
_FEW_JOBS = 3
# how Snakemake begins the reason of a job that rests on others
_UPDATED = "Input files updated by another job: "
_answers: list[Callable[[], str | None]] = []
_expected: dict[str, int] = {}
_planned_s: dict[str, float] = {}
_costs: dict[str, float] = {}
_handlers: list["LogHandler"] = []


def at_end(answer: Callable[[], str | None]) -> None:
    """For a Snakefile: have `answer` called when a run ends well, and its text printed, unless it is None."""
    _answers.append(answer)


def expect(kind: str, jobs: int, seconds: float | None = None) -> None:
    """For a Snakefile: so many jobs of a kind (its rule's first word) are to come, which Snakemake cannot know before a
    checkpoint has run. seconds: what is planned for all of them, told until they themselves tell more."""
    _expected[kind] = jobs
    if seconds is not None:
        _planned_s[kind] = seconds


def weigh(rule: str, cost: float) -> None:
    """For a Snakefile: what a job of a rule costs, in any unit that all jobs of its kind share: what is left of a kind
    whose jobs are not alike is told by cost, once enough of it is done."""
    _costs[rule] = cost


def is_interrupted() -> bool:
    """For a Snakefile: whether there was a Ctrl-C; False where another logger is in use."""
    return any(handler.is_interrupted for handler in _handlers)


class LogHandler(LogHandlerBase):
    """Snakemake gives it each log record, from a thread of its own, and closes it at the end of the process."""

    clock: Callable[[], float] = staticmethod(time.monotonic)
    intervals_s = (0.25, 60.0)  # from one line to the next: on a terminal, in a log

    writes_to_stream = property(lambda self: not self._is_left_to_snakemake)
    has_filter = property(lambda self: True)  # Snakemake's would hide jobs from the counter
    has_formatter = writes_to_file = needs_rulegraph = property(lambda self: False)

    def __post_init__(self) -> None:
        asked = self.common_settings
        quiet = {each.name for each in asked.quiet or ()}
        self._is_left_to_snakemake = asked.dryrun or asked.verbose or asked.printshellcmds or asked.debug_dag
        self._is_dry_run = asked.dryrun
        self._is_silent = "ALL" in quiet
        self._has_line = not (self._is_left_to_snakemake or self._is_silent or "PROGRESS" in quiet)
        self._on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._early: list[str] = []  # said before it is known whether anything is run
        self._exceptions: dict[int | None, str] = {}  # of a thread, until its next record tells which job it was
        self._said: set[str] = set()
        self._began_s: float | None = None
        self._done = self._total = 0
        self._failed: set[int] = set()
        self._drawn = self._kind = ""  # the line on a terminal; of the last job that began, its rule's first word
        self._kind_began_s: list[float] = []  # each job since those of another kind
        self._waiting: Counter[str] = Counter()  # jobs of each kind that have not begun
        self._unpaid: defaultdict[str, float] = defaultdict(float)  # what those of each kind cost that are weighed
        self._paid: list[float] = []  # what each job since those of another kind costs
        self._is_broken = False
        # of a dry run: jobs that are sure to run and what they make, others, and the checkpoints that tell of those
        self._sure = self._looked_at = 0
        self._sure_files: set[str] = set()
        self._checkpoints: list[str] = []
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, daemon=True)
        # Ctrl-C is remembered, and takes its way: no event tells it from a failure. With a handler of our own some runs
        # would hang: only beside Python's own does asyncio, in which Snakemake waits, end its tasks in order
        self._interrupted = threading.Event()
        self._signals, self._numbers = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(self._numbers, False)
        _handlers.append(self)
        if threading.current_thread() is threading.main_thread():
            set_wakeup_fd(self._numbers, warn_on_full_buffer=False)

    @property
    def is_interrupted(self) -> bool:
        """Whether there was a Ctrl-C: Python writes down the number of each signal that is not ignored."""
        with suppress(BlockingIOError):
            if SIGINT in os.read(self._signals, 4096):
                self._interrupted.set()
        return self._interrupted.is_set()

    def emit(self, record: logging.LogRecord) -> None:
        """Count what the record tells, and print it if it is news."""
        try:
            self._take(record, getattr(record, "event", None), self.clock())
        except Exception:
            self.handleError(record)

    def tick(self) -> None:
        """Write the line anew: on a terminal in its place, else below the last one."""
        self.acquire()
        try:
            # between the plan and the first job the Snakefile's onstart speaks
            if not self._stop.is_set() and (self._kind or not self._total):
                self._write(line=self._counted() + (self._now() if self._kind else ""))
        finally:
            self.release()

    def close(self) -> None:
        """Give the answer, or say how to go on. Called more than once, it speaks once."""
        # the ticker is not waited for: it may wait for the lock, which logging.shutdown holds while it calls this
        self.acquire()
        is_first = not self._stop.is_set()
        self._stop.set()
        self.release()
        if is_first:
            self._end()
        super().close()

    def _take(self, record: logging.LogRecord, event: LogEvent | None, now_s: float) -> None:
        fields = vars(record)
        if (exception := self._exceptions.pop(record.thread, "")) and event != LogEvent.JOB_ERROR:
            self._tell(exception)
        if event == LogEvent.WORKFLOW_STARTED:
            self._began_s = now_s
            if self._has_line:
                self._ticker.start()
        elif event == LogEvent.RUN_INFO:
            self._write()
            for rule, count in fields["stats"].items():
                self._waiting[rule.partition("_")[0]] += count
                self._unpaid[rule.partition("_")[0]] += count * _costs.get(rule, 0.0)
            self._total = self._waiting.pop("total")
        elif event == LogEvent.PROGRESS:
            self._done, self._total = fields["done"], fields["total"]
        elif event == LogEvent.JOB_INFO and self._is_dry_run:
            self._foresee(fields)
        elif event == LogEvent.JOB_INFO:
            self._failed.discard(fields["jobid"])  # it is tried again
            kind = fields["rule_name"].partition("_")[0]
            self._waiting[kind] = _expected.pop(kind, self._waiting[kind]) - 1
            if kind != self._kind:
                self._kind, self._kind_began_s, self._paid = kind, [], []
            self._kind_began_s.append(now_s)
            self._paid.append(_costs.get(fields["rule_name"], 0.0))
            self._unpaid[kind] -= self._paid[-1]
        elif event in (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR):
            self._failed.update([fields["jobid"]] if event == LogEvent.JOB_ERROR and not self.is_interrupted else [])
            if not fields.get("indent"):  # else one of a group, which has been told
                self._tell(_errors_in_logs(record) or f"{exception}\n{self.format(record)}".strip())
        elif fields.get("exception") == "RuleException":
            self._exceptions[record.thread] = self.format(record)
        elif record.levelno >= logging.ERROR:
            self._is_broken = True
            # a summary of failed jobs says nothing new once each of them has been told
            if not (self._failed and fields.get("exception", "WorkflowError") == "WorkflowError"):
                self._tell(self.format(record))
        elif record.levelno >= logging.WARNING:
            self._tell(self.format(record))
        elif event is None and self._began_s is None and not self._is_left_to_snakemake:
            self._early.append(self.format(record))

    def _foresee(self, job: dict[str, Any]) -> None:
        """Count a job of a dry run, which tells of each one after those that it rests on. Snakemake plans all that
        rests on a checkpoint; once that has run, what rests on it alone runs only if it gave other bytes."""
        reasons = job["reason"].split("; ")
        rests_on = [path for each in reasons for path in each.removeprefix(_UPDATED).split(", ")]
        is_sure = not all(each.startswith(_UPDATED) for each in reasons) or self._sure_files.intersection(rests_on)
        if not job["output"]:
            return  # a target: it runs nothing
        if not is_sure:
            self._looked_at += 1
            return
        self._sure += 1
        if job["is_checkpoint"]:
            self._checkpoints.append(job["rule_name"])
        else:
            self._sure_files.update(job["output"])

    def _foreseen(self) -> str:
        """How many jobs of a dry run are only looked at; "" where there are none."""
        if not self._looked_at:
            return ""
        return (
            f"Of these {self._sure + self._looked_at:,} jobs {self._sure:,} are sure to run. The others are looked "
            f"at again after {' and '.join(self._checkpoints)}, and run only if that gives other bytes."
        )

    def _tell(self, text: str) -> None:
        """Print an error or a warning, once; after Ctrl-C nothing, for then jobs fail because they were stopped."""
        if not (self._is_left_to_snakemake or self.is_interrupted or text in self._said):
            self._said.add(text)
            self._write(text)

    def _end(self) -> None:
        for text in self._exceptions.values():
            self._tell(text)
        if self._is_dry_run:
            self._write(self._foreseen())
        elif self._began_s is None:
            self._write(*self._early)  # what snakemake --lint, --unlock, --report have to say
        elif self.is_interrupted or (self._is_broken and self._total):
            self._write(f"Stopped: {self._counted()}. What was made stays; the same command goes on.")
        elif self._is_broken or (self._total and not self._done):
            self._write()  # refused before the first job, and why has been said
        else:
            self._total = self._done  # what else was planned had nothing to do in the end
            if self._has_line:
                self._write(self._counted() if self._total else "Nothing to be done: all that was asked for is there.")
            self._write(*(answer() for answer in _answers))

    def _counted(self) -> str:
        elapsed = _duration(self.clock() - (self._began_s or 0.0))
        failed = f" ({len(self._failed):,} failed)" if self._failed else ""
        return f"{self._done:,} of {self._total:,} jobs{failed} in {elapsed}" if self._total else f"planning, {elapsed}"

    def _now(self) -> str:
        """`, now measure (about 4 min left)`: the kind of job that runs, and what is left of that kind."""
        times_s, waiting, now_s = self._kind_began_s, self._waiting[self._kind], self.clock()
        left_s = _planned_s.get(self._kind, 0.0) - (now_s - times_s[0])
        if any(self._paid) or self._unpaid[self._kind] > 0:
            # jobs that are not alike: by what those cost that are done, and nothing before
            done, passed_s = sum(self._paid[:-1]), times_s[-1] - times_s[0]
            each_s = passed_s / done if done and now_s - times_s[0] >= _SAME_KIND_S else 0.0
            left_s = each_s * self._unpaid[self._kind] + max(0.0, each_s * self._paid[-1] - (now_s - times_s[-1]))
        elif len(times_s) > 1 and waiting > 0 and now_s - times_s[0] >= _SAME_KIND_S:
            alike_s = times_s[1:] if len(times_s) > _FEW_JOBS else times_s
            left_s = (waiting + 1) * (alike_s[-1] - alike_s[0]) / (len(alike_s) - 1) - (now_s - times_s[-1])
        said = "measure again" if self._kind == "validate" else self._kind
        if left_s <= 0:
            return f", now {said}"
        # as exact as it is true: to a fifth
        step_s = 60 if left_s >= 300 else 10
        return f", now {said} (about {_duration(step_s * max(1, round(left_s / step_s)))} left)"

    def _tick_on(self) -> None:
        while not self._stop.wait(self.intervals_s[not self._on_terminal]):
            self.tick()

    def _write(self, *texts: str | None, line: str = "") -> None:
        """Print texts, then the line. On a terminal the line's place is taken by what is printed next."""
        rows = texts if self._on_terminal else (*texts, line)
        printed = "\r\x1b[K" * bool(self._drawn) + "".join(f"{row}\n" for row in rows if row)
        # what a job itself prints comes after the spaces
        self._drawn = f"{line[: shutil.get_terminal_size().columns - 3]}  " if line and self._on_terminal else ""
        if not self._is_silent:
            with suppress(OSError, ValueError):  # a terminal that has gone is no reason to stop
                sys.stderr.write(printed + self._drawn)
                sys.stderr.flush()


def _errors_in_logs(record: logging.LogRecord) -> str:
    """The `error: ...` lines in the logs of a failed job or group of jobs, each once."""
    jobs = getattr(record, "job_error_info", None) or [vars(record)]
    lines: list[str] = []
    for path in (*getattr(record, "aux_logs", ()), *(path for job in jobs for path in job["log"])):
        with suppress(OSError):
            lines += Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith("error: ")))


def _duration(seconds: float) -> str:
    """`40 s`, `2 min 10 s`, `3 h`."""
    words, left = [], round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        words += [f"{count} {unit}"] if count else []
    return " ".join(words[:2]) or "0 s"
