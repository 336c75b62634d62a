"""The process that holds a GPU: it sets the clocks as it is asked, and gives them back when who asks is gone.

Nobody else sets clocks for a run, so nobody else need know what is under way. A tool that it has started it waits for.
A request that a daemon has not answered may be carried out later, and nothing tells when: it restores a second time,
once any answer would have come. A daemon that takes longer than that is not covered: clocks of such a request stay
locked, without a lease.

It runs as whoever asks, started by guard.Guard, or as root, started by the broker for a client of its own. So it takes
nothing for granted of what it is asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeGuard

from kernel_dvfs_clocks.errors import InputError, leaves, lines
from kernel_dvfs_clocks.guard import ENDING_SIGNALS, PATIENCE_S
from kernel_dvfs_clocks.nvml.board import Board
from kernel_dvfs_clocks.nvml.lease import NO_CLOCKS, RESTORING, Lease, Stale
from kernel_dvfs_clocks.nvml.library import (
    INVALID,
    LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    TIMEOUT,
    UNKNOWN,
    Denied,
    Library,
    NvmlError,
    Unsupported,
    meaning,
    patience_s,
    refused,
)
from kernel_dvfs_clocks.power import PowerLimit
from kernel_dvfs_clocks.setters import choice
from kernel_dvfs_clocks.setters.broker import Broker, Connection
from kernel_dvfs_clocks.setters.setter import NotRestored, Setter, leave_as_configured, not_restored, reset

_LOOK_EVERY_S = 1.0
_LONGEST = 1 << 13  # bytes of a request
MOST_FILES = 253  # that one message can hand over (SCM_MAX_FD, unix(7))
_CLOSING_S = 0.01  # for which closing what a client hands over may keep a process of ours
_DOMAINS = ("core", "mem")
_LOGGED = (*_DOMAINS, "both", "power")
# questions to a Board that who asks may have answered here, where a driver that hangs ends this process alone
_READ = (
    *("sm_mhz", "mem_mhz", "energy_mj", "power_mw", "power_limit_mw", "power_management_limit_mw", "power_limits_mw"),
    *("temperature_c", "event_reasons", "throttled", "compute_processes", "graphics_processes", "persistence", "mig"),
)


class Lines:
    """The end of a connection at which requests come: a line of JSON each, from whom nothing need be true.

    drop: closes what is handed over with them.
    """

    def __init__(self, connection: socket.socket, drop: Callable[..., None]) -> None:
        self.connection, self._drop = connection, drop
        connection.setblocking(False)
        self._unread = b""

    def request(self) -> dict[str, Any] | None:
        """Return the next request, of what has come by now; None where it is not whole, {} where it is none or who asks
        is gone. Descriptors that come with it are dropped."""
        if b"\n" not in self._unread:
            try:
                with not_for_long():  # where no more files can be opened, the kernel closes some of them here
                    part, files, _, _ = socket.recv_fds(self.connection, _LONGEST, MOST_FILES, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return None
            except OSError:  # reset by one that died with answers unread
                return {}
            if files:
                self._drop(*files)
            self._unread += part
            if not part or len(self._unread) > _LONGEST:
                return {}
        if b"\n" not in self._unread:
            return None
        line, _, self._unread = self._unread.partition(b"\n")
        with contextlib.suppress(ValueError, RecursionError):
            request = json.loads(line)
            if isinstance(request, dict):
                return request
        return {}

    def tell(self, **answer: object) -> None:
        """Answer. One that does not read its answers misses them."""
        with contextlib.suppress(OSError):  # it may have gone; the next look at it tells
            self.connection.sendall(json.dumps(answer).encode() + b"\n")


class Client(NamedTuple):
    """Whom root's broker serves."""

    who: str  # in words
    may_limit: bool  # power
    longest_s: float  # for which he may have the GPU


