"""The broker: whom it lets set clocks, and that they come back whatever ends a client, or the broker itself."""

import hashlib
import json
import os
import pwd
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import fake
import pytest
from test_guard import script

from kernel_dvfs_clocks.nvml.library import NvmlError

NOBODY = 65534


@pytest.fixture
def brokered(lab):
    """A lab with a broker: `brokered("--allow", "0")`; by default it lets in who runs this."""

    def make(*words, profiles="h200", **knobs):
        made = lab(profiles, **({"time": "real"} | knobs))
        made.offer("broker", *words)
        return made

    return make


def connected(made):
    """A client of ours that has said nothing yet."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30)
    client.connect(os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], "broker.sock"))
    return client


def said(client, request, *files):
    """The broker's answer to one request; None where it has closed the connection."""
    line = (request if isinstance(request, bytes) else json.dumps(request).encode()) + b"\n"
    try:
        socket.send_fds(client, [line], files) if files else client.sendall(line)
        return json.loads(client.recv(1 << 16) or b"null")
    except (BrokenPipeError, ConnectionResetError):
        return None


def taking(client, made, board=0, shows=None, **more):
    """The answer to a client that wants a GPU, and shows the descriptor `shows` instead of its device node's."""
    answer = said(client, {"do": "take", "uuid": made.boards.get("uuid", board), "mode": "lock", "own": False} | more)
    if not answer or "node" not in answer:
        return answer
    opened = os.open(os.path.join(made.more["KERNEL_DVFS_DEVICES_DIR"], answer["node"]), os.O_RDWR)
    try:
        return said(client, {"do": "prove"}, opened if shows is None else shows)
    finally:
        os.close(opened)


def asked(made, *requests, board=0):
    """The broker's answers to a client that takes a GPU, and then asks for this."""
    with connected(made) as client:
        return [taking(client, made, board), *(said(client, each) for each in requests)]


def log(made):
    return (made.boards.path.parent / "daemons.log").read_text()


def freed(made):
    return made.comes_to(lambda: made.boards.locks == ("none", "none"), 20)


@pytest.fixture
def as_nobody():
    """The words that a command of another user's begins with: it may read this Python, wherever root has it, and
    nothing more."""
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("another user's process needs root and setpriv")
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*words, "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]


def test_a_client_that_it_does_not_name_is_refused_and_changes_nothing(brokered, as_nobody):
    """Who asks is what the kernel says, whatever the request does."""
    made = brokered()
    code = """
import json, socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
request = {"do": sys.argv[2], "uuid": sys.argv[3], "mode": "lock", "own": False, "uid": 0}
try: client.sendall(json.dumps(request).encode() + b"\\n")
except BrokenPipeError: pass
print(client.recv(65536).decode())
"""
    folder = made.more["KERNEL_DVFS_BROKER_DIR"]

    def answer(do):
        words = [*as_nobody, sys.executable, "-c", code, f"{folder}/broker.sock", do, made.boards.uuid]
        return json.loads(subprocess.run(words, capture_output=True, text=True, timeout=60).stdout)

    for do in ("take", "list", "evict"):
        refused = answer(do)
        assert refused["code"] == 4 and "is not among those whom it sets clocks for" in refused["error"]
    assert made.boards.get("sets") == "0" and not os.path.exists(f"{folder}/kernel-dvfs-{made.boards.uuid}.json")
    # named, it is let in, and is not root
    made.end_daemons()
    made.offer("broker", "--allow", str(NOBODY))
    assert answer("take") == {"node": "nvidia7"}
    assert answer("evict")["error"] == "only root takes a GPU from whom it is given to"


def test_its_folder_is_closed_to_others_and_its_socket_open_to_all(brokered):
    made = brokered()
    folder = made.more["KERNEL_DVFS_BROKER_DIR"]
    assert stat.S_IMODE(os.stat(folder).st_mode) & 0o022 == 0
    assert stat.S_IMODE(os.stat(f"{folder}/broker.sock").st_mode) == 0o666


def test_a_second_client_is_told_who_has_the_gpu(brokered):
    made = brokered()
    first = script(made, "sys.stdin.readline()", through="broker")
    assert first.stdout.readline() == "locked\n"
    (answer,) = asked(made)
    assert f"process {first.pid} of" in answer["error"] and answer["held"]
    second = script(made, "", through="broker")
    _, errors = second.communicate(timeout=60)
    assert second.returncode and f"is held by process {first.pid} of" in errors
    assert made.boards.locks == ("345-900", "2201-2201")
    first.communicate("\n", timeout=60)
    assert freed(made)


