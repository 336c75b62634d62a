"""A GPU taken and its clocks given back: lease and janitor on entering, restored on leaving, however that happens.

To be entered before NVML and CUDA are opened by this process. Where the broker sets the clocks, it restores them too,
and there is no janitor.

The janitor is a process that outlives its owner by the moment it takes to restore the clocks, whatever killed the
owner. It is forked before NVML and CUDA are opened, waits at a pipe that only the owner holds open, and inherits the
lease, so that the GPU stays taken until it is done. A tool that the owner had called to set a clock outlives it too:
the janitor waits for its end before it restores, and sees that end at a second pipe, which the tool has as its input. A
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
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import supported_core_mhz
from kernel_dvfs.gpu.nvml.board import Board
from kernel_dvfs.gpu.nvml.lease import NO_CLOCKS, RESTORING, Lease, Stale
from kernel_dvfs.gpu.nvml.library import (
    NOT_SUPPORTED,
    TIMEOUT,
    Denied,
    Library,
    NvmlError,
    Unsupported,
    patience_s,
    refused,
)
from kernel_dvfs.gpu.power import PowerLimit, check
from kernel_dvfs.gpu.setters import choice
from kernel_dvfs.gpu.setters.broker import Broker, Connection, lease_of
from kernel_dvfs.gpu.setters.setter import (
    ASKED_OF_DAEMON,
    HELD_BY_TOOLS,
    PRIVATE,
    NotRestored,
    leave_as_configured,
    not_restored,
    reset,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from kernel_dvfs.gpu.clocks import Clock
    from kernel_dvfs.gpu.setters.setter import Range, Setter

# what ends a process that does not expect it, its own faults apart; batch systems and training scripts say "save" by
# several of them
ENDING_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
_DONE = b"d"
_NONE = -1  # no process, no file
# one run's measuring process may be ending while the next one's starts
_PATIENCE_S = 3.0


class Guard:
    """with Guard(uuid, after) as guard: guard.board is the GPU, guard.nvml the library, open until the end.

    after: clocks to leave behind instead of none, see setter.leave_as_configured. mode: `lock`; `auto-only`, where
    nothing will be set, so that only what another run has left needs restoring; or `external` and `dry-run`, where not
    even that is touched: the one cannot tell it from what the batch system has set, the other sets nothing at all.
    say: called with one line for the user; default: print on stderr. through: the way that clocks are set, see
    setters.choice; once it is known, the one that it means here. at: the folder of leases that are files, for the
    broker itself; default: leases are taken as everybody's are (setters.broker.lease_of). Raises InputError where the
    GPU is taken, and where that way could not set `after`; on leaving, NotRestored where clocks could not be given
    back, library.Denied where that comes of the same lack of rights as what ended the context. What could not be given
    back stays in the lease, and so is told by `devices` and by the next run until it is. A forked child holds nothing:
    it sets no clocks, and leaving does nothing.
    """

    nvml: Library  # open within the context
    board: Board  # the GPU, within the context

    def __init__(
        self,
        uuid: str,
        after: Mapping[str, list[int] | None] | None = None,
        mode: str = "lock",
        say: Callable[[str], object] | None = None,
        through: str = choice.AUTO,
        at: str = "",
    ) -> None:
        self._after, self._sets_clocks, self._sweeps = after or {}, mode == "lock", mode in ("lock", "auto-only")
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        self._mode, self._at = mode, at
        self._lease: Lease | Connection = Lease(uuid, at)
        self._power = PowerLimit(uuid, at)
        self._janitor: Janitor | None = None  # none where the broker restores
        self.swept: Stale | None = None  # what another run had left locked, and this one has restored
        self.through = through
        self._opened_setter: Setter | None = None
        self._opened = False  # whether NVML is open
        self._touched = False  # whether a control may have been changed
        self._may_land = False  # whether a call that had no answer may still change one
        self._owner = 0  # the process that entered: a fork of it holds nothing

    def __enter__(self) -> Guard:
        if self._sweeps:
            choice.check(self.through, self._after)
        if self._sets_clocks:
            self.through = choice.resolve(self.through, self._lease.uuid)
        self._owner = os.getpid()
        is_brokers = self._sets_clocks and self.through == Broker.name
        self._lease = lease_of(self._lease.uuid, self._mode, not is_brokers, self._at)
        way = Broker.name if isinstance(self._lease, Connection) else self.through
        if self._sweeps and way in choice.WAYS:  # "auto" is resolved only where clocks are set
            choice.check_after(way, self._after)
        self._lease.take(_PATIENCE_S)
        try:
            if self._sets_clocks and not is_brokers:
                self._janitor = Janitor(self._lease, self._after, self._power)
                self._janitor.start(self.through)
        except BaseException:
            # what another run has left in it stays
            self._lease.close() if self._lease.stale else self._lease.release()
            raise
        try:
            # open all through: without a client, a driver without persistence unloads, and forgets locks and counter
            self.nvml = Library()
            self.nvml.__enter__()
            self._opened = True
            self.board = Board(self.nvml, self._lease.uuid)
            self._sweep()
            self._sweep_power()
            # not earlier: until it is swept, a stale lease has to stay what it is
            left = self._lease.stale
            self.announce("nothing yet" if self._sets_clocks else left.requested if left else NO_CLOCKS)
        except BaseException:
            self._leave(restored=self._lease.stale is None)
            raise
        return self

    def announce(self, requested: str) -> None:
        """Write down what is about to be asked of the clocks. Raises InputError where the lease is ours no more."""
        self._lease.write(requested)

    def check_held(self) -> None:
        """Raise InputError where the broker has taken the GPU back meanwhile."""
        if isinstance(self._lease, Connection):
            self._lease.check()

    def restore_at_end(self) -> None:
        """Have the clocks restored on leaving, whatever has been set here: another process may have set some."""
        self._touched = True

    @property
    def setter(self) -> Setter:
        """What sets the clocks. Raises library.NvmlError where it cannot be reached, here and below."""
        if self._opened_setter is None:
            self.through = choice.resolve(self.through, self._lease.uuid)
            choice.check_after(self.through, self._after)
            self._opened_setter = choice.opened(self.through, self.board)
        return self._opened_setter

    def lock(self, core: Range | None, mem: Range | None) -> None:
        """Keep the clocks that are given in their ranges, MHz, memory first; the other is left as it is.

        Raises InputError where this guard sets none; memory may be locked where this fails.
        """
        self._check_ours()
        for step in self.setter.locks(core, mem):
            self._touch(step)

    def lock_mem(self, lowest_mhz: int, highest_mhz: int) -> None:
        """Keep the memory clock in a range."""
        self.lock(None, (lowest_mhz, highest_mhz))

    def lock_core(self, lowest_mhz: int, highest_mhz: int) -> None:
        """Keep the core clock in a range."""
        self.lock((lowest_mhz, highest_mhz), None)

    def reset_mem(self) -> None:
        """Free the memory clock."""
        self._check_ours()
        self._touch(self.setter.reset_mem)

    def reset_core(self) -> None:
        """Free the core clock."""
        self._check_ours()
        self._touch(self.setter.reset_core)

    def reset(self) -> None:
        """Give the clocks back for now. Raises NotRestored."""
        reset(self.setter)

    def limit_power(self, limit_mw: int | None) -> None:
        """Have a power limit in force; None: the one that was there before. What that was comes back at the end.

        Raises InputError where this guard sets nothing, NvmlError where its way sets clocks only, or the GPU has no
        such limit.
        """
        self._check_ours()
        setter, can = self.setter, self.setter.capabilities.power
        if not can or (isinstance(self._lease, Connection) and not isinstance(setter, Broker)):
            why = f"{setter.name} sets clocks only" + (" where a broker is" if can else "")
            remedy = "leave the power limit out, or set it as root, or through the broker"
            raise refused("power limit", self._lease.uuid, why, remedy, NOT_SUPPORTED)
        if limit_mw is not None:
            check(self.board, limit_mw)
        if isinstance(setter, Broker):
            self._touch(lambda: setter.limit_power(limit_mw))
        elif limit_mw is None:
            self._power.give_back(self.board)
        else:
            self._touch(lambda: self._power.change(self.board, limit_mw))

    def _check_ours(self) -> None:
        if not self._sets_clocks:
            raise InputError(f"GPU {self._lease.uuid}: its clocks are not ours to set; configure clocks: lock")
        if os.getpid() != self._owner:
            raise InputError(
                f"GPU {self._lease.uuid}: a forked process does not hold it; set clocks in process {self._owner}"
            )

    def _touch(self, control: Callable[[], None]) -> None:
        if self._janitor and not self._janitor.is_alive():
            raise InputError(
                f"GPU {self._lease.uuid}: the process that would restore its clocks, should this one be killed, is "
                "gone; nothing more is locked; run it again"
            )
        # before the call: whatever interrupts it, or comes just after it, finds that there is something to restore
        before, self._touched = self._touched, True
        try:
            control()
        except BaseException as error:
            if not isinstance(error, NvmlError) or error.code == TIMEOUT:
                self._may_land = True
            # nothing has changed; but of two clocks that are set at once, one may have
            elif isinstance(error, Denied) or (isinstance(error, Unsupported) and self.setter.capabilities.alone):
                self._touched = before
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._owner:
            return  # a forked child that leaves: nothing here is its own
        restored = not self._touched
        try:
            if self._touched:
                self._power.leave(self.setter, self._after, self.board)
                restored = True
        except NotRestored as failed:
            self._lease.note(not_restored(failed))
            if isinstance(error, Denied):
                raise Denied(
                    f"{error}; what had been locked by then could not be reset either ({failed.calls}): kernel-dvfs "
                    f"reset --uuid {self._lease.uuid} does, with that right",
                    *(error.code, error.call),
                ) from error
            if error is not None:
                # what went wrong first, then what came of it
                raise NotRestored(failed.message, [_as_exception(error), *failed.exceptions]) from error
            raise
        finally:
            # what has had no answer may undo it: the janitor waits for that, and restores once more
            self._leave(restored and not self._may_land)

    def _sweep(self) -> None:
        """Restore what another run has left locked."""
        stale = self._lease.stale
        if stale is None:
            return
        if isinstance(self._lease, Connection):
            self._say(f"GPU {self._lease.uuid}: {stale.owner} ended without restoring its clocks; the broker has")
        elif stale.rebooted:
            self._say(f"GPU {self._lease.uuid}: {stale.owner} left a lease before the last boot; removed")
        elif not self._sweeps:
            self._say(
                f"GPU {self._lease.uuid}: {stale.owner} ended and may have left its clocks locked; they are left as "
                "they are, since nothing is set here (kernel-dvfs reset --stale resets them)"
            )
            return  # and the lease stays what it is, for the next one who may
        else:
            leave_as_configured(self.setter, self._after)
            self._say(f"GPU {self._lease.uuid}: {stale.owner} ended without restoring its clocks; reset")
            self.swept = stale
        self._lease.stale = None

    def _sweep_power(self) -> None:
        """Give back the power limit that another run has left; its clocks come first."""
        if self._sweeps and (before_mw := self._power.give_back(self.board)) is not None:
            self._say(
                f"GPU {self._lease.uuid}: a run ended without restoring its power limit; {before_mw / 1000:g} W again"
            )

    def _leave(self, restored: bool) -> None:
        if self._opened_setter:
            self._opened_setter.close()  # first: a broker lets nobody else at the clocks before
        if restored and self._janitor:
            self._janitor.dismiss()
        elif self._janitor:
            # not ours to delete: the janitor tries once more with an NVML of its own, and deletes it if that helps
            self._janitor.abandon()
        if restored and self._lease.stale is None:
            self._lease.release()
        else:
            self._lease.close()
        if self._opened:
            self.nvml.__exit__()


def ranges(
    clocks: dict[str, Any], pair: tuple[Clock, Clock], exact: bool = False
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """((lowest, highest), (lowest, highest)) of core and memory that a pair asks for, MHz; None where it is left to the
    governor.

    clocks: of the GPU's facts. exact: the target alone, else from the lowest clock up to it.
    """
    core, mem = pair
    core_range = mem_range = None
    if not isinstance(core, str):
        core_range = core if exact else supported_core_mhz(clocks, mem)[0], core
    if not isinstance(mem, str):
        mem_range = mem if exact else min(clocks["mem_mhz"]), mem
    return core_range, mem_range


def lock_pair(guard: Guard, clocks: dict[str, Any], pair: tuple[Clock, Clock], exact: bool = False) -> None:
    """Put a pair in force on a guarded board, memory first: the core clocks that exist depend on it.

    Raises library.NvmlError; memory may be locked by then, so reset the guard.
    """
    core, mem = ranges(clocks, pair, exact)
    if not mem and clocks["mem_mhz"]:
        guard.reset_mem()
    guard.lock(core, mem)
    if not core:
        guard.reset_core()


class Janitor:
    """Watches this process from `start` on.

    lease: held, and given back once the clocks are restored; after: see setter.leave_as_configured.
    """

    def __init__(self, lease: Lease | Connection, after: Mapping[str, list[int] | None], power: PowerLimit) -> None:
        self._lease, self._after, self._power = lease, after, power
        self._pid = self._pipe = self._held = _NONE
        self._memory = mmap.mmap(-1, 1)

    def start(self, through: str) -> None:
        """Fork it, to restore the clocks through a way of setters.choice. The lease must be held, and NVML not open
        yet."""
        nvml = Library()  # found now, for both processes, and opened later: files may be gone by then
        read_end, self._pipe = os.pipe()
        self._held, watches_held = os.pipe()
        PRIVATE.difference_update(self._lease.file_descriptors)  # the janitor keeps it
        self._pid = os.fork()
        if self._pid == 0:
            _watch(nvml, read_end, watches_held, self._memory, self._lease, self._after, self._power, through)
        os.close(read_end)
        os.close(watches_held)
        PRIVATE.update((self._pipe, self._held, *self._lease.file_descriptors))
        HELD_BY_TOOLS[self._lease.uuid] = self._held
        ASKED_OF_DAEMON[self._lease.uuid] = self._memory

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
        ASKED_OF_DAEMON.pop(self._lease.uuid, None)
        os.close(self._pipe)
        os.close(self._held)
        if self.is_alive():
            os.waitpid(self._pid, 0)
            self._pid = _NONE


def _watch(
    nvml: Library,
    read_end: int,
    held: int,
    asked: mmap.mmap,
    lease: Lease | Connection,
    after: Mapping[str, list[int] | None],
    power: PowerLimit,
    through: str,
) -> NoReturn:
    """The janitor's life; does not return."""
    code = 1
    try:
        os.setsid()  # a signal to the owner's group is not for us
        for ignored in ENDING_SIGNALS:
            signal.signal(ignored, signal.SIG_IGN)
        _keep_only(read_end, held, *lease.file_descriptors)
        if os.read(read_end, 1) != _DONE:
            # read by others only if this process dies as well, or hangs in the driver and is ended by the library
            lease.note(RESTORING)
            with nvml:
                board = Board(nvml, lease.uuid)
                setter = choice.opened(through, board)
                if not _tools_ended(held):
                    # as well as can be now, and once more when what is under way has landed
                    with suppress(NotRestored):
                        leave_as_configured(setter, after)
                    if not _tools_ended(held):
                        raise InputError("a call to set them is still under way")
                power.leave(setter, after, board)
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


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"stopped by {type(error).__name__}")
