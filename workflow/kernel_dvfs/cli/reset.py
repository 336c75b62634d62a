"""`kernel-dvfs reset`. Of root's it imports nothing before it has been looked at (kernel_dvfs_clocks.trust)."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernel_dvfs.cli import THROUGH
from kernel_dvfs_clocks.clocks import check_after, is_number, parse_after
from kernel_dvfs_clocks.errors import InputError, lines

if TYPE_CHECKING:
    from kernel_dvfs_clocks.nvml.board import Board
    from kernel_dvfs_clocks.nvml.library import Library, NvmlError
    from kernel_dvfs_clocks.setters.setter import Setter


_LOOK_EVERY_S = 1.0


_LOOK_FOR_GPUS_S = 30.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs reset --all; in the epilog of a batch system: kernel-dvfs reset --all --after-job"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--uuid", metavar="UUID", help="one GPU")
    which.add_argument("--all", action="store_true", help="every GPU")
    parser.add_argument("--stale", action="store_true", help="only where a killed run has left a lease")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="with --stale: again every second, outside of the jobs",
    )
    parser.add_argument("--force", action="store_true", help="even if another run holds the GPU")
    parser.add_argument(
        "--after-job",
        action="store_true",
        help="with --all, in an epilog: the GPUs that Slurm gave the job",
    )
    parser.add_argument("--through", default="auto", metavar="WAY", help=THROUGH)
    parser.add_argument(
        "--after",
        default="",
        metavar="core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST",
        help="the site's own clocks, MHz, locked instead of none; either or both",
    )


def run(options: Namespace) -> None:
    from kernel_dvfs_clocks.nvml.board import by_index
    from kernel_dvfs_clocks.nvml.library import Library, NvmlError
    from kernel_dvfs_clocks.setters import choice
    from kernel_dvfs_clocks.setters.broker import left_behind

    if not (options.uuid or options.all or options.stale):
        raise InputError("reset: which GPU? --uuid UUID, --all, or --stale for those that a killed run has left locked")
    if options.after_job and (options.stale or not options.all):
        raise InputError("reset: --after-job resets all GPUs of the job that is over; add --all, and leave --stale out")
    if options.watch and not options.stale:
        raise InputError("reset: --watch looks for what killed runs leave; add --stale")
    # what could never be done is refused now, not when something is left behind and nobody looks
    after = parse_after(options.after)
    choice.check(options.through, after)
    if options.watch:
        _check_here(options.uuid, after)
        _watch(options)
    wanted: list[str | NvmlError] = []
    if options.stale:
        wanted += [uuid for uuid in left_behind() if options.uuid in (None, uuid)]
        if not wanted:
            _check_here(options.uuid, after)
            print("no lease is left behind: nothing to reset")
            return
    with Library() as nvml:
        gpus = by_index(nvml)
        if options.uuid and not options.stale:
            wanted = [options.uuid]
        elif not options.stale:
            wanted += (_of_job(gpus) if options.after_job else gpus).values()
        errors: list[Exception] = []
        for uuid in wanted:
            if options.stale and uuid not in gpus.values():
                lost = "".join(f"; {failure}" for failure in gpus.values() if isinstance(failure, NvmlError))
                print(f"lease of {uuid}: no such GPU here{lost}: left alone")
                continue
            try:
                if isinstance(uuid, NvmlError):
                    raise uuid
                print(_reset(nvml, uuid, options))
            except (InputError, ExceptionGroup) as error:
                # one GPU must not keep the others from being restored
                errors.append(error)
    if errors:
        raise ExceptionGroup("not all clocks were reset", errors)


def _of_job(gpus: dict[int, str | NvmlError]) -> dict[int, str | NvmlError]:
    """Return the GPUs of the job in whose epilog this runs, of those that are here (nvml.board.by_index).

    Raises InputError where Slurm names one that is not here.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return gpus
    # the numbers are the node's own, whatever a job sees of it (Slurm's "Prolog and Epilog Guide"); none: it had no GPU
    numbers = list(filter(None, os.environ.get("SLURM_JOB_GPUS", "").split(",")))
    if wrong := [number for number in numbers if not (is_number(number) and int(number) in gpus)]:
        raise InputError(f"reset: SLURM_JOB_GPUS names {wrong[0]!r}, and there are {len(gpus)} GPUs here; use --uuid")
    return {int(number): gpus[int(number)] for number in numbers}


def _check_here(uuid: str | None, after: dict[str, list[int] | None]) -> None:
    """Raise InputError unless `after` can be locked on the GPU, or on each where none is named."""
    from kernel_dvfs_clocks.nvml.board import Board, uuids
    from kernel_dvfs_clocks.nvml.facts import facts
    from kernel_dvfs_clocks.nvml.library import Library

    if not any(after.values()):
        return  # nothing is asked of NVML, so that a watch may start before a driver does
    with Library() as nvml:
        for which in [uuid] if uuid else uuids(nvml):
            check_after(facts(nvml, Board(nvml, which))["clocks"], after, f"--after on {which}")


