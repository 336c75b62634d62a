"""What a measuring process does with its GPU and its clients: a session and a server of made-up parts."""

import json
import os
import socket
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from kernel_dvfs.measurement.real import allocation, client
from kernel_dvfs.measurement.real import server as serving
from kernel_dvfs.measurement.real import session as sessions
from kernel_dvfs.measurement.real.gpu import Unwanted
from kernel_dvfs.measurement.real.server import MeasuringServer
from kernel_dvfs.measurement.real.session import Session
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import loads as step_loads

MEASUREMENT = {"clocks": "external", "share": False, "window_s": 2.5, "windows": 4}
MEASUREMENT |= {"max_windows": 9, "energy_ci_percent": 1.0, "after": {}}
SETUP = Setup("d" * 12, {"uuid": "GPU-1", "clocks": {}}, {"name": "w"}, {}, MEASUREMENT)
TARGET, PAIR = MeasurementTarget("kernel", "k"), Pair(1500, 2619)


def session_of(**more):
    made = Session.__new__(Session)
    made._setup, made._say, made._is_wanted, made._passed = SETUP, print, lambda: True, None
    made._points, made._moves, made._gpu, made._id = 0, 0, None, "boot-1-2"
    made._guard = SimpleNamespace(check_held=lambda: None)
    vars(made).update(more)
    return made


