"""Commands about this machine: its GPUs, what sets their clocks, the native layer, a captured step."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernel_dvfs.cli import THROUGH
from kernel_dvfs.cli.arguments import number, one_of
from kernel_dvfs.errors import InputError, lines
from kernel_dvfs.gpu.clocks import check_after, parse_after

if TYPE_CHECKING:
    from kernel_dvfs.gpu.nvml.board import Board
    from kernel_dvfs.gpu.nvml.library import Library
    from kernel_dvfs.gpu.setters.advice import Advice
    from kernel_dvfs.gpu.setters.setter import Setter
    from kernel_dvfs.measurement.real.inventory import Estimate, Gpu, Inventory
    from kernel_dvfs.workload.step import Step


# --- devices --------------------------------------------------------------------------------------------------------


def add_devices(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs devices"
    parser.add_argument(
        "--config", default="", metavar="FILE", help="the study to estimate (default: config.yaml, or as shipped)"
    )
    parser.add_argument("--step", default="", metavar="STEP.json", help="estimate a study of this captured step")
    parser.add_argument("--json", action="store_true", help="print one JSON object (docs/python.md)")


def run_devices(options: Namespace) -> None:
    from dataclasses import asdict

    from kernel_dvfs.measurement.real.inventory import inventory
    from kernel_dvfs.plan.config import load
    from kernel_dvfs.plan.estimate import estimates
    from kernel_dvfs.shipped import config_or

    config = config_or(options.config)
    if options.config and os.path.isfile(config):
        load(config)  # one that cannot be read is refused, with a GPU or without
    if options.step:
        from kernel_dvfs.workload import step as steps

        steps.read(options.step)  # likewise
    found = inventory(lambda uuid, can_lock: estimates(uuid, config, can_lock, options.step))
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
        yield (
            "(the target `answer` ends after measuring again; data_parallel_batches and tensor_parallel_degrees: [] "
            "leave the other sizes out of `all`)"
        )


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


def _told(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# --- identify -------------------------------------------------------------------------------------------------------


def add_identify(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs identify --slurm='--partition=gpu --gpus=1 --exclusive'"
    parser.add_argument("--gpu", default="", metavar="UUID|INDEX", help="which GPU (default: the only one, or Slurm's)")
    parser.add_argument("--results", default="results", metavar="FOLDER", help="where it is kept (results)")
    parser.add_argument("--slurm", metavar="OPTIONS", help="look at the GPU that a job with these options gets")
    parser.add_argument("--tell", metavar="FILE", help="also write what is said here")


def run_identify(options: Namespace) -> None:
    from kernel_dvfs.measurement.real import specimen

    if options.slurm is not None:
        print(specimen.elsewhere(options.slurm, options.results))
    else:
        print(specimen.here(options.gpu, options.results, options.tell))


# --- counter --------------------------------------------------------------------------------------------------------


def add_counter(parser: ArgumentParser) -> None:
    parser.description = (
        "Compare a GPU's energy counter with the integral of its power reading, idle or under the load that runs. "
        "Only reads: no clock is set, nothing is run. Exit code 1 where the two disagree."
    )
    parser.epilog = "example: kernel-dvfs counter --seconds 10"
    parser.add_argument("--gpu", default="", metavar="GPU", help="UUID or index, if there are several")
    parser.add_argument(
        "--seconds", type=number(1, 3600, "seconds"), default=10.0, metavar="S", help="how long to look (default: 10)"
    )


def run_counter(options: Namespace) -> int:
    from kernel_dvfs.gpu.nvml.board import resolve
    from kernel_dvfs.gpu.nvml.library import Library
    from kernel_dvfs.measurement.counter import EnergyCounter

    with Library() as nvml:
        board = resolve(nvml, options.gpu.removeprefix("nvml:"))

        def power_mw() -> int:
            found = board.power_mw()
            if not found:
                raise InputError(f"counter: {board.name()} has no power reading, so there is nothing to compare with")
            return found

        power_mw()
        counter = EnergyCounter(board.energy_mj, time.monotonic, time.sleep, lambda: None)
        counter.calibrate()
        found = counter.against_power(power_mw, options.seconds)
        name = board.name()
    remedy = {
        "agree": "",
        "disagree": "; trust neither before you know which: nvidia-smi -q -d POWER, another driver, a meter",
        "not steady": "; a power reading may lag by a second: look longer, or at a steady load",
    }[found.verdict]
    print(
        f"{name}: counter {found.counter_j:.1f} J, power integrated {found.integral_j:.1f} J over {found.time_s:.2f} s "
        f"({found.lowest_w:.0f} to {found.highest_w:.0f} W, {found.readings} readings), counter "
        f"{found.difference_percent:+.1f} %: {found.verdict}{remedy}"
    )
    return int(found.verdict == "disagree")


# --- calibrate ------------------------------------------------------------------------------------------------------


def add_calibrate(parser: ArgumentParser) -> None:
    parser.description = (
        "Fit a simulated GPU to a board of this machine: two probes of its memory, half a minute each, at the clocks "
        "as they are. Nothing is set. Writes a configuration that a study takes (snakemake --configfile)."
    )
    parser.epilog = "example: kernel-dvfs calibrate --gpu nvml:0 -o board.yaml"
    parser.add_argument("--gpu", default="nvml", metavar="nvml[:UUID|INDEX]", help="which GPU (default: the only one)")
    parser.add_argument(
        "--like", default="", metavar="SPEC", help="the simulated GPU of its type (default: by its name)"
    )
    parser.add_argument("-o", "--output", default="board.yaml", metavar="FILE.yaml", help="default: board.yaml")


def run_calibrate(options: Namespace) -> None:
    import yaml

    from kernel_dvfs.deploy.control import facts_of
    from kernel_dvfs.files import write_text
    from kernel_dvfs.gpu import spec as specs
    from kernel_dvfs.gpu.guard import Guard
    from kernel_dvfs.measurement.real import calibration

    about = facts_of(options.gpu.removeprefix("nvml").removeprefix(":"))
    like = options.like or specs.of_board(about["name"])
    if not like:
        raise InputError(
            f"calibrate: no simulated GPU is of the type of {about['name']}; name the nearest, --like "
            f"{'|'.join(specs.names())}"
        )
    spec = specs.resolve(like)
    with Guard(about["uuid"], mode="dry-run", say=_say) as guard:
        probes = calibration.measure(guard, about, _say)
    found = calibration.overrides(spec, probes)
    date = time.strftime("%Y-%m-%d", time.gmtime())
    heading = f"# {about['name']} ({about['uuid']}), driver {about['driver']}, {date}: kernel-dvfs calibrate\n"
    write_text(options.output, heading + yaml.safe_dump({"gpu": like, "gpu_overrides": found}, sort_keys=False))
    families, own = found["families"], spec["families"]
    print(
        f"{about['name']}: a DRAM byte takes {found['energy_pj']['dram_byte']:g} pJ ({like}: "
        f"{spec['energy_pj']['dram_byte']:g}); copies reach {families['default']['dram_efficiency']:g} of "
        f"{spec['memory']['gb_per_s']:g} GB/s ({own['residual']['dram_efficiency']:g}), reads "
        f"{families['bias']['dram_efficiency']:g} ({own['bias']['dram_efficiency']:g})"
    )
    print(f"{options.output}: simulates this board: snakemake --cores 1 all --configfile {options.output}")


# --- reset ----------------------------------------------------------------------------------------------------------

_LOOK_EVERY_S = 1.0
_LOOK_FOR_GPUS_S = 30.0


def add_reset(parser: ArgumentParser) -> None:
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
        help="with --all, in an epilog: each GPU that Slurm gave the job ($SLURM_JOB_GPUS; else all)",
    )
    parser.add_argument("--through", default="auto", metavar="WAY", help=THROUGH)
    parser.add_argument(
        "--after",
        default="",
        metavar="core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST",
        help="the site's own clocks, MHz, locked instead of none; either or both",
    )


def run_reset(options: Namespace) -> None:
    from kernel_dvfs.gpu.nvml.board import uuids
    from kernel_dvfs.gpu.nvml.library import Library
    from kernel_dvfs.gpu.setters import choice
    from kernel_dvfs.gpu.setters.broker import left_behind

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
    if options.stale:
        wanted = [uuid for uuid in left_behind() if options.uuid in (None, uuid)]
        if not wanted:
            _check_here(options.uuid, after)
            print("no lease is left behind: nothing to reset")
            return
    with Library() as nvml:
        if not options.stale:
            wanted = _of_job(uuids(nvml)) if options.after_job else uuids(nvml) if options.all else [options.uuid]
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


def _of_job(here: list[str]) -> list[str]:
    """UUIDs of the GPUs of the job in whose epilog this runs, of those that are here, in NVML's order.

    Raises InputError where Slurm names one that is not here.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return here
    # the numbers are the node's own, whatever a job sees of it (Slurm's "Prolog and Epilog Guide"); none: it had no GPU
    numbers = list(filter(None, os.environ.get("SLURM_JOB_GPUS", "").split(",")))
    if wrong := [each for each in numbers if not (each.isdecimal() and len(each) <= 4 and int(each) < len(here))]:
        raise InputError(f"reset: SLURM_JOB_GPUS names {wrong[0]!r}, and there are {len(here)} GPUs here; use --uuid")
    return [here[int(each)] for each in numbers]


