"""The memory of a captured step: which of it outlives a step, saved and put back; and what a launch changes.

Works on ranges of addresses and a device that copies and hashes them (the extension's, or a test's), and on somewhere
to save to. A range is of the *state* where it lies outside the graph's own memory: parameters, optimiser, buffers,
inputs. The rest is written anew by every replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kernel_dvfs.workload.step import SavedMemory
from kernel_dvfs_clocks.errors import InputError

# what a launch changes is known to this many bytes
CHUNK_BYTE = 1 << 16


class MemoryRange(NamedTuple):
    """A range of device memory."""

    address: int
    byte: int


class MemoryDevice(Protocol):
    """What copies and hashes (the extension's Device)."""

    def copy(self, target: int, source: int, byte: int) -> None: ...
    def hashes(self, ranges: Sequence[tuple[int, int]], chunk_byte: int) -> bytes: ...
    def synchronize(self) -> None: ...


class Room(NamedTuple):
    """Somewhere to save a range to."""

    address: int
    keeps: Any  # what owns the memory


class Memory:
    """Segments of the allocator, and the state within them.

    device_room, host_room: return room for so many bytes, None where there is none.
    """

    def __init__(
        self,
        device: MemoryDevice,
        segments: Sequence[MemoryRange],
        state: Sequence[MemoryRange],
        device_room: Callable[[int], Room | None],
        host_room: Callable[[int], Room | None],
    ) -> None:
        self._device, self.segments, self._ranges = device, list(segments), list(state)
        self._device_room, self._host_room = device_room, host_room
        self._saved: list[tuple[MemoryRange, Room]] = []
        self.state = self.save()

    def save(self) -> SavedMemory:
        """Keep the state as it is now. Where not all of it fits on the device, the host takes the rest; where it does
        not fit there either, the largest blocks are left out, and `left_out` says so."""
        if not self._saved:
            self._make_room()
        for block, room in self._saved:
            self._device.copy(room.address, block.address, block.byte)
        self._device.synchronize()
        self._hash = self.state_hash()
        return self.state

    def _make_room(self) -> None:
        place = "device"
        # the largest last: where not all fits, as many ranges as possible are saved
        for block in sorted(self._ranges, key=lambda block: block.byte):
            room = self._device_room(block.byte) if place == "device" else None
            if room is None:
                place, room = "host", self._host_room(block.byte)
            if room is not None:
                self._saved.append((block, room))
        left = len(self._ranges) - len(self._saved)
        why = f"no memory was left for {left} of {len(self._ranges)} blocks, the largest ones" if left else ""
        total, saved = sum(block.byte for block in self._ranges), sum(block.byte for block, _ in self._saved)
        self.state = SavedMemory(total, saved, place, why)

    def drop(self) -> None:
        """Give the room back; `restore` then does nothing until it is saved again."""
        self._saved = []

    def restore(self) -> None:
        """Put the state back, in stream order: as it was when this object was made, as far as it was saved."""
        for block, room in self._saved:
            self._device.copy(block.address, room.address, block.byte)

    def state_hash(self) -> bytes:
        """Return the hash of what was saved; waits. It is equal to an earlier one where no bit differs."""
        return self._hashes([block for block, _ in self._saved])

    def check_restored(self) -> None:
        """Put the state back and look. Raises InputError where any bit differs from what was saved."""
        self.restore()
        self._device.synchronize()
        if self.state_hash() != self._hash:
            raise InputError("the step's parameters could not be put back bit for bit; the GPU cannot be trusted")

    def scratch_hashes(self) -> bytes:
        """Return the hashes of the segments without any state: what the step computes and forgets; waits."""
        held = [block.address for block in self._ranges]
        scratch = [part for part in self.segments if not any(0 <= at - part.address < part.byte for at in held)]
        return self._hashes(scratch)

    def all_hashes(self) -> bytes:
        """Return the hashes of every segment, 8 bytes for each CHUNK_BYTE; waits."""
        return self._hashes(self.segments)

    def _hashes(self, ranges: Sequence[MemoryRange]) -> bytes:
        return self._device.hashes([_aligned(block) for block in ranges], CHUNK_BYTE)


def changed_byte(before: bytes, after: bytes) -> int:
    """Return how many B lie in chunks whose hashes differ."""
    pairs = zip(memoryview(before).cast("Q"), memoryview(after).cast("Q"))
    return CHUNK_BYTE * sum(one != other for one, other in pairs) if before != after else 0


def _aligned(block: MemoryRange) -> tuple[int, int]:
    """Return address and length of a block that a hash can read: the allocator's blocks are multiples of 512 B at such
    addresses; what is not is read without its rest."""
    return block.address, block.byte // 16 * 16
