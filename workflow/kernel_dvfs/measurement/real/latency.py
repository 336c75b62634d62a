"""Changes of clocks, asked for while a kernel runs and stamps what it sees: how long each takes, and what it costs.

Each trial starts from a locked clock, waits until the device runs there, asks for the target, and goes on until device
and NVML have been there for a while. Trials of all starts and targets are interleaved, in another order each repeat.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kernel_dvfs.measurement import stamps as seen_by
from kernel_dvfs.measurement.verdict import is_reached
from kernel_dvfs_clocks.clocks import AUTO, EXACT, supported_core_mhz
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.guard import ranges

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kernel_dvfs.measurement.real.loads import Stamper, Stamping
    from kernel_dvfs_clocks.guard import Guard

Transition = tuple[str, int, int]  # domain, from MHz, to MHz

_STEADY, _ASKED = 1, 2  # marks: it runs at the start's clock; the target is asked for
_POLL_S = 0.0005
_LOOK_BACK_S = 0.002  # over which the device's clock is looked at while a trial goes on
_QUIET_S = 0.5  # of a dry run


@dataclass(frozen=True, slots=True)
class Protocol:
    """How changes are measured."""

    repeats: int = 10  # of each start and target
    seed: int = 1  # of their order
    step_s: float = 20e-6  # from stamp to stamp
    before_s: float = 0.05  # at the start's clock, before the request
    hold_s: float = 0.05  # device and NVML have to be at the target for so long
    limit_s: float = 1.0  # a change that takes longer is missed
    lock: str = "range"  # from the lowest clock to the target, as a study does; or exact

    @property
    def room(self) -> int:
        """Stamps of a trial that takes as long as it may."""
        return math.ceil((2 * self.limit_s + self.before_s + self.hold_s) * 1.1 / self.step_s)


def transitions(clocks: dict[str, Any], core_mhz: Sequence[int], mem_mhz: Sequence[int]) -> list[Transition]:
    """Return every change between two different ones of the clocks given, of each domain.

    clocks: of the GPU's facts. Nothing given: the lowest, a middle and the highest clock of the domain. Raises
    InputError for a clock that the GPU does not list.
    """
    if not clocks["core_mhz"].get("listed"):
        raise InputError("latency: the driver lists no clocks of this GPU, so none can be changed")
    known = {"core": supported_core_mhz(clocks), "mem": sorted(clocks["mem_mhz"])}
    changes: list[Transition] = []
    for domain, asked in (("core", core_mhz), ("mem", mem_mhz)):
        foreign = [mhz for mhz in asked if mhz not in known[domain]]
        if foreign:
            raise InputError(
                f"--{domain} {foreign[0]}: this GPU has no such clock to lock; kernel-dvfs devices lists them"
            )
        clocks_mhz = sorted(set(asked)) or _spread(known[domain])
        changes += [(domain, start, target) for start in clocks_mhz for target in clocks_mhz if start != target]
    return changes


def _spread(clocks: list[int]) -> list[int]:
    return sorted({clocks[0], clocks[len(clocks) // 2], clocks[-1]}) if clocks else []


def trials(
    guard: Guard,
    loads: Stamping,
    clocks: dict[str, Any],
    wanted: Sequence[Transition],
    protocol: Protocol,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Make a trial of each transition, `protocol.repeats` times over. Raises nvml.library.NvmlError; the guard
    restores."""
    order = random.Random(protocol.seed)
    done: list[dict[str, Any]] = []
    for repeat in range(protocol.repeats):
        turn = list(wanted)
        order.shuffle(turn)
        # a load each, so that its memory is taken and its kernel heated once a repeat
        for domain in ("core", "mem"):
            of_domain = [transition for transition in turn if transition[0] == domain]
            if of_domain:
                bench = _Bench(guard, loads, clocks, domain, protocol)
                before = len(done)
                done += [bench.trial(change, repeat) | {"order": before + at} for at, change in enumerate(of_domain)]
        count = sum(trial["verdict"] == "ok" for trial in done)
        say(f"repeat {repeat + 1} of {protocol.repeats}: {count} changes seen")
    return done