def test_connections_without_a_gpu_cost_no_process_and_a_user_has_only_so_many(brokered):
    made = brokered()
    before = children(made)
    held = []
    try:
        for _ in range(5):
            held.append(connected(made))
        assert said(held[-1], {"do": "hello"})["allowed"], "it has them all by now"
        with connected(made) as client:
            refused = json.loads(client.recv(1 << 16))
        assert "has 5 connections without a GPU already" in refused["error"]
        assert children(made) == before
    finally:
        for each in held:
            each.close()

    def goes_on():
        with connected(made) as client:
            return "allowed" in (said(client, {"do": "hello"}) or ())

    assert made.comes_to(goes_on, 20)


def test_a_client_that_does_not_get_a_gpu_is_let_go_and_one_that_has_it_may_be_silent_for_longer(brokered):
    made = brokered(profiles="h200,h200")
    holder = script(made, "sys.stdin.readline()", through="broker")
    assert holder.stdout.readline() == "locked\n"
    with connected(made) as silent, connected(made) as trickling, connected(made) as shows_nothing:
        take = {"do": "take", "uuid": made.boards.get("uuid", 1), "mode": "lock", "own": False}
        assert said(shows_nothing, take) == {"node": "nvidia6"}

        def is_let_go(client):
            client.settimeout(0.2)
            try:
                if client is trickling:
                    client.sendall(b" ")
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        for client in (trickling, silent, shows_nothing):  # each has its own ten seconds, all of them by now
            assert made.comes_to(lambda client=client: is_let_go(client))
    assert made.boards.get("sets", 1) == "0" and made.boards.locks == ("345-900", "2201-2201")
    holder.communicate("\n", timeout=60)
    assert freed(made)


def children(made):
    """Ids of the broker's processes, once it serves: the one that closes what clients hand over, and one a client that
    has a GPU."""
    (broker,) = made.daemons
    assert made.comes_to(lambda: "listens at" in log(made))
    with open(f"/proc/{broker.pid}/task/{broker.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


@contextmanager
def lingering(count):
    """Network connections that take an hour to close: what they have sent is never read."""
    made, others = [], []
    with socket.create_server(("127.0.0.1", 0), backlog=count) as server:
        for _ in range(count):
            made.append(socket.create_connection(server.getsockname()))
            others.append(server.accept()[0])
            made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
            made[-1].setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    made[-1].send(bytes(1 << 16))
    try:
        yield made
    finally:
        for each in others:
            each.close()


HANDS_OVER = """
import os, socket, sys
client, *connections = map(int, sys.argv[1:])
data = sys.stdin.buffer.read()
socket.send_fds(socket.socket(fileno=client), [data], connections)
os._exit(0)
"""


def handed_over(client, data, connections):
    """Sent along by a process that ends, since an end waits for no connection: whoever closes them there has the last
    hold on them. Closed here while that process has them, which does not wait either."""
    numbers = [each.fileno() for each in [client, *connections]]
    words = [sys.executable, "-S", "-c", HANDS_OVER, *map(str, numbers)]
    hands = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=numbers)
    for each in connections:
        each.close()
    hands.communicate(data, timeout=60)
    assert hands.returncode == 0


@pytest.mark.parametrize("dropped", ["as it reads", "as it closes"])
def test_what_takes_long_to_close_keeps_the_broker_from_nobody(brokered, dropped):
    """A user whom nobody let in can hand it over, too: to be closed is enough."""
    made = brokered()
    with lingering(20) as connections:
        client = connected(made)
        os.kill(made.daemons[0].pid, signal.SIGSTOP)  # it finds all of this at once
        client.sendall(b'{"do": "hello"}\n' if dropped == "as it reads" else b"[]\n")
        handed_over(client, b'{"do": "hello"}\n', connections)
        os.kill(made.daemons[0].pid, signal.SIGCONT)
        assert client.recv(1 << 16) if dropped == "as it reads" else not client.recv(1 << 16)
        client.close()
        assert asked(made) == [{}]


