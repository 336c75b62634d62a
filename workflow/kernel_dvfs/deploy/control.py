"""The clocks of one guarded GPU while something is played: asked for, given back, or only looked at."""

from __future__ import annotations

import os

from kernel_dvfs.errors import InputError, lines
from kernel_dvfs.files import parse_json
from kernel_dvfs.gpu.clocks import AUTO, BASELINE, check, label
from kernel_dvfs.gpu.nvml.locks import lock_pair


class Control:
    """ask(pair): request it. pair: the last one asked for. asked: how many requests were made.

    guard: entered (gpu.nvml.guard). about: the GPU's facts. reads_only: nothing is ever set; pairs are only noted.
    """

    def __init__(self, guard, about: dict, exact: bool = False, reads_only: bool = False):
        self._guard, self._clocks, self._exact = guard, about["clocks"], exact
        self.board = guard.board
        self.reads_only = reads_only
        self.pair = BASELINE
        self.asked = 0

    def check(self, pair, where: str) -> None:
        """Raise InputError if the GPU does not list a clock of the pair."""
        if self._clocks["core_mhz"]["listed"]:
            check(self._clocks, pair, where)
        elif tuple(pair) != tuple(BASELINE):
            raise InputError(f"{where}: the driver lists no clocks of this GPU, so none can be locked")

    def announce(self, what: str) -> None:
        if not self.reads_only:
            self._guard.announce(what)

    def ask(self, pair) -> None:
        """Raises gpu.nvml.errors; then nothing is locked."""
        if not self.reads_only:
            try:
                lock_pair(self._guard, self._clocks, pair, self._exact)
            except BaseException:
                self._guard.reset()
                raise
        self.pair = pair
        self.asked += 1

    def to_auto(self) -> None:
        """Nothing locked. Raises locks.NotRestored."""
        if not self.reads_only:
            self._guard.reset()
        self.pair = BASELINE

    def seen(self) -> tuple:
        """(core, memory) clocks now, MHz."""
        return self.board.sm_mhz(), self.board.mem_mhz()


def facts_of(which: str) -> dict:
    """Facts and slug of the GPU that `which` (UUID, index or nothing) names.

    Asked by a child process: who holds a guard must not have had NVML open before. Raises InputError.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        code = 1
        try:
            os.write(write_end, _facts_text(which).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    data = b""
    while part := os.read(read_end, 1 << 16):
        data += part
    os.close(read_end)
    os.waitpid(child, 0)
    answer = parse_json(data.decode() or "{}")
    if "error" in answer or not answer:
        raise InputError(answer.get("error", "NVML died while the GPU was looked up; see dmesg"))
    return answer


def _facts_text(which: str) -> str:
    import json

    from kernel_dvfs.gpu.nvml.board import resolve
    from kernel_dvfs.gpu.nvml.facts import facts, slug
    from kernel_dvfs.gpu.nvml.library import Library

    try:
        with Library() as nvml:
            found = facts(nvml, resolve(nvml, which))
        return json.dumps(found | {"slug": slug(found)})
    except InputError as error:
        return json.dumps({"error": " ".join(lines(error))})


def pair_of(clocks: dict, where: str) -> tuple:
    """(core, memory) of a schedule's target. Raises InputError."""
    pair = tuple(clocks.get(name) if isinstance(clocks, dict) else None for name in ("core_mhz", "mem_mhz"))
    for name, clock in zip(("core_mhz", "mem_mhz"), pair):
        if clock != AUTO and (type(clock) not in (int, float) or not 0 < clock < 1e6 or clock != int(clock)):
            raise InputError(f"{where}.{name} is {clock!r}; a number of MHz or auto is expected")
    return tuple(clock if clock == AUTO else int(clock) for clock in pair)


def named(pair) -> str:
    return label(pair)
