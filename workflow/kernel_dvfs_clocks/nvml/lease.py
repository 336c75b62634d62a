"""Who holds a GPU: a file per UUID on a local disk, under a lock of the operating system that dies with its holder.

The file outlives a killed run and says that clocks may still be locked. The lock does not outlive it, so a pid that is
in use again cannot mislead anyone. A file can be deleted under its holder; so the holder also has a name that is in no
folder (an abstract socket, unix(7)), and whoever finds that name taken does not become a second owner. In a folder that
only its owner can write to, the file is enough.

Anyone can take a name. So it counts only where the kernel says (SO_PEERCRED) that its holder may write to the folder,
and could have a lease there: who may not, keeps nobody out. Of one whom so many others ask that the kernel cannot say
who he is, the name counts: two owners would be worse than none.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import pwd
import re
import socket
import stat
import struct
import time
from contextlib import suppress
from typing import Annotated, NamedTuple, TypeAlias, TypedDict, final

from kernel_dvfs_clocks.errors import InputError, one_line
from kernel_dvfs_clocks.files import is_part, parse_json
from kernel_dvfs_clocks.shape import AtLeastOne, Is, checked

SCHEMA = "kernel-dvfs/lease/1"
# names the folder of the leases
VARIABLE = "KERNEL_DVFS_LOCK_DIR"
# `requested` of a run that sets none: killed, it leaves nothing to restore
NO_CLOCKS = "no clocks, only measured"
# of a holder whose run has died
RESTORING = "clocks that it was to restore for a process that had died"
_CLOSED = -1  # no file descriptor
_REMEDY = "kernel-dvfs reset --stale removes it"
_LONGEST = 1000  # characters; the longest of ours tells which calls failed
_LARGEST = 1 << 13  # bytes of a lease: any user may write one, and root reads it
# any user may write a lease, and root's terminal shows it: no escapes, no lines that look like another's
Line: TypeAlias = Annotated[
    str,
    Is(f"a line of at most {_LONGEST} printable characters", lambda text: text.isprintable() and len(text) <= _LONGEST),
]


@final
class LeaseContent(TypedDict):
    """What a lease says of who holds it."""

    schema: str
    uuid: Line
    pid: AtLeastOne
    process_start: AtLeastOne  # clock ticks since boot
    boot_id: Line
    user: Line
    host: Line
    since_utc: Line
    requested: Line  # of the clocks, in words


class Held(InputError):
    """Another process holds the GPU. lease: the name of its lease at the broker."""

    def __init__(self, message: str, lease: str = "") -> None:
        super().__init__(message)
        self.lease = lease


class Stale(NamedTuple):
    """A lease that a killed run has left behind."""

    owner: str  # who left it, in words
    rebooted: bool  # since then, so that no lock of clocks can have survived
    requested: str  # what it asked of the clocks, in words


def folder() -> str:
    """Return where runs on one machine find each other: on a local disk, and the same for all users of the machine."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    # where everyone may make files and nobody delete others', else the one place that is so everywhere
    try:
        shared = os.stat("/run/lock").st_mode & 0o1777 == 0o1777
    except OSError:
        shared = False
    return "/run/lock" if shared else "/tmp"


def where_leases_lie() -> str:
    """Return the folder of the leases in words, with what follows from it."""
    at = folder()
    why = f"{VARIABLE} names it" if os.environ.get(VARIABLE) else "it is there for this on every machine"
    if at == "/tmp":
        why = (
            "not in /run/lock, which only its owner may write to; a process with a private /tmp (systemd's PrivateTmp, "
            f"a container) does not see them: have a folder of mode 1777 made and name it in {VARIABLE}"
        )
    return f"leases of GPUs lie in {at} ({why}); a container must mount this folder from its host"


def path_of(uuid: str, at: str = "") -> str:
    """Return the lease file of a GPU, in `folder` or in the folder `at`. Raises InputError for what cannot be a
    UUID."""
    if not is_part(uuid):
        raise InputError(f"'{uuid}' is no GPU's UUID; kernel-dvfs devices lists those that are here")
    return os.path.join(at or folder(), f"kernel-dvfs-{uuid}.json")