@pytest.mark.parametrize("where", ["waiting", "let go", "with a GPU"])
def test_what_a_client_hands_over_is_freed_by_neither_the_broker_nor_who_serves_a_gpu(brokered, where):
    """A file in memory takes a second for some gigabytes. Here the write end of a pipe, whose last close can be seen:
    while the process that closes is held up, nobody else does it."""
    made = brokered()
    (closing,) = children(made)
    read_end, write_end = os.pipe()
    ask = {"waiting": b'{"do": "hello"}', "let go": b"[]", "with a GPU": b'{"do": "reset", "domain": "core"}'}[where]
    try:
        with connected(made) as client:
            if where == "with a GPU":
                assert taking(client, made) == {}
            os.kill(closing, signal.SIGSTOP)
            socket.send_fds(client, [ask[:1]], [write_end])
            os.close(write_end)
            client.sendall(ask[1:] + b"\n")
            assert bool(client.recv(1 << 16)) == (where != "let go"), "who is let go learns of it at once"
        assert made.comes_to(lambda: asked(made) == [{}], 20), "and others are served"
        assert not select.select([read_end], [], [], 0)[0]
    finally:
        os.kill(closing, signal.SIGCONT)
    assert os.read(read_end, 1) == b""
    os.close(read_end)


def test_a_process_that_closes_what_clients_hand_over_is_replaced(brokered):
    made = brokered()
    (closing,) = children(made)
    os.kill(closing, signal.SIGKILL)
    assert made.comes_to(lambda: children(made) not in ([closing], []), 20)
    read_end, write_end = os.pipe()
    with connected(made) as client:
        assert said(client, {"do": "hello"}, write_end)["allowed"]
        os.close(write_end)
        assert os.read(read_end, 1) == b""
    os.close(read_end)
    made.end_daemons()
    assert made.daemons.pop().returncode == 0 and "Traceback" not in log(made)


@contextmanager
def no_more_files(made, broker, refused=1):
    """The broker can open none meanwhile, and has said so often enough at the end."""
    limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
    yield
    assert made.comes_to(lambda: log(made).count("Too many open files") >= refused, 20)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)


def test_a_process_that_closes_is_tried_again_until_there_is_one_for_clients_that_came_before_it_too(brokered):
    made = brokered()
    (broker,), (closing,) = made.daemons, children(made)
    read_end, write_end = os.pipe()
    with connected(made) as client:
        assert taking(client, made) == {}
        before = children(made)
        with no_more_files(made, broker):
            os.kill(closing, signal.SIGKILL)
        assert made.comes_to(lambda: len(children(made)) == 2, 20)
        (closing,) = set(children(made)) - set(before)
        os.kill(closing, signal.SIGSTOP)
        try:
            assert said(client, {"do": "reset", "domain": "core"}, write_end) == {}
            os.close(write_end)
            assert not select.select([read_end], [], [], 0)[0], "nor does who serves it"
        finally:
            os.kill(closing, signal.SIGCONT)
        assert select.select([read_end], [], [], 20)[0] and os.read(read_end, 1) == b""
    os.close(read_end)


def test_what_takes_long_to_close_keeps_no_clocks_locked(brokered):
    """As a client might do it that wants them for longer than it lives, or than it may."""
    made = brokered()
    with lingering(20) as connections:
        with connected(made) as client:
            assert taking(client, made) == {}
            assert said(client, {"do": "lock", "domain": "core", "mhz": [345, 900]}) == {}
            handed_over(client, b" ", connections)
        assert freed(made)


def test_each_gpu_has_a_client_of_its_own(brokered):
    made = brokered(profiles="h200,h200")
    first = script(made, "sys.stdin.readline()", through="broker")
    assert first.stdout.readline() == "locked\n"
    second = {"do": "lock", "domain": "core", "mhz": [345, 1200]}
    assert asked(made, second, board=1) == [{}, {}]
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
    then = f"{start}\nprint(pid, flush=True)\n"
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
import os, time
from kernel_dvfs_clocks.setters.broker import Connection
lease = Connection({made.boards.uuid!r}, elsewhere=False)
lease.take()
lease.ask({{"do": "lock", "domain": "core", "mhz": [345, 900]}})
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


def test_clocks_come_back_when_who_serves_a_client_is_killed(brokered):
    """As by the kernel, for memory: the broker itself goes on."""
    made = brokered()
    client = script(made, "sys.stdin.readline()", through="broker")
    assert client.stdout.readline() == "locked\n"
    kill_all_of(made, made.daemons[0], spared=made.daemons[0].pid)
    assert freed(made) and made.comes_to(lambda: "ended without restoring its clocks; reset" in log(made), 10)
    client.kill()
    client.communicate(timeout=30)
    assert made.comes_to(lambda: asked(made) == [{}], 20)


def test_clocks_come_back_once_there_can_be_a_process_that_restores_them(brokered):
    made = brokered()
    client = script(made, "sys.stdin.readline()", through="broker")
    assert client.stdout.readline() == "locked\n"
    (broker,) = made.daemons
    with no_more_files(made, broker, refused=3):  # what closes is missed as well, and may be first
        kill_all_of(made, broker, spared=broker.pid)
    assert freed(made) and client.poll() is None
    client.kill()
    client.communicate(timeout=30)
    assert made.comes_to(lambda: asked(made) == [{}], 20)


