"""A GPU's clocks, set and given back by a process of their own: the holder. The connection to it is the lease.

A run asks, the holder sets, whatever the way. The holder is started afresh, so a run may have anything open and any
threads. When the connection ends, or the run does, it restores what it has set and lets go of the lease. At the broker
it is the broker's, and root's.

Should the holder itself be killed, the run is told at its next request; on leaving, another one finds the lease and
restores. Should both be killed, the next run does (nvml.lease).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.clocks import supported_core_mhz
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.board import Board
from kernel_dvfs_clocks.nvml.library import Denied, Library
from kernel_dvfs_clocks.power import check
from kernel_dvfs_clocks.setters import broker
from kernel_dvfs_clocks.setters.broker import Broker, Connection
from kernel_dvfs_clocks.setters.setter import Capabilities, NotRestored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from kernel_dvfs_clocks.clocks import Clock
    from kernel_dvfs_clocks.setters.setter import Range

# what ends a process that does not expect it, its own faults apart; batch systems and training scripts say "save" by
# several of them
ENDING_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
_AUTO = "auto"  # of setters.choice, which imports every way
# one run's measuring process may be ending while the next one's starts
PATIENCE_S = 3.0
_LONGEST = 1000  # characters of what is announced
# root's own looks whose each module is before it is imported
_BEGIN = (
    "import sys; by, told, *sys.path = sys.argv[1:]; from kernel_dvfs_clocks import trust; "
    "trust.import_roots_own_alone([by]); from kernel_dvfs_clocks.holder import main; main(told)"
)


def start_holder(arguments: Mapping[str, Any], files: Sequence[int], by: str = "") -> subprocess.Popen[bytes]:
    """Start a holder that is told `arguments` (see holder.main), with `files` open. by: the command of root's that it
    is for, see trust.COMMANDS. Raises OSError."""
    path = [entry for entry in sys.path if isinstance(entry, str)]
    path += [] if package.FOLDER in path else [package.FOLDER]
    return subprocess.Popen(
        # it imports from where this process does, and nothing of a site's before
        [sys.executable, "-P", "-S", "-c", _BEGIN, by, json.dumps(arguments), *path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=files,
        start_new_session=not by,  # a signal to a run's group is not for it
    )


class _Asked:
    """A Board whose questions the holder answers."""

    def __init__(self, uuid: str, ask: Callable[..., dict[str, Any]]) -> None:
        self.uuid, self._ask = uuid, ask

    def __getattr__(self, name: str) -> Callable[[], Any]:
        return lambda: self._ask(do="read", what=name)["value"]


class Guard:
    """with Guard(uuid, after) as guard: guard.board is the GPU, guard.nvml the library, to read; lock and reset set.

    after: clocks to leave behind instead of none, see setter.leave_as_configured. mode: `lock`; `auto-only`, where
    nothing will be set, so that only what another run has left needs restoring; or `external` and `dry-run`, where not
    even that is touched: the one cannot tell it from what the batch system has set, the other sets nothing at all.
    say: called with one line for the user; default: print on stderr. through: the way that clocks are set, see
    setters.choice; once entered, the one that it means here. reads: this process looks at the GPU itself; else it asks
    the holder, so that a driver that hangs ends that one alone, and there is no guard.nvml.

    Raises InputError where the GPU is taken, and where that way could not set `after`; on leaving, NotRestored where
    clocks could not be given back, library.Denied where that comes of the same lack of rights as what ended the
    context. What could not be given back stays in the lease, and so is told by `devices` and by the next run until it
    is. A forked child holds nothing: it sets no clocks, and leaving does nothing. Methods may be called from several
    threads.
    """

    nvml: Library  # open within the context
    board: Board  # the GPU, within the context
    capabilities: Capabilities  # of the way, within the context

    def __init__(
        self,
        uuid: str,
        after: Mapping[str, list[int] | None] | None = None,
        mode: str = "lock",
        say: Callable[[str], object] | None = None,
        through: str = _AUTO,
        reads: bool = True,
    ) -> None:
        self._uuid, self._after, self._mode, self.through = uuid, dict(after or {}), mode, through
        self._reads = reads
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        self.holder: subprocess.Popen[bytes] | None = None  # none where it is the broker's
        self._opened = ExitStack()
        self._asking = threading.RLock()  # a handler of a signal may leave while something is asked
        self._failed: list[Exception] | None = None  # what could not be restored; None: nothing is to be yet
        self._owner = 0  # the process that entered: a fork of it holds nothing

    def __enter__(self) -> Guard:
        self._owner = os.getpid()
        self._connection = self._connected()
        try:
            try:
                if self._reads:  # while the holder begins
                    self.nvml = self._opened.enter_context(Library())
                    self.board = Board(self.nvml, self._uuid)
                else:
                    self.board = cast("Board", _Asked(self._uuid, self._ask))
            finally:
                self._hear()  # who holds the GPU comes before what is wrong with it
        except BaseException:
            self._leave()
            raise
        return self

    def _leave(self) -> list[Exception]:
        with self._opened:
            return self._ended()

    def _connected(self, is_late: bool = False) -> Connection:
        """Return the connection to what sets the clocks. is_late: what the one before was asked for may still be
        done."""
        is_brokers = self._mode == "lock" and (
            self.through == Broker.name or (self.through == _AUTO and not broker.obstacle())
        )
        lease = None
        if is_brokers or broker.rules_here():
            if self._mode in ("lock", "auto-only"):
                broker.check_after(self._after)
            lease = Connection(self._uuid, self._mode, not is_brokers)
            lease.take(PATIENCE_S)
            if lease.stale:
                name = f"GPU {self._uuid}: {lease.stale.owner}"
                self._say(f"{name} ended without restoring its clocks; the broker has")
            if is_brokers:
                self.through, self.capabilities = Broker.name, Broker.capabilities
                return lease
        arguments: dict[str, Any] = {
            "uuid": self._uuid,
            "after": self._after,
            "mode": self._mode,
            "through": self.through,
        }
        ours, theirs = socket.socketpair()
        with theirs:
            files = [theirs.fileno(), *([lease.fileno()] if lease else [])]
            arguments |= {"files": files, "owner": self._owner, "is_late": is_late}
            try:
                self.holder = start_holder(arguments, files)
            except OSError as error:
                raise InputError(
                    f"GPU {self._uuid}: no process could be started to set its clocks: {error.strerror}"
                ) from None
            if lease:
                lease.close()
        return Connection(self._uuid, existing=ours, say=self._say)

    def _hear(self) -> None:
        """Wait until the GPU is held."""
        if self.holder:
            answer = self._connection.ask({})
            self.through, self.capabilities = answer["through"], Capabilities(*answer["can"])

    def announce(self, requested: str) -> None:
        """Write down what is about to be asked of the clocks. Raises InputError where the lease is ours no more."""
        self._ask(do="announce", what=requested[:_LONGEST])

    def check_held(self) -> None:
        """Raise InputError where the broker has taken the GPU back meanwhile."""
        self._ask(do="check")

    def lock(self, core: Range | None, mem: Range | None) -> None:
        """Keep the clocks that are given in their ranges, MHz, memory first; the other is left as it is.

        Raises InputError where this guard sets none, library.NvmlError where a clock cannot be set, here and below;
        memory may be locked where this fails.
        """
        self._check_ours()
        if clocks := {domain: mhz for domain, mhz in (("mem", mem), ("core", core)) if mhz}:
            self._ask(do="lock", clocks=clocks)

    def lock_mem(self, lowest_mhz: int, highest_mhz: int) -> None:
        """Keep the memory clock in a range."""
        self.lock(None, (lowest_mhz, highest_mhz))

    def lock_core(self, lowest_mhz: int, highest_mhz: int) -> None:
        """Keep the core clock in a range."""
        self.lock((lowest_mhz, highest_mhz), None)

    def reset_mem(self) -> None:
        """Free the memory clock."""
        self._check_ours()
        self._ask(do="reset", domain="mem")

    def reset_core(self) -> None:
        """Free the core clock."""
        self._check_ours()
        self._ask(do="reset", domain="core")

    def reset(self) -> None:
        """Give the clocks back for now. Raises NotRestored."""
        if not self._connection.is_broken:
            self._ask(do="reset", domain="both")
        elif failed := self._ended():  # for good, since an answer was missed
            raise NotRestored(f"clocks of {self._uuid} not restored", failed)

    def limit_power(self, limit_mw: int | None) -> None:
        """Have a power limit in force; None: the one that was there before. What that was comes back at the end.

        Raises InputError where this guard sets nothing, NvmlError where its way sets clocks only, or the GPU has no
        such limit.
        """
        self._check_ours()
        if limit_mw is None:
            self._ask(do="reset", domain="power")
        else:
            check(self.board, limit_mw)
            self._ask(do="limit", domain="power", mw=limit_mw)

    def _check_ours(self) -> None:
        if self._mode != "lock":
            raise InputError(f"GPU {self._uuid}: its clocks are not ours to set; configure clocks: lock")

    def _ask(self, **request: Any) -> dict[str, Any]:
        if os.getpid() != self._owner:
            raise InputError(
                f"GPU {self._uuid}: a forked process does not hold it; set clocks in process {self._owner}"
            )
        with self._asking:
            if self.holder or request["do"] not in ("announce", "check"):
                return self._connection.ask(request)
            self._connection.check()
            return {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._owner:
            return  # a forked child that leaves: nothing here is its own
        if not (failed := self._leave()):
            return
        if isinstance(error, Denied):
            calls = NotRestored("clocks", failed).calls
            raise Denied(
                f"{error}; what had been locked by then could not be reset either ({calls}): kernel-dvfs reset --uuid "
                f"{self._uuid} does, with that right",
                *(error.code, error.call),
            ) from error
        # what went wrong first, then what came of it
        first = [] if error is None else [error if isinstance(error, Exception) else RuntimeError(repr(error))]
        raise NotRestored(f"clocks of {self._uuid} not restored", [*first, *failed]) from error

    def _ended(self) -> list[Exception]:
        """Have the clocks restored, wait for that, and return what could not be."""
        with self._asking:
            if self._failed is None:
                self._failed = self._restored()
        return self._failed

    def _restored(self) -> list[Exception]:
        # a call to NVML died with the process that made it; what a tool or a daemon was asked for may still be done
        is_late = self._connection.is_broken and self.through != "nvml"
        try:
            if self._connection.end() or not self.holder or self.holder.wait() == 0 or self._mode != "lock":
                return []
            # it was killed, or could not restore what it was no more asked to: another one finds the lease
            self._connection = self._connected(is_late)
            self._hear()
            self._connection.end()
        except NotRestored as failed:
            return list(failed.exceptions)
        except InputError as error:
            return [error]
        finally:
            if self.holder:
                self.holder.wait()
        return []


def ranges(
    clocks: dict[str, Any], pair: tuple[Clock, Clock], exact: bool = False
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return ((lowest, highest), (lowest, highest)) of core and memory that a pair asks for, MHz; None where it is left
    to the governor.

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
