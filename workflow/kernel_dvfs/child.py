"""A command run as a child process that decides how it ends: signals are passed on to it and end nothing here."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.guard import ENDING_SIGNALS

_LOOK_EVERY_S = 0.5
_SI_USER = 0  # si_code up to this: sent by a process; signals of the terminal reach the whole group by themselves


def run(words: Sequence[str]) -> int:
    """Run a command to its end; return its exit code. Raises InputError where it cannot be started."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {*ENDING_SIGNALS, signal.SIGCHLD})
    try:
        child = start(words, held)
        attend(child, lambda: None)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    return code_of(child)


def start(
    words: Sequence[str],
    held: set[int | signal.Signals],
    environment: Mapping[str, str] | None = None,
    outputs: tuple[int, int] | tuple[None, None] = (None, None),
) -> subprocess.Popen[bytes]:
    """Start a command with the signal mask `held`. environment: more variables for it; outputs: files that its stdout
    and stderr are. Raises InputError where it cannot be started."""

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)

    try:
        variables = {**os.environ, **(environment or {})}
        return subprocess.Popen(words, env=variables, preexec_fn=release, stdout=outputs[0], stderr=outputs[1])
    except OSError as error:
        raise InputError(f"{words[0]}: {error.strerror}; the command cannot be started") from None


def attend(child: subprocess.Popen[bytes], look: Callable[[], object]) -> None:
    """Call look() now and then and pass signals on until the child ends; where look() fails, kill the child.

    ENDING_SIGNALS and SIGCHLD must be blocked.
    """
    try:
        while True:
            look()
            end_s = time.monotonic() + _LOOK_EVERY_S
            while (left_s := end_s - time.monotonic()) > 0:
                info = signal.sigtimedwait({*ENDING_SIGNALS, signal.SIGCHLD}, left_s)
                if child.poll() is not None:
                    return
                if info is not None and info.si_signo in ENDING_SIGNALS and info.si_code <= _SI_USER:
                    child.send_signal(info.si_signo)
    except BaseException:
        child.kill()
        child.wait()
        raise


def code_of(child: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a child that has ended, as a shell has it (128 + signal)."""
    code: int = child.returncode
    return code if code >= 0 else 128 - code