def kill_all_of(made, broker, spared=0):
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
        os.kill(pid, signal.SIGCONT if pid == spared else signal.SIGKILL)
    if not spared:
        broker.wait(timeout=30)


def test_while_the_broker_is_down_nobody_takes_a_gpu_without_it(brokered):
    made = brokered()
    client = script(made, "sys.stdin.readline()", through="broker")
    assert client.stdout.readline() == "locked\n"
    kill_all_of(made, made.daemons.pop())
    made.boards.set(deny=0)  # as root
    run = script(made, "", through="auto")
    _, errors = run.communicate(timeout=60)
    assert run.returncode and "is the broker running" in errors and made.boards.locks == ("345-900", "2201-2201")
    assert not made.lease.exists()
    client.kill()
    client.communicate(timeout=30)
    made.offer("broker")
    assert freed(made)


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
    assert asked(made, lock) == [{}, {}]
    assert made.comes_to(lambda: made.boards.locks == ("345-1700", "none"), 20)


def test_a_request_that_it_does_not_know_is_refused_and_the_client_may_go_on(brokered):
    made = brokered()
    unknown = [
        {"do": "lock", "domain": "core", "mhz": [900, 345]},
        {"do": "lock", "domain": "core", "mhz": [0, 900]},
        {"do": "lock", "domain": "core", "mhz": ["1", 2]},
        {"do": "lock", "domain": "core"},
        {"do": "lock", "domain": "power", "mhz": [1, 2]},
        {"do": "run", "domain": "core"},
        {"do": ["reset"], "domain": {}},
    ]
    reset = {"do": "reset", "domain": "core"}
    _, *answers = asked(made, *(request for each in unknown for request in (each, reset)))
    for request, refused, well in zip(unknown, answers[::2], answers[1::2], strict=True):
        assert refused["code"] == 2 and well == {}, request


def test_nonsense_ends_a_connection_and_not_the_broker(brokered):
    made = brokered()
    for first in (
        *(b"{", b"[]", b"\xff", b"[" * 3000, b"x" * 9000),
        b'{"do": "take", "uuid": "../../etc/passwd", "mode": "lock", "own": false}',
        *(b'{"do": "take"}', b'{"do": "evict", "uuid": {}}', b'{"do": "prove"}'),
    ):
        with connected(made) as client:
            answer = said(client, first)
        assert answer is None or "error" in answer, first
        with connected(made) as client:
            assert said(client, {"do": "hello"})["allowed"], first
        assert "Traceback" not in log(made) and made.boards.get("sets") == "0", first


def test_a_unit_for_systemd_names_its_options(lab):
    made = lab(time="real")
    done = made.command("broker", "--allow", "0,root", "--after", "core=345-1700", "--unit")
    assert done.returncode == 0, done.stderr
    (start,) = [line for line in done.stdout.splitlines() if line.startswith("ExecStart=")]
    assert start.endswith("-m kernel_dvfs broker --allow 0,root --hours 168 --after core=345-1700")
    assert "\nLogRateLimitIntervalSec=0\n" in done.stdout, "no line of its log is dropped"
    assert "CapabilityBoundingSet=CAP_SYS_ADMIN" in done.stdout and 'Environment="PYTHONPATH=/' in done.stdout
    if shutil.which("systemd-analyze"):
        unit = made.folder / "kernel-dvfs-broker.service"
        unit.write_text(done.stdout)
        judged = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
        assert str(unit.name) not in judged.stderr, judged.stderr
        words = ["systemd-analyze", "security", "--offline=true", "--threshold=30", unit]  # of 100
        judged = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert judged.returncode == 0, judged.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--allow", "no-such-user-here"), "no such user or group here"),
        (("--allow", "0", "--lease", "0a1b2c3d"), "--lease names what --evict ends"),
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
    from kernel_dvfs_clocks.setters.broker import Connection

    monkeypatch.setenv("KERNEL_DVFS_BROKER_DIR", str(tmp_path))
    monkeypatch.setenv("KERNEL_DVFS_NVML_PATIENCE_S", "0.3" if death == "no answer in time" else "30")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "broker.sock"))
    listener.listen()
    monkeypatch.setenv("KERNEL_DVFS_DEVICES_DIR", str(fake.device_nodes(tmp_path)))
    heard = []

    def serve():
        """A yes to a lock comes late."""
        connection, _ = listener.accept()
        with connection, connection.makefile("r") as lines:
            for line in lines:
                heard.append(json.loads(line)["do"])
                time.sleep(0.6 if heard[-1] == "lock" else 0)
                answer = {"node": "nvidia7"} if heard[-1] == "take" else {}
                with suppress(BrokenPipeError):
                    connection.sendall(json.dumps(answer).encode() + b"\n")
            heard.append("its end")

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()

    def stop(*_):
        raise KeyboardInterrupt

    lease = Connection("GPU-1", elsewhere=False)
    lease.take()
    lock = {"do": "lock", "domain": "core", "mhz": [345, 900]}
    before = signal.signal(signal.SIGALRM, stop)
    try:
        if death == "a signal":
            signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt if death == "a signal" else NvmlError):
            lease.ask(lock)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(NvmlError, match="left without its answer"):
        lease.ask(lock)
    assert not lease.end(), "it has not told that clocks are restored"
    serving.join(30)
    assert heard == ["take", "prove", "lock", "its end"]


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


