"""Which GPUs are here, what they can do, what a study of them would take, and what is missing: as data.

`kernel-dvfs devices` prints it in words, and with --json as it is: the fields below are the schema. Sets no clock.
A plan imports this module for its names alone, so what looks at GPUs is imported where one is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.measurement.counter import EnergyCounter
from kernel_dvfs_clocks.errors import CounterFault, InputError

if TYPE_CHECKING:
    from kernel_dvfs_clocks.nvml.board import Board
    from kernel_dvfs_clocks.nvml.library import Library, NvmlError
    from kernel_dvfs_clocks.setters.advice import Advice

SCHEMA = "kernel-dvfs/devices/1"
# a configuration that leaves these out takes less time
OTHER_SIZES = "other sizes"
# parts of a study that the target `answer` makes
CAPTURE, BY_CLOCK, AGAIN = "capture", "by clock", "measuring again"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a study of a GPU would take at least, as a configuration has it, with clocks locked or left alone."""

    config: str  # file
    clocks: str | None  # lock, auto-only, ... as in the configuration; null: it has a problem
    problem: str | None = None  # why there is no such study; the fields below then hold nothing
    targets: int = 0  # kernels and passes
    pairs: int = 0  # of clocks
    least_s: dict[str, float] = field(default_factory=dict)  # {part of the study: seconds}; their sum is the whole

    def of_answer(self) -> Estimate:
        """Return what the target `answer` takes of it."""
        chosen_by = BY_CLOCK if BY_CLOCK in self.least_s else "sweep"
        parts = {part: s for part, s in self.least_s.items() if part in (CAPTURE, chosen_by, AGAIN)}
        return replace(self, least_s=parts)

    def in_words(self) -> Iterator[str]:
        """Yield what is measured and for how long, in lines."""
        if self.problem:
            yield f"no study as configured: {self.problem}"
            return
        total_s = sum(self.least_s.values())
        end = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + total_s))
        targets = f"{self.targets} targets" if self.targets else "the targets of the step, known once it is captured,"
        pairs = "1 clock pair" if self.pairs == 1 else f"{self.pairs} clock pairs, where they can be locked"
        parts = ", ".join(f"{part} {_duration(s)}" for part, s in self.least_s.items())
        yield (
            f"{self.config} with clocks: {self.clocks}: {targets} x {pairs}, at least {_duration(total_s)} ({parts}), "
            f"until {end} if started now"
        )
        if OTHER_SIZES in self.least_s:
            yield (
                "(the target `answer` ends after measuring again; data_parallel_batches and tensor_parallel_degrees: "
                "[] leave the other sizes out of `all`)"
            )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True, slots=True)