class _Bench:
    """Trials of one domain's clock, the other left to the governor."""

    def __init__(self, guard: Guard, loads: Stamping, clocks: dict[str, Any], domain: str, protocol: Protocol) -> None:
        self._guard, self._loads, self._clocks = guard, loads, clocks
        self._domain, self._protocol = domain, protocol
        self._stamper: Stamper = loads.stamper(protocol.step_s, protocol.room, reads=domain == "mem")
        self._shown = guard.board.sm_mhz if domain == "core" else guard.board.mem_mhz
        if domain == "mem":
            guard.reset_core()
        elif clocks["mem_mhz"]:
            guard.reset_mem()

    def trial(self, transition: Transition, repeat: int) -> dict[str, Any]:
        """Make one change, and return it as the file has it; verdict `ok`, or why it says nothing."""
        _, start, target = transition
        result: dict[str, Any] = dict(zip(("domain", "from_mhz", "to_mhz"), transition)) | {"repeat": repeat}
        result |= dict.fromkeys(("call_s", "first_effect_s", "settled_s", "nvml_s", "stall_s", "longest_stall_s"))
        self._stamper.start()
        try:
            self._ask(start)
            if not self._comes_to(start)[0]:
                return result | {"verdict": f"{self._domain} {start} MHz, where it was to start, was not reached"}
            self._stamper.mark(_STEADY)
            self._loads.sleep(self._protocol.before_s)
            self._stamper.mark(_ASKED)
            asked_s = self._loads.now_s()
            self._ask(target)
            result["call_s"] = self._loads.now_s() - asked_s
            arrived, shown_s = self._comes_to(target)
            result["nvml_s"] = None if shown_s is None else shown_s - asked_s
        finally:
            self._stamper.stop()
        return result | self._judged(target, arrived)

    def _judged(self, target: int, arrived: bool) -> dict[str, Any]:
        stamps = self._stamper.stamps(0)
        try:
            seen = seen_by.change_seen(stamps[stamps[:, seen_by.MARK] >= _STEADY], _ASKED, self._domain)
        except ValueError as error:
            return {"verdict": str(error)}
        if not arrived:
            return {"verdict": f"{self._domain} {target} MHz was not reached within {self._protocol.limit_s:g} s"}
        if seen.first_effect_s is None:
            return {"verdict": "the kernel saw no change"}
        if not seen.is_settled:
            return {"verdict": "the clock did not stay where it was"}
        times = {key: getattr(seen, key) for key in ("first_effect_s", "settled_s", "stall_s", "longest_stall_s")}
        return times | {"step_s": seen.step_s, "verdict": "ok"}

    def _ask(self, mhz: int) -> None:
        pair = (mhz, AUTO) if self._domain == "core" else (AUTO, mhz)
        core, mem = ranges(self._clocks, pair, self._protocol.lock == EXACT)
        self._guard.lock(core, mem)

    def _comes_to(self, mhz: int) -> tuple[bool, float | None]:
        """Return (whether it was there for a while before the limit, when NVML first showed it and went on to, or
        None).

        The core clock is the one that the device counts; the memory clock is known by NVML alone.
        """
        loads, protocol = self._loads, self._protocol
        end_s = loads.now_s() + protocol.limit_s
        shown_s: float | None = None
        since_s: float | None = None
        while True:
            shown = is_reached(mhz, self._shown())
            now_s = loads.now_s()
            shown_s = (now_s if shown_s is None else shown_s) if shown else None
            there = shown if self._domain == "mem" else is_reached(mhz, 1e3 * self._pace())
            since_s = (now_s if since_s is None else since_s) if there else None
            if shown_s is not None and since_s is not None and now_s - max(shown_s, since_s) >= protocol.hold_s:
                return True, shown_s
            if now_s >= end_s:
                # a clock that the device runs counts, whatever NVML shows
                return since_s is not None and now_s - since_s >= protocol.hold_s, shown_s
            loads.sleep(_POLL_S)

    def _pace(self) -> float:
        return seen_by.pace(self._latest(), self._domain)

    def _latest(self) -> NDArray[np.int64]:
        return self._stamper.stamps(-math.ceil(_LOOK_BACK_S / self._protocol.step_s))


def dry_run(guard: Guard, loads: Stamping, clocks: dict[str, Any], protocol: Protocol) -> dict[str, Any]:
    """Do all but the requests, and return {domain: what stamps show at the clocks as they are, and how long NVML
    takes}."""
    by_domain = {}
    for domain, shown in (("core", guard.board.sm_mhz), ("mem", guard.board.mem_mhz)):
        if domain == "mem" and not clocks["mem_mhz"]:
            continue
        stamper = loads.stamper(protocol.step_s, protocol.room, reads=domain == "mem")
        stamper.start()
        try:
            loads.sleep(_QUIET_S)
            stamper.mark(_ASKED)
            asked_s = loads.now_s()
            reads = 0
            while loads.now_s() < asked_s + _QUIET_S:
                mhz = shown()
                reads += 1
            read_s = (loads.now_s() - asked_s) / reads
        finally:
            stamper.stop()
        stamps = stamper.stamps(0)
        try:
            quiet = asdict(seen_by.quiet(stamps, domain))
        except ValueError as error:
            raise InputError(f"latency: {error}: the kernel that stamps did not run") from None
        quiet |= {"stamps": len(stamps), "is_mark_seen": bool(stamps[-1, seen_by.MARK] == _ASKED)}
        by_domain[domain] = quiet | {"nvml_mhz": mhz, "nvml_read_s": read_s}
    return by_domain


def utc() -> str:
    """Return the present time, as files have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
