"""The broker: whom it lets set clocks, and that they come back whatever ends a client, or the broker itself."""

import hashlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest
from test_guard import script

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.library import NvmlError

NOBODY = 65534


@pytest.fixture
def brokered(lab):
    """A lab with a broker: `brokered("--allow", "0")`; by default it lets in who runs this."""

    def make(*words, profiles="h200", **knobs):
        made = lab(profiles, **({"time": "real"} | knobs))
        made.offer("broker", *words)
        return made

    return make


def asked(made, *requests):
    """The broker's answers to a client of ours."""
    answers = []
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], "broker.sock"))
        client.settimeout(30)
        for request in requests:
            client.sendall((request if isinstance(request, bytes) else json.dumps(request).encode()) + b"\n")
            answers.append(json.loads(client.recv(1 << 16) or b"null"))
    return answers


def log(made):
    return (made.boards.path.parent / "daemons.log").read_text()


def freed(made):
    return made.comes_to(lambda: made.boards.locks == ("none", "none"), 20)


def test_a_client_that_it_does_not_name_is_refused_and_changes_nothing(brokered):
    """Who asks is what the kernel says, whatever the request does."""
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("another user's process needs root and setpriv")
    made = brokered()
    code = """
import json, socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
try: client.sendall(json.dumps({"do": "take", "uuid": sys.argv[2], "uid": 0}).encode() + b"\\n")
except BrokenPipeError: pass
print(client.recv(65536).decode())
"""
    # it may read this Python, wherever root has it, and nothing more
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    as_nobody += ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    folder = made.more["KERNEL_DVFS_BROKER_DIR"]
    words = [*as_nobody, sys.executable, "-c", code, f"{folder}/broker.sock", made.boards.uuid]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    answer = json.loads(done.stdout)
    assert answer["code"] == 4 and "is not among those whom it sets clocks for" in answer["error"], done.stderr
    assert made.boards.get("sets") == "0" and not os.path.exists(f"{folder}/kernel-dvfs-{made.boards.uuid}.json")
    # named, it is let in
    made.end_daemons()
    made.offer("broker", "--allow", str(NOBODY))
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == {}, done.stderr


def test_its_folder_is_closed_to_others_and_its_socket_open_to_all(brokered):
    made = brokered()
    folder = made.more["KERNEL_DVFS_BROKER_DIR"]
    assert stat.S_IMODE(os.stat(folder).st_mode) & 0o022 == 0
    assert stat.S_IMODE(os.stat(f"{folder}/broker.sock").st_mode) == 0o666


def test_a_second_client_is_told_who_has_the_gpu(brokered):
    made = brokered()
    first = script(made, "sys.stdin.readline()", through="broker")
    assert first.stdout.readline() == "locked\n"
    (answer,) = asked(made, {"do": "take", "uuid": made.boards.uuid})
    assert f"process {first.pid}" in answer["error"] and "is held by" in answer["error"]
    assert made.boards.locks == ("345-900", "2201-2201")
    first.communicate("\n", timeout=60)
    assert freed(made)


def test_nobody_can_start_processes_of_root_without_end(brokered):
    made = brokered()
    held = []
    try:
        for _ in range(70):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], "broker.sock"))
        held[-1].settimeout(30)
        assert "64 clients are connected already" in json.loads(held[-1].recv(1 << 16))["error"]
    finally:
        for each in held:
            each.close()
    assert made.comes_to(lambda: "allowed" in asked(made, {"do": "hello"})[0], 20), "and then goes on"


@pytest.mark.parametrize("says", ["nothing", "a byte now and then"])
def test_a_client_that_does_not_say_what_it_wants_is_let_go(brokered, says):
    made = brokered()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], "broker.sock"))
        client.settimeout(0.2)

        def is_let_go():
            try:
                if says != "nothing":
                    client.sendall(b" ")
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        assert made.comes_to(is_let_go, 60)
    assert made.boards.get("sets") == "0"


def test_a_client_that_has_its_gpu_may_be_silent_for_as_long_as_it_likes(brokered):
    made = brokered()
    first = script(made, "sys.stdin.readline()", through="broker")
    assert first.stdout.readline() == "locked\n"
    time.sleep(11.0)
    assert made.boards.locks == ("345-900", "2201-2201")
    first.communicate("\n", timeout=60)
    assert freed(made)