def test_a_run_that_sets_clocks_by_its_own_right_has_its_lease_at_the_broker(brokered):
    """Root's, say: no client of the broker gets its GPU, and none that leaves frees its clocks."""
    made = brokered()
    made.boards.set(deny=0)
    first = script(made, "sys.stdin.readline()", through="nvml")
    assert first.stdout.readline() == "locked\n" and not made.lease.exists()
    for _ in range(3):
        assert asked(made)[0]["error"].startswith(f"process {first.pid} of")
        assert made.boards.locks == ("345-900", "2201-2201")
    first.communicate("\n", timeout=60)
    assert freed(made) and first.returncode == 0


@pytest.mark.parametrize("dies", ["alone", "with its holder"])
def test_a_run_that_sets_clocks_by_its_own_right_is_restored_however_it_dies(brokered, dies):
    made = brokered()
    made.boards.set(deny=0)
    end = "os.kill(control.holder.pid, signal.SIGKILL)\n" if dies != "alone" else ""
    run = script(made, f"{end}os.kill(os.getpid(), signal.SIGKILL)", through="nvml")
    assert run.stdout.readline() == "locked\n"
    assert freed(made)
    run.communicate(timeout=60)
    assert made.comes_to(lambda: asked(made) == [{}], 20)


def test_a_reset_frees_no_client_s_clocks_unless_it_is_to_take_them(brokered):
    made = brokered()
    made.boards.set(deny=0)
    first = script(made, "sys.stdin.readline()", through="broker")
    assert first.stdout.readline() == "locked\n"
    for words in (("--through", "nvml"), ("--through", "broker"), ()):
        done = made.command("reset", "--uuid", made.boards.uuid, *words)
        assert done.returncode == 2 and f"is held by process {first.pid} of" in done.stderr
        assert made.boards.locks == ("345-900", "2201-2201")
    done = made.command("reset", "--all", "--after-job")
    assert done.returncode == 0 and "both locks reset" in done.stdout, done.stderr
    assert made.boards.locks == ("none", "none")
    first.kill()
    first.communicate(timeout=60)


def test_a_reset_frees_no_clocks_of_a_client_that_comes_after_the_eviction(brokered):
    made = brokered()
    made.boards.set(deny=0)
    code = f"""
from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks.setters import broker
evict = broker.evict
def followed(uuid, lease):
    was = evict(uuid, lease)
    print("evicted", flush=True)
    input()
    return was
broker.evict = followed
raise SystemExit(main(["reset", "--uuid", "{made.boards.uuid}", "--force", "--through", "nvml"]))
"""
    with connected(made) as first, connected(made) as second:
        assert taking(first, made) == {}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": made.environment()}
        reset = subprocess.Popen([sys.executable, "-c", code], **pipes)
        assert reset.stdout.readline() == "evicted\n"
        assert taking(second, made) == {} and said(second, {"do": "lock", "domain": "core", "mhz": [345, 900]}) == {}
        out, _ = reset.communicate("\n", timeout=60)
        assert reset.returncode == 0 and "whose clocks the broker has freed; " in out and "left alone" in out
        assert made.boards.locks == ("345-900", "none")