def _check_here(uuid: str | None, after: dict[str, list[int] | None]) -> None:
    """Raise InputError unless `after` can be locked on the GPU, or on each where none is named."""
    from kernel_dvfs.gpu.nvml.board import Board, uuids
    from kernel_dvfs.gpu.nvml.facts import facts
    from kernel_dvfs.gpu.nvml.library import Library

    if not any(after.values()):
        return  # nothing is asked of NVML, so that a watch may start before a driver does
    with Library() as nvml:
        for each in [uuid] if uuid else uuids(nvml):
            check_after(facts(nvml, Board(nvml, each))["clocks"], after, f"--after on {each}")


def _watch(options: Namespace) -> None:
    """Reset what killed runs leave locked as soon as they have left it; does not return.

    A job that is killed with all its processes takes its janitor along. Whoever runs this lives elsewhere.
    """
    from kernel_dvfs.gpu.nvml.board import uuids
    from kernel_dvfs.gpu.nvml.library import Library
    from kernel_dvfs.gpu.setters.broker import left_at, left_behind

    here: list[str] = []
    here_until_s = 0.0
    told: dict[str, str] = {}  # by UUID, so that two that fail in turn are told once each
    while True:
        try:
            found = left_behind()
        except (InputError, ExceptionGroup):  # a broker that starts again; it restores by itself
            found = []
        for uuid in found:
            try:
                # any user can leave leases of GPUs that there are not: thousands of them must cost next to nothing
                if uuid not in here and time.monotonic() > here_until_s:
                    here_until_s = time.monotonic() + _LOOK_FOR_GPUS_S
                    with Library() as nvml:
                        here = uuids(nvml)
                if uuid in here and options.uuid in (None, uuid) and left_at(uuid):
                    with Library() as nvml:
                        print(_reset(nvml, uuid, options), flush=True)
                    told.pop(uuid, None)
            except (InputError, ExceptionGroup) as error:
                line = "; ".join(lines(error))
                if line != told.get(uuid):
                    print(f"error: {line}", file=sys.stderr, flush=True)
                told[uuid] = line
        time.sleep(_LOOK_EVERY_S)


