"""`kernel-dvfs devices`: which GPUs are here, what they can do, what a study of them would take, and what is missing.

Changes nothing on any GPU. Without a driver it says so, and names the simulated GPUs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as gpu_spec

if TYPE_CHECKING:
    from kernel_dvfs.gpu.nvml.board import Board
    from kernel_dvfs.gpu.nvml.library import Library


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs devices"
    parser.add_argument(
        "--config", default="", metavar="FILE", help="the study to estimate (default: config.yaml, or as shipped)"
    )


def run(options: argparse.Namespace) -> None:
    from kernel_dvfs.gpu.nvml.board import Board, uuids
    from kernel_dvfs.gpu.nvml.lease import where_leases_lie
    from kernel_dvfs.gpu.nvml.library import Library
    from kernel_dvfs.gpu.setters.advice import said
    from kernel_dvfs.shipped import config_or

    try:
        with Library() as nvml:
            found = uuids(nvml)
            for index, uuid in enumerate(found):
                for line in _describe(nvml, index, Board(nvml, uuid), config_or(options.config)):
                    print(line)
            if found:
                for line in said(found):
                    print(line)
            else:
                print("no NVIDIA GPU is visible; in a container, start it with --gpus")
            print(where_leases_lie())
    except InputError as error:
        print(error)
    print(f"simulated GPUs, no hardware needed: {', '.join(f'gpu: {name}' for name in gpu_spec.names())}")


def _describe(nvml: Library, index: int, board: Board, config: str) -> Iterator[str]:
    from kernel_dvfs.gpu.nvml.facts import facts
    from kernel_dvfs.gpu.nvml.lease import Lease
    from kernel_dvfs.gpu.setters.choice import working

    yield f"{index}: {board.name()}  gpu: nvml:{board.uuid}"
    try:
        known = facts(nvml, board)
    except InputError as error:
        yield f"   cannot be measured: {error}"
        return
    cores: list[int] = next(reversed(known["clocks"]["core_mhz"]["listed"].values()), [])
    mems = known["clocks"]["mem_mhz"]
    ecc = {True: "on", False: "off", None: "none"}[known["ecc"]]
    limit_w = "unknown" if known["power_limit_mw"] is None else f"{known['power_limit_mw'] / 1000:g} W"
    yield f"   driver {known['driver']}, PCI {known['pci_bus_id']}, power limit {limit_w}, ECC {ecc}"
    if cores:
        yield f"   core clocks: {cores[0]} to {cores[-1]} MHz ({len(cores)}), can be locked"
        yield f"   memory clocks: {', '.join(map(str, mems))} MHz, can be locked" if mems else "   memory clock: fixed"
    else:
        yield "   clocks: the driver lists none, so none can be locked: measure it with clocks: auto-only"
    yield f"   energy counter: {_counter(board)} (of the {known['energy_scope']})"
    way = working(board.uuid)
    yield f"   permission to lock clocks: {f'yes, through {way}' if way else 'no, see below'}"
    yield from _obstacles(board)
    try:
        lease = Lease(board.uuid)
        lease.take()
        stale = lease.stale
        lease.close() if stale else lease.release()
        if stale:
            yield f"   left behind by {stale.owner}: the next run resets it, or kernel-dvfs reset --uuid {board.uuid}"
    except InputError as error:
        yield f"   {error}"
    yield from _study(board.uuid, config, bool(way) and bool(cores))


def _counter(board: Board) -> str:
    from kernel_dvfs.errors import CounterFault
    from kernel_dvfs.gpu.nvml.errors import NvmlError
    from kernel_dvfs.measurement.counter import EnergyCounter

    try:
        counter = EnergyCounter(board.energy_mj, time.monotonic, time.sleep, lambda: None)
        counter.calibrate()
    except (NvmlError, CounterFault) as error:
        return f"no: {error}"
    return f"moves every {1000 * counter.period_s:.0f} ms, {1000 * counter.read_s:.1f} ms a read"


def _obstacles(board: Board) -> Iterator[str]:
    from kernel_dvfs.measurement.real.preflight import check_board

    said: list[str] = []
    try:
        check_board(board, False, said.append)
    except InputError as error:
        said.append(str(error))
    for line in said:
        yield f"   {line}"


def _study(uuid: str, config: str, can_lock: bool) -> Iterator[str]:
    """What would be measured, for how long, and what is missing for it."""
    from kernel_dvfs.measurement.real import loads

    if not Path(config).is_file():
        yield f"   no {config} here: give another --config to see what a study would take"
        return
    ways: list[dict[str, str]] = [{}, {"clocks": "auto-only"}] if can_lock else [{"clocks": "auto-only"}]
    # a configuration may be for auto-only already
    yield from dict.fromkeys(line for changed in ways for line in _estimate(uuid, config, changed))
    if not Path(loads.record()).is_file():
        yield "   missing: the CUDA kernels; snakemake builds them, or: kernel-dvfs build --cuda on"


def _estimate(uuid: str, config: str, changed: dict[str, str]) -> Iterator[str]:
    """What would be measured and for how long. changed: keys of the configuration."""
    from kernel_dvfs.measurement.real.estimate import study_s
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.plan.study import load, plan

    with TemporaryDirectory() as folder:
        try:
            content = load(config) | {"gpu": f"nvml:{uuid}"} | changed
            study = plan(content, folder)
            assert study.setup, "only tables have no setup"
            measurement = read(study.setup.write()).measurement
        except (InputError, KeyError) as error:
            yield f"   no study as configured: {error}"
            return
    parts = study_s(study, measurement, content["validation_repeats"], content["clocks"] == "lock")
    end = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + sum(parts.values())))
    targets, pairs = len(study.kernels) + len(study.passes), len(study.pairs)
    yield (
        f"   {config} with clocks: {content['clocks']}: {targets} targets x {pairs} clock pair{'s' * (pairs != 1)}, at "
        f"least {_told(sum(parts.values()))} ({', '.join(f'{part} {_told(s)}' for part, s in parts.items() if s)}), "
        f"until {end} if started now"
    )
    if parts.get("other sizes"):
        yield "   (data_parallel_batches and tensor_parallel_degrees: [] leave the other sizes out)"


def _told(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