class Lease:
    """The lease of one GPU, held from `take` to `release` or to the end of this process. at: see path_of. owner: the
    process for which it is held, as it says; default: this one."""

    def __init__(self, uuid: str, at: str = "", owner: int = 0) -> None:
        self.uuid, self.owner = uuid, owner
        self.path = path_of(uuid, at)
        self.stale: Stale | None = None  # what `take` found there
        self._file = _CLOSED
        self._name = _CLOSED  # of the socket whose name nobody can delete

    def take(self, patience_s: float = 0.0) -> None:
        """Hold it. Raises Held naming the owner while another process does, InputError where it cannot be written.

        patience_s: how long to wait for one that is just about to let go.
        """
        end_s = time.monotonic() + patience_s
        while True:
            self._file = _open(self.path)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # whoever releases deletes the file: what is locked here must still be what others find
                if not _is_at(self._file, self.path):
                    self.close()
                    continue
                self._name = _named(self.path)
                break
            except _Taken as taken:
                owner = f"{taken}, which still runs although its lease, {self.path}, was deleted"
            except BlockingIOError:
                owner = f"{_owner(self._file)} ({self.path})"
            except OSError as error:
                self.close()
                raise InputError(
                    f"lease {self.path}: cannot be locked: {error.strerror}; name a folder on a local disk that all "
                    f"users of this machine share in {VARIABLE}"
                ) from None
            self.close()
            if time.monotonic() >= end_s:
                raise Held(f"GPU {self.uuid} is held by {owner}; wait for it or stop it")
            time.sleep(0.05)
        self.stale = _stale(_text(self._file))

    def write(self, requested: str) -> None:
        """Say who holds it and what is asked of the GPU, on the disk before the first request.

        Raises InputError where the disk takes it not.
        """
        pid = self.owner or os.getpid()
        content: LeaseContent = {
            "schema": SCHEMA,
            "uuid": self.uuid,
            "pid": pid,
            "process_start": process_start(pid),
            "boot_id": boot_id(),
            "user": one_line(user()),
            "host": one_line(socket.gethostname()),
            "since_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "requested": one_line(requested)[:_LONGEST],
        }
        self._hang_up()
        data = (json.dumps(content) + "\n").encode()
        try:
            # in place: a file of another name would not carry the lock
            if os.pwrite(self._file, data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(self._file, len(data))
            os.fsync(self._file)
        except OSError as error:
            raise InputError(
                f"lease {self.path}: {error.strerror}; make room there, or name another folder that all users of this "
                f"machine share in {VARIABLE}"
            ) from None

    def note(self, requested: str) -> None:
        """As `write`, where nothing may be lost by a disk that is full: the restoring matters more than the note."""
        with suppress(InputError):
            self.write(requested)

    def release(self) -> None:
        """The clocks are restored: delete it and let go."""
        self._close_name()  # while the file is locked, so that it is never seen taken without one
        os.ftruncate(self._file, 0)  # says so too where another user's file cannot be deleted
        with suppress(OSError):
            os.unlink(self.path)
        self.close()

    def close(self) -> None:
        """Let go without deleting."""
        if self._file != _CLOSED:
            os.close(self._file)
            self._file = _CLOSED
        self._close_name()

    def _hang_up(self) -> None:
        """Let go of those who asked whose the name is: only so many may wait."""
        if self._name == _CLOSED:
            return
        name = socket.socket(fileno=self._name)
        try:
            name.setblocking(False)
            while True:
                name.accept()[0].close()
        except OSError:
            pass  # nobody is left
        finally:
            name.detach()

    def _close_name(self) -> None:
        if self._name != _CLOSED:
            os.close(self._name)
            self._name = _CLOSED


def parse(text: str) -> LeaseContent:
    """Return the content of a lease file. Raises InputError, in one line, for anything else."""
    if len(text) > _LARGEST:
        raise InputError(f"lease: longer than {_LARGEST} characters; {_REMEDY}")
    try:
        content = parse_json(text)
    except ValueError as error:
        raise InputError(f"lease: truncated or not JSON ({error}); {_REMEDY}") from None
    return checked(content, LeaseContent, "lease", _REMEDY, SCHEMA)


def left_at(uuid: str, patience_s: float = 0.0) -> Stale | None:
    """Return what was left locked at a GPU, as its lease tells; None where nothing was, or while a run holds it.

    patience_s: how long to wait for a process that is restoring the clocks of one that died.
    Raises InputError where the lease cannot be opened.
    """
    lease = Lease(uuid)
    if not os.path.lexists(lease.path):
        return None
    end_s = time.monotonic() + patience_s
    while True:
        try:
            lease.take()
            break
        except Held as held:
            if RESTORING not in str(held) or time.monotonic() > end_s:
                return None
            time.sleep(0.05)
    stale = lease.stale
    lease.close() if stale else lease.release()
    return None if stale is None or stale.rebooted else stale


def requested(uuid: str, at: str) -> str | None:
    """Return what a lease in the folder `at`, which nobody holds, says was left locked, in words; None for nothing."""
    try:
        with open(path_of(uuid, at), encoding="utf-8", errors="replace") as file:
            stale = _stale(file.read(_LARGEST + 1))
    except FileNotFoundError:
        return None
    except OSError:
        return "unknown clocks"
    return stale.requested if stale else None


def left_behind(at: str = "") -> list[str]:
    """Return the UUIDs of the leases that lie in the folder, held or not. at: see path_of."""
    pattern = re.compile(r"kernel-dvfs-([A-Za-z0-9][A-Za-z0-9._-]*)\.json")
    try:
        names = sorted(os.listdir(at or folder()))
    except OSError:
        return []
    return [match[1] for name in names if (match := pattern.fullmatch(name))]


def boot_id() -> str:
    """Return the kernel's name for the time since the machine was last started."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def process_start(pid: int) -> int:
    """Return when a process began, clock ticks since boot: with the pid it names a process for good. 1 where it has
    ended."""
    return int(_stat(pid, 19) or 1)


def user() -> str:
    """Return the name of the user who runs this, or the number where there is no name."""
    return user_name(os.geteuid())


def user_name(uid: int) -> str:
    """Return the name of a user, or the number where there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        for _ in range(100):
            # without O_CREAT first: in a folder like /tmp the kernel lets nobody "create" another user's file
            try:
                file = os.open(path, flags)
                break
            except FileNotFoundError:
                pass
            try:
                file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
                if _is_shared(os.stat(os.path.dirname(path))):
                    os.fchmod(file, 0o666)  # any user must be able to take over what a killed run left behind
                break
            except FileExistsError:
                continue
        else:
            raise InputError(f"lease {path}: appears and vanishes; look who makes it")
    except OSError as error:
        raise InputError(
            f"lease {path}: {error.strerror}; make the folder writable, or name another that all users of this "
            f"machine share in {VARIABLE}"
        ) from None
    status = os.fstat(file)
    # a file of two names is another's too, and would be emptied there (0: it was deleted just now)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(file)
        raise InputError(f"lease {path}: not a file of this name alone; delete it")
    return file


def _is_shared(folder: os.stat_result) -> bool:
    """Return whether others than its owner may write to a folder; in the broker's nobody else may open a lease, which
    would let him lock it."""
    return bool(folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


class _Taken(Exception):
    """The name is another process's: which, in words."""


def _named(path: str) -> int:
    """Hold the name of a lease, which exists as long as a process holds it and in no folder: a file descriptor.

    _CLOSED where this system has no such names, where only the folder's owner can delete the file, and where somebody
    has taken the name who may not write to the folder. They are a network namespace's own: a container with its own
    network does not see them, and has the file alone. Raises _Taken.
    """
    # each folder of leases has its own names, however it is reached
    folder = os.stat(os.path.dirname(path))
    if not _is_shared(folder):
        return _CLOSED
    place = hashlib.blake2b(f"{folder.st_dev}|{folder.st_ino}".encode(), digest_size=6).hexdigest()
    address = f"\0{place}-{os.path.basename(path)}"
    name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        name.bind(address)
        name.listen(socket.SOMAXCONN)  # so that others are told whose it is
        return name.detach()
    except OSError as error:
        name.close()
        if error.errno == errno.EADDRINUSE and (who := _whose(address, folder)):
            raise _Taken(who) from None
        return _CLOSED


def _whose(address: str, folder: os.stat_result) -> str:
    """Return who listens at an address, in words, as the kernel knows him; "" for one who may not write to the
    folder."""
    pid = uid = -1  # of one who does not listen: none of ours
    unseen = "a process that cannot be seen from here"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking, suppress(OSError):
        asking.setblocking(False)
        try:
            asking.connect(address)
        except BlockingIOError:
            return unseen  # its queue is full
        size = struct.calcsize("3i")
        pid, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if not folder.st_mode & stat.S_IWOTH and not _is_of_group(folder, uid):
        return ""
    return f"process {pid} of {user_name(uid)}" if pid > 0 else unseen


def _is_of_group(folder: os.stat_result, uid: int) -> bool:
    """Return whether a user is root, the folder's owner, or in its group."""
    if uid in (0, folder.st_uid):
        return True
    try:
        entry = pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        return False
    return folder.st_gid in os.getgrouplist(entry.pw_name, entry.pw_gid)


def _is_at(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _text(file: int) -> str:
    return os.pread(file, _LARGEST + 1, 0).decode("utf-8", "replace")


def _owner(file: int) -> str:
    """Return who holds a locked lease, in words: what it says, which is whatever its holder has written there, and the
    process that locked it where the kernel names another."""
    pid = _locked_by(file)
    try:
        content = parse(_text(file))
    except InputError:
        return (pid and _process(pid)) or "a run that is just starting, or whose lease cannot be read"
    doing = f" ({RESTORING})" if content["requested"] == RESTORING else ""
    claim = f"process {content['pid']} of {content['user']} on {content['host']}, since {content['since_utc']}{doing}"
    # who locked it holds it for the process that started him
    is_meant = content["pid"] in (pid, _parent(pid)) or not _runs(pid)
    return claim if is_meant else f"{_process(pid)}; its lease says {claim}"


def _locked_by(file: int) -> int:
    """Return the process that locked an open file, as far as the kernel tells (proc_locks(5)); 0 where it does not."""
    status = os.fstat(file)
    where = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError, ValueError), open("/proc/locks", encoding="ascii") as locks:
        for line in locks:
            words = line.split()
            if words[1] == "FLOCK" and words[5] == where:
                return max(0, int(words[4]))
    return 0


def _runs(pid: int) -> bool:
    """Return whether there is such a process, and not only its exit code that nobody has asked for."""
    return _stat(pid, 0) not in ("", "Z", "X")


def _parent(pid: int) -> int:
    return int(_stat(pid, 1) or 0)


def _stat(pid: int, field: int) -> str:
    """Return a field after a process's name (proc_pid_stat(5)); "" where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # the name in brackets may hold anything, spaces included
            return file.read().rpartition(")")[2].split()[field]
    except OSError:
        return ""


def _process(pid: int) -> str:
    try:
        return f"process {pid} of {user_name(os.stat(f'/proc/{pid}').st_uid)}"
    except OSError:
        return f"process {pid}"


def _stale(text: str) -> Stale | None:
    if not text:
        return None
    try:
        content = parse(text)
    except InputError:
        return Stale("a run whose lease cannot be read", False, "unknown clocks")
    if content["requested"] == NO_CLOCKS:
        return None
    return Stale(
        f"process {content['pid']} of {content['user']} ({content['requested']})",
        content["boot_id"] != boot_id(),
        content["requested"],
    )
