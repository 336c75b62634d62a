"""What a person sees of a run: one line that says how far it is, errors once, and in the end the answer.

A logger plugin of Snakemake: `snakemake --logger kernel-dvfs`, or `logger: kernel-dvfs` in a profile. It takes
the place of Snakemake's own output and uses what `snakemake_interface_logger_plugins` documents: events, the fields of
their records, settings. On a terminal the line is rewritten in place. In a log each stage that begins or ends has a
line, and there is one every minute. A dry run reads as Snakemake writes it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_kernel_dvfs.progress import Progress

__all__ = ["LogHandler", "at_end"]

_REDRAWN_EVERY_S = 0.25
_LOGGED_EVERY_S = 60.0
# after the plan is made the Snakefile's `onstart` prints its notices: the line leaves them room
_NOTICES_S = 0.5
_ERASE = "\r\x1b[K"
# of a failed job's log and command, as much as fits a screen: a command may name thousands of files
_LOG_LINES, _COMMAND_CHARACTERS, _GROUP_LOGS = 40, 400, 3

STOPPED = "Stopped. What was measured stays; the same command goes on."
NOTHING = "Nothing to be done: all that was asked for is there."

_answers: list[Callable[[], str | None]] = []


def at_end(answer: Callable[[], str | None]) -> None:
    """Have `answer` called once when a run ends without an error, and its text printed, unless it is None.

    For a Snakefile, while it is parsed. Not called after a dry run, an error or Ctrl-C.
    """
    _answers.append(answer)


class LogHandler(LogHandlerBase):
    """Snakemake gives it each log record, from a thread of its own, and closes it at the end of the process."""

    clock: Callable[[], float] = staticmethod(time.monotonic)
    # tests call tick() themselves
    ticks = True

    def __post_init__(self) -> None:
        settings = self.common_settings
        self._stream = sys.stdout if settings.stdout else sys.stderr
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        quiet = {getattr(each, "name", str(each)).lower() for each in settings.quiet or ()}
        self._silent = "all" in quiet
        self._shows_progress = "progress" not in quiet and not settings.dryrun
        self._progress = Progress()
        self._started_s: float | None = None
        self._failed = self._interrupted = self._closed = False
        self._early: list[str] = []  # messages before it is known whether this is a run
        self._exceptions: dict[int | None, str] = {}  # an error of each thread that may yet prove to be a job's
        self._said: set[str] = set()
        self._drawn = ""
        self._hold_until_s = self._logged_s = 0.0
        self._job_info_before = False
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None
        self._notice_interrupt()

    writes_to_stream = property(lambda self: True)
    writes_to_file = property(lambda self: False)
    needs_rulegraph = property(lambda self: False)
    # Snakemake's words for what is passed on as it is
    has_formatter = property(lambda self: False)

    @property
    def has_filter(self) -> bool:
        """In a dry run Snakemake's own filter says what is worth telling."""
        return not self.common_settings.dryrun

    def emit(self, record: logging.LogRecord) -> None:
        """Count what the record tells, or print it."""
        try:
            if self.common_settings.dryrun:
                self._repeat(record)
            elif not self._silent:
                self._take(record)
        except Exception:
            self.handleError(record)

    def tick(self) -> None:
        """Redraw the line where it has changed; in a log, say how far the run is, once a minute."""
        if not self._shows_progress or self._silent or self._started_s is None:
            return
        self.acquire()
        try:
            if self._terminal:
                self._draw()
            else:
                self._log()
        finally:
            self.release()

    def close(self) -> None:
        """Give the answer, or say how to go on. Called more than once, it speaks once."""
        self._stop.set()
        if self._ticker is not None:
            self._ticker.join()
        if not self._closed:
            self._closed = True
            self._restore_interrupt()
            self._end()
        super().close()

    # --- records

    def _repeat(self, record: logging.LogRecord) -> None:
        """As Snakemake's own handler prints it, without colours."""
        is_job_info = getattr(record, "event", None) == LogEvent.JOB_INFO
        if is_job_info and not self._job_info_before:
            self._write("\n")
        self._job_info_before = is_job_info
        text = self.format(record)
        if text not in ("", "None"):
            self._write(f"{text}\n")

    def _take(self, record: logging.LogRecord) -> None:
        event, now_s = getattr(record, "event", None), self.clock()
        if event != LogEvent.JOB_ERROR:
            self._tell_exception(record.thread)
        if event == LogEvent.WORKFLOW_STARTED:
            self._begin(now_s)
        elif event == LogEvent.RUN_INFO:
            stats = getattr(record, "stats", None) or {}
            self._progress.plan({rule: count for rule, count in stats.items() if rule != "total"}, now_s)
            self._erase()
            self._hold_until_s = now_s + _NOTICES_S
        elif event == LogEvent.JOB_INFO:
            self._progress.start(getattr(record, "jobid", -1), getattr(record, "rule_name", ""), now_s)
        elif event == LogEvent.JOB_FINISHED:
            self._progress.finish(getattr(record, "job_id", -1), now_s)
        elif event == LogEvent.PROGRESS:
            self._progress.count_all(getattr(record, "total", 0))
        elif event == LogEvent.SHELLCMD:
            if self.common_settings.printshellcmds and (command := getattr(record, "shellcmd", None)):
                self._say(command)
        elif event == LogEvent.DEBUG_DAG:
            if self.common_settings.debug_dag:
                self._say(self.format(record))
        elif event == LogEvent.JOB_ERROR:
            self._take_job_error(record, now_s)
        elif event == LogEvent.GROUP_ERROR:
            self._complain(_group_failure(record, self.common_settings.show_failed_logs))
        elif event == LogEvent.ERROR:
            # most often the exception of a job that JOB_ERROR, the thread's next record, tells better
            self._exceptions[record.thread] = self.format(record)
        elif record.levelno >= logging.WARNING:
            if record.levelno >= logging.ERROR:
                self._failed = True
            self._complain(self.format(record))
        elif event is None:
            self._take_message(self.format(record))
        if self._shows_progress and not self._terminal:
            self._log_news()

    def _take_message(self, text: str) -> None:
        if self.common_settings.verbose:
            self._say(text)
        elif self._started_s is None:
            # what snakemake --lint, --unlock, --report have to say; chatter, where a run follows
            self._early.append(text)

    def _take_job_error(self, record: logging.LogRecord, now_s: float) -> None:
        exception = self._exceptions.pop(record.thread, None)
        if self._interrupted:
            return
        self._progress.fail(getattr(record, "jobid", -1), now_s)
        if getattr(record, "indent", False):
            return  # one of a group, whose error has been told
        text = _failure(vars(record), self.common_settings.show_failed_logs)
        if exception and not getattr(record, "shellcmd", None):
            # of a job in Python: the exception is all there is
            text += f"\n{_indented(exception)}"
        self._complain(text)

    def _tell_exception(self, thread: int | None) -> None:
        if (exception := self._exceptions.pop(thread, None)) is not None:
            self._failed = True
            self._complain(exception)

    # --- beginning and end

    def _begin(self, now_s: float) -> None:
        self._started_s = self._logged_s = now_s
        self._early.clear()
        if self.ticks and self._shows_progress:
            self._ticker = threading.Thread(target=self._tick_on, name="kernel-dvfs-progress", daemon=True)
            self._ticker.start()

    def _tick_on(self) -> None:
        while not self._stop.wait(_REDRAWN_EVERY_S):
            self.tick()

    def _end(self) -> None:
        if self._silent or self.common_settings.dryrun:
            return
        for thread in list(self._exceptions):
            self._tell_exception(thread)
        for text in self._early:
            self._say(text)
        if self._started_s is None:
            return
        self._erase()
        # neither failed nor stopped, and nothing done: refused before the first job, which has been said
        ended_well = not (self._failed or self._interrupted)
        refused = ended_well and self._progress.planned and not self._progress.worked
        if ended_well and not refused:
            self._progress.close()
        if (
            self._shows_progress
            and self._progress.planned
            and not refused
            and (self._terminal or not self._progress.complete)
        ):
            self._write(self._line() + "\n")
        if self._interrupted:
            self._say(STOPPED)
        elif ended_well and not refused:
            if not self._progress.planned:
                self._say(NOTHING)
            # last, so that one that fails keeps nothing from being told
            for answer in _answers:
                self._say(answer() or "")

    def _notice_interrupt(self) -> None:
        """Remember Ctrl-C, and let it take its way: no event tells it from a failure."""
        self._on_interrupt: Any = None
        # not where it is ignored, as under nohup; only the main thread may ask
        if callable(before := signal.getsignal(signal.SIGINT)):

            def on_interrupt(number: int, frame: FrameType | None) -> None:
                self._interrupted = True
                before(number, frame)

            with suppress(ValueError):
                signal.signal(signal.SIGINT, on_interrupt)
                self._before_interrupt, self._on_interrupt = before, on_interrupt

    def _restore_interrupt(self) -> None:
        if self._on_interrupt is not None and signal.getsignal(signal.SIGINT) is self._on_interrupt:
            with suppress(ValueError):
                signal.signal(signal.SIGINT, self._before_interrupt)

    # --- the stream

    def _complain(self, text: str) -> None:
        """Print an error or a warning, once; after Ctrl-C nothing, for then jobs fail because they were stopped."""
        if not self._interrupted and text not in self._said:
            self._said.add(text)
            self._say(text)

    def _say(self, text: str) -> None:
        if text not in ("", "None"):
            self._erase()
            self._write(f"{text}\n")

    def _line(self, columns: int | None = None) -> str:
        now_s = self.clock()
        return self._progress.line(now_s, now_s - (self._started_s or 0.0), columns)

    def _draw(self) -> None:
        if self.clock() < self._hold_until_s:
            return
        line = self._line(self._columns() - 3)
        if not self._progress.planned:
            line = f"planning{line}"
        if line != self._drawn:
            # what a job prints by itself comes after the spaces
            self._write(f"{_ERASE}{line}  ")
            self._drawn = line

    def _erase(self) -> None:
        if self._drawn:
            self._write(_ERASE)
            self._drawn = ""

    def _log_news(self) -> None:
        for line in self._progress.news():
            self._write(f"{line}\n")

    def _log(self) -> None:
        self._log_news()
        if self.clock() - self._logged_s >= _LOGGED_EVERY_S and self._progress.planned:
            self._logged_s = self.clock()
            self._write(self._line() + "\n")

    def _columns(self) -> int:
        with suppress(OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        return 80

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that has gone is no reason to stop
            self._stream.write(text)
            self._stream.flush()


def _failure(job: dict[str, Any], with_log: bool) -> str:
    """A failed job: rule, what it makes, command, what it logged. job: the fields of JOB_ERROR."""
    output = next(iter(job.get("output") or ()), None)
    text = [f"error: rule {job.get('rule_name', '?')} failed" + (f", which makes {output}" if output else "")]
    if message := job.get("rule_msg"):
        text.append(_indented(str(message)))
    if command := job.get("shellcmd"):
        text.append(_indented(f"command: {_shortened(command.strip())}"))
    text += [_indented(f"{name}: {value}") for name, value in (job.get("aux") or {}).items()]
    for path in job.get("log") or ():
        text.append(_indented(_log_of(path) if with_log else f"log: {path}"))
    return "\n".join(text)


def _group_failure(record: logging.LogRecord, with_log: bool) -> str:
    """A failed group: its name and rules, and what its jobs logged; which of them failed is not known."""
    jobs = list(getattr(record, "job_error_info", None) or ())
    rules = {str(job.get("rule_name", "?")) for job in jobs}
    text = [f"error: group {getattr(record, 'groupid', '?')} failed ({', '.join(sorted(rules))})"]
    if batch_job := getattr(record, "external_jobid", None):
        text.append(_indented(f"external_jobid: {batch_job}"))
    paths = [*(getattr(record, "aux_logs", None) or ()), *(path for job in jobs for path in job.get("log") or ())]
    logged = [path for path in paths if os.path.isfile(path) and os.path.getsize(path)]
    text += [_indented(_log_of(path) if with_log else f"log: {path}") for path in logged[:_GROUP_LOGS]]
    if len(logged) > _GROUP_LOGS:
        text.append(_indented(f"and {len(logged) - _GROUP_LOGS} more logs"))
    return "\n".join(text)


def _log_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError as error:
        return f"log: {path} ({error.strerror})"
    if not lines:
        return f"log: {path} (empty)"
    cut = f", its last {_LOG_LINES} of {len(lines)} lines" if len(lines) > _LOG_LINES else ""
    return f"log: {path}{cut}\n" + _indented("\n".join(lines[-_LOG_LINES:]))


def _shortened(text: str) -> str:
    return text if len(text) <= _COMMAND_CHARACTERS else f"{text[:_COMMAND_CHARACTERS]} … ({len(text):,} characters)"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