def _reset(nvml: Library, uuid: str, options: Namespace) -> str:
    from kernel_dvfs.gpu.nvml.board import Board
    from kernel_dvfs.gpu.nvml.facts import facts
    from kernel_dvfs.gpu.nvml.lease import Held
    from kernel_dvfs.gpu.setters import choice
    from kernel_dvfs.gpu.setters.broker import Broker, Connection, evict, lease_of

    board = Board(nvml, uuid)
    after = parse_after(options.after)
    check_after(facts(nvml, board)["clocks"], after, "--after")
    way = choice.resolve(options.through, uuid)
    lease = lease_of(uuid, own=way != Broker.name)
    is_brokers = isinstance(lease, Connection)
    choice.check_after(Broker.name if is_brokers else way, after)

    def given_back() -> str:
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
        if not (options.force or options.after_job):
            raise InputError(f"{held}, or add --force") from None
        if not is_brokers:
            return f"{given_back()}, although {held}"
        was = evict(uuid, held.lease)
        try:
            lease.take()
        except Held as came:  # whose clocks are not to be freed: only for the former was that asked
            return f"GPU {uuid}: taken from {was}, whose clocks the broker has freed; {came}: left alone"
    except InputError as unusable:
        if is_brokers:
            raise
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
    from kernel_dvfs.gpu.power import PowerLimit

    was, was_mw = (board.sm_mhz(), board.mem_mhz()), board.power_management_limit_mw()
    PowerLimit(board.uuid).leave(setter, after, board)
    limit_mw = board.power_management_limit_mw()
    now = board.sm_mhz(), board.mem_mhz()
    left = " and ".join(f"{domain} locked to {mhz[0]} to {mhz[1]} MHz" for domain, mhz in after.items() if mhz)
    power = "" if limit_mw is None or limit_mw == was_mw else f", power limit {limit_mw / 1000:g} W again"
    return (
        f"GPU {board.uuid} ({board.name()}): both locks reset{power}{f', then {left}' if left else ''}; core "
        f"{was[0]} -> {now[0]} MHz, memory {was[1]} -> {now[1]} MHz now"
    )


