"""The clocks of a GPU, held by a process of their own for a program that has CUDA open already.

A guard is to be entered before NVML and CUDA are opened, since it forks a janitor. Who plays a captured step has had
both open for long, and threads besides. So `Holder` starts a fresh process, which holds the guard and does what a
`Control` does, asked through a pipe. When the pipe ends, however the program died, it restores the clocks; its own
janitor watches it in turn.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from kernel_dvfs import package
from kernel_dvfs.deploy.control import Control, facts_of
from kernel_dvfs.errors import InputError, lines
from kernel_dvfs.gpu.clocks import BASELINE, check_after
from kernel_dvfs.gpu.setters.choice import AUTO
from kernel_dvfs.gpu.setters.setter import PRIVATE

if TYPE_CHECKING:
    from types import TracebackType

    from kernel_dvfs.deploy.control import Pair


class Holder(Control):
    """with Holder(uuid, dry_run, say) as control: a Control whose guard is in another process.

    about: the GPU's facts, with its slug; processes: how many compute on it, None where the driver does not tell. say:
    called with a line for the user. after: clocks to leave behind instead of none (setters.setter.leave_as_configured).
    through: what sets the clocks, see setters.choice; once entered, the way that it means here. exact: as of Control.
    Entering raises InputError where the GPU is taken, or lacks a clock of `after`; every method where the driver
    refuses, or the other process is gone. Methods may be called from several threads.
    """

    def __init__(
        self,
        uuid: str,
        dry_run: bool,
        say: Callable[[str], object],
        after: Mapping[str, list[int] | None] | None = None,
        through: str = AUTO,
        exact: bool = False,
    ) -> None:
        self._uuid, self._say, self._after = uuid, say, dict(after or {})
        self.through, self._exact = through, exact
        self.reads_only = dry_run
        self.pair: Pair = BASELINE
        self.asked = 0
        self.board: Any = _Board(uuid, self._ask)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        told = json.dumps(
            {
                "uuid": self._uuid,
                "dry_run": self.reads_only,
                "after": self._after,
                "through": self.through,
                "exact": self._exact,
            }
        )
        words = [sys.executable, "-m", "kernel_dvfs.deploy.holder", told]
        path = os.pathsep.join([package.FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,  # a signal to the program's group is not for it
        )
        assert self._process.stdin and self._process.stdout
        # a worker that the program forks would keep the pipe open, and so the clocks locked
        PRIVATE.update((self._process.stdin.fileno(), self._process.stdout.fileno()))
        try:
            found = _value(self._answer())
        except BaseException:
            self.close()
            raise
        self.about: dict[str, Any] = found["about"]
        self.processes: int | None = found["processes"]
        self.through = found["through"]
        self._clocks = self.about["clocks"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Have the clocks restored, and wait for that."""
        process, self._process = self._process, None
        if process:
            assert process.stdout
            _end(process)
            failed = []
            for line in process.stdout:
                with suppress(ValueError):  # the rest of an answer whose reading was interrupted
                    heard = self._heard(line)
                    failed += [heard["error"]] if "error" in heard else []
            PRIVATE.discard(process.stdout.fileno())
            process.stdout.close()
            process.wait()
            if failed:
                raise InputError("; ".join(failed))

    def announce(self, what: str) -> None:
        """See Control."""
        self._ask("announce", what)

    def ask(self, pair: Pair) -> None:
        """See Control."""
        self._ask("ask", pair)
        self.pair = pair
        self.asked += 1

    def to_auto(self) -> None:
        """See Control."""
        self._ask("to_auto")
        self.pair = BASELINE

    def seen(self) -> tuple[int, int]:
        """See Control."""
        core_mhz, mem_mhz = self._ask("seen")
        return core_mhz, mem_mhz

    def _ask(self, what: str, *about: Any) -> Any:
        with self._lock:
            process = self._process
            if process is None or process.stdin is None or process.stdin.closed:
                raise InputError(_GONE.format(uuid=self._uuid))
            try:
                process.stdin.write(json.dumps([what, *about]) + "\n")
                process.stdin.flush()
                answer = self._answer()
            except BaseException as error:
                # an answer that comes later would be taken for that of the next request
                _end(process)
                if isinstance(error, BrokenPipeError):
                    raise InputError(_GONE.format(uuid=self._uuid)) from None
                raise
        return _value(answer)

    def _answer(self) -> dict[str, Any]:
        assert self._process and self._process.stdout
        for line in self._process.stdout:
            answer = self._heard(line)
            if "error" in answer or "value" in answer:
                return answer
        raise InputError(_GONE.format(uuid=self._uuid))

    def _heard(self, line: str) -> dict[str, Any]:
        answer = json.loads(line)
        if "say" in answer:
            self._say(answer["say"])
        return answer


_GONE = "the process that holds the clocks of GPU {uuid} is gone; kernel-dvfs devices says whether they were restored"


def _value(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise InputError(answer["error"])
    return answer["value"]


def _end(process: subprocess.Popen[str]) -> None:
    """End the pipe, upon which the other process restores the clocks."""
    if process.stdin and not process.stdin.closed:
        PRIVATE.discard(process.stdin.fileno())
        with suppress(BrokenPipeError):
            process.stdin.close()


class _Board:
    """What a player looks at."""

    def __init__(self, uuid: str, ask: Callable[..., Any]) -> None:
        self.uuid, self._ask = uuid, ask

    def event_reasons(self) -> int:
        return self._ask("reasons")

    def energy_mj(self) -> int:
        return self._ask("energy")


# --- the other process ------------------------------------------------------------------------------------------------


def main(uuid: str, dry_run: bool, after: dict[str, list[int] | None], through: str, exact: bool) -> None:
    """Hold the clocks of a GPU until the pipe ends. Arguments: as of Holder."""
    from kernel_dvfs.gpu.guard import Guard

    # the answers' pipe; whatever else writes goes to stderr
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def tell(**answer: Any) -> None:
        try:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        except BrokenPipeError:
            pass  # the program died; what it asked with ends as well

    try:
        about = facts_of(uuid)
        check_after(about["clocks"], after)
        mode = "dry-run" if dry_run else "lock"
        with Guard(uuid, after, mode, lambda line: tell(say=line), through) as guard:
            control = Control(guard, about, exact, dry_run)
            about = {"about": about, "processes": guard.board.compute_processes(), "through": guard.through}
            tell(value=about)
            does: dict[str, Callable[..., Any]] = {
                "announce": control.announce,
                "ask": lambda pair: control.ask((pair[0], pair[1])),
                "to_auto": control.to_auto,
                "seen": control.seen,
                "reasons": guard.board.event_reasons,
                "energy": guard.board.energy_mj,
            }
            for line in sys.stdin:
                what, *more = json.loads(line)
                try:
                    tell(value=does[what](*more))
                except (InputError, ExceptionGroup) as error:
                    tell(error="; ".join(lines(error)))
    except (InputError, ExceptionGroup) as error:
        tell(error="; ".join(lines(error)))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
