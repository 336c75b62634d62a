"""Root executes nothing that a user wrote: the marker of a planted file is looked for, not a message."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.trust import is_roots_own

NOBODY = 65534
pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or not is_roots_own(package.FOLDER) or not is_roots_own(sys.executable),
    reason="needs root, and this copy to be root's",
)
# of Python's own, of a dependency, and what only NVML's road imports
NAMES = ("typing", "argparse", "json", "subprocess", "pynvml", "dataclasses", "fcntl_of_nobody")
COMMANDS = {
    "reset": ("reset", "--all"),
    "epilog": ("reset", "--all", "--after-job"),
    "stale": ("reset", "--all", "--stale"),
    "broker": ("broker", "--allow", "0"),
    "watch": ("reset", "--all", "--stale", "--watch"),
}


def planted(folder, marker, names=NAMES):
    """A folder of nobody's with modules that leave a mark when they are run, compiled ones too."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\n")
    for path in (folder, *folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    return folder


def ran(made, words, seconds=0.0, **more):
    """(exit code, stdout, stderr) of a fresh process that runs the command; one that does not end is told to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel_dvfs", *words],
        **{"env": made.environment(**more), "cwd": made.folder, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE},
        text=True,
    )
    if seconds:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT if "--watch" in words else signal.SIGTERM)
    out, said = process.communicate(timeout=60)
    return process.returncode, out, said


@pytest.mark.parametrize("command", COMMANDS)
def test_no_planted_module_is_run(lab, tmp_path, command):
    made, marker = lab(time="real"), tmp_path / "marker"
    made.more["KERNEL_DVFS_BROKER_DIR"] = str(tmp_path / "broker")
    planted(tmp_path / "of_nobody", marker)
    made.more["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "of_nobody"), package.FOLDER])
    # it is on the path: a command that nobody runs as root takes it
    path = made.environment()["PYTHONPATH"]
    lasts = 2.0 if command in ("broker", "watch") else 0.0
    code, out, said = ran(made, COMMANDS[command], lasts, PYTHONPATH=f"{tmp_path / 'of_nobody'}{os.pathsep}{path}")
    assert not marker.exists(), marker.read_text()
    if command in ("reset", "epilog"):
        assert code == 0 and "both locks reset" in out, said
    if command == "broker":
        assert code == 2 and "others than root can change it" in said
    subprocess.run([sys.executable, "-c", "import fcntl_of_nobody"], env={"PYTHONPATH": str(tmp_path / "of_nobody")})
    assert marker.read_text() == "fcntl_of_nobody", "the plant does leave a mark"


@pytest.mark.parametrize("what", ["a module among root's", "a compiled file among root's", "an NVML of nobody's"])
def test_what_is_planted_among_roots_own_ends_the_command_and_is_not_run(lab, fake_library, tmp_path, what):
    made, marker = lab(time="real"), tmp_path / "marker"
    more, own = {}, tmp_path / "own"
    if what == "an NVML of nobody's":
        own.mkdir()
        source = f'__attribute__((constructor)) static void f(void) {{ fclose(fopen("{marker}", "w")); }}'
        compiler = [shutil.which("cc") or "cc", "-shared", "-fPIC", "-include", "stdio.h", "-x", "c", "-"]
        subprocess.run([*compiler, "-o", own / "libnvidia-ml.so.1"], input=source, text=True, check=True)
        os.chown(own / "libnvidia-ml.so.1", NOBODY, NOBODY)
        more["LD_LIBRARY_PATH"] = str(own)
    else:
        planted(own, marker, ["pynvml"])
        os.chown(own, 0, 0)
        if what == "a compiled file among root's":
            subprocess.run([sys.executable, "-m", "compileall", "-q", own], check=True)
            (own / "pynvml.py").write_text("raise SystemExit('not the source')\n")
            stamp = (own / "pynvml.py").stat()
            (compiled,) = (own / "__pycache__").iterdir()
            data = bytearray(compiled.read_bytes())
            data[8:16] = int(stamp.st_mtime).to_bytes(4, "little") + stamp.st_size.to_bytes(4, "little")
            compiled.write_bytes(data)
            os.chown(own / "pynvml.py", 0, 0)
            os.chown(compiled, NOBODY, NOBODY)
        more["PYTHONPATH"] = f"{own}{os.pathsep}{package.FOLDER}"
    code, _, said = ran(made, ("reset", "--all"), **more)
    assert code == 2 and said.count("\n") == 1 and f"{own}" in said and "others than root" in said, said
    assert not marker.exists()


@pytest.mark.parametrize("by", ["broker", ""])
def test_what_holds_a_gpu_for_a_client_of_root_s_broker_runs_no_planted_module(lab, tmp_path, by):
    """It begins afresh, and imports from the broker's path; here that is a user's, as the broker would refuse it."""
    made, marker, leases = lab(time="real"), tmp_path / "marker", tmp_path / "leases"
    planted(tmp_path / "of_nobody", marker)
    leases.mkdir()
    about = {"uuid": made.boards.uuid, "after": {}, "at": str(leases), "client": ["process 7 of alice", False, 60.0]}
    code = f"""
import socket, sys
from kernel_dvfs_clocks.guard import start_holder
ours, theirs = socket.socketpair()
sys.path.insert(0, {str(tmp_path / "of_nobody")!r})
holder = start_holder({about!r} | {{"files": [theirs.fileno()]}}, [theirs.fileno()], {by!r})
theirs.close()
print(ours.recv(4096).decode(), flush=True)
ours.close()
holder.wait(60)
"""
    done = made.python(code)
    assert marker.exists() == (not by), done.stderr
    if by:
        assert done.stdout.strip() == "{}" and not list(leases.iterdir()), done.stderr


def test_a_lease_that_takes_long_to_read_is_none(lab):
    made = lab(time="real")
    twice = "{" + ",".join(f'"{number % 9000}":0' for number in range(9000)) + ',"0":0}'
    made.lease.write_text(twice[: 1 << 16])
    from kernel_dvfs_clocks.errors import InputError
    from kernel_dvfs_clocks.nvml import lease

    with pytest.raises(InputError, match="longer than 8192 characters"):
        lease.parse(made.lease.read_text())
    done = made.command("reset", "--all", "--stale")
    assert done.returncode == 0 and "a run whose lease cannot be read" in done.stdout and not made.lease.exists()
