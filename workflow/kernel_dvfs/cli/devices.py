"""`kernel-dvfs devices`."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from kernel_dvfs.measurement.real.inventory import inventory
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.estimate import estimates
from kernel_dvfs.shipped import config_or
from kernel_dvfs.workload import step as steps

if TYPE_CHECKING:
    from kernel_dvfs.measurement.real.inventory import Inventory, MachineGpu
    from kernel_dvfs_clocks.setters.advice import Advice


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs devices"
    parser.add_argument(
        "--config", default="", metavar="FILE", help="the study to estimate (default: config.yaml, or as shipped)"
    )
    parser.add_argument("--step", default="", metavar="STEP.json", help="estimate a study of this captured step")
    parser.add_argument("--json", action="store_true", help="print one JSON object (docs/python.md)")


def run(options: Namespace) -> None:
    config = config_or(options.config)
    if options.config and os.path.isfile(config):
        load(config)  # one that cannot be read is refused, with a GPU or without
    if options.step:
        steps.read(options.step)  # likewise
    asked = {"workload": f"step:{options.step}"} if options.step else {}
    machine = inventory(lambda uuid, can_lock: estimates(uuid, config, can_lock, asked))
    if options.json:
        print(json.dumps(asdict(machine)))
        return
    for line in _lines(machine):
        print(line)


def _lines(machine: Inventory) -> Iterator[str]:
    for gpu in machine.gpus:
        yield f"{gpu.index}: {gpu.name}" + (f"  gpu: {gpu.gpu}" if gpu.gpu else "")
        yield from (f"   {line}" for line in _of_gpu(gpu))
    if machine.locking:
        yield from _of_locking(machine.locking)
    if machine.problem:
        yield machine.problem
    if machine.leases:
        yield machine.leases
    yield f"simulated GPUs, no hardware needed: {', '.join(f'gpu: {name}' for name in machine.simulated)}"


_TRIED = "only trying shows whether the driver does it (kernel-dvfs latency)"


_LISTED = "listed; only trying shows whether the driver locks them (kernel-dvfs latency)"


def _of_gpu(gpu: MachineGpu) -> Iterator[str]:
    if gpu.problem:
        yield f"cannot be measured: {gpu.problem}"
        return
    ecc = {True: "on", False: "off", None: "none"}[gpu.ecc]
    limit_w = "unknown" if gpu.power_limit_w is None else f"{gpu.power_limit_w:g} W"
    yield f"driver {gpu.driver}, PCI {gpu.pci_bus_id}, power limit {limit_w}, ECC {ecc}"
    cores, mems = gpu.core_mhz, gpu.mem_mhz
    if cores:
        yield f"core clocks: {cores[0]} to {cores[-1]} MHz ({len(cores)}), listed"
        yield f"memory clocks: {', '.join(map(str, mems))} MHz, {_LISTED}" if mems else "memory clock: fixed"
    else:
        yield "clocks: the driver lists none, so none can be locked: measure it with clocks: auto-only"
    counter = (
        f"no: {gpu.counter_problem}"
        if gpu.counter_problem
        else f"moves every {gpu.counter_period_ms:.0f} ms, {gpu.counter_read_ms:.1f} ms a read"
    )
    yield f"energy counter: {counter} (of the {gpu.energy_scope})"
    rights = f"by its rights, through {gpu.through}; {_TRIED}" if gpu.through else "no, see below"
    yield f"permission to lock clocks: {rights}"
    yield from gpu.notes
    if gpu.left_behind_by:
        yield f"left behind by {gpu.left_behind_by}: the next run resets it, or kernel-dvfs reset --uuid {gpu.uuid}"
    if gpu.lease_problem:
        yield gpu.lease_problem
    for estimate in gpu.estimates:
        yield from estimate.in_words()
    yield from gpu.missing


def _of_locking(locking: Advice) -> Iterator[str]:
    yield "ways to lock clocks here (docs/cluster.md):"
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
