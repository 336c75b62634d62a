"""What the study of a GPU needs: what of it is here, what is missing and how to get it, how long it takes. Nothing is
measured, compiled or written for it; only who is about to run it has the driver asked whether it locks clocks."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_dvfs import extensions, shipped
from kernel_dvfs.measurement.real import inventory, loads
from kernel_dvfs.native.build import check_tools
from kernel_dvfs.native.load import read_build
from kernel_dvfs.plan.config import check, load
from kernel_dvfs.plan.estimate import estimates
from kernel_dvfs.plan.step import step_source
from kernel_dvfs.plan.study import plan
from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.guard import Guard
from kernel_dvfs_clocks.nvml.library import Lost, NvmlError, meaning
from kernel_dvfs_clocks.setters.choice import AUTO
from kernel_dvfs_clocks.setters.setter import Nvml

# which the workflow reads
_CONFIG = shipped.WORKFLOW / "config.yaml"
# the costliest kernels of a step, at clocks that are left alone
_STEP_MINUTES = 10


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the study of a GPU needs, and how it is run."""

    here: list[str]  # a line each
    missing: list[InputError]  # likewise, with the remedy; [] where the study can begin
    takes: list[str]  # how long it takes, in lines; [] where something is missing
    target: str  # of the workflow
    config: dict[str, Any]  # what its configuration is told besides


def of_simulated(gpu: str, step: str = "") -> Readiness:
    """Return what the study of a simulated GPU needs. step: as of `of_real`; it runs none, and says where to."""
    keys = {"gpu": gpu, **_workload(step)}
    here, missing = _looked([_workflow, lambda: f"{gpu}: simulated, so no GPU is needed" if _planned(**keys) else ""])
    takes = [] if missing else ["all tables and figures: one to three minutes, on two free cores"]
    return Readiness(here, missing, takes, "all", keys)


def of_real(gpu: str, step: str = "", tries: bool = False) -> Readiness:
    """Return what the study of a real GPU needs. gpu: nvml, nvml:UUID or nvml:INDEX. step: FILE.py:FUNCTION, a
    training step to study there; "": the configuration's workload. tries: whether a lock is tried where the rights
    allow one, since a driver may refuse it all the same, in a container of root's for one; else no clock is set.

    Where nothing may lock its clocks, the study is one at clocks that are left alone.
    """
    path, config = (_CONFIG.name if _CONFIG.parent == Path.cwd() else str(_CONFIG)), load(_CONFIG)
    keys = _workload(step)
    in_minutes = keys | ({"minutes": _STEP_MINUTES} if step and config["minutes"] is None else {})
    looks = [lambda: _python_of(step)] if step else []
    here, missing = _looked([_workflow, *looks, lambda: _native(bool(step))])
    which = gpu.partition(":")[2]
    try:
        board = inventory.of_gpu(which, lambda uuid, can_lock: estimates(uuid, path, can_lock, in_minutes))
    except InputError as error:
        return Readiness(here, [*missing, error], [], "", {})
    taken = None if config["share"] else board.obstacle
    in_the_way = [why for why in (board.problem, board.counter_problem, taken, board.lease_problem) if why]
    if not (in_the_way or board.estimates):
        in_the_way += board.notes
    known = [str(error) for error in missing]
    # a step that is not there is told of already
    problems = [
        estimate.problem
        for estimate in board.estimates[-1:]
        if estimate.problem and not any(map(estimate.problem.endswith, known))
    ]
    missing += [InputError(f"{board.name}: {why}") for why in in_the_way + problems]
    if missing:
        return Readiness(here, missing, [], "", {})
    alone_on_it = "" if board.obstacle else "no other program uses it, "  # where it is shared, a note says by whom
    here += [f"{board.name}: driver {board.driver}, {alone_on_it}its energy counter works", *board.notes]
    alone, *others = board.estimates
    can_lock = bool(others) and others[-1].clocks != alone.clocks
    is_ours = can_lock and others[-1].clocks == "lock"
    by_rights = is_ours and board.through == Nvml.name and config["through"] in (AUTO, Nvml.name)
    refusal = _refusal(board, config["after"]) if by_rights and tries else ""
    if refusal or not can_lock:
        why = f"{refusal}: kernel-dvfs devices says what to ask for (docs/cluster.md)"
        here.append(f"its clocks stay at auto, so the study chooses none{why if refusal or not board.through else ''}")
        return Readiness(here, [], [*alone.in_words()], "all", {"gpu": gpu, "clocks": alone.clocks} | in_minutes)
    untried = " (not tried)" if by_rights and not tries else ""
    here.append(f"the right to lock its clocks, through {board.through}{untried}")
    takes = others[-1].of_answer() if is_ours else others[-1]
    return Readiness(here, [], [*takes.in_words()], "answer" if is_ours else "all", {"gpu": gpu} | keys)


def folder_of(ready: Readiness) -> str:
    """Return where the results of a study go that can begin."""
    return _planned(**ready.config)


def _refusal(board: inventory.MachineGpu, after: dict[str, list[int] | None]) -> str:
    """Return why the driver does not lock the clocks of a GPU, to go on a sentence; "" where it does.

    It is asked for the range of all core clocks, and then for the site's own locks, `after`, as at a study's end.
    """
    try:
        with Guard(board.uuid, after, through=Nvml.name) as guard:
            guard.lock_core(board.core_mhz[0], board.core_mhz[-1])
    except Lost:
        raise
    except NvmlError as error:
        return f", since the driver refuses to lock them ({meaning(error.code)})"
    return ""


def _workload(step: str) -> dict[str, Any]:
    """Return what the configuration is told of a step; nothing where there is none."""
    return {"workload": f"step:{step}"} if step else {}


def _looked(looks: list[Callable[[], str]]) -> tuple[list[str], list[InputError]]:
    """Return (what is here, what is missing): each look returns a line, or raises."""
    here, missing = [], []
    for look in looks:
        try:
            here.append(look())
        except InputError as error:
            missing.append(error)
    return here, missing


def _workflow() -> str:
    """Return a line on the workflow. Raises InputError for packages that this Python lacks."""
    if why := package.lacking("workflow"):
        raise InputError(why)
    return f"the workflow: {shipped.WORKFLOW}, Snakemake {importlib.metadata.version('snakemake')}"


def _python_of(step: str) -> str:
    """Return a line on the Python that runs a step. Raises InputError where there is no such step, or torch is
    missing."""
    python = extensions.part("step python")
    if python is None:
        raise InputError(f"{step}: the package that captures a training step is missing; install all of kernel-dvfs")
    step_source(f"step:{step}")
    line: str = python(step)
    return line


def _native(is_step: bool) -> str:
    """Return a line on what runs kernels on a GPU. Raises InputError where neither it nor what builds it is here."""
    what, backend = ("the reader of captured graphs", "graph") if is_step else ("the CUDA kernels", "cuda")
    try:
        read_build(loads.record(is_step))
        return f"{what}: built"
    except InputError:
        return f"{what}: the study builds this first, by {check_tools(backend)}"


def _planned(**keys: Any) -> str:
    """Return the folder of the study that the workflow would make. Raises InputError where it would refuse."""
    content = load(_CONFIG) | keys
    check(content, str(shipped.SCHEMA))
    return plan(content).folder
