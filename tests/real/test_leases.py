"""A lease is held by a lock, not by a file; what a dead run leaves can be taken over by anyone, also another user."""

import errno
import fcntl
import json
import os
import socket
import stat
import tempfile
import traceback
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml import lease as lease_module
from kernel_dvfs_clocks.nvml.lease import NO_CLOCKS, RESTORING, VARIABLE, Held, Lease, _open, left_behind, user

NOBODY = 65534


@pytest.fixture
def folder(monkeypatch):
    """A lock folder like /tmp: everyone may make files, nobody delete those of others."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o1777)
        monkeypatch.setenv(VARIABLE, path)
        yield path


def as_nobody(action) -> None:
    """Run `action` in a forked process of another user; its failure is ours."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_released_lease_leaves_no_file(folder):
    lease = Lease("GPU-1")
    lease.take()
    lease.write("1500-2201")
    assert left_behind() == ["GPU-1"] and stat.S_IMODE(os.stat(lease.path).st_mode) == 0o666
    lease.release()
    assert os.listdir(folder) == []


def test_a_lease_without_its_lock_is_stale_and_says_whose_it_was(folder):
    first = Lease("GPU-1")
    first.take()
    first.write("1500-2201")
    first.close()
    second = Lease("GPU-1")
    second.take()
    assert f"process {os.getpid()}" in second.stale.owner and "(1500-2201)" in second.stale.owner
    assert not second.stale.rebooted
    second.release()


FORGED = ["\x1b[2J\x1b[31mroot", "u\nGPU GPU-1: both locks reset", "\u202eroot", "\x9b2J", "u" * 1001]


@pytest.mark.parametrize("field", ["user", "host", "since_utc", "boot_id", "requested", "uuid", "surp\x1brise"])
@pytest.mark.parametrize("text", FORGED)
def test_nothing_that_a_user_writes_into_a_lease_reaches_a_terminal_but_plain_lines(folder, field, text):
    first = Lease("GPU-1")
    first.take()
    first.write("1500-2201")
    first.close()
    content = json.loads(Path(first.path).read_text()) | {field: text}
    Path(first.path).write_text(json.dumps(content))
    with pytest.raises(InputError) as refused:
        lease_module.parse(Path(first.path).read_text())
    assert str(refused.value).isprintable() and len(str(refused.value)) < 300
    second = Lease("GPU-1")
    second.take()
    assert second.stale.owner == "a run whose lease cannot be read" and not second.stale.rebooted
    with pytest.raises(Held) as held:
        Lease("GPU-1").take()
    assert str(held.value).isprintable()
    second.release()


def test_what_a_lease_says_of_a_failure_is_a_line_however_the_failure_was_told(folder):
    lease = Lease("GPU-1")
    lease.take()
    lease.write("clocks that could not be restored: a tool said\n\x1b[31mno" + 2000 * "!")
    requested = lease_module.parse(Path(lease.path).read_text())["requested"]
    assert (
        requested.startswith(r"clocks that could not be restored: a tool said \x1b[31mno!!") and len(requested) == 1000
    )
    lease.release()


def test_a_run_that_sets_no_clocks_leaves_nothing_to_restore(folder):
    first = Lease("GPU-1")
    first.take()
    first.write(NO_CLOCKS)
    first.close()
    second = Lease("GPU-1")
    second.take()
    assert second.stale is None
    second.release()


def test_a_lease_that_was_deleted_while_someone_waited_for_it_is_not_taken_for_held(folder, monkeypatch):
    first = Lease("GPU-1")
    first.take()
    waiting = os.open(first.path, os.O_RDWR)  # as whoever waits for it has it open
    opened = iter([waiting])
    monkeypatch.setattr(lease_module, "_open", lambda path: next(opened, None) or _open(path))
    first.release()
    second = Lease("GPU-1")
    second.take()
    with pytest.raises(InputError, match="held by"):
        Lease("GPU-1").take()
    second.release()


def test_a_lease_that_is_deleted_under_its_owner_makes_no_second_owner(folder):
    first = Lease("GPU-1")
    first.take()
    os.unlink(first.path)
    with pytest.raises(Held, match=rf"process {os.getpid()} of {user()}, which still runs although .* deleted"):
        Lease("GPU-1").take()
    first.write("1500-2201")  # forgets who asked
    with pytest.raises(Held):
        Lease("GPU-1").take()
    first.release()
    second = Lease("GPU-1")
    second.take()
    second.release()


def test_a_disk_without_room_for_a_lease_is_one_line(folder, monkeypatch):
    lease = Lease("GPU-1")
    lease.take()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InputError, match=rf"{folder}.*No space left on device.*{VARIABLE}"):
        lease.write("1500-2201")
    monkeypatch.setattr(os, "pwrite", lambda *_: 3)
    with pytest.raises(InputError, match="No space left on device"):
        lease.write("1500-2201")
    lease.close()


