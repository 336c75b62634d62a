"""The packing router as a program: an HTTP proxy before replicas of an OpenAI-compatible server (vLLM, SGLang).

What it does is what the simulation's router does (packing.choose): a request goes to the fullest replica where its
first token is expected in time, else to the earliest, with its deadline as priority. What it cannot know it estimates:
a prompt's tokens from its characters, an answer's by the plan's mean (`max_tokens` bounds it), what a replica has read
from the first bytes of its answers. It sets no clocks. A replica that cannot be reached gets no requests for a while; a
request that it had not begun to answer goes to another.

It was tried on stand-in servers alone; no GPU ran behind it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from kernel_dvfs.errors import InputError
from kernel_dvfs_serving.instance import Engine
from kernel_dvfs_serving.packing import PAIR_TOKENS, choose
from kernel_dvfs_serving.requests import INPUT_BOUNDS, LETTERS, TTFT_SLO_S

CHARACTERS = 4.0  # of a token, in the mean
_AWAY_S = 10.0  # that a replica which cannot be reached gets no requests
_LONGEST_HEAD, _LONGEST_BODY = 65_536, 64 * 2**20
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PATHS = ("/v1/completions", "/v1/chat/completions")


@dataclass(eq=False)
class Replica:
    """What the proxy knows of one server."""

    host: str
    port: int
    unread: dict[int, int] = field(default_factory=dict)  # prompt tokens without a first byte, by request
    held: dict[int, float] = field(default_factory=dict)  # tokens expected of each request it holds
    away_until_s: float = 0.0
    answered: int = 0  # requests


class Gone(Exception):
    """A replica could not be reached, or closed before its answer began."""


class Proxy:
    """replicas: http://host:port each. engine: times of steps at the plan's clock; kv_tokens: of a replica.

    high_first: whether the servers take the higher priority first (SGLang where it is not told otherwise). now_s: a
    clock.
    """

    def __init__(
        self,
        replicas: Sequence[str],
        engine: Engine,
        kv_tokens: int,
        answer_tokens: float,
        slo_scale: float = 1.0,
        chunk_tokens: int = 512,
        high_first: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ):
        self.replicas = [_parsed(each) for each in replicas]
        self._engine, self._kv_tokens, self._chunk = engine, kv_tokens, chunk_tokens
        self._scale, self._sign, self._now_s = slo_scale, -1 if high_first else 1, now_s
        self._answer = answer_tokens
        self._numbers = 0
        self._server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; the port."""
        self._server = await asyncio.start_server(self._client, host, port, limit=_LONGEST_HEAD)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def run(self) -> None:
        """Until it is cancelled."""
        assert self._server is not None
        async with self._server:
            await self._server.serve_forever()

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    # -- the rule ------------------------------------------------------------------------------------------------------

    def promised_s(self, prompt_tokens: int) -> float:
        """Promised time to the first token, s, by the prompt's length."""
        place = sum(prompt_tokens >= bound for bound in INPUT_BOUNDS)
        return self._scale * TTFT_SLO_S[LETTERS[place]]

    def first_s(self, replica: Replica, prompt_tokens: int) -> float:
        """Estimated time until so many prompt tokens are read there behind what is unread, s."""
        decoding = len(replica.held) - len(replica.unread)
        context = max(0.0, sum(replica.held.values()) - sum(replica.unread.values()))
        tokens = sum(replica.unread.values()) + prompt_tokens
        steps = ceil(tokens / max(1, self._chunk - decoding))
        size = min(self._chunk, tokens + decoding)
        # the last step, those before it, and half of the one in progress
        found_s = self._engine.step(size, min(self._chunk, tokens) * PAIR_TOKENS, context)[0]
        whole_s = self._engine.step(self._chunk, self._chunk * PAIR_TOKENS, context)[0]
        return found_s + (steps - 1) * whole_s + (0.5 * whole_s if replica.held else 0.0)

    def pick(
        self, prompt_tokens: int, answer_tokens: float, left_s: float, but: Sequence[Replica] = ()
    ) -> Replica | None:
        """Where a request goes; None where no replica can be reached. but: not there."""
        now_s = self._now_s()
        able = [each for each in self.replicas if each not in but and each.away_until_s <= now_s]
        place = choose(
            left_s,
            prompt_tokens + answer_tokens,
            ((self.first_s(each, prompt_tokens), sum(each.held.values()), self._kv_tokens) for each in able),
        )
        return None if place is None else able[place]

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone, or said nothing that could be answered
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection: the answer ends with it."""
        arrival_s = self._now_s()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, path, *_ = [*first.split(" "), "", ""]
        length = fields.get("content-length", "0")
        if _CONTROL.search(head.replace("\r\n", "")):  # a server might take it for the end of a line
            await _refuse(writer, 400, "a control character in the head")
            return
        if not length.isdecimal() or len(length) > 9 or int(length) > _LONGEST_BODY or "transfer-encoding" in fields:
            await _refuse(writer, 411, "give the body's length, of at most 64 MiB")
            return
        body = await reader.readexactly(int(length))
        said: Any = None
        if path in _PATHS and method == "POST":
            with suppress(ValueError, RecursionError):
                said = json.loads(body)
            if not isinstance(said, dict):
                await _refuse(writer, 400, "the body is no JSON object")
                return
        prompt = ceil(_characters(said) / CHARACTERS) if said else 1
        answer = self._answer
        most = said.get("max_tokens", said.get("max_completion_tokens")) if said else None
        if type(most) is int and most > 0:  # else it is for the server to refuse
            answer = min(answer, most)
        deadline_s = arrival_s + self.promised_s(prompt)
        if said is not None:
            # ms: whole numbers in the order of the deadlines
            said["priority"] = self._sign * round(1000 * deadline_s)
            body = json.dumps(said).encode()
        tried: list[Replica] = []
        while (replica := self.pick(prompt, answer, deadline_s - self._now_s(), tried)) is not None:
            self._numbers += 1
            number = self._numbers
            replica.unread[number], replica.held[number] = prompt, prompt + answer
            try:
                await self._forward(replica, number, f"{method} {path} HTTP/1.1", fields, body, writer)
                replica.answered += 1
                return
            except Gone:
                replica.away_until_s = self._now_s() + _AWAY_S
                tried.append(replica)
            finally:
                replica.unread.pop(number, None)
                replica.held.pop(number, None)
        await _refuse(writer, 503, "no replica can be reached")

    async def _forward(
        self,
        replica: Replica,
        number: int,
        first: str,
        fields: dict[str, str],
        body: bytes,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Send a request on and its answer back, byte for byte. Raises Gone while nothing has been sent back."""
        own = {name: value for name, value in fields.items() if name not in ("host", "connection", "content-length")}
        own |= {"host": f"{replica.host}:{replica.port}", "connection": "close", "content-length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in own.items() if name)
        sink = None
        try:
            source, sink = await asyncio.open_connection(replica.host, replica.port)
            sink.write(f"{first}\r\n{head}\r\n".encode("latin-1") + body)
            await sink.drain()
            head_back = await source.readuntil(b"\r\n\r\n")
            piece = await source.read(65_536)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            if sink:
                sink.close()
            raise Gone from None
        # the head may come before the first token, which is in the first bytes of the body
        replica.unread.pop(number, None)
        try:
            writer.write(head_back)
            while piece:
                writer.write(piece)
                await writer.drain()
                piece = await source.read(65_536)
        finally:
            sink.close()


def _parsed(text: str) -> Replica:
    """A replica of its address. Raises InputError."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.scheme != "http" or parts.path not in ("", "/"):
        raise InputError(f"--replica {text}: expected such as http://10.0.0.7:8000")
    return Replica(host, port)


def _characters(said: dict[str, Any]) -> int:
    """Characters of a prompt or of messages; of a prompt of token numbers, as many as they stand for."""
    prompt = said.get("prompt", said.get("messages", ""))
    if isinstance(prompt, list) and prompt and all(isinstance(each, int) for each in prompt):
        return ceil(CHARACTERS * len(prompt))
    texts: list[Any] = [prompt]
    found = 0
    while texts:
        own = texts.pop()
        if isinstance(own, str):
            found += len(own)
        elif isinstance(own, list):
            texts += own
        elif isinstance(own, dict):
            texts += [own.get("content"), own.get("text")]
    return max(1, found)


async def _refuse(writer: asyncio.StreamWriter, status: int, why: str) -> None:
    body = json.dumps({"error": {"message": why, "type": "router", "code": status}}).encode()
    head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
    await writer.drain()
