"""Repeats of a real GPU are spread over measuring processes, and the noise estimate holds what differs between them."""

import json
import math
import os
import socket
import threading

import pytest

from kernel_dvfs.layout import LOCKING_REPEATS, carried, locking, parts
from kernel_dvfs.measurement.real import server
from kernel_dvfs.measurement.request import PointRequest
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.plan.study import plan
from kernel_dvfs.profile.aggregate import columns
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.setters.setter import NotRestored


def test_each_name_has_a_measuring_process_of_its_own(lab):
    made = lab()
    done, first = made.measure(pair="auto,auto")
    assert done.returncode == 0, done.stderr
    setup = made.setup()

    def process(session):
        words = ("--gpu", setup, "--target", "forward_gelu", "--clocks", "auto,auto", "-o", "r.json")
        done = made.command("measure", *words, *(("--session", session) if session else ()))
        assert done.returncode == 0, done.stderr
        return json.loads((made.folder / "r.json").read_text())["run"]["run_id"]

    # the process that runs takes the first name that it is told
    assert process("sweep-0") == process("") == process("sweep-0") == first["run"]["run_id"]
    second = process("sweep-1")
    assert second != first["run"]["run_id"] and process("sweep-1") == process("") == second
    assert process("sweep-0") not in (second, first["run"]["run_id"]), "an ended session does not come back"


@pytest.mark.parametrize(("repeats", "sessions"), [(10, 5), (10, 3), (3, 5), (1, 5), (7, 7), (4, 1)])
def test_repeats_are_dealt_out_evenly_and_each_once(repeats, sessions):
    found = parts(repeats, sessions)
    assert len(found) == min(repeats, sessions)
    every = [each for first, last in found.values() for each in range(first, last + 1)]
    sizes = [last - first + 1 for first, last in found.values()]
    assert every == list(range(repeats)) and max(sizes) - min(sizes) <= 1
    assert ("" in found) == (len(found) == 1)
    assert len(set(carried("batch-20", "gelu", repeats, sessions))) == len(found)
    assert len(locking("core", "gelu", sessions)) == min(LOCKING_REPEATS, sessions)


def test_a_study_of_a_real_gpu_spreads_its_sweep_and_a_simulated_one_does_not(lab, config, tmp_path):
    made = lab()
    code = "import json\nfrom kernel_dvfs.plan.config import load\nfrom kernel_dvfs.plan.study import plan\n"
    code += "s = plan(load('config.yaml') | {'gpu': 'nvml'}, 'r')\n"
    code += "points = enumerate(s.points)\n"
    code += "print(json.dumps([[s.session_of(rank), pair[0] == pair[1] == 'auto'] for rank, (pair, _) in points]))"
    made.measure(pair="auto,auto", auto_repeats=10)  # writes the configuration
    found = json.loads(made.python(code).stdout)
    names = [name for name, _ in found]
    assert names == sorted(names) and set(names) == {f"sweep-{number}" for number in range(5)}
    assert {name for name, is_auto in found if is_auto} == set(names), "each has auto, which shows how they differ"
    simulated = plan(config(), str(tmp_path))
    assert simulated.sessions == 1 and simulated.session_of(0) == ""


def test_what_differs_between_processes_is_in_the_standard_error(setup_of):
    setup = setup_of()
    (name, *_) = setup.targets["kernel"]

    def point(time_us, session):
        summary = {"time_us": time_us, "time_sd_us": 0.1, "energy_mj": 1.0, "energy_sd_mj": 0.001, "n": 3}
        return {"summary": summary, "reached": {"core_mhz": 1, "mem_mhz": 1}, "verdict": "ok", "session": session}

    def error_us(sessions):
        # two windows a session, alike within it, 1 % apart between them
        times = [100 + 1.0 * (number % 2) for number in range(sessions) for _ in range(2)]
        points = [point(time + 0.01 * (each % 2), f"p{each // 2}") for each, time in enumerate(times)]
        request = PointRequest("kernel", name, "auto", "auto", tuple(range(len(points))))
        rows = columns(setup, [request], 10, lambda target: lambda pair, repeat: points[repeat])
        return 1e6 * rows["time_se_s"][0]

    # of one session nothing is known but its own scatter
    assert error_us(1) < 0.01
    assert error_us(4) == pytest.approx(math.sqrt(1 / 3) / 2, rel=0.05), "sd of the sessions over the root of four"


def test_the_setup_does_not_depend_on_how_repeats_are_spread(config, tmp_path):
    one, other = (plan(config(sessions=count), str(tmp_path)).setup for count in (1, 5))
    assert one.path == other.path and read(one.write()).digest == other.digest


def test_no_session_follows_one_that_could_not_give_its_clocks_back(tmp_path, monkeypatch):
    class Session:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            raise NotRestored("clocks of GPU-1 not restored", [InputError("core clock: denied")])

    monkeypatch.setattr(server, "Session", Session)
    monkeypatch.setattr(server, "read", lambda path: Setup("0" * 12, {"uuid": "GPU-1"}, {}, {}, {}))
    listener, renews, waits = (socket.socket(socket.AF_UNIX) for _ in range(3))
    with listener, renews, waits:
        listener.bind(str(tmp_path / "sock"))
        listener.listen(2)
        for client in (renews, waits):
            client.connect(str(tmp_path / "sock"))
            client.settimeout(30)
        renews.sendall(b'{"do": "renew"}\n')
        assert server.MeasuringServer("setup.json", None, listener=listener).serve() is False
        for client in (renews, waits):
            assert "core clock: denied" in json.loads(client.recv(1 << 16))["errors"][0]


def test_a_process_whose_client_goes_away_while_it_opens_ends(monkeypatch):
    """Opening a captured step takes a minute, in which the GPU would be held for nobody."""

    class Ended(Exception):
        """Instead of the end of this process."""

    def ends(code):
        raise Ended(code)

    monkeypatch.setattr(server.os, "_exit", ends)
    opening = server.MeasuringServer.__new__(server.MeasuringServer)
    opening._telling = threading.Lock()
    reads, opening._ready = os.pipe()
    watch = threading.Thread(target=opening._end_without_client)
    watch.start()
    opening._tell_ready("ok")
    watch.join()
    assert os.read(reads, 100) == b"ok\n" and opening._ready is None, "once it listens nobody watches"
    os.close(reads)
    reads, opening._ready = os.pipe()
    os.close(reads)
    with pytest.raises(Ended):
        opening._end_without_client()