def test_root_sees_who_has_a_gpu_and_takes_it(brokered):
    made = brokered(profiles="h200,h200")
    first = script(
        made, "sys.stdin.readline()\ntry: control.announce('x')\nexcept Exception as e: print(e)", through="broker"
    )
    assert first.stdout.readline() == "locked\n"
    done = made.command("broker", "--list")
    one, two = done.stdout.splitlines()
    assert one.startswith(f"GPU {made.boards.uuid}: process {first.pid} of ") and two.endswith(": free")
    done = made.command("broker", "--evict", made.boards.uuid)
    assert done.returncode == 0 and f"taken from process {first.pid} of" in done.stdout, done.stderr
    assert made.boards.locks == ("none", "none") and made.command("broker", "--list").stdout.count(": free") == 2
    out, _ = first.communicate("\n", timeout=60)
    assert "the broker has ended this run's lease" in out, "and it learns of that before its next clock"
    done = made.command("broker", "--evict", made.boards.uuid)
    assert done.returncode == 2 and "nobody has it" in done.stderr
    done = made.command("broker", "--list", KERNEL_DVFS_BROKER_DIR=str(made.folder))
    assert done.returncode == 2 and "is the broker running" in done.stderr


def test_who_is_evicted_is_told_so_as_he_gives_his_clocks_back(brokered):
    made = brokered()
    client = script(made, "sys.stdin.readline()\ntry: board.reset()\nexcept Exception as e: print(e)", through="broker")
    assert client.stdout.readline() == "locked\n"
    assert made.command("broker", "--evict", made.boards.uuid).returncode == 0
    out, _ = client.communicate("\n", timeout=60)
    assert "it was evicted" in out and "root deletes the socket" not in out


def leases(made):
    """Their names, by the command that shows them."""
    return [line.rpartition(", lease ")[2] for line in made.command("broker", "--list").stdout.splitlines()]


@pytest.mark.parametrize("when", ["before it is asked for", "before the device is shown"])
def test_an_eviction_never_takes_the_next_holder_instead(brokered, when):
    made = brokered()
    lock = {"do": "lock", "domain": "core", "mhz": [345, 900]}
    with connected(made) as first, connected(made) as second, connected(made) as root:
        assert taking(first, made) == {}
        (lease,) = leases(made)
        evict = {"do": "evict", "uuid": made.boards.uuid, "lease": lease}
        if when == "before the device is shown":
            node = said(root, evict)["node"]
        first.close()
        assert made.comes_to(lambda: taking(second, made) == {}, 20)
        assert said(second, lock) == {} and leases(made) != [lease]
        if when == "before the device is shown":
            opened = os.open(os.path.join(made.more["KERNEL_DVFS_DEVICES_DIR"], node), os.O_RDWR)
            answer = said(root, {"do": "prove"}, opened)
            os.close(opened)
            assert answer["error"].startswith(f"that lease is over; process {os.getpid()} of")
        done = made.command("broker", "--evict", made.boards.uuid, "--lease", lease)
        assert done.returncode == 2 and "that lease is over" in done.stderr and len(done.stderr.splitlines()) == 1
        assert said(second, lock) == {} and made.boards.locks == ("345-900", "none")
        done = made.command("broker", "--evict", made.boards.uuid, "--lease", leases(made)[0])
        assert done.returncode == 0 and made.boards.locks == ("none", "none")


def test_a_client_that_asks_without_a_pause_is_evicted_all_the_same(brokered):
    made = brokered()
    lock = {"do": "lock", "domain": "core", "mhz": [345, 900]}
    with connected(made) as flooding:
        assert taking(flooding, made) == {} and said(flooding, lock) == {}
        code = 'import os, sys\nwhile True: os.write(3, b\'{"do": "check"} \\n\' * 256)'
        os.set_inheritable(flooding.fileno(), True)
        words = ["sh", "-c", f'exec "$0" -c "$1" 3<&{flooding.fileno()}', sys.executable, code]
        child = subprocess.Popen(words, pass_fds=[flooding.fileno()], stderr=subprocess.DEVNULL)
        try:
            done = made.command("broker", "--evict", made.boards.uuid)
            assert done.returncode == 0, done.stderr
            assert made.comes_to(lambda: made.boards.locks == ("none", "none"), 20)
        finally:
            child.kill()
            child.wait()


def test_who_is_told_that_a_gpu_is_held_is_told_by_which_lease(brokered, monkeypatch):
    """So a reset that takes the GPU from a job that is over takes it from nobody else."""
    from kernel_dvfs_clocks.nvml.lease import Held
    from kernel_dvfs_clocks.setters.broker import Connection, evict

    made = brokered()
    for name, value in made.more.items():
        monkeypatch.setenv(name, value)
    with connected(made) as first, connected(made) as second:
        assert taking(first, made) == {}
        with pytest.raises(Held) as held:
            Connection(made.boards.uuid).take()
        assert [held.value.lease] == leases(made)
        first.close()
        assert made.comes_to(lambda: taking(second, made) == {}, 20)
        with pytest.raises(NvmlError, match="that lease is over"):
            evict(made.boards.uuid, held.value.lease)
        assert said(second, {"do": "reset", "domain": "core"}) == {}