def _watch(options: Namespace) -> None:
    """Reset what killed runs leave locked as soon as they have left it; does not return.

    A job that is killed with all its processes takes its holder along. Whoever runs this lives elsewhere.
    """
    from kernel_dvfs_clocks.nvml.board import answering, by_index
    from kernel_dvfs_clocks.nvml.library import Library
    from kernel_dvfs_clocks.setters.broker import left_at, left_behind

    answering_uuids: list[str] = []
    look_again_s = 0.0
    last_lines: dict[str | int, str] = {}  # by UUID or index, so that two that fail in turn are told once each

    def tell(which: str | int, line: str) -> None:
        if line != last_lines.get(which):
            print(f"error: {line}", file=sys.stderr, flush=True)
        last_lines[which] = line

    while True:
        try:
            left = left_behind()
        except (InputError, ExceptionGroup):  # a broker that starts again; it restores by itself
            left = []
        for uuid in left:
            try:
                # any user can leave leases of GPUs that there are not: thousands of them must cost next to nothing
                if uuid not in answering_uuids and time.monotonic() > look_again_s:
                    look_again_s = time.monotonic() + _LOOK_FOR_GPUS_S
                    with Library() as nvml:
                        gpus = by_index(nvml)
                    answering_uuids = answering(gpus)
                    for index, gpu in gpus.items():
                        if not isinstance(gpu, str):
                            tell(index, str(gpu))
                if uuid in answering_uuids and options.uuid in (None, uuid) and left_at(uuid):
                    with Library() as nvml:
                        print(_reset(nvml, uuid, options), flush=True)
                    last_lines.pop(uuid, None)
            except (InputError, ExceptionGroup) as error:
                tell(uuid, "; ".join(lines(error)))
        time.sleep(_LOOK_EVERY_S)


def _reset(nvml: Library, uuid: str, options: Namespace) -> str:
    from kernel_dvfs_clocks.nvml.board import Board
    from kernel_dvfs_clocks.nvml.facts import facts
    from kernel_dvfs_clocks.nvml.lease import Held
    from kernel_dvfs_clocks.setters import broker, choice
    from kernel_dvfs_clocks.setters.broker import Broker, Connection

    board = Board(nvml, uuid)
    after = parse_after(options.after)
    if any(after.values()):  # else nothing that the board cannot tell keeps its clocks from being freed
        check_after(facts(nvml, board)["clocks"], after, "--after")
    way = choice.resolve(options.through, uuid)
    lease = broker.lease_of(uuid, elsewhere=way != Broker.name)
    if isinstance(lease, Connection):
        broker.check_after(after)

    def given_back() -> str:
        if way == Broker.name and isinstance(lease, Connection):
            return _given_back(board, Broker(board, lease), after)
        return _given_back(board, choice.opened(way, board), after)

    try:
        lease.take()
    except Held as held:
        if options.stale and not options.force:
            return f"{held}: left alone"
        if not (options.force or options.after_job):
            raise InputError(f"{held}, or add --force") from None
        if not isinstance(lease, Connection):
            return f"{given_back()}, although {held}"
        was = broker.evict(uuid, held.lease)
        try:
            lease.take()
        except Held as came:  # whose clocks are not to be freed: only for the former was that asked
            return f"GPU {uuid}: taken from {was}, whose clocks the broker has freed; {came}: left alone"
    except InputError as unusable:
        if isinstance(lease, Connection):
            raise
        # nothing that lies in the lease's place may keep a GPU locked
        if options.stale:
            return f"{unusable}: left alone"
        return f"{given_back()}, although who holds it is not known: {unusable}"
    if options.stale and lease.stale is None:
        lease.release()
        return f"GPU {uuid}: its lease is not stale: left alone"
    try:
        outcome = given_back()
    except BaseException:
        lease.close()
        raise
    left = f"; removed the lease that {lease.stale.owner} left" if lease.stale else ""
    lease.release()
    return outcome + left


def _given_back(board: Board, setter: Setter, after: dict[str, list[int] | None]) -> str:
    from kernel_dvfs_clocks.nvml.library import NvmlError
    from kernel_dvfs_clocks.power import PowerLimit

    def seen(read: Callable[[], int | None]) -> int | str | None:
        try:
            return read()
        except NvmlError:  # of a sick board, whose clocks can be freed all the same
            return "unknown"

    def look() -> list[int | str | None]:
        return [seen(reading) for reading in (board.sm_mhz, board.mem_mhz, board.power_management_limit_mw)]

    *was, was_mw = look()
    PowerLimit(board.uuid).leave(setter, after, board)
    *now, limit_mw = look()
    left = " and ".join(f"{domain} locked to {mhz[0]} to {mhz[1]} MHz" for domain, mhz in after.items() if mhz)
    power = f", power limit {limit_mw / 1000:g} W again" if isinstance(limit_mw, int) and limit_mw != was_mw else ""
    return (
        f"GPU {board.uuid} ({board.name()}): both locks reset{power}{f', then {left}' if left else ''}; core "
        f"{was[0]} -> {now[0]} MHz, memory {was[1]} -> {now[1]} MHz now"
    )