def test_each_gpu_has_a_client_of_its_own(brokered):
    made = brokered(profiles="h200,h200")
    first = script(made, "sys.stdin.readline()", through="broker")
    assert first.stdout.readline() == "locked\n"
    second = {"do": "lock", "domain": "core", "mhz": [345, 1200]}
    assert asked(made, {"do": "take", "uuid": made.boards.get("uuid", 1)}, second) == [{}, {}]
    assert made.comes_to(lambda: made.boards.get("core_lock", 1) == "none", 20)
    assert made.boards.locks == ("345-900", "2201-2201"), "the other's end is not ours"
    first.communicate("\n", timeout=60)


@pytest.mark.parametrize("worker", ["forked", "executed"])
def test_a_worker_that_outlives_its_client_does_not_keep_clocks_locked(brokered, worker):
    made = brokered()
    start = {
        "forked": "pid = os.fork()\nif pid == 0: time.sleep(600); os._exit(0)",
        "executed": "import subprocess\npid = subprocess.Popen(['sleep', '600']).pid",
    }[worker]
    then = f"{start}\nprint(pid, flush=True)\nos.kill(control._janitor._pid, signal.SIGKILL)\n"
    process = script(made, f"{then}os.kill(os.getpid(), signal.SIGKILL)", through="broker")
    assert process.stdout.readline() == "locked\n"
    pid = int(process.stdout.readline())
    try:
        assert freed(made)
        os.kill(pid, 0)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_the_end_of_the_process_that_connected_counts_though_its_socket_is_kept(brokered):
    """As a hostile client might do it: the connection is handed to a child that stays."""
    made = brokered()
    code = f"""
import json, os, socket, time
client = socket.socket(socket.AF_UNIX)
client.connect({os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], "broker.sock")!r})
for request in ({{"do": "take", "uuid": {made.boards.uuid!r}}}, {{"do": "lock", "domain": "core", "mhz": [345, 900]}}):
    client.sendall(json.dumps(request).encode() + b"\\n")
    client.recv(65536)
pid = os.fork()
if pid: print(pid, flush=True); os._exit(0)
os.close(1); os.close(2); time.sleep(600)
"""
    done = made.python(code)
    pid = int(done.stdout)
    try:
        assert freed(made)
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_clocks_come_back_when_the_broker_ends(brokered, end):
    made = brokered()
    client = script(
        made, "sys.stdin.readline()\ntry: board.lock_core(345, 1200)\nexcept Exception as e: print(e)", through="broker"
    )
    assert client.stdout.readline() == "locked\n"
    (broker,) = made.daemons
    if end == signal.SIGTERM:
        broker.terminate()
        broker.wait(timeout=30)
        assert freed(made)
        said, _ = client.communicate("\n", timeout=60)
        assert "the broker has closed the connection" in said or "Broken pipe" in said or "reset by peer" in said
        return
    kill_all_of(made, broker)
    assert made.boards.locks == ("345-900", "2201-2201"), "nobody is left to give them back"
    client.kill()
    client.communicate(timeout=30)
    made.offer("broker")  # systemd starts it again
    assert freed(made)
    assert made.comes_to(lambda: "ended without restoring its clocks; reset" in log(made), 10)


def kill_all_of(made, broker):
    """All of its processes at once, as when the machine runs out of memory."""
    os.killpg(broker.pid, signal.SIGSTOP)
    pids = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                ours = made.more["KERNEL_DVFS_BROKER_DIR"].encode() in file.read()
            with open(f"/proc/{name}/cmdline", "rb") as file:
                ours = ours and b"\0broker\0" in file.read()
        except OSError:
            continue
        if ours:
            pids.append(int(name))
            os.kill(pids[-1], signal.SIGSTOP)  # none sees another one's end
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    broker.wait(timeout=30)


def test_a_broker_that_comes_back_restores_nothing_under_a_run_that_has_begun_since(brokered):
    made = brokered()
    lock = {"do": "lock", "domain": "core", "mhz": [345, 1200]}
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], "broker.sock"))
        for request in ({"do": "take", "uuid": made.boards.uuid}, lock):
            client.sendall(json.dumps(request).encode() + b"\n")
            assert json.loads(client.recv(1 << 16)) == {}
        kill_all_of(made, made.daemons.pop())
    assert made.boards.locks[0] == "345-1200", "nobody is left to give it back"
    made.boards.set(deny=0)
    run = script(made, "sys.stdin.readline()", through="nvml")
    assert run.stdout.readline() == "locked\n"
    made.offer("broker")
    assert made.comes_to(
        lambda: f"looked at later: GPU {made.boards.uuid} is held by process {run.pid}" in log(made), 20
    )
    time.sleep(1.5)
    assert made.boards.locks == ("345-900", "2201-2201")
    run.communicate("\n", timeout=60)
    own = os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], f"kernel-dvfs-{made.boards.uuid}.json")
    assert made.comes_to(lambda: not os.path.exists(own) and not made.lease.exists(), 20)
    assert made.boards.locks == ("none", "none")


