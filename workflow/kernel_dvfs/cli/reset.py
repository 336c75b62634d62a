"""`kernel-dvfs reset`: give clocks back by hand, or after each job of a batch system; says what it found and did.

As an epilog it meets whatever users have left in a folder that all may write to. What is no lease of a GPU that is here
is named and left alone, and is no error: an epilog that fails takes its node out of service.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from kernel_dvfs.cli import THROUGH
from kernel_dvfs.errors import InputError, lines
from kernel_dvfs.gpu.clocks import check_after, parse_after
from kernel_dvfs.gpu.nvml.board import Board, uuids
from kernel_dvfs.gpu.nvml.facts import facts
from kernel_dvfs.gpu.nvml.lease import Held, Lease, left_at, left_behind
from kernel_dvfs.gpu.nvml.library import Library
from kernel_dvfs.gpu.setters import choice
from kernel_dvfs.gpu.setters.setter import leave_as_configured

if TYPE_CHECKING:
    from kernel_dvfs.gpu.setters.setter import Setter

_LOOK_EVERY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs reset --all; in the epilog of a batch system: kernel-dvfs reset --all --stale"
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--uuid", metavar="UUID", help="one GPU")
    which.add_argument("--all", action="store_true", help="every GPU")
    parser.add_argument(
        "--stale", action="store_true", help="only GPUs on which a killed run has left a lease (default: of all GPUs)"
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="with --stale: look again every second; start it outside of the jobs that it watches",
    )
    parser.add_argument("--force", action="store_true", help="even if another run holds the GPU")
    parser.add_argument("--through", default="auto", metavar="WAY", help=THROUGH)
    parser.add_argument(
        "--after",
        default="",
        metavar="core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST",
        help="leave the site's own clocks locked instead of none, MHz; either may be left out",
    )


def run(options: argparse.Namespace) -> None:
    if not (options.uuid or options.all or options.stale):
        raise InputError("reset: which GPU? --uuid UUID, --all, or --stale for those that a killed run has left locked")
    if options.watch and not options.stale:
        raise InputError("reset: --watch looks for what killed runs leave; add --stale")
    # what could never be done is refused now, not when something is left behind and nobody looks
    after = parse_after(options.after)
    choice.check(options.through, after)
    if options.watch:
        _check_here(options.uuid, after)
        _watch(options)
    if options.stale:
        wanted = [uuid for uuid in left_behind() if options.uuid in (None, uuid)]
        if not wanted:
            _check_here(options.uuid, after)
            print("no lease is left behind: nothing to reset")
            return
    with Library() as nvml:
        if not options.stale:
            wanted = uuids(nvml) if options.all else [options.uuid]
        errors = []
        here = uuids(nvml)
        for uuid in wanted:
            if options.stale and uuid not in here:
                print(f"lease of {uuid}: no such GPU here: left alone")
                continue
            try:
                print(_reset(nvml, uuid, options))
            except (InputError, ExceptionGroup) as error:
                # one GPU must not keep the others from being restored
                errors.append(error)
    if errors:
        raise ExceptionGroup("not all clocks were reset", errors)


def _check_here(uuid: str | None, after: dict[str, list[int] | None]) -> None:
    """Raise InputError unless `after` can be locked on the GPU, or on each where none is named."""
    if not any(after.values()):
        return  # nothing is asked of NVML, so that a watch may start before a driver does
    with Library() as nvml:
        for each in [uuid] if uuid else uuids(nvml):
            check_after(facts(nvml, Board(nvml, each))["clocks"], after, f"--after on {each}")


def _watch(options: argparse.Namespace) -> None:
    """Reset what killed runs leave locked as soon as they have left it; does not return.

    A job that is killed with all its processes takes its janitor along. Whoever runs this lives elsewhere.
    """
    told: dict[str, str] = {}  # by UUID, so that two that fail in turn are told once each
    while True:
        for uuid in left_behind():
            try:
                if options.uuid in (None, uuid) and left_at(uuid):
                    with Library() as nvml:
                        print(_reset(nvml, uuid, options), flush=True)
                    told.pop(uuid, None)
            except (InputError, ExceptionGroup) as error:
                line = "; ".join(lines(error))
                if line != told.get(uuid):
                    print(f"error: {line}", file=sys.stderr, flush=True)
                told[uuid] = line
        time.sleep(_LOOK_EVERY_S)


def _reset(nvml: Library, uuid: str, options: argparse.Namespace) -> str:
    board = Board(nvml, uuid)
    after = parse_after(options.after)
    check_after(facts(nvml, board)["clocks"], after, "--after")
    lease = Lease(uuid)

    def given_back() -> str:
        way = choice.resolve(options.through, uuid)
        choice.check_after(way, after)
        setter = choice.opened(way, board)
        try:
            return _given_back(board, setter, after)
        finally:
            setter.close()

    try:
        lease.take()
    except Held as held:
        if options.stale and not options.force:
            return f"{held}: left alone"
        if not options.force:
            raise InputError(f"{held}, or add --force") from None
        return f"{given_back()}, although {held}"
    except InputError as unusable:
        # nothing that lies in the lease's place may keep a GPU locked
        if options.stale:
            return f"{unusable}: left alone"
        return f"{given_back()}, although who holds it is not known: {unusable}"
    if options.stale and lease.stale is None:
        lease.release()
        return f"GPU {uuid}: its lease is not stale: left alone"
    try:
        said = given_back()
    except BaseException:
        lease.close()
        raise
    left = f"; removed the lease that {lease.stale.owner} left" if lease.stale else ""
    lease.release()
    return said + left


def _given_back(board: Board, setter: Setter, after: dict[str, list[int] | None]) -> str:
    was = board.sm_mhz(), board.mem_mhz()
    leave_as_configured(setter, after)
    now = board.sm_mhz(), board.mem_mhz()
    left = " and ".join(f"{domain} locked to {mhz[0]} to {mhz[1]} MHz" for domain, mhz in after.items() if mhz)
    return (
        f"GPU {board.uuid} ({board.name()}): both locks reset{f', then {left}' if left else ''}; core {was[0]} -> "
        f"{now[0]} MHz, memory {was[1]} -> {now[1]} MHz now"
    )