# --- broker ---------------------------------------------------------------------------------------------------------


def add_broker(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs broker --allow alice,%gpu-users, as root"
    does = parser.add_mutually_exclusive_group(required=True)
    does.add_argument("--allow", metavar="USER,...", help="names, numbers, and %%groups of users; root always may")
    does.add_argument("--list", action="store_true", help="say who has which GPU, and what is left locked")
    does.add_argument("--evict", metavar="UUID", help="take a GPU from its client, and free its clocks (root)")
    parser.add_argument(
        "--after",
        default="",
        metavar="core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST",
        help="the site's own clocks, MHz, locked after each client instead of none",
    )
    parser.add_argument(
        "--hours",
        type=number(0.001, 10_000, "hours"),
        default=168.0,
        metavar="H",
        help="a client's longest time (168)",
    )
    parser.add_argument(
        "--allow-power",
        default="",
        metavar="USER,...",
        help="who of them may set a power limit, too (root)",
    )
    parser.add_argument("--lease", metavar="NAME", help="with --evict: only from this one of --list (default: any)")
    parser.add_argument("--unit", action="store_true", help="print a systemd unit instead")


def run_broker(options: Namespace) -> None:
    from kernel_dvfs.gpu.broker import Server
    from kernel_dvfs.gpu.broker_unit import unit, users
    from kernel_dvfs.gpu.setters.broker import evict, listed

    if options.lease and not options.evict:
        raise InputError("--lease names what --evict ends; give --evict UUID, too")
    if options.list:
        for each in listed():
            has = f"{each['holder']}, since {each['since_utc']}, lease {each['lease']}" if each["holder"] else "free"
            print(f"GPU {each['uuid']}: {has}" + (f"; left: {each['left']}" if each["left"] else ""))
        return
    if options.evict:
        print(f"GPU {options.evict}: taken from {evict(options.evict, options.lease)}; its clocks are free")
        return
    allow, after = users(options.allow), parse_after(options.after)
    power = users(options.allow_power, "--allow-power")
    if options.unit:
        print(unit(options.allow, options.after, options.hours, options.allow_power))
        return
    Server(allow, after, 3600 * options.hours, power).serve()


# --- build ----------------------------------------------------------------------------------------------------------

MODES = ("auto", "on", "off")


def add_build(parser: ArgumentParser) -> None:
    """Describe the options to an argparse parser."""
    parser.description = (
        "Compile the native layer into results/native/. With --cpu, --cuda, --graph, --pipeline only what they name, "
        "else all. "
        "In mode auto the build goes on where a tool is missing, on fails, off removes what was built."
    )
    parser.epilog = "example: kernel-dvfs build --cuda on"
    parser.add_argument(
        "--native-dir", default="", metavar="DIR", help="the CMake project (default: native, or as shipped)"
    )
    parser.add_argument(
        "--out",
        default="results/native",
        metavar="DIR",
        help="where the backends go (default: results/native)",
    )
    parser.add_argument("--cpu", **one_of(MODES), help="the C reference")
    parser.add_argument(
        "--cuda",
        **one_of(MODES),
        help="the CUDA kernels ($CUDAARCHS: other architectures than 80, 86, 90 and PTX)",
    )
    parser.add_argument("--graph", **one_of(MODES), help="what reads captured CUDA graphs")
    parser.add_argument("--pipeline", **one_of(MODES), help="the search for clocks of a pipeline")
    parser.add_argument(
        "--beside",
        action="store_true",
        help="put it where the search is found from every folder (with --pipeline alone)",
    )


def run_build(args: Namespace) -> int:
    """Build what `args` asks for. Raises InputError: see kernel_dvfs.native.build.build."""
    from kernel_dvfs import package
    from kernel_dvfs.native.build import build
    from kernel_dvfs.shipped import native_or

    named = {"cpu": args.cpu, "cuda": args.cuda, "graph": args.graph, "pipeline": args.pipeline}
    if not any(named.values()):
        named = dict.fromkeys(named, "auto")
    if args.beside and any(mode for backend, mode in named.items() if backend != "pipeline"):
        raise InputError("--beside is for the search for clocks: give it with --pipeline alone")
    out = os.path.join(package.FOLDER, "kernel_dvfs_pipeline", "native") if args.beside else args.out
    for backend, mode in named.items():
        if mode:
            build(native_or(args.native_dir), out, backend, mode)
    return 0


# --- capture --------------------------------------------------------------------------------------------------------


def add_capture(parser: ArgumentParser) -> None:
    parser.description = (
        "Capture a PyTorch training step as a CUDA graph and find out what each of its kernels is. FUNCTION takes no "
        "arguments and returns the step: a function without arguments (static inputs, no wait of the host), or a "
        "torch.cuda.CUDAGraph(keep_graph=True). The step is run a few times; clocks are left alone."
    )
    parser.epilog = "example: kernel-dvfs capture train.py:make_step -o step.json"
    parser.add_argument("source", metavar="FILE.py:FUNCTION", help="what makes the step")
    parser.add_argument("-o", "--output", default="step.json", metavar="STEP.json", help="default: step.json")
    parser.add_argument("--name", default="", help="name of the step (default: from file and function)")
    parser.add_argument(
        "--results", default="results", metavar="DIR", help="of the built native layer (default: results)"
    )
    parser.add_argument("--keep", default="", metavar="DIR", help="keep the nodes and the trace, too")
    parser.add_argument("--share", action="store_true", help="run even if other processes compute on the GPU")


def run_capture(options: Namespace) -> None:
    from kernel_dvfs.step import capturing
    from kernel_dvfs.workload import step as steps

    step = capturing.capture(options.source, options.name, options.results, _say, options.keep, options.share)
    if capturing.same_content(options.output, step):
        _say(f"{options.output}: holds this very step already ({step.checksum}), and is kept")
        return
    steps.write(options.output, step)
    for line in summary(step):
        print(line)


def summary(step: Step) -> list[str]:
    """What was captured, in a few lines."""
    lines = [
        f"{step.name}: {len(step.nodes)} nodes, {len(step.order)} launches, {len(step.targets)} targets, sections "
        f"{', '.join(step.sections)}"
    ]
    if step.coverage is not None:
        lines.append(f"{100 * step.coverage:.1f} % of the traced time can be measured kernel by kernel")
    if step.state.left_out:
        lines.append(
            f"{step.state.saved_byte} of {step.state.byte} B of its state were saved: {step.state.left_out}; the rest "
            "is as the last run left it"
        )
    lines += _costs(step)
    lines += [f"left at auto: {target.id} x{target.launches} ({target.reason})" for target in step.left_at_auto[:10]]
    return lines


def _costs(step: Step) -> list[str]:
    """Loop and graph beside each other, where both were measured."""
    whole, lines = step.whole, []
    for name, time_us, energy_j in (
        ("as a loop", whole.loop_us, whole.loop_j),
        ("as a graph", whole.graph_us, whole.graph_j),
    ):
        if time_us is None:
            continue
        energy = "" if energy_j is None else f", {energy_j:.4g} J"
        per = [f", {1e3 * energy_j / count:.4g} mJ a {item}" for item, count in step.items.items() if energy_j]
        lines.append(f"{name}: {1e-3 * time_us:.4g} ms{energy}{''.join(per)}")
    return lines


def _say(line: str) -> None:
    print(line, file=sys.stderr)