def test_a_broker_that_comes_back_restores_at_once_what_its_own_client_still_waits_with(brokered):
    made = brokered()
    client = script(made, "sys.stdin.readline()", through="broker")
    assert client.stdout.readline() == "locked\n"
    kill_all_of(made, made.daemons.pop())
    assert made.boards.locks == ("345-900", "2201-2201")
    made.offer("broker")
    assert freed(made) and client.poll() is None
    client.kill()
    client.communicate(timeout=30)


def test_it_leaves_what_the_site_wants_to_find(brokered):
    made = brokered("--after", "core=345-1700")
    lock = {"do": "lock", "domain": "mem", "mhz": [2201, 2201]}
    assert asked(made, {"do": "take", "uuid": made.boards.uuid}, lock) == [{}, {}]
    assert made.comes_to(lambda: made.boards.locks == ("345-1700", "none"), 20)


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "lock", "domain": "core", "mhz": [900, 345]},
        {"do": "lock", "domain": "core", "mhz": [0, 900]},
        {"do": "lock", "domain": "core", "mhz": ["1", 2]},
        {"do": "lock", "domain": "core"},
        {"do": "lock", "domain": "power", "mhz": [1, 2]},
        {"do": "run", "domain": "core"},
        {"do": ["reset"], "domain": {}},
    ],
)
def test_a_request_that_it_does_not_know_is_refused_and_the_client_may_go_on(brokered, request_):
    made = brokered()
    refused, well = asked(made, {"do": "take", "uuid": made.boards.uuid}, request_, {"do": "reset", "domain": "core"})[
        1:
    ]
    assert refused["code"] == 2 and well == {}


@pytest.mark.parametrize(
    "first", [b"{", b"[]", b"\xff", b"[" * 3000, b'{"do": "take", "uuid": "../../etc/passwd"}', b'{"do": "take"}']
)
def test_nonsense_ends_a_connection_and_not_the_broker(brokered, first):
    made = brokered()
    (answer,) = asked(made, first)
    assert answer is None or "error" in answer
    assert asked(made, {"do": "hello"})[0]["allowed"]
    assert "Traceback" not in log(made) and made.boards.get("sets") == "0"


def test_a_unit_for_systemd_names_its_options(lab):
    made = lab(time="real")
    done = made.command("broker", "--allow", "0,root", "--after", "core=345-1700", "--unit")
    assert done.returncode == 0, done.stderr
    (start,) = [line for line in done.stdout.splitlines() if line.startswith("ExecStart=")]
    assert start.endswith("-m kernel_dvfs broker --allow 0,root --after core=345-1700")
    assert "CapabilityBoundingSet=CAP_SYS_ADMIN" in done.stdout and 'Environment="PYTHONPATH=/' in done.stdout
    if shutil.which("systemd-analyze"):
        unit = made.folder / "kernel-dvfs-broker.service"
        unit.write_text(done.stdout)
        judged = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
        assert str(unit.name) not in judged.stderr, judged.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--allow", "no-such-user-here"), "no such user or group here"),
        (("--allow", "%no-such-group"), "no such user or group here"),
        (("--allow", "0", "--after", "core=9-8"), "is not possible"),
    ],
)
def test_what_it_cannot_be_told_is_refused_in_one_line(lab, words, said):
    done = lab(time="real").command("broker", *words)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1


def test_it_listens_only_where_nobody_else_can_write_and_only_once(brokered, tmp_path):
    made = brokered()
    done = made.command("broker", "--allow", "0")
    assert done.returncode == 2 and "another broker listens there" in done.stderr
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    done = made.command("broker", "--allow", "0", KERNEL_DVFS_BROKER_DIR=str(tmp_path / "open"))
    assert done.returncode == 2 and "must be a folder that only user" in done.stderr


def test_clocks_come_back_though_its_socket_was_deleted(brokered):
    made = brokered()
    client = script(made, "sys.stdin.readline()", through="broker")
    assert client.stdout.readline() == "locked\n"
    os.unlink(os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], "broker.sock"))
    made.daemons[0].terminate()
    assert made.daemons[0].wait(timeout=30) == 0, log(made)
    assert made.boards.locks == ("none", "none"), "at its end, not by a client's"
    client.kill()
    client.communicate(timeout=30)


