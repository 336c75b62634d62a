"""Steps recorded on an H200 (nodes, one traced call, two traced replays), and a captured step without a GPU."""

import gzip
import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_dvfs_step import assembly, nodes, trace
from kernel_dvfs_step.memory import CHUNK_BYTE, Memory, MemoryRange, Room

RECORDED = ("conv", "gpt_eager", "triton_kernel")


def read(name):
    path = Path(__file__).parent / "recorded" / f"{name}.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    found = nodes.from_json(content["nodes"])
    replays = trace.replays(content["functions"], trace.from_json(content["replays"]), 2)
    return SimpleNamespace(
        name=name,
        nodes=found,
        functions=content["functions"],
        segments=[tuple(each) for each in content["segments"]],
        call=trace.from_json(content["call"]),
        replays=replays,
    )


@pytest.fixture(scope="session", params=RECORDED)
def recorded(request):
    return read(request.param)


@pytest.fixture(scope="session")
def recording():
    """recording(name): the recorded step of that name."""
    return read


@pytest.fixture(scope="session")
def outline_of():
    """outline_of(recorded, joined): its launches and classes."""

    def made(step, joined=()):
        return assembly.outline_of(step.nodes, step.functions, step.segments, [step.call], step.replays, joined)

    return made


class FakeDevice:
    """Memory as a bytearray from address 0."""

    def __init__(self, byte):
        self.memory = bytearray(byte)
        self.copies = 0

    def copy(self, target, source, byte):
        self.memory[target : target + byte] = self.memory[source : source + byte]
        self.copies += 1

    def hashes(self, ranges, chunk_byte):
        parts = [
            bytes(self.memory[at : min(at + chunk_byte, address + byte)])
            for address, byte in ranges
            for at in range(address, address + byte, chunk_byte)
        ]
        return b"".join((hash(part) & (2**64 - 1)).to_bytes(8, "little") for part in parts)

    def synchronize(self):
        pass


class Hung(Exception):
    """What the fake does where a GPU would never answer."""


class FakeLiving:
    """A captured step whose nodes are functions of a device's memory, each with a time.

    effects: of each node, what it does to the memory; times_us: alone. The state lies in chunk 0, scratch from chunk 1.
    """

    def __init__(self, found, effects, times_us, state_byte=CHUNK_BYTE, chunks=8):
        self.nodes, self._effects, self._times_us = found, effects, times_us
        self.functions = [node.function for node in found]
        self.device = FakeDevice(16 * chunks * CHUNK_BYTE)
        self._next = 8 * chunks * CHUNK_BYTE
        self.memory = Memory(
            self.device,
            [MemoryRange(0, CHUNK_BYTE), MemoryRange(CHUNK_BYTE, (chunks - 1) * CHUNK_BYTE)],
            [MemoryRange(0, state_byte)],
            self._room,
            lambda byte: None,
        )

    def _room(self, byte):
        self._next += byte
        return Room(self._next - byte, None)

    def loop(self, places, repeat=1, keep_edges=False):
        def run(count=1):
            for _ in range(min(count * repeat, 3)):  # what is done more often than that is the same
                for place in places:
                    self._effects[place](self.device.memory)

        def time(count=1):
            run(count)
            return 1e-3 * count * repeat * sum(self._times_us[place] for place in places)

        return SimpleNamespace(run=run, time=time)

    def meet(self, place):
        self.memory.restore()
        for effect in self._effects[:place]:
            effect(self.device.memory)


@pytest.fixture
def fake_living():
    return FakeLiving


@pytest.fixture
def no_limit():
    @contextmanager
    def limit(first, seconds):
        yield

    return limit