def test_a_lease_of_its_own_that_is_damaged_is_shown_and_does_not_end_it(brokered):
    made = brokered()
    assert made.comes_to(lambda: "listens at" in log(made)), "it has restored by now what it found"
    with open(os.path.join(made.more["KERNEL_DVFS_BROKER_DIR"], made.lease.name), "w") as file:
        file.write("{")
    done = made.command("broker", "--list")
    assert done.returncode == 0 and done.stdout.endswith(": free; left: unknown clocks\n"), done.stderr
    assert asked(made) == [{"left": "a run whose lease cannot be read"}], "and the next client has it swept"


def test_a_client_has_a_gpu_for_only_so_long(brokered):
    made = brokered("--hours", "0.001")  # 3.6 s
    first = script(made, "sys.stdin.readline()", through="broker")
    assert first.stdout.readline() == "locked\n"
    assert made.comes_to(lambda: made.boards.locks == ("none", "none"), 60)
    assert made.comes_to(lambda: "after 0.001 h" in log(made), 10)
    first.kill()
    first.communicate(timeout=60)


def test_each_clock_that_it_sets_has_its_line_in_the_log(brokered):
    made = brokered()
    requests = ({"do": "lock", "domain": "core", "mhz": [345, 1200]}, {"do": "reset", "domain": "core"})
    asked(made, *requests, {"do": "lock", "domain": "mem", "mhz": [2201, 3201]})
    assert freed(made)
    who = f"for process {os.getpid()} of {pwd.getpwuid(os.getuid()).pw_name}"
    text = log(made)
    for line in (f"core locked to 345-1200 MHz {who}", f"core freed {who}", f"mem locked to 2201-3201 MHz {who}"):
        assert f"GPU {made.boards.uuid}: {line}" in text


def test_what_it_refuses_again_and_again_does_not_drown_what_it_did(brokered):
    """A log of systemd's that is written to too fast drops lines, and a full one drops its oldest."""
    made = brokered()
    lock = {"do": "lock", "domain": "core", "mhz": [345, 900]}
    answers = asked(made, *20 * [{"do": "limit", "domain": "power", "mw": 1}], lock)
    assert [each["code"] for each in answers[1:-1]] == 20 * [2] and answers[-1] == {}
    assert freed(made)
    text = log(made)
    assert text.count("limit power for process") == 1 and text.count("core locked to 345-900 MHz") == 1


def test_who_cannot_show_the_device_of_a_gpu_does_not_get_it(brokered, tmp_path):
    made = brokered(profiles="h200,h200")
    nodes = made.more["KERNEL_DVFS_DEVICES_DIR"]
    for shown, (path, flags) in {
        "a file": (tmp_path / "nvidia7", os.O_RDWR | os.O_CREAT),
        "another board's": (f"{nodes}/nvidia6", os.O_RDWR),
        "only found": (f"{nodes}/nvidia7", os.O_PATH),
        "for reading": (f"{nodes}/nvidia7", os.O_RDONLY),
        "nothing": (tmp_path, os.O_RDONLY),
    }.items():
        opened = os.open(path, flags)
        with connected(made) as client:
            if shown == "nothing":
                said(client, {"do": "take", "uuid": made.boards.uuid, "mode": "lock", "own": False})
                answer = said(client, {"do": "prove"})
            else:
                answer = taking(client, made, shows=opened)
        os.close(opened)
        assert "no open descriptor of this GPU's device node" in answer["error"] and answer["code"] == 4, shown
        assert made.boards.get("sets") == "0", shown
    assert asked(made) == [{}], "who can, does"


def test_a_run_that_cannot_open_its_gpu_s_device_is_told_so(brokered, tmp_path):
    made = brokered()
    run = script(made, "", through="broker", KERNEL_DVFS_DEVICES_DIR=str(tmp_path))
    _, errors = run.communicate(timeout=60)
    assert run.returncode and f"{tmp_path}/nvidia7: No such file" in errors and made.boards.get("sets") == "0"


