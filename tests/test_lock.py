"""A lock of a folder or of a moment: held by one, gone with its holder, and a fault of the disk is called one."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from kernel_dvfs import lock
from kernel_dvfs_clocks.errors import InputError


def unable(*_):
    raise OSError(errno.ENOLCK, "No locks available")


def test_one_run_at_a_time_and_the_second_is_told_whose_it_is(tmp_path):
    path = str(tmp_path / ".snakemake/kernel-dvfs.lock")
    lock.hold(path)
    code = f"from kernel_dvfs import lock; lock.hold({path!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"another run (process {os.getpid()}) is at work" in done.stderr


def test_a_folder_that_cannot_lock_is_not_taken_for_another_run(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", unable)
    with pytest.raises(InputError, match="cannot be locked: No locks available"):
        lock.hold(str(tmp_path / "a.lock"))
    with (
        pytest.raises(InputError, match="cannot be locked: No locks available; a remedy"),
        lock.passing(str(tmp_path / "b.lock"), "a remedy"),
    ):
        pass


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "folder").symlink_to("nowhere/at/all")
    with pytest.raises(InputError, match="folder"):
        lock.hold(str(tmp_path / "folder/a.lock"))


@pytest.mark.parametrize("what", ["a link to a file", "a link to nowhere", "a pipe"])
def test_a_lock_empties_nothing_but_a_file_of_its_own(tmp_path, what):
    path, precious = tmp_path / "a.lock", tmp_path / "precious"
    if what == "a link to a file":
        precious.write_text("kept")
    os.mkfifo(path) if what == "a pipe" else path.symlink_to(precious)
    with pytest.raises(InputError, match=r"a\.lock: is no file" if what == "a pipe" else r"a\.lock: is a link"):
        lock.hold(str(path))
    assert not precious.exists() if what != "a link to a file" else precious.read_text() == "kept"


def test_a_passing_lock_keeps_others_out_and_leaves_no_file(tmp_path):
    path = tmp_path / "a.lock"
    code = f"from kernel_dvfs import lock\nwith lock.passing({str(path)!r}, ''): print('in', flush=True)"
    with lock.passing(str(path), ""):
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1)
    assert other.communicate(timeout=30)[0] == "in\n" and other.returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_passing_lock_follows_no_link(tmp_path):
    (tmp_path / "precious").write_text("")
    (tmp_path / "a.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=r"a\.lock"), lock.passing(str(tmp_path / "a.lock"), ""):
        pass
    (tmp_path / "b.lock").symlink_to(tmp_path / "made")
    with pytest.raises(InputError, match=r"b\.lock"), lock.passing(str(tmp_path / "b.lock"), ""):
        pass
    assert not (tmp_path / "made").exists()
