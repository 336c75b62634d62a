"""`kernel-dvfs reset`: give clocks back by hand, or after each job of a batch system; says what it found and did."""

from __future__ import annotations

import argparse

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.board import Board, uuids
from kernel_dvfs.gpu.nvml.lease import Lease, left_behind
from kernel_dvfs.gpu.nvml.library import Library
from kernel_dvfs.gpu.nvml.locks import reset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs reset --all; in the epilog of a batch system: kernel-dvfs reset --all --stale"
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--uuid", metavar="UUID", help="one GPU")
    which.add_argument("--all", action="store_true", help="every GPU")
    parser.add_argument("--stale", action="store_true", help="only where a killed run has left a lease behind (all)")
    parser.add_argument("--force", action="store_true", help="also where another run holds the GPU")


def run(options: argparse.Namespace) -> None:
    if not (options.uuid or options.all or options.stale):
        raise InputError("reset: which GPU? --uuid UUID, --all, or --stale for those that a killed run has left locked")
    if options.stale:
        wanted = [uuid for uuid in left_behind() if options.uuid in (None, uuid)]
        if not wanted:
            print("no lease is left behind: nothing to reset")
            return
    with Library() as nvml:
        if not options.stale:
            wanted = uuids(nvml) if options.all else [options.uuid]
        errors = []
        for uuid in wanted:
            try:
                print(_reset(nvml, uuid, options))
            except (InputError, ExceptionGroup) as error:
                # one GPU must not keep the others from being restored
                errors.append(error)
    if errors:
        raise ExceptionGroup("not all clocks were reset", errors)


def _reset(nvml: Library, uuid: str, options: argparse.Namespace) -> str:
    board = Board(nvml, uuid)
    lease = Lease(uuid)
    try:
        lease.take()
    except InputError as held:
        if options.stale and not options.force:
            return f"{held}: left alone"
        if not options.force:
            raise InputError(f"{held}, or add --force") from None
        return f"{_given_back(board)}, although {held}"
    if options.stale and lease.stale is None:
        lease.release()
        return f"GPU {uuid}: its lease is not stale: left alone"
    try:
        said = _given_back(board)
    except BaseException:
        lease.close()
        raise
    left = f"; removed the lease that {lease.stale.owner} left" if lease.stale else ""
    lease.release()
    return said + left


def _given_back(board: Board) -> str:
    before = board.sm_mhz(), board.mem_mhz()
    reset(board)
    after = board.sm_mhz(), board.mem_mhz()
    return (
        f"GPU {board.uuid} ({board.name()}): both locks reset; core {before[0]} -> {after[0]} MHz, "
        f"memory {before[1]} -> {after[1]} MHz now"
    )
