"""One line on a long run for the person who waits: how much is done, what is at work, how long it still takes.

On a terminal the line is rewritten in place; in a log there is one every few minutes. Knows jobs as weights and
questions, nothing of Snakemake.
"""

import math
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from kernel_dvfs.files import read_json


class Task(NamedTuple):
    """A job of a run."""

    weight_s: float  # what it is expected to take
    what: str  # in words
    record: str  # path of a real GPU's record; "": none
    is_done: Callable[[], bool]
    is_running: Callable[[], bool]


_TERMINAL_EVERY_S = 1.0
_LOG_EVERY_S = 120.0
# to look through all jobs takes long where there are thousands
_ASK_EVERY_S = 10.0
# the rate is that of the last so many finished tasks, at least so many
_RECENT, _LEAST = 200, 3
_ERASE = "\r\x1b[K"
# what the workflow system says of each job; by its event, or its first words
_CHATTER = {"progress", "job_finished", "job_started"}
_CHATTER_WORDS = ("Select jobs to execute", "Execute ")


class Progress:
    """State of a run. tasks: () -> [Task], all that the run consists of as things stand; now_s: a clock."""

    def __init__(self, tasks, now_s=time.monotonic):
        self._ask, self._now_s = tasks, now_s
        self._open, self._total, self._weight_s, self._asked_s = [], 0, 0.0, -math.inf
        # (time s, sum of the weights finished by then)
        self._finished = deque([(now_s(), 0.0)], maxlen=_RECENT)
        self._last_record = ""

    def line(self) -> str:
        """The line, as things stand."""
        self._update()
        done = self._total - len(self._open)
        parts = [f"{done:,} of {self._total:,} done ({100 * done // max(1, self._total)} %)"]
        parts += [task.what for task in self._open if task.is_running()][:1]
        if self._open and (left_s := self._left_s()) is not None:
            end = time.strftime("%a %H:%M" if left_s > 12 * 3600 else "%H:%M", time.localtime(time.time() + left_s))
            parts.append(f"about {_duration(left_s)} left, until {end}")
        if celsius := self._temperature_c():
            parts.append(f"GPU {celsius:g} C")
        return " | ".join(parts)

    def _update(self) -> None:
        asked = self._now_s() - self._asked_s >= _ASK_EVERY_S
        if asked:
            # jobs are replaced and added while a run goes on: a round of measurements asks for more
            with suppress(RuntimeError):  # they are being changed just now: the next time, then
                self._open = self._ask()
                self._total, self._weight_s = len(self._open), sum(task.weight_s for task in self._open)
            self._asked_s = self._now_s()
        still = []
        for task in self._open:
            if not task.is_done():
                still.append(task)
            elif not asked or not self._last_record:
                self._last_record = task.record or self._last_record
        self._open = still
        done_s = self._weight_s - sum(task.weight_s for task in still)
        if done_s > self._finished[-1][1]:
            self._finished.append((self._now_s(), done_s))

    def _left_s(self):
        """What is left at the pace of late: weights say how the tasks compare, the clock how long they really take."""
        (first_s, before_s), (last_s, weight_s) = self._finished[0], self._finished[-1]
        left_s = sum(task.weight_s for task in self._open)
        if self._total - len(self._open) < _LEAST or weight_s <= before_s:
            # nothing measured yet; a guess is worth telling only where it is the windows' own length
            return left_s if any(task.record for task in self._open) else None
        return left_s * (last_s - first_s) / (weight_s - before_s)

    def _temperature_c(self):
        """Of the board at the end of the last window, as its record says."""
        with suppress(OSError, ValueError, LookupError, TypeError):
            return read_json(self._last_record)["windows"][-1]["temp_c"][1]
        return None


class Reporter:
    """Tells the line to a stream from a thread of its own, from `start` to `stop`."""

    def __init__(self, progress: Progress, stream):
        self._progress, self._stream, self._terminal = progress, stream, stream.isatty()
        self._ended = threading.Event()
        self._shown = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.erase()

    def filter(self, record) -> bool:
        """For a logging handler of the same stream: drops what is said of each job, makes room for all else."""
        event = getattr(record, "event", None)
        if getattr(event, "value", event) in _CHATTER or str(record.msg).startswith(_CHATTER_WORDS):
            return False
        self.erase()
        return True

    def erase(self) -> None:
        with self._lock:
            if self._shown:
                self._write(_ERASE)
                self._shown = False

    def _tell(self) -> None:
        while not self._ended.wait(_TERMINAL_EVERY_S if self._terminal else _LOG_EVERY_S):
            line = self._progress.line()
            if self._terminal:
                # a line that wraps cannot be erased
                line = line[: shutil.get_terminal_size().columns - 1]
            with self._lock:
                self._write(f"{_ERASE}{line}" if self._terminal else f"{line}\n")
                self._shown = self._terminal

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that has gone is no reason to stop
            self._stream.write(text)
            self._stream.flush()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes >= 10 else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