class Holder:
    """One GPU, held as long as `live` takes. Raises InputError.

    uuid, after, mode, through: as of guard.Guard. lease: the one at the broker, where that sets no clocks; none: it is
    a file. owner: the process for which the GPU is held, and with which that ends; 0: with the connection alone.
    is_late: what the holder before was asked for may still be done. at: the folder of leases, for the broker itself;
    client: whom that serves; none: it only has restored what was left.
    """

    def __init__(
        self,
        asked: Lines,
        lease: socket.socket | None,
        uuid: str,
        after: Mapping[str, list[int] | None],
        mode: str = "lock",
        through: str = "nvml",
        owner: int = 0,
        is_late: bool = False,
        at: str = "",
        client: Sequence[Any] | None = None,
    ) -> None:
        self._lines, self._uuid, self._after, self._through = asked, uuid, after, through
        self._owner, self._is_brokers = owner, bool(at)
        self._parent = os.getppid() if at else owner  # a broker that is killed takes its holders with it
        self._client = Client(*client) if client else None
        self._sets, self._sweeps = mode == "lock", mode in ("lock", "auto-only")
        self._gpu = f"GPU {uuid}"
        self._lease = Connection(uuid, existing=lease) if lease else Lease(uuid, at, owner)
        self._power = PowerLimit(uuid, at)
        self._nvml = Library()  # found now, and opened later: files may be gone by then
        self._opened_board: Board | None = None
        self._opened_setter: Setter | None = None
        self._touched = is_late  # whether a control may have been changed, or may still be
        # each waits for what has had no answer in time, and may still change one
        self._late: list[Callable[[], object]] = [partial(time.sleep, patience_s())] if is_late else []
        self._notices: list[str] = []  # to be told with the next answer
        self._logged: set[str] = set()  # refusals that are in the log already
        self._is_over, self._tell_over = socket.socketpair()
        self._tell_over.setblocking(False)

    def live(self) -> bool:
        """Hold the GPU until who asks for it is gone, has had it for long enough, or `finish` is called. Returns
        whether the clocks were given back, or who asks knows that they were not."""
        try:
            self._take()
        except (InputError, ExceptionGroup) as error:
            self._refuse(error)
            return True
        try:
            swept = self._open()
        except (InputError, ExceptionGroup) as error:
            self._give_back()
            self._refuse(error)
            return True
        if self._client:
            log(f"{self._gpu}: taken by {self._client.who}")
            self._answer(**({"left": swept.owner} if swept else {}))
        else:
            self._answer(through=self._through, can=choice.can(self._through))
        is_asked, failed = False, []
        try:
            is_asked = self._serve()
            if not (is_asked or self._is_brokers):
                # nobody waits for this process any more, and none shall by a pipe that it has inherited
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        finally:
            failed = self._give_back(RESTORING if not is_asked else "")
        if self._client:
            log(f"{self._gpu}: given back by {self._client.who}")
        if failed:
            self._refuse(ExceptionGroup(f"clocks of {self._uuid} not restored", failed))
        elif is_asked:
            self._answer()
        return is_asked or not failed

    def finish(self, *_: object) -> None:
        """Have it come to its end."""
        with contextlib.suppress(BlockingIOError):  # it was told often enough
            self._tell_over.send(b".")

    def _take(self) -> None:
        """Take the lease, where it is not taken already."""
        if self._sweeps:
            choice.check(self._through, self._after)
        if self._sets:
            self._through = choice.resolve(self._through, self._uuid)
        if self._sets and self._through == Broker.name:
            raise InputError(f"{self._gpu}: a broker has come just now; run it again")
        if isinstance(self._lease, Lease):
            self._lease.take(PATIENCE_S)

    def _open(self) -> Stale | None:
        """Open NVML, restore what another run has left, and return what that was."""
        board = self._board
        swept = self._sweep()
        if self._sweeps and (before_mw := self._power.give_back(board)) is not None:
            self._say(f"{self._gpu}: a run ended without restoring its power limit; {before_mw / 1000:g} W again")
        # not earlier: until it is swept, a stale lease has to stay what it is
        left = self._lease.stale
        requested = "nothing yet" if self._sets else left.requested if left else NO_CLOCKS
        if self._client and self._sets:
            self._touched = True  # whatever it asks for: who sets clocks by a right of his own has his lease here
            requested = f"clocks for {self._client.who}"
        self._lease.write(requested)
        return swept

    def _sweep(self) -> Stale | None:
        """Restore what another run has left locked, and return what was restored."""
        stale = self._lease.stale
        if stale is None:
            return None
        swept = None
        if stale.rebooted:
            self._say(f"{self._gpu}: {stale.owner} left a lease before the last boot; removed")
        elif not self._sweeps:
            self._say(
                f"{self._gpu}: {stale.owner} ended and may have left its clocks locked; they are left as they are, "
                "since nothing is set here (kernel-dvfs reset --stale resets them)"
            )
            return None  # and the lease stays what it is, for the next one who may
        else:
            leave_as_configured(self._setter, self._after)
            self._say(f"{self._gpu}: {stale.owner} ended without restoring its clocks; reset")
            swept = stale
        self._lease.stale = None
        return swept

    @property
    def _board(self) -> Board:
        """Return the GPU. NVML is open from here on: without a client, a driver without persistence unloads, and
        forgets locks and counter."""
        if self._opened_board is None:
            self._opened_board = Board(self._nvml.__enter__(), self._uuid)
        return self._opened_board

    @property
    def _setter(self) -> Setter:
        """Return what sets the clocks. Raises library.NvmlError where it cannot be reached."""
        if self._opened_setter is None:
            self._through = choice.resolve(self._through, self._uuid)
            if self._through == Broker.name:
                raise InputError(f"{self._gpu}: its lease is none of the broker's; run it again, or name another way")
            self._opened_setter = choice.opened(self._through, self._board)
        return self._opened_setter

    # --- what is asked for --------------------------------------------------------------------------------------------

    def _serve(self) -> bool:
        """Do what is asked for. Returns whether who asks waits to be told how the clocks were given back."""
        client = self._client
        watched = [self._lines.connection.fileno(), self._is_over.fileno()]
        try:
            watched += [os.pidfd_open(self._owner)] if self._owner else []
        except ProcessLookupError:
            return False  # it is gone already
        except (OSError, AttributeError):
            pass  # before Linux 5.3
        poll = select.poll()  # select(2) knows no file beyond the 1024th, which a program with many may hand on
        for file in watched:
            poll.register(file, select.POLLIN)
        until_s = time.monotonic() + client.longest_s if client else float("inf")
        while (now_s := time.monotonic()) <= until_s:
            request = self._lines.request()
            # looked for beside one who asks without a pause, too
            wait_s = 0.0 if request is not None else min(_LOOK_EVERY_S, until_s - now_s)
            ready = {file for file, _ in poll.poll(1000 * wait_s)}
            # the connection may be kept open by a worker that who asks has forked
            if os.getppid() != self._parent or not ready <= {watched[0]}:
                return False
            if request is None:
                continue
            if not request or request.get("do") == "leave":
                return bool(request)
            if not self._obey(request):
                return False
        assert client
        log(f"{self._gpu}: taken from {client.who} after {client.longest_s / 3600:g} h")
        return False

    def _obey(self, request: dict[str, Any]) -> bool:
        """Do one thing. Returns whether there may be more: of the broker, not once the GPU is lost."""
        answer: dict[str, object] = {}
        try:
            if request.get("do") == "read" and request.get("what") in _READ:
                answer["value"] = getattr(self._board, request["what"])()
                request = {"do": "check"}
            for call, log_line in self._steps(request):
                call()
                if self._client and log_line:
                    log(f"{self._gpu}: {log_line} for {self._client.who}")
        except (InputError, ExceptionGroup) as error:
            domain = request.get("domain")
            self._refuse(error, f"{request.get('do')} {domain if domain in _LOGGED else 'clocks'}")
            return not (self._client and any(getattr(leaf, "code", UNKNOWN) == LOST for leaf in leaves(error)))
        self._answer(**answer)
        return True

    def _steps(self, request: dict[str, Any]) -> list[tuple[Callable[[], object], str]]:
        """Return what is to be done, in this order, and what the log then says. Raises InputError."""
        do, domain, limit_mw = (request.get(key) for key in ("do", "domain", "mw"))
        if do == "check":
            return [(self._lease.check, "")] if isinstance(self._lease, Connection) else []
        if do == "announce":
            return [] if self._client else [(partial(self._lease.write, str(request.get("what"))), "")]
        if not self._sets:
            raise InputError(f"{self._gpu}: its clocks are not ours to set; configure clocks: lock")
        if domain == "power" and do in ("limit", "reset") and self._client and not self._client.may_limit:
            why = f"{self._client.who} is not among those who may set a power limit (--allow-power)"
            raise NvmlError(why, NO_PERMISSION, "")
        if domain == "power" and do == "reset":
            return [(self._limit, "power limit as it was")]
        if domain == "power" and do == "limit" and _is_below(limit_mw, 10**9):
            return [(partial(self._limit, limit_mw), f"power limited to {limit_mw / 1000:g} W")]
        if do == "reset" and domain == "both":
            return [(partial(reset, self._setter), "core and mem freed")]
        if do == "reset" and domain in _DOMAINS:
            free = self._setter.reset_core if domain == "core" else self._setter.reset_mem
            return [(partial(self._touch, free), f"{domain} freed")]
        clocks = request.get("clocks") or ({domain: request.get("mhz")} if domain in _DOMAINS else None)
        if do == "lock" and _are_ranges(clocks):
            core, mem = ((clocks[name][0], clocks[name][1]) if name in clocks else None for name in _DOMAINS)
            log_lines = [
                f"{name} locked to {mhz[0]}-{mhz[1]} MHz" for name, mhz in (("mem", mem), ("core", core)) if mhz
            ]
            locks = [partial(self._touch, lock) for lock in self._setter.locks(core, mem)]
            return list(zip(locks, log_lines))
        raise NvmlError("a request that is not understood", INVALID, "")

    def _limit(self, limit_mw: int | None = None) -> None:
        """Limit power; None: as it was. Raises NvmlError."""
        setter = self._setter
        can = setter.capabilities.power
        if not can or isinstance(self._lease, Connection):
            why = f"{setter.name} sets clocks only" + (" where a broker is" if can else "")
            remedy = "leave the power limit out, or set it as root, or through the broker"
            raise refused("power limit", self._uuid, why, remedy, NOT_SUPPORTED)
        if limit_mw is None:
            self._power.give_back(self._board)
        else:
            self._touch(lambda: self._power.change(self._board, limit_mw))

    def _touch(self, control: Callable[[], None]) -> None:
        before, self._touched = self._touched, True
        try:
            control()
        except NvmlError as error:
            if error.code == TIMEOUT:
                self._late.append(error.wait or partial(time.sleep, patience_s()))
            # nothing has changed; but of two clocks that are set at once, one may have
            elif isinstance(error, Denied) or (isinstance(error, Unsupported) and self._setter.capabilities.alone):
                self._touched = before
            raise

    def _say(self, line: str) -> None:
        log(line) if self._is_brokers else self._notices.append(line)

    def _answer(self, **answer: object) -> None:
        self._lines.tell(**answer | ({"say": self._notices} if self._notices else {}))
        self._notices = []

    def _refuse(self, error: InputError | ExceptionGroup[Exception], what: str = "") -> None:
        """Answer that something was not done. what: that, for the log, which is not filled by one who asks for the same
        again and again; else that all is over."""
        code, call = getattr(error, "code", UNKNOWN), getattr(error, "call", "")
        if self._is_brokers and not what:
            for line in lines(error):
                log(f"error: {line}")
        elif self._client and (call or code == NO_PERMISSION):
            why = f"{call} failed, NVML code {code}" if call else str(error)
            if (line := f"{self._gpu}: {what} for {self._client.who}: {why}") not in self._logged:
                self._logged.add(line)
                log(line)
            self._answer(error=f"{call}: {meaning(code)} (NVML code {code})" if call else why, code=code, call="")
            return
        if isinstance(error, ExceptionGroup):
            failures = [
                (str(leaf), getattr(leaf, "code", UNKNOWN), getattr(leaf, "call", "")) for leaf in leaves(error)
            ]
            self._answer(failed=failures)
        else:
            self._answer(error=str(error), code=code, call=call)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _give_back(self, note: str = "") -> list[Exception]:
        """Have everything restored, and let go of the lease; what could not be restored stays in it, and is returned.
        note: what it says meanwhile: it is read by others only if this process dies as well, or hangs in the driver and
        is ended."""
        failed: list[Exception] = []
        if self._touched or (self._sweeps and self._lease.stale):
            if isinstance(self._lease, Lease) and note:
                self._lease.owner = os.getpid()
                self._lease.note(note)
            failed = self._restored()
        if failed or self._lease.stale:
            self._lease.close()
        else:
            self._lease.release()
        self._nvml.__exit__()
        return failed

    def _restored(self) -> list[Exception]:
        """Give back clocks and power limit, and return what could not be."""
        failed = self._tried()
        if failed:  # once more by an NVML opened anew: it may be the other one that has failed
            self._nvml.__exit__()
            self._nvml, self._opened_board, self._opened_setter = Library(), None, None
            failed = self._tried()
        if not self._late:
            return failed
        late: list[Exception] = []
        for wait in self._late:  # that was as well as can be by now; once more when what is under way has landed
            try:
                wait()
            except subprocess.TimeoutExpired:
                late = [InputError(f"{self._gpu}: a call to set its clocks is still under way")]
                self._lease.note(f"clocks that could not be restored: {late[0]}")
        return late + self._tried()

    def _tried(self) -> list[Exception]:
        try:
            self._power.leave(self._setter, self._after, self._board)
            return []
        except NotRestored as failed:
            self._lease.note(not_restored(failed))
            return list(failed.exceptions)
        except InputError as error:
            self._lease.note(f"clocks that could not be restored: {error}")
            return [error]


