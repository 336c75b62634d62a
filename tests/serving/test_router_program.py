"""The router that is printed with a plan, as it is installed: whom it gives requests, against the simulated rule, and
what it does about a replica that fails. Its replicas are stand-ins; skipped where vllm-router is not installed."""

import json
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kernel_dvfs_serving.deployment import router_line
from kernel_dvfs_serving.system import LEAST

ROUTER = shutil.which("vllm-router", path=str(Path(sys.executable).parent)) or shutil.which("vllm-router")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(ROUTER is None, reason="vllm-router is not installed here: pip install vllm-router"),
]

STAND_IN = """
import asyncio, json, sys

async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode()
            method, path, _ = head.split(" ", 2)
            fields = dict(line.lower().split(": ", 1) for line in head.split("\\r\\n")[1:] if line)
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            status, said = 200, {}
            if path == "/v1/completions":
                asked = json.loads(body)
                print(asked["user"], flush=True)
                if sys.argv[2] == "500":
                    status = 500
                else:
                    await asyncio.sleep(asked["max_tokens"] / 1000)
                said = {"id": "1", "object": "text_completion", "created": 1, "model": "m", "port": sys.argv[1]}
                said["choices"] = [{"text": "a", "index": 0, "finish_reason": "stop", "logprobs": None}]
                said["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            elif path == "/v1/models":
                said = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "m"}]}
            elif path != "/health":
                status = 404
            told = json.dumps(said).encode()
            kind = "content-type: application/json\\r\\n"
            kind = f"HTTP/1.1 {status} X\\r\\n{kind}content-length: {len(told)}\\r\\n\\r\\n"
            writer.write(kind.encode() + told)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(main())
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Routed:
    """Replicas, and the printed line in front of them."""

    def __init__(self, folder, modes):
        self.folder, self.started = folder, []
        (folder / "stand_in.py").write_text(STAND_IN)
        self.ports = [free_port() for _ in modes]
        for port, mode in zip(self.ports, modes):
            words = [sys.executable, str(folder / "stand_in.py"), str(port), mode]
            with (folder / f"{port}.log").open("w") as log:
                self.started.append(subprocess.Popen(words, stdout=log))
        self.port = free_port()
        line = router_line(LEAST, len(modes), self.port)
        for place, each in enumerate(self.ports):
            line = line.replace(f"http://REPLICA-{place + 1}:8000", f"http://127.0.0.1:{each}")
        words = [ROUTER, *shlex.split(line)[1:], "--prometheus-port", str(free_port())]
        self.started.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT))

    def wait(self, seen):
        """Until `seen()` is true."""
        for _ in range(1200):
            if seen():
                return
            assert all(each.poll() is None for each in self.started)
            time.sleep(0.1)
        pytest.fail("it does not come")

    def up(self):
        with suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1).status == 200
        return False

    def at(self, number):
        """The place of the replica that has the request; None: it has not come yet."""
        logs = [(self.folder / f"{port}.log").read_text().split() for port in self.ports]
        return next((place for place, own in enumerate(logs) if str(number) in own), None)

    def ask(self, number, milliseconds):
        """The place of the replica that answered."""
        body = {"model": "m", "prompt": f"request {number}", "max_tokens": milliseconds, "user": str(number)}
        url, head = f"http://127.0.0.1:{self.port}/v1/completions", {"content-type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), head)
        with suppress(OSError):  # one that is held until the end
            return self.ports.index(int(json.load(urllib.request.urlopen(request, timeout=300))["port"]))
        return None

    def end(self):
        for each in self.started:
            each.kill()
            each.wait()


@pytest.fixture
def routed(tmp_path):
    """`routed(["", "500"])` is a Routed that is up."""
    made = []

    def start(modes):
        made.append(Routed(tmp_path, modes))
        made[0].wait(made[0].up)
        return made[0]

    yield start
    for each in made:
        each.end()


FOR_EVER = 10_000_000  # ms


def test_the_printed_router_gives_each_request_to_a_replica_that_holds_the_fewest(routed):
    """As the simulated one: requests that stay go round; a short one goes where fewest are, and leaves no trace."""
    own = routed(["", "", ""])
    held = [0, 0, 0]
    with ThreadPoolExecutor(20) as pool:
        try:
            for number in range(11):
                if number % 3 == 2:
                    place = own.ask(100 + number, 1)
                    assert held[place] == min(held), held
                pool.submit(own.ask, number, FOR_EVER)
                own.wait(lambda number=number: own.at(number) is not None)
                place = own.at(number)
                assert held[place] == min(held), held
                held[place] += 1
        finally:
            own.end()
    assert sorted(held) == [3, 4, 4]


def test_a_replica_that_answers_500_loses_no_request(routed):
    own = routed(["", "500", ""])
    with ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(lambda number: own.ask(number, 30), range(40)))
    assert set(answered) <= {0, 2} and len(answered) == 40