def test_a_lease_that_users_can_write_keeps_nobody_from_the_broker(brokered, as_nobody):
    """However it lies there, locked by a stranger too: the broker never opens it."""
    made = brokered()
    made.lease.write_text("{")
    made.lease.chmod(0o666)
    made.locks.chmod(0o1777)
    code = "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
    code += "print('held', flush=True)\nsys.stdin.read()"
    words = [*as_nobody, sys.executable, "-c", code, str(made.lease)]
    squatter = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert squatter.stdout.readline() == "held\n"
        first = script(made, "os.kill(os.getpid(), signal.SIGKILL)", through="broker")
        assert first.stdout.readline() == "locked\n"
        first.communicate(timeout=60)
        assert freed(made) and made.comes_to(lambda: asked(made) == [{}], 20)
    finally:
        squatter.kill()
        squatter.communicate(timeout=30)


def test_no_user_can_lock_or_write_what_says_which_clocks_are_to_be_restored(brokered, as_nobody):
    """Else he would keep the broker from clocks that it finds when it is started again."""
    made = brokered()
    client = script(made, "sys.stdin.readline()", through="broker")
    assert client.stdout.readline() == "locked\n"
    at = f"{made.more['KERNEL_DVFS_BROKER_DIR']}/kernel-dvfs-{made.boards.uuid}.json"
    assert stat.S_IMODE(os.stat(at).st_mode) == 0o600
    as_nobody = [word.replace("+dac_read_search", "-dac_read_search") for word in as_nobody]
    for mode in ("<", ">>"):
        tried = subprocess.run([*as_nobody, "sh", "-c", f": {mode} {at}"], capture_output=True, text=True, timeout=60)
        assert tried.returncode and "ermission denied" in tried.stderr
    client.communicate("\n", timeout=60)
    assert freed(made)


def test_a_measurement_at_auto_alone_has_its_lease_at_the_broker_too(brokered):
    made = brokered()
    code = f"from kernel_dvfs_clocks.guard import Guard\nguard = Guard({made.boards.uuid!r}, mode='auto-only')\n"
    code += "with guard: print('has it', flush=True); input()"
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        env=made.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout.readline() == "has it\n"
    assert asked(made)[0]["held"] and not made.lease.exists()
    run.communicate("\n", timeout=60)
    assert made.comes_to(lambda: ": free" in made.command("broker", "--list").stdout, 20)
    assert made.boards.get("sets") == "0"


def test_nobody_keeps_it_out_by_a_name_that_anyone_can_take(brokered):
    """Names of sockets that lie in no folder belong to whoever comes first."""
    made = brokered()
    folder = made.more["KERNEL_DVFS_BROKER_DIR"]
    about = os.stat(folder)
    place = hashlib.blake2b(f"{about.st_dev}|{about.st_ino}".encode(), digest_size=6).hexdigest()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as squatter:
        squatter.bind(f"\0{place}-kernel-dvfs-{made.boards.uuid}.json")
        assert asked(made) == [{}]


@pytest.mark.parametrize("whose", ["a module", "a folder of compiled modules", "a library", "nobody's"])
def test_it_runs_no_code_that_others_can_change(fake_library, tmp_path, whose):
    """Looked at once it is imported and loaded, wherever that came from."""
    from kernel_dvfs_clocks import package
    from kernel_dvfs_clocks.trust import is_roots_own

    if os.getuid() != 0 or not is_roots_own(package.FOLDER) or not is_roots_own(sys.executable):
        pytest.skip("needs root, and this copy to be root's")
    module, library = tmp_path / "sitewide.py", tmp_path / "libforeign.so.1"
    module.write_text("")
    shutil.copy(fake_library, library)
    code = "import ctypes, sys\nsys.path.append(sys.argv[1])\nimport sitewide\n"
    code += "ctypes.CDLL(sys.argv[1] + '/libforeign.so.1')\n"
    code += "from kernel_dvfs_clocks.broker_unit import check_loaded\ncheck_loaded()"

    def checked():
        words = [sys.executable, "-P", "-c", code, str(tmp_path)]
        environment = os.environ | {"PYTHONPATH": package.FOLDER}
        return subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment)

    done = checked()  # which makes the folder of compiled modules, too
    assert done.returncode == 0, done.stderr
    wrong = {"a module": module, "a library": library, "a folder of compiled modules": tmp_path / "__pycache__"}.get(
        whose
    )
    if whose == "a folder of compiled modules":
        shutil.rmtree(wrong)
        wrong.mkdir()
        wrong.chmod(0o777)
    elif wrong:
        os.chown(wrong, NOBODY, -1)
    done = checked()
    assert bool(done.returncode) == bool(wrong)
    assert not wrong or (f"{wrong}" in done.stderr and "others than root can change it" in done.stderr)