@pytest.mark.parametrize("death", ["a signal", "no answer in time"])
def test_a_late_answer_is_never_taken_for_that_of_the_next_request(tmp_path, monkeypatch, death):
    from kernel_dvfs.gpu.setters.broker import Broker

    monkeypatch.setenv("KERNEL_DVFS_BROKER_DIR", str(tmp_path))
    monkeypatch.setenv("KERNEL_DVFS_NVML_PATIENCE_S", "0.3" if death == "no answer in time" else "30")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "broker.sock"))
    listener.listen()
    heard = []

    def serve():
        """A yes to a lock comes late; a reset is refused."""
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("r") as lines:
                for line in lines:
                    heard.append(json.loads(line)["do"])
                    time.sleep(0.6 if heard[-1] == "lock" else 0)
                    refusal = {"error": "the reset failed", "code": 999} if heard[-1] == "reset" else {}
                    try:
                        connection.sendall(json.dumps(refusal).encode() + b"\n")
                    except OSError:
                        break

    threading.Thread(target=serve, daemon=True).start()

    class Board:
        uuid = "GPU-1"

    def stop(*_):
        raise KeyboardInterrupt

    setter = Broker(Board())
    before = signal.signal(signal.SIGALRM, stop)
    try:
        if death == "a signal":
            signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt if death == "a signal" else NvmlError):
            setter._lock("core", 345, 900)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(NvmlError, match="left without its answer"):
        setter._lock("core", 345, 1200)
    monkeypatch.setenv("KERNEL_DVFS_NVML_PATIENCE_S", "30")
    with pytest.raises(NvmlError, match="the reset failed"):
        setter.reset_core()
    assert heard == ["take", "lock", "take", "reset"]
    setter.close()


def test_a_late_answer_of_a_holder_is_not_taken_for_the_next_either():
    from kernel_dvfs.deploy.holder import Holder

    answers = "import sys, time\nfor line in sys.stdin: time.sleep(0.6); print('{\"value\": 1}', flush=True)"
    holder = Holder("GPU-1", True, print)
    holder._process = subprocess.Popen(
        [sys.executable, "-c", answers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            holder.to_auto()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(InputError, match="is gone"):
        holder.seen()
    holder.close()


@pytest.mark.parametrize("words", [("reset", "--all"), ("apply", "--pair", "900,auto")])
def test_what_a_client_wants_to_leave_behind_is_refused_and_nothing_is_set(brokered, words):
    made = brokered()
    then = ("--", "true") if words[0] == "apply" else ()
    done = made.command(*words, "--through", "broker", "--after", "core=345-1500", *then)
    assert done.returncode == 2 and "whoever runs it says what is left locked" in done.stderr, done.stderr
    assert len([line for line in done.stderr.splitlines() if "error" in line]) == 1
    assert made.boards.get("sets") == "0" and not (made.lease.exists() and made.lease.read_text()), (
        "and nothing is stale"
    )


def test_a_run_without_the_broker_is_not_taken_over(brokered):
    """Its lease lies where clients of the broker in a container may not look."""
    made = brokered()
    made.boards.set(deny=0)
    first = script(made, "sys.stdin.readline()", through="nvml")
    assert first.stdout.readline() == "locked\n"
    (answer,) = asked(made, {"do": "take", "uuid": made.boards.uuid})
    assert f"process {first.pid}" in answer["error"] and answer["code"] == 4
    assert made.boards.locks == ("345-900", "2201-2201")
    first.communicate("\n", timeout=60)


def test_a_client_whose_lease_nobody_sees_is_not_freed_by_a_reset(brokered):
    made = brokered()
    made.boards.set(deny=0)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], "broker.sock"))
        for request in (
            {"do": "take", "uuid": made.boards.uuid, "lease": [1, 2]},
            {"do": "lock", "domain": "core", "mhz": [345, 900]},
        ):
            client.sendall(json.dumps(request).encode() + b"\n")
            assert json.loads(client.recv(1 << 16)) == {}
        done = made.command("reset", "--uuid", made.boards.uuid, "--through", "nvml")
        assert done.returncode == 2 and "is held by" in done.stderr
        assert made.boards.locks[0] == "345-900"
    assert made.comes_to(lambda: made.boards.locks[0] == "none" and not made.lease.exists(), 60)


def test_nobody_keeps_it_out_by_a_name_that_anyone_can_take(brokered):
    """Names of sockets that lie in no folder belong to whoever comes first."""
    made = brokered()
    folder = made.more["KERNEL_DVFS_BROKER_DIR"]
    about = os.stat(folder)
    place = hashlib.blake2b(f"{about.st_dev}|{about.st_ino}".encode(), digest_size=6).hexdigest()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as squatter:
        squatter.bind(f"\0{place}-kernel-dvfs-{made.boards.uuid}.json")
        assert asked(made, {"do": "take", "uuid": made.boards.uuid}) == [{}]