def test_a_file_system_that_cannot_lock_is_not_taken_for_another_run(folder, monkeypatch):
    def unable(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unable)
    with pytest.raises(InputError, match="cannot be locked: No locks available") as error:
        Lease("GPU-1").take()
    assert not isinstance(error.value, Held)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user_s_lease_is_respected_while_held_and_taken_over_when_stale(folder):
    mine = Lease("GPU-1")
    mine.take()
    mine.write("1500-2201")

    def refused():
        with pytest.raises(InputError, match=rf"held by process {os.getppid()} of root"):
            Lease("GPU-1").take()

    as_nobody(refused)
    mine.close()

    def taken_over():
        theirs = Lease("GPU-1")
        theirs.take()
        assert theirs.stale and "of root" in theirs.stale.owner
        theirs.write("900-2201")
        theirs.release()

    as_nobody(taken_over)
    again = Lease("GPU-1")
    again.take()
    assert again.stale is None, "emptied, since it could not be deleted"
    again.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_folder_that_is_not_ours_to_write_is_named_with_the_remedy(folder):
    os.chmod(folder, 0o755)

    def refused():
        with pytest.raises(InputError, match=rf"{folder}.*Permission denied.*{VARIABLE}"):
            Lease("GPU-1").take()

    as_nobody(refused)


@pytest.mark.parametrize("uuid", ["", "../etc/passwd", "GPU 1"])
def test_what_is_no_uuid_names_no_file(folder, uuid):
    with pytest.raises(InputError, match="is no GPU's UUID"):
        Lease(uuid)


def test_a_link_in_the_place_of_a_lease_is_not_followed(folder, tmp_path):
    (tmp_path / "target").write_text("precious")
    os.symlink(tmp_path / "target", os.path.join(folder, "kernel-dvfs-GPU-1.json"))
    with pytest.raises(InputError, match="lease"):
        Lease("GPU-1").take()
    assert (tmp_path / "target").read_text() == "precious"


def name_of(folder):
    """The address that stands for the lease of GPU-1 there."""
    lease = Lease("GPU-1")
    lease.take()
    name = socket.socket(fileno=os.dup(lease._name))
    address = name.getsockname()
    name.close()
    lease.release()
    return address


@contextmanager
def taken_by_nobody(address, listens):
    """A process of another user that has taken the name and does nothing else."""
    told, tell = os.pipe()
    gone, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go)
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            name.bind(address)
            if listens:
                name.listen(8)
            os.write(tell, b"x")
            os.read(gone, 1)
        finally:
            os._exit(0)
    try:
        assert os.read(told, 1) == b"x"
        yield pid
    finally:
        for file in (go, gone, told, tell):
            os.close(file)
        os.waitpid(pid, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("listens", [True, False])
def test_who_may_have_no_lease_keeps_nobody_out_by_taking_its_name(folder, listens):
    os.chmod(folder, 0o1770)
    with taken_by_nobody(name_of(folder), listens):
        lease = Lease("GPU-1")
        lease.take()
        lease.write("1500-2201")
        with pytest.raises(Held, match=f"process {os.getpid()} of root on"):
            Lease("GPU-1").take()
        lease.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_who_may_have_a_lease_is_named_when_its_name_is_all_that_he_holds(folder):
    with taken_by_nobody(name_of(folder), listens=True) as pid, pytest.raises(Held, match=f"process {pid} of nobody"):
        Lease("GPU-1").take()
    os.chmod(folder, 0o1770)
    os.chown(folder, -1, NOBODY)  # his group
    with taken_by_nobody(name_of(folder), listens=True) as pid, pytest.raises(Held, match=f"process {pid} of nobody"):
        Lease("GPU-1").take()


def test_who_locks_a_lease_is_named_by_the_kernel_whatever_the_file_says(folder):
    lease = Lease("GPU-1")
    lease.take()
    lease.write("1500-2201")
    path = Path(lease.path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": 1, "user": "king"}))
    with pytest.raises(Held, match=rf"process {os.getpid()} of {user()}; its lease says process 1 of king on"):
        Lease("GPU-1").take()
    lease.release()


def test_a_name_whose_holder_so_many_ask_that_he_cannot_be_told_counts(folder, monkeypatch):
    """In a folder of a group; elsewhere he would be named as one who cannot be seen."""
    os.chmod(folder, 0o1770)
    monkeypatch.setattr(socket, "SOMAXCONN", 0)
    first = Lease("GPU-1")
    first.take()
    name = socket.socket(fileno=os.dup(first._name))
    address = name.getsockname()
    name.close()
    os.unlink(first.path)
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        one.connect(address)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.connect(address)
        with pytest.raises(Held, match="a process that cannot be seen from here, which still runs although"):
            Lease("GPU-1").take()
    first.release()


def test_a_process_that_has_died_is_not_named_while_another_has_its_lock(folder):
    lease = Lease("GPU-1")
    told, tell = os.pipe()
    gone, go = os.pipe()
    owner = os.fork()
    if owner == 0:
        lease.take()
        if os.fork() == 0:  # as who restores for another does
            os.close(go)
            lease.write(RESTORING)
            os.write(tell, f"{os.getpid()}".encode())
            os.read(gone, 1)
        os._exit(0)
    restorer = int(os.read(told, 20))
    os.waitid(os.P_PID, owner, os.WEXITED | os.WNOWAIT)  # leaves its exit code for later
    try:
        for _ in range(2):  # first it is dead and nobody has asked for its exit code
            with pytest.raises(Held, match=rf"held by process {restorer} of .*\({RESTORING}\)") as held:
                Lease("GPU-1").take()
            assert "its lease says" not in str(held.value)
            if owner:
                os.waitpid(owner, 0)
                owner = 0
    finally:
        for file in (go, gone, told, tell):
            os.close(file)


def test_a_lease_that_is_another_file_s_second_name_is_not_written(folder):
    victim = Path(folder) / "victim"
    victim.write_text("kept")
    os.link(victim, Lease("GPU-1").path)
    with pytest.raises(InputError, match="not a file of this name alone"):
        Lease("GPU-1").take()
    assert victim.read_text() == "kept"
