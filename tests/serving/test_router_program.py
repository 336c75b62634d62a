"""The router as a program, before stand-in servers: who gets a request, with which priority; streams come through
whole; a server that is lost takes nothing with it that it had not begun to answer."""

import asyncio
import json

import pytest
from synthetic_profile import LineEngine

from kernel_dvfs.errors import InputError
from kernel_dvfs_serving.packing import SAFETY
from kernel_dvfs_serving.proxy import Proxy

KV_TOKENS = 40_000


class StandIn:
    """A server of the OpenAI form: streams an answer piece by piece, each when it is let."""

    def __init__(self, pieces=3):
        self.seen, self.pieces, self.gate = [], pieces, asyncio.Event()

    async def start(self):
        self.server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")
        )
        self.seen.append((head.split(" ")[1], json.loads(await reader.readexactly(length) or b"{}")))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        await writer.drain()
        await self.gate.wait()
        for place in range(self.pieces):
            writer.write(f"data: {place}\n\n".encode())
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()


async def ask(port, words, path="/v1/completions", **more):
    body = json.dumps({"prompt": "x" * (4 * words)} | more).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def run(scenario):
    """A scenario with two servers and the proxy before them."""

    async def whole():
        servers = [StandIn(), StandIn()]
        urls = [await each.start() for each in servers]
        proxy = Proxy(urls, LineEngine(4, "1400"), KV_TOKENS, answer_tokens=120.0)
        port = await proxy.start()
        try:
            await scenario(proxy, port, servers)
        finally:
            proxy.stop()
            for each in servers:
                each.server.close()

    asyncio.run(asyncio.wait_for(whole(), 60))


async def until(true):
    while not true():
        await asyncio.sleep(0.001)


def test_light_requests_fill_one_replica_and_streams_come_through_whole():
    async def scenario(proxy, port, servers):
        asked = [asyncio.create_task(ask(port, 60)) for _ in range(3)]
        await until(lambda: sum(len(each.seen) for each in servers) == 3)
        # three short prompts are in time on one replica; the least loaded would have got every other one
        assert sorted(len(each.seen) for each in servers) == [0, 3]
        for each in servers:
            each.gate.set()
        answers = await asyncio.gather(*asked)
        assert all(each.endswith("data: 0\n\ndata: 1\n\ndata: 2\n\n") and "200 OK" in each for each in answers)
        assert all(not each.held and not each.unread for each in proxy.replicas)

    run(scenario)


def test_a_prompt_that_would_be_late_goes_to_the_other_replica():
    async def scenario(proxy, port, servers):
        first = proxy.replicas[0]
        first.held[-1] = 7_000.0
        first.unread[-1] = 5_000
        assert proxy.first_s(first, 200) > SAFETY * proxy.promised_s(200)
        assert proxy.pick(200, 120, proxy.promised_s(200)) is proxy.replicas[1]
        # a long prompt has 2 s, and fills the first
        assert proxy.pick(1100, 120, proxy.promised_s(1100)) is first
        # what is nearly full is as late as a wait for others to end
        first.unread.clear()
        first.held[-1] = 0.9 * KV_TOKENS
        assert proxy.pick(1100, 120, 2.0) is proxy.replicas[1]

    run(scenario)


def test_deadlines_are_priorities_the_earlier_the_lower():
    async def scenario(proxy, port, servers):
        for each in servers:
            each.gate.set()
        await ask(port, 3000)
        await ask(port, 100, path="/v1/chat/completions", stream=True)
        (_, long), (path, short) = [each for server in servers for each in server.seen]
        # asked later, due earlier: 0.25 s against 2 s
        assert short["priority"] < long["priority"] < short["priority"] + 2000
        assert path == "/v1/chat/completions" and short["stream"] is True and long["prompt"] == "x" * 12_000

    run(scenario)


def test_a_lost_replica_takes_no_request_with_it():
    async def scenario(proxy, port, servers):
        servers[0].server.close()
        servers[1].gate.set()
        answers = [await ask(port, 200) for _ in range(4)]
        assert all("200 OK" in each for each in answers) and len(servers[1].seen) == 4
        assert proxy.replicas[0].away_until_s > 0
        servers[1].server.close()
        assert "503" in await ask(port, 200)

    run(scenario)


@pytest.mark.parametrize("url", ["10.0.0.7", "http://a", "https://a:1", "http://a:port", "http://a:1/v1"])
def test_what_is_no_address_is_one_line(url):
    with pytest.raises(InputError, match=r"expected such as http://10\.0\.0\.7:8000"):
        Proxy([url], LineEngine(4, "1400"), KV_TOKENS, 100.0)


def test_what_is_no_request_is_answered():
    async def scenario(proxy, port, servers):
        for text, said in (
            (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 3\r\n\r\n{a}", "400"),
            (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 50000\r\n\r\n" + b"[" * 50000, "400"),
            (b"POST /v1/completions HTTP/1.1\r\ncontent-length: many\r\n\r\n", "411"),
            (b"POST /v1/completions HTTP/1.1\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n", "411"),
            (b"POST /v1/models HTTP/1.1\r\na: b\ntransfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n", "400"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            assert said in (await reader.read()).decode()
            writer.close()

    run(scenario)


@pytest.mark.parametrize("most", [-1, -(10**4000), True, 0, "7", None])
def test_no_request_makes_a_replica_look_emptier_than_it_is(most):
    """By an answer of fewer tokens than none, or of a number that no other can be added to."""

    async def scenario(proxy, port, servers):
        asked = asyncio.create_task(ask(port, 60, max_tokens=most))
        await until(lambda: any(each.seen for each in servers))
        held = [own for each in proxy.replicas for own in each.held.values()]
        assert held == [60 + 120.0] and proxy.pick(60, 120, 1.0)
        for each in servers:
            each.gate.set()
        assert "200 OK" in await asked

    run(scenario)