class MachineGpu:
    """One GPU of this machine."""

    index: int
    name: str
    uuid: str
    gpu: str  # what a study configures: nvml:<uuid>
    problem: str | None = None  # why it cannot be measured at all; the fields below then hold nothing
    driver: str | None = None
    pci_bus_id: str | None = None
    power_limit_w: float | None = None  # null: not told
    ecc: bool | None = None  # null: it has none
    core_mhz: list[int] = field(default_factory=list)  # listed at the highest memory clock; []: none
    mem_mhz: list[int] = field(default_factory=list)  # listed; [] where none can be locked
    energy_scope: str | None = None  # what the energy counter counts: board or module
    counter_period_ms: float | None = None  # how often it moves
    counter_read_ms: float | None = None  # how long a read takes
    counter_problem: str | None = None  # why it cannot be used
    through: str | None = None  # the way that may lock its clocks: nvml, broker, zeusd, sudo; null: none may
    notes: list[str] = field(default_factory=list)  # what is in the way of measuring, or worth knowing
    obstacle: str | None = None  # the one of them that no measurement begins with
    left_behind_by: str | None = None  # who died and left its clocks locked
    lease_problem: str | None = None  # who holds it, or why that cannot be told
    estimates: list[Estimate] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # for a study, with what to do


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs of this machine, and what can be done with them."""

    schema: str
    problem: str | None  # why no GPU is told of, or not every one
    gpus: list[MachineGpu]
    locking: Advice | None  # ways to lock clocks here; null where there is no GPU
    leases: str | None  # where runs find each other, in words; null where there is no driver
    simulated: list[str]  # simulated GPUs, as a study configures them: no hardware needed


# (UUID, whether its clocks can be locked) -> what a study of it would take, and what is missing for one
Estimates = Callable[[str, bool], tuple[list[Estimate], list[str]]]


def inventory(estimates: Estimates) -> Inventory:
    """Return what is here. estimates: for each GPU that can be measured (plan.estimate.estimates)."""
    from kernel_dvfs_clocks.nvml.board import answering, by_index
    from kernel_dvfs_clocks.nvml.lease import where_leases_lie
    from kernel_dvfs_clocks.nvml.library import Library
    from kernel_dvfs_clocks.setters.advice import advice

    gpus: list[MachineGpu] = []
    locking = leases = problem = None
    try:
        with Library() as nvml:
            answers = by_index(nvml)
            gpus += (_gpu(nvml, index, answer, estimates) for index, answer in answers.items())
            if answers:
                locking = advice(answering(answers))
            else:
                problem = "no NVIDIA GPU is visible; in a container, start it with --gpus"
            leases = where_leases_lie()
    except InputError as error:
        problem = str(error)
    return Inventory(SCHEMA, problem, gpus, locking, leases, list(gpu_spec.names()))


def of_gpu(which: str, estimates: Estimates) -> MachineGpu:
    """Return one GPU. which: UUID or index; "": the only one. Raises InputError where it is not here."""
    from kernel_dvfs_clocks.nvml.board import by_index, resolve
    from kernel_dvfs_clocks.nvml.library import Library

    with Library() as nvml:
        uuid = resolve(nvml, which).uuid
        index = next(index for index, answer in by_index(nvml).items() if answer == uuid)
        return _gpu(nvml, index, uuid, estimates)


def _gpu(nvml: Library, index: int, answer: str | NvmlError, estimates: Estimates) -> MachineGpu:
    """Return one GPU. answer: as of nvml.board.by_index. One that is sick is told with why, and hides no other."""
    from kernel_dvfs_clocks.nvml.board import Board

    name, uuid = "does not answer", ""
    try:
        if not isinstance(answer, str):
            raise answer
        uuid = answer
        board = Board(nvml, uuid)
        name = board.name()
        return _answering(nvml, index, name, board, estimates)
    except InputError as error:
        return MachineGpu(index, name, uuid, uuid and f"nvml:{uuid}", problem=str(error))


def _answering(nvml: Library, index: int, name: str, board: Board, estimates: Estimates) -> MachineGpu:
    from kernel_dvfs_clocks.nvml.facts import facts
    from kernel_dvfs_clocks.setters.choice import working

    known, uuid = facts(nvml, board), board.uuid
    limit_mw = known["power_limit_mw"]
    cores: list[int] = next(reversed(known["clocks"]["core_mhz"]["listed"].values()), [])
    period_ms, read_ms, counter_problem = _counter(board)
    way = working(uuid)
    notes, obstacle, divided = _obstacles(board)
    left_behind_by, lease_problem = _lease(uuid)
    expected: list[Estimate] = []
    missing: list[str] = []
    if not counter_problem and not divided:  # what measures nothing has no length
        expected, missing = estimates(uuid, bool(way) and bool(cores))
    return MachineGpu(
        index,
        name,
        uuid,
        f"nvml:{uuid}",
        driver=known["driver"],
        pci_bus_id=known["pci_bus_id"],
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        ecc=known["ecc"],
        core_mhz=cores,
        mem_mhz=known["clocks"]["mem_mhz"],
        energy_scope=known["energy_scope"],
        counter_period_ms=period_ms,
        counter_read_ms=read_ms,
        counter_problem=counter_problem,
        through=way or None,
        notes=notes,
        obstacle=obstacle,
        left_behind_by=left_behind_by,
        lease_problem=lease_problem,
        estimates=expected,
        missing=missing,
    )


def _counter(board: Board) -> tuple[float | None, float | None, str | None]:
    """Return (period ms, time of a read ms, why it cannot be used) of the energy counter."""
    from kernel_dvfs_clocks.nvml.library import NvmlError

    try:
        counter = EnergyCounter(board.energy_mj, time.monotonic, time.sleep, lambda: None)
        counter.calibrate()
    except (NvmlError, CounterFault) as error:
        return None, None, str(error)
    return 1000 * counter.period_s, 1000 * counter.read_s, None


def _obstacles(board: Board) -> tuple[list[str], str | None, bool]:
    """Return (what is in the way of measuring, or worth knowing; which of it no measurement begins with; whether the
    board is divided)."""
    from kernel_dvfs.measurement.real.preflight import check_board, check_whole

    notes: list[str] = []
    try:
        check_whole(board)
    except InputError as error:
        return [str(error)], str(error), True
    try:
        check_board(board, False, notes.append)
    except InputError as error:
        return [*notes, str(error)], str(error), False
    return notes, None, False


def _lease(uuid: str) -> tuple[str | None, str | None]:
    """Return (who left clocks locked, what else is to say of the GPU's lease)."""
    from kernel_dvfs_clocks.nvml.lease import Lease
    from kernel_dvfs_clocks.setters.broker import listed, rules_here

    try:
        if rules_here():
            about = next((entry for entry in listed() if entry["uuid"] == uuid), None)
            if about is None:
                return None, "its broker does not know this GPU"
            return about["left"], about["holder"] and f"GPU {uuid} is held by {about['holder']}"
        lease = Lease(uuid)
        lease.take()
        stale = lease.stale
        lease.close() if stale else lease.release()
    except InputError as error:
        return None, str(error)
    return (stale.owner if stale else None), None