@pytest.mark.parametrize(("job", "is_known"), [("4711", True), ("--me", False), ("4711 4712", False), ("", False)])
def test_what_ends_a_job_is_its_number_and_no_option(tmp_path, monkeypatch, job, is_known):
    """The file may have come with the folder, and scancel --me would end all of a user's jobs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / ".snakemake/kernel-dvfs-GPU-1.job.json").write_text(json.dumps({"job": job, "clocks": ""}))
    asked = []
    monkeypatch.setattr(allocation.slurm, "settled", lambda job, every_s: asked.append(job) or "COMPLETED")
    assert allocation.ask(SETUP, "setup.json", [{"do": "stop"}], PAIR) == [] and asked == [job] * is_known


def test_a_link_of_another_user_s_leads_no_request_to_another_program_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_DVFS_LOCK_DIR", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        link = client.socket_path("GPU-1")
        os.symlink(tmp_path / "agent", link)
        monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path / "agent").st_uid)
        if os.geteuid() != 0:
            pytest.skip("a link of another user's needs root")
        os.chown(link, 65534, -1, follow_symlinks=False)
        with pytest.raises(InputError, match="is another user's"):
            client.ask("GPU-1", {"do": "move"})


@pytest.mark.parametrize(("counts", "own"), [((3, 5), 2), ((0, 1), 1), ((None, 1), None)])
def test_opening_a_session_counts_its_own_processes_and_sets_nothing(monkeypatch, counts, own):
    told, counts = [], iter(counts)
    board = SimpleNamespace(compute_processes=lambda: next(counts))
    setup = SETUP._replace(measurement=MEASUREMENT | {"clocks": "lock"})
    made = session_of(_guard=SimpleNamespace(board=board, nvml=None), _setup=setup)
    for name in ("check_board", "check_counter", "check_permission"):
        monkeypatch.setattr(sessions.preflight, name, lambda *words, name=name: told.append(name))
    loads = SimpleNamespace(now_s=None, sleep=None)
    monkeypatch.setattr(sessions.kernels, "open_loads", lambda *words: loads)
    monkeypatch.setattr(sessions, "RealGpu", lambda *words: SimpleNamespace(own=words[5]))
    made._open()
    assert made.gpu.own == own and told == ["check_board", "check_counter"], "no right is needed before a clock is set"


def test_a_comparison_is_of_single_windows_auto_chosen_chosen_auto(monkeypatch):
    asked = []

    def point(self, setup, target, pair, campaign, number):
        asked.append((setup.measurement["windows"], setup.measurement["max_windows"], pair, campaign, number))
        return {"summary": {"time_us": 10.0 + number}, "windows": [{}]}, {}, {}

    monkeypatch.setattr(Session, "_alone", point)
    found = session_of().compare(SETUP, TARGET, PAIR, 7)
    assert asked == [(1, 1, each, "fresh-7", n) for n, each in enumerate((BASELINE, PAIR, PAIR, BASELINE))]
    assert found == {
        "target": "k",
        "repeat": 7,
        "session": "boot-1-2",
        "points": [{"summary": {"time_us": 10.0 + number}} for number in range(4)],
    }
    assert MEASUREMENT["windows"] == 4


@pytest.mark.parametrize("clocks", ["external", "auto-only"])
@pytest.mark.parametrize(
    ("verdicts", "reasons"),
    [
        (["ok"], []),
        (["disturbed", "ok"], ["measured twice: the first time was disturbed as well"]),
        (["disturbed", "disturbed"], ["measured twice: the first time was disturbed as well"]),
        (["throttled"], []),
    ],
)
def test_a_disturbed_point_is_measured_once_more(monkeypatch, verdicts, reasons, clocks):
    gpu = SimpleNamespace(settings_made=5, account=SimpleNamespace(take=lambda: {"other": 0.5}))
    gpu.device, gpu.probe = lambda: {"counter_period_ms": 100.0}, None
    made, left, checked = session_of(_gpu=gpu, _points=2, _passed="passes"), list(verdicts), []
    monkeypatch.setattr(sessions.preflight, "check_window", lambda *words: checked.append(words))
    load = SimpleNamespace(about={"instance": "i"})
    name = "_measure" if clocks == "auto-only" else "_in_passes"
    monkeypatch.setattr(made, name, lambda *words: ({"verdict": left.pop(0), "reasons": []}, load))
    setup = SETUP._replace(measurement=MEASUREMENT | {"clocks": clocks})
    point, run, kernel = made.point(setup, TARGET, PAIR, "sweep", 3)
    assert not left and (point["verdict"], point["reasons"]) == (verdicts[-1], reasons)
    assert (run["order"], run["block"], run["config_sha256"], kernel) == (3, 5, "d" * 12, {"instance": "i"})
    assert checked == [("GPU-1", pytest.approx(0.1), 2.5, 20)] * (clocks == "auto-only")
    assert made._passed == (None if len(verdicts) > 1 else "passes"), "disturbed passes are made again"


@pytest.mark.parametrize(("pair", "looked"), [(BASELINE, 1), (PAIR, 0)])
def test_clocks_at_auto_are_looked_at(monkeypatch, pair, looked):
    done = []
    load = SimpleNamespace(check=lambda: done.append("check"))
    gpu = SimpleNamespace(prepare=lambda *words: load, check_free=lambda windows: done.append(windows))
    gpu.look_for_locks = lambda: "its clock stays"
    made = session_of(_gpu=gpu)
    monkeypatch.setattr(sessions, "measure", lambda *words: {"windows": ["w"], "verdict": "ok", "reasons": ["hot"]})
    point, _ = made._measure(SETUP, TARGET, pair, None)
    assert done == [["w"]] * looked + ["check"]
    judged = ("not_free", ["its clock stays", "hot"]) if looked else ("ok", ["hot"])
    assert (point["verdict"], point["reasons"]) == judged


# --- the server -------------------------------------------------------------------------------------------------------


def server_of(**more):
    made = MeasuringServer.__new__(MeasuringServer)
    made._client, made._looked_s, made._name, made._notices = None, 0.0, "", []
    made._inherited, made._has_successor, made._ready = None, False, None
    vars(made).update(more)
    return made


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"do": "point"}', '{"do": "reset"}', '{"do": ["stop"]}'])
def test_a_request_that_is_none_is_answered_and_ends_nothing(text):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(text.encode() + b"\n")
        assert server_of(_client=ours)._read() is None
        (said,) = json.loads(theirs.recv(1 << 16))["errors"]
    assert "was asked what it does not understand" in said


@pytest.fixture
def ends():
    """(the server's end of a connection, the client's)."""
    pair = socket.socketpair()
    yield pair
    for each in pair:
        each.close()


@pytest.mark.parametrize(
    ("request_", "known", "inherits", "goes_on", "successor", "name"),
    [
        ({"do": "stop"}, "", True, False, False, ""),
        ({"do": "renew"}, "", True, False, True, ""),
        ({"do": "renew"}, "", False, False, False, ""),
        ({"do": "point", "setup": "another"}, "", True, False, False, ""),
        # the first name is the session's; with another one, another process goes on
        ({"do": "point", "setup": "own"}, "", True, True, False, ""),
        ({"do": "point", "setup": "own", "session": "a"}, "", True, True, False, "a"),
        ({"do": "point", "setup": "own", "session": "a"}, "a", True, True, False, "a"),
        ({"do": "point", "setup": "own"}, "a", True, True, False, "a"),
        ({"do": "point", "setup": "own", "session": "b"}, "a", True, False, True, "a"),
        ({"do": "point", "setup": "own", "session": "b"}, "a", False, False, False, "a"),
        ({"do": "point", "setup": "own", "gone": True}, "a", True, True, False, "a"),
    ],
)
def test_a_request_is_answered_by_the_session_it_belongs_to(
    monkeypatch, ends, request_, known, inherits, goes_on, successor, name
):
    def measured(session, setup, request):
        if request.get("gone"):
            raise Unwanted("gone")
        return {"point": 7}

    monkeypatch.setattr(serving, "read", lambda path: path)
    monkeypatch.setattr(serving, "identity", lambda setup: f"identity of {setup}")
    monkeypatch.setattr(serving, "_measured", measured)
    own, client = ends
    made = server_of(_client=own, _name=known, _inherited=object() if inherits else None, _notices=["heated"])
    whole = {"target": "kernel/k", "clocks": "auto,auto", "repeat": 0, "campaign": "sweep"} | request_
    client.sendall(json.dumps(whole).encode() + b"\n")
    assert made._answer(SimpleNamespace(identity="identity of own")) is goes_on
    assert (made._has_successor, made._name) == (successor, name)
    if goes_on and "gone" not in request_:
        assert json.loads(client.recv(999)) == {"notices": ["heated"], "point": 7} and made._notices == []
    if goes_on:
        assert client.recv(9) == b"" and made._client is None, "the connection is closed"


def test_a_session_that_begins_in_a_warm_process_only_moves_what_it_prepares(ends):
    own, other = ends
    made, moved = server_of(_client=own, _name="a"), []
    other.sendall(b'{"do": "move"}\n')
    assert made._answer(SimpleNamespace(move=lambda: moved.append(1))) is True
    assert moved == [1] and json.loads(other.recv(999)) == {"notices": []} and not made._has_successor


@pytest.mark.parametrize(
    ("slurm_gpu", "does"), [("", client.move), ("--gpus=1", client.move), ("--gpus=1", client.renew)]
)
@pytest.mark.parametrize("answer", [None, {"notices": ["heated"]}, {"errors": ["clock stuck", "twice"]}])
def test_who_begins_a_session_tells_what_the_measuring_process_has_to_tell(
    monkeypatch, capsys, answer, slurm_gpu, does
):
    asked = []
    monkeypatch.setattr(client, "read", lambda path: SETUP)
    monkeypatch.setattr(client, "slurm_gpu", lambda: slurm_gpu)
    monkeypatch.setattr(client, "ask", lambda uuid, request: asked.append((uuid, request["do"])) or answer)
    monkeypatch.setattr(allocation, "tell", lambda path, what: asked.append((path, what)) or answer)
    with pytest.raises(InputError, match="clock stuck; twice") if answer and "errors" in answer else nullcontext():
        does("s.json")
    assert asked == [("s.json" if slurm_gpu else SETUP.gpu["uuid"], does.__name__)]
    assert capsys.readouterr().err == ("heated\n" if answer and "notices" in answer else "")


def test_a_session_has_another_name_where_its_tensors_lie_elsewhere():
    moves = [False, True, True]
    made = session_of(_id="boot-7", _gpu=SimpleNamespace(move=lambda: moves.pop(0)))
    names = []
    while moves:
        made.move()
        names.append(made._name)
    assert names == ["boot-7", "boot-7.1", "boot-7.2"], "a captured step stays where it is"


def test_a_client_that_leaves_before_it_has_asked_is_no_request(ends):
    own, client = ends
    client.sendall(b'{"do": "st')
    client.close()
    made = server_of(_client=own)
    assert made._answer(None) is True and made._client is None


def test_a_client_is_looked_at_now_and_then_and_one_that_has_gone_wants_nothing(monkeypatch, ends):
    own, client = ends
    now = [100.0]
    monkeypatch.setattr(serving.time, "monotonic", lambda: now[0])
    made = server_of(_client=own)
    assert server_of()._is_wanted() is made._is_wanted() is True and made._looked_s == 100.0
    client.close()
    for at_s, wanted in ((100.09, True), (100.11, False)):
        now[0] = at_s
        assert made._is_wanted() is wanted
    own.close()
    now[0] = 101.0
    assert made._is_wanted() is False, "a connection that has broken"


def test_what_is_said_reaches_who_waits_or_the_next_one(ends):
    own, client = ends
    made = server_of(_client=own)
    made._say("hot")
    assert json.loads(client.recv(99)) == {"say": "hot"} and made._notices == []
    made._client = None
    made._say("cold")
    assert made._notices == ["cold"]


def test_a_process_listens_for_its_user_alone_or_where_the_one_before_it_did(tmp_path):
    path = tmp_path / "kernel-dvfs.sock"
    path.write_text("left by a killed one")
    made = server_of(_path=str(path))
    with made._listen() as listener:
        assert path.is_socket() and path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        assert server_of(_path="elsewhere", _inherited=listener)._listen() is listener
    with socket.socket(socket.AF_UNIX) as unbound:
        again = server_of(_path=str(path), _inherited=unbound)._listen()
        assert again is unbound and unbound.getsockname() == str(path)


@pytest.mark.parametrize("successor", [False, True])
def test_a_process_that_nobody_asks_rests_once_and_ends_ten_seconds_after_the_last_request(
    monkeypatch, tmp_path, successor
):
    """It looks each 3 s; asked at 56 s, it goes on for longer, and rests once more."""
    now, path = [50.0], tmp_path / "s.sock"
    monkeypatch.setattr(serving.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(serving, "REST_AFTER_S", 3.0)
    for asked_s, rests_s, ends_s in ((None, [53.0], 62.0), (56.0, [53.0, 59.0], 68.0)):
        path.touch()
        now[0], rests, answered = 50.0, [], []

        def select(readable, write, wrong, wait_s, asked_s=asked_s):
            now[0] += wait_s
            return (readable if now[0] == asked_s else []), [], []

        monkeypatch.setattr(serving.select, "select", select)
        made = server_of(_end_after_s=10.0, _path=str(path), _has_successor=successor)
        monkeypatch.setattr(made, "_answer", lambda session, answered=answered: answered.append(now[0]) or True)
        listener = SimpleNamespace(accept=lambda: (None, None))
        made._answer_all(SimpleNamespace(rest=lambda rests=rests: rests.append(now[0])), listener)
        assert (now[0], rests, answered) == (ends_s, rests_s, [asked_s] if asked_s else [])
        assert path.exists() is successor


@pytest.mark.parametrize("what", ["renew", "move"])
@pytest.mark.parametrize(
    ("known", "state", "answer", "asked"),
    [
        ({"job": "7"}, "RUNNING", {}, 1),
        ({"job": "7"}, "RUNNING", {"errors": ["clock stuck", "twice"]}, 1),
        ({"job": "7"}, "RUNNING", None, 1),
        ({"job": "7"}, "PENDING", {"errors": ["x"]}, 0),
        (None, "RUNNING", {"errors": ["x"]}, 0),
    ],
)
def test_a_new_session_within_a_job_is_told_to_the_process_that_runs_there(
    monkeypatch, known, state, answer, asked, what
):
    """None: the process could not be asked."""
    told = []

    def tell(job, path, requests):
        told.append((job, path, requests))
        if answer is None:
            raise allocation._Unanswered(requests[0])
        return [answer]

    monkeypatch.setattr(allocation, "read", lambda path: SETUP)
    monkeypatch.setattr(allocation, "_known", lambda uuid: known)
    monkeypatch.setattr(allocation.slurm, "status", lambda job: {"JobState": state})
    monkeypatch.setattr(allocation, "_answers", tell)
    assert allocation.tell("s.json", what) == (answer if asked else None)
    assert told == [("7", "s.json", [{"do": what}])] * asked


@pytest.mark.parametrize(("share", "rest_ns"), [(0.2, 103_000), (0.0, 0)])
def test_a_paced_kernel_rests_for_its_share_of_the_time_and_no_try_may_take_too_long(monkeypatch, share, rest_ns):
    """412 us of work: at a share of a quarter 549.3 us a round, of a fifth 515 us."""
    armed, tried, put_back = [], [], []
    load = step_loads.StepLoad.__new__(step_loads.StepLoad)
    load._part = step_loads._Part([3, 4], 2, 5, mains=(1,), paced_mhz=1500.0)
    load._living, load._name, load.meet_s = None, "kernel/k", 7.5
    load._dog = SimpleNamespace(arm=lambda seconds, name: armed.append(seconds))
    monkeypatch.setattr(step_loads.StepLoad, "put_back", lambda self: put_back.append(1))
    monkeypatch.setattr(step_loads.pace, "alone_mhz", lambda *words: tried.append(words[1:]) or 1234.0)
    monkeypatch.setattr(step_loads.pace, "rest_share", lambda wanted, mhz: (share, mhz(0.25)))
    part = load._paced(412.0, 1500.0)
    assert (part.rest_ns, part.less is not None) == (rest_ns, rest_ns > 0)
    if part.less:
        assert part.less == step_loads._Part([], 2, 5, restores=False, rest_ns=rest_ns)
    # a graph of about 4 ms: seven rounds
    assert tried == [([3, 4], (1,), 7, 137_333)] and put_back == [1]
    longest_s = 7.5 + step_loads._TRY_S + step_loads._TRY_ROUNDS * 1e-6 * 412 / 0.75
    assert armed == [pytest.approx(longest_s), 7.5]