def _are_ranges(clocks: object) -> TypeGuard[dict[str, list[int]]]:
    return isinstance(clocks, dict) and all(
        domain in _DOMAINS and _is_range(clocks[domain]) for domain in clocks or [""]
    )


def _is_range(mhz: object) -> TypeGuard[list[int]]:
    return (
        isinstance(mhz, list)
        and len(mhz) == 2
        and all(_is_below(clock, 100_000) for clock in mhz)
        and mhz == sorted(mhz)
    )


def _is_below(value: object, limit: int) -> TypeGuard[int]:
    return type(value) is int and 0 < value < limit


@contextlib.contextmanager
def not_for_long() -> Iterator[None]:
    """Whoever closes a network connection last may have to linger for as long as who opened it likes (SO_LINGER,
    socket(7)). A signal ends that."""
    signal.setitimer(signal.ITIMER_REAL, _CLOSING_S, _CLOSING_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def close(file: int) -> None:
    """Close what a client has handed over, which may not take long."""
    with contextlib.suppress(OSError), not_for_long():
        os.close(file)


def drop(closing: socket.socket | None, *files: int) -> None:
    """Close what clients hand over, and their connections, which may hold more of it: in another process, at the end of
    `closing`, because the last hold on a file in memory frees gigabytes of it, and none can be kept from handing that
    over."""
    if closing:
        with contextlib.suppress(OSError):  # it has more to do than it can be told
            socket.send_fds(closing, [b"."], files)
    for file in files:
        close(file)


def log(line: str) -> None:
    """Write a line to the broker's log."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} broker: {line}", file=sys.stderr, flush=True)


def main(text: str) -> NoReturn:
    """Hold a GPU; the process ends with it. text: JSON of arguments of Holder, and of `files`: the connection from
    which it is asked, then the lease at the broker, or, for the broker itself, where it drops what clients hand over.
    """
    arguments = json.loads(text)
    # told to end by the broker: blocked since before this process began, since to ignore one that waits would lose it
    ends = {signal.SIGTERM, signal.SIGINT} if arguments.get("at") else set()
    for ignored in {*ENDING_SIGNALS} - ends:
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: None)  # of not_for_long
    signal.pthread_sigmask(signal.SIG_SETMASK, ends)
    code = 1
    try:
        connection, *more = (socket.socket(fileno=file) for file in arguments.pop("files"))
        # of a file more the broker's is to where it drops what clients hand over, any other is a lease
        other = more[0] if more else None
        closing, lease = (other, None) if arguments.get("at") else (None, other)
        holder = Holder(Lines(connection, partial(drop, closing)), lease, **arguments)
        for ending in ends:
            signal.signal(ending, holder.finish)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        code = 0 if holder.live() else 1
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
