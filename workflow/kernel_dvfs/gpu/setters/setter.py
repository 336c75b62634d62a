"""The one interface behind which every way of setting clocks stands, and what the ways share.

A setter is told what to lock and what to free, for one GPU. Taking the GPU, watching over its owner and restoring are
not its business: the guard, its janitor and the lease (gpu.nvml) do that for every way alike.
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from kernel_dvfs.gpu.nvml.errors import TIMEOUT, refused
from kernel_dvfs.gpu.nvml.janitor import HELD_BY_TOOLS
from kernel_dvfs.gpu.nvml.library import patience_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_dvfs.gpu.nvml.board import Board

Range: TypeAlias = tuple[int, int]  # (lowest, highest), MHz
Domain: TypeAlias = Literal["core", "mem"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a way can do. Every one locks both clocks and frees them. Reading back is NVML's, for all: it needs no
    right."""

    needs: str  # the right or the service, in words
    alone: bool = True  # one clock can be locked and the other left to the GPU
    ranges: bool = True  # a range can be locked, not only one clock
    survives: bool = False  # clocks come back even if every process of the client's job is killed, its janitor too
    heeds_after: bool = True  # leaves behind what its caller asks for; else what the service was told by its site


class Setter(ABC):
    """One way to set the clocks of one GPU. Every method may raise errors.NvmlError: Denied where the right is
    missing, Unsupported where the GPU or the way cannot do it. A way that does not answer in time raises too."""

    name: str  # as the configuration's `through` says it
    capabilities: Capabilities

    def __init__(self, board: Board) -> None:
        self.uuid = board.uuid

    def locks(self, core: Range | None, mem: Range | None) -> list[Callable[[], None]]:
        """What is to be called, in this order, to keep the given clocks in their ranges, MHz: memory first, since the
        core clocks that exist depend on it. A clock that is not given is left as it is.

        Raises Unsupported where the way cannot lock just that.
        """
        wanted: tuple[tuple[Domain, Range | None], ...] = (("mem", mem), ("core", core))
        return [partial(self._lock, domain, *mhz) for domain, mhz in wanted if mhz]

    def reset_core(self) -> None:
        """Free at least the core clock."""
        self._reset("core")

    def reset_mem(self) -> None:
        """Free at least the memory clock."""
        self._reset("mem")

    def close(self) -> None:  # noqa: B027 - most ways hold nothing open
        """Let go of whatever is open."""

    @abstractmethod
    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None: ...

    @abstractmethod
    def _reset(self, domain: Domain) -> None: ...


class Nvml(Setter):
    """NVML itself, in this process."""

    name = "nvml"
    capabilities = Capabilities(needs="root, or a container with --cap-add=SYS_ADMIN")

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._board = board

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        control = self._board.lock_core if domain == "core" else self._board.lock_mem
        control(lowest_mhz, highest_mhz)

    def _reset(self, domain: Domain) -> None:
        control = self._board.reset_core if domain == "core" else self._board.reset_mem
        control()


def run_tool(words: list[str], uuid: str) -> tuple[int, str]:
    """(exit code, what it printed in one line) of a tool. Raises NvmlError where it is not there or does not end."""
    call, limit_s = " ".join(words), patience_s()
    pipe = subprocess.PIPE
    try:
        # where a janitor watches, its input tells it that the tool still runs; none of them reads it
        watched = HELD_BY_TOOLS.get(uuid, subprocess.DEVNULL)
        process = subprocess.Popen(words, stdin=watched, stdout=pipe, stderr=pipe, text=True, errors="replace")
    except OSError as error:
        raise refused(call, uuid, error.strerror or str(error), "kernel-dvfs devices says what works here") from None
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        with suppress(OSError):  # what runs as root is not ours to kill, nor to wait for
            process.kill()
        raise refused(call, uuid, f"has not ended in {limit_s:g} s", "look what it waits for", TIMEOUT) from None
    except BaseException:
        # whoever is interrupted gives the clocks back next: what is still under way must not land after that
        with suppress(subprocess.TimeoutExpired):
            process.wait(limit_s)
        raise
    said = " ".join(f"{errors} {output}".split())
    return process.returncode, said or f"exit code {process.returncode}"
