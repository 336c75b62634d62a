"""`kernel-dvfs devices`: which GPUs are here, what they can do, what a study of them would take, and what is missing.

Changes nothing on any GPU. Without a driver it says so, and names the simulated GPUs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_dvfs.gpu.setters.choice import Advice
    from kernel_dvfs.measurement.real.inventory import Estimate, Gpu, Inventory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs devices"
    parser.add_argument(
        "--config", default="", metavar="FILE", help="the study to estimate (default: config.yaml, or as shipped)"
    )
    parser.add_argument("--json", action="store_true", help="print it all as one JSON object (docs/python.md)")


def run(options: argparse.Namespace) -> None:
    from kernel_dvfs.measurement.real.inventory import inventory
    from kernel_dvfs.plan.estimate import estimates
    from kernel_dvfs.shipped import config_or

    config = config_or(options.config)
    found = inventory(lambda uuid, can_lock: estimates(uuid, config, can_lock))
    if options.json:
        print(json.dumps(asdict(found)))
        return
    for line in _lines(found):
        print(line)


def _lines(found: Inventory) -> Iterator[str]:
    for gpu in found.gpus:
        yield f"{gpu.index}: {gpu.name}  gpu: {gpu.gpu}"
        yield from (f"   {line}" for line in _of_gpu(gpu))
    if found.locking:
        yield from _of_locking(found.locking)
    if found.problem:
        yield found.problem
    if found.leases:
        yield found.leases
    yield f"simulated GPUs, no hardware needed: {', '.join(f'gpu: {name}' for name in found.simulated)}"


def _of_gpu(gpu: Gpu) -> Iterator[str]:
    if gpu.problem:
        yield f"cannot be measured: {gpu.problem}"
        return
    ecc = {True: "on", False: "off", None: "none"}[gpu.ecc]
    limit_w = "unknown" if gpu.power_limit_w is None else f"{gpu.power_limit_w:g} W"
    yield f"driver {gpu.driver}, PCI {gpu.pci_bus_id}, power limit {limit_w}, ECC {ecc}"
    cores, mems = gpu.core_mhz, gpu.mem_mhz
    if cores:
        yield f"core clocks: {cores[0]} to {cores[-1]} MHz ({len(cores)}), can be locked"
        yield f"memory clocks: {', '.join(map(str, mems))} MHz, can be locked" if mems else "memory clock: fixed"
    else:
        yield "clocks: the driver lists none, so none can be locked: measure it with clocks: auto-only"
    counter = (
        f"no: {gpu.counter_problem}"
        if gpu.counter_problem
        else f"moves every {gpu.counter_period_ms:.0f} ms, {gpu.counter_read_ms:.1f} ms a read"
    )
    yield f"energy counter: {counter} (of the {gpu.energy_scope})"
    yield f"permission to lock clocks: {f'yes, through {gpu.through}' if gpu.through else 'no, see below'}"
    yield from gpu.notes
    if gpu.left_behind_by:
        yield f"left behind by {gpu.left_behind_by}: the next run resets it, or kernel-dvfs reset --uuid {gpu.uuid}"
    if gpu.lease_problem:
        yield gpu.lease_problem
    for estimate in gpu.estimates:
        yield from _of_study(estimate)
    yield from gpu.missing


def _of_study(estimate: Estimate) -> Iterator[str]:
    from kernel_dvfs.measurement.real.inventory import OTHER_SIZES

    if estimate.problem:
        yield f"no study as configured: {estimate.problem}"
        return
    total_s = sum(estimate.least_s.values())
    end = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + total_s))
    yield (
        f"{estimate.config} with clocks: {estimate.clocks}: {estimate.targets} targets x {estimate.pairs} clock "
        f"pair{'s' * (estimate.pairs != 1)}, at least {_told(total_s)} "
        f"({', '.join(f'{part} {_told(s)}' for part, s in estimate.least_s.items())}), until {end} if started now"
    )
    if OTHER_SIZES in estimate.least_s:
        yield "(data_parallel_batches and tensor_parallel_degrees: [] leave the other sizes out)"


def _of_locking(locking: Advice) -> Iterator[str]:
    yield "ways to lock clocks here (docs/clocks-without-root.md):"
    for way in locking.ways:
        limits = f"; {way.limits}" if way.limits else ""
        yield (
            f"   {way.name:7} no: {way.obstacle}; needs {way.needs}" if way.obstacle else f"   {way.name:7} yes{limits}"
        )
    yield f"   {'slurm':7} {locking.slurm}"
    if not locking.through:
        yield "   through: auto finds none of its ways. Your administrator can give you one of these:"
        for request in locking.requests:
            yield f"   - {request.what}"
            yield from (f"        {line}" for line in request.lines)
        return
    yield f"   through: auto takes {locking.through}"
    if locking.watch:
        yield "   a job killed with all its processes leaves clocks locked; this, started outside of it, frees them:"
        yield f"        {locking.watch}"


def _told(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
