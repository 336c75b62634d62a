"""A process that outlives its owner by the moment it takes to restore the clocks, whatever killed the owner.

It is forked before NVML and CUDA are opened, waits at a pipe that only the owner holds open, and inherits the lease,
so that the GPU stays taken until it is done. A tool that the owner had called to set a clock outlives it too: the
janitor waits for its end before it restores, and sees that end at a second pipe, which the tool has as its input. A
request that a daemon has not answered may be carried out later, whether its owner has died or has stopped waiting, and
nothing tells when: the janitor sees that there was one in memory that it shares with the owner, and restores a second
time, once any answer would have come. A daemon that takes longer than that is not covered: clocks of such a request
stay locked, without a lease.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.board import Board
from kernel_dvfs.gpu.nvml.lease import RESTORING
from kernel_dvfs.gpu.nvml.library import Library, patience_s
from kernel_dvfs.gpu.nvml.locks import NotRestored, leave_as_configured, not_restored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernel_dvfs.gpu.nvml.lease import Lease

_DONE = b"d"
_NONE = -1  # no process, no file
# what ends a process that does not expect it, its own faults apart; batch systems and training scripts say "save" by
# several of them
ENDING_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
# what a forked child of the owner must not keep: with a pipe's end it would keep whoever restores the clocks waiting
PRIVATE: set[int] = set()
# by UUID of a GPU that a janitor watches: the file that a tool which sets its clocks must keep open while it runs
HELD_BY_TOOLS: dict[str, int] = {}
# likewise, memory whose first byte is 1 from a daemon's first request without an answer on
_ASKED: dict[str, mmap.mmap] = {}


def asked_of_daemon(uuid: str) -> Callable[[], None]:
    """A daemon is asked to set clocks of a GPU: where a janitor watches, it knows.

    Returns what to call once nothing can come of that any more: not after a timeout.
    """
    memory = _ASKED.get(uuid)
    if memory is None:
        return lambda: None
    # an answer to this request says nothing of one before it that has had none
    before, memory[0] = memory[0], 1

    def dealt_with() -> None:
        memory[0] = before

    return dealt_with


class Janitor:
    """Watches this process from `start` on.

    lease: held, and given back once the clocks are restored; after: see locks.leave_as_configured.
    """

    def __init__(self, lease: Lease, after: Mapping[str, list[int] | None]) -> None:
        self._lease, self._after = lease, after
        self._pid = self._pipe = self._held = _NONE
        self._memory = mmap.mmap(-1, 1)

    def start(self, through: str) -> None:
        """Fork it, to restore the clocks through a way of setters.choice. The lease must be held, and NVML not open
        yet."""
        read_end, self._pipe = os.pipe()
        self._held, watches_held = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _watch(read_end, watches_held, self._memory, self._lease, self._after, through)
        os.close(read_end)
        os.close(watches_held)
        PRIVATE.update((self._pipe, self._held, *self._lease.file_descriptors))
        HELD_BY_TOOLS[self._lease.uuid] = self._held
        _ASKED[self._lease.uuid] = self._memory

    def is_alive(self) -> bool:
        """Whether it still watches: someone may have killed it."""
        if self._pid != _NONE and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = _NONE
        return self._pid != _NONE

    def dismiss(self) -> None:
        """The clocks are restored: nothing is left for it to do."""
        with suppress(BrokenPipeError):  # someone may have killed it
            os.write(self._pipe, _DONE)
        self.abandon()

    def abandon(self) -> None:
        """Let it do its work now; back when that is done."""
        PRIVATE.difference_update((self._pipe, self._held, *self._lease.file_descriptors))
        HELD_BY_TOOLS.pop(self._lease.uuid, None)
        _ASKED.pop(self._lease.uuid, None)
        os.close(self._pipe)
        os.close(self._held)
        if self.is_alive():
            os.waitpid(self._pid, 0)
            self._pid = _NONE


def _close_private() -> None:
    for file in PRIVATE:
        os.close(file)
    PRIVATE.clear()
    HELD_BY_TOOLS.clear()
    _ASKED.clear()


os.register_at_fork(after_in_child=_close_private)


def _watch(
    read_end: int, held: int, asked: mmap.mmap, lease: Lease, after: Mapping[str, list[int] | None], through: str
) -> NoReturn:
    """The janitor's life; does not return."""
    from kernel_dvfs.gpu.setters.choice import opened

    code = 1
    try:
        os.setsid()  # a signal to the owner's group is not for us
        for ignored in ENDING_SIGNALS:
            signal.signal(ignored, signal.SIG_IGN)
        _keep_only(read_end, held, *lease.file_descriptors)
        nvml = Library()  # found now, opened later: files may be gone by then
        if os.read(read_end, 1) != _DONE:
            # read by others only if this process dies as well, or hangs in the driver and is ended by the library
            lease.note(RESTORING)
            with nvml:
                setter = opened(through, Board(nvml, lease.uuid))
                if not _tools_ended(held):
                    # as well as can be now, and once more when what is under way has landed
                    with suppress(NotRestored):
                        leave_as_configured(setter, after)
                    if not _tools_ended(held):
                        raise InputError("a call to set them is still under way")
                leave_as_configured(setter, after)
                if asked[0]:
                    time.sleep(patience_s())
                    leave_as_configured(setter, after)
            lease.release()
        code = 0
    except NotRestored as failed:
        # the lease stays, and whoever comes next tries again and says so
        lease.note(not_restored(failed))
    except InputError as error:
        lease.note(f"clocks that could not be restored: {error}")
    finally:
        os._exit(code)


def _tools_ended(held: int) -> bool:
    """Whether no tool of the owner's runs any more; waits for that as long as for any call. The owner is gone."""
    poll = select.poll()
    poll.register(held, 0)  # an error is told unasked: nobody has the other end open
    return bool(poll.poll(1000 * patience_s()))


def _keep_only(*files: int) -> None:
    """Close all else that was inherited: someone may be waiting for its end, we at the owner's end of the pipe."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in files:
            with suppress(OSError):  # that of the listing itself is gone
                os.close(int(name))
