"""Commands that measure, and what becomes of records. Light: a measurement job imports only what its point needs."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, NoReturn

from kernel_dvfs.cli import json_object
from kernel_dvfs.cli.arguments import COUNT, REPEAT, one_of, whole
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json, parse_json, write_text
from kernel_dvfs.gpu.clocks import BASELINE, Pair, label
from kernel_dvfs.gpu.clocks import parse as parse_pair

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from kernel_dvfs.measurement.consistency import Comparison
    from kernel_dvfs.measurement.real.server import Server
    from kernel_dvfs.measurement.setup import Setup


# --- measure --------------------------------------------------------------------------------------------------------

# the option of every command that measures
SESSION = "of a real GPU: one measuring process for all of a name, another one for the next name"


def add_measure(parser: ArgumentParser) -> None:
    from kernel_dvfs.measurement.campaign import SWEEP

    parser.epilog = "example: kernel-dvfs measure --gpu rtx_3080_ti --target forward_gelu --clocks 1470,auto -o r0.json"
    parser.add_argument(
        "--gpu", required=True, metavar="SETUP", help="a setup file, the name of a simulated GPU, or nvml[:UUID|INDEX]"
    )
    parser.add_argument("--target", required=True, metavar="ID", help="kernel id, kernel/ID or pass/NAME")
    parser.add_argument("--clocks", required=True, metavar="CORE,MEM", help="MHz or auto, each")
    parser.add_argument(
        "--campaign", default=SWEEP, metavar="NAME", help=f"what the measurement is for (default: {SWEEP})"
    )
    parser.add_argument("--repeat", type=REPEAT, default=0, metavar="N", help="number of the repeat (default: 0)")
    parser.add_argument("--session", default="", metavar="NAME", help=SESSION)
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="workload and protocol if --gpu is a name (default: config.yaml, or as shipped)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="R.json", help="where the record goes")


def run_measure(options: Namespace) -> None:
    from kernel_dvfs.measurement.setup import read

    if options.gpu.endswith(".json"):
        _measure(read(options.gpu), options.gpu, options)
    else:
        _measure_as_configured(options)


def _measure(setup: Setup, path: str, options: Namespace) -> None:
    from kernel_dvfs.measurement import job, target

    what = target.parse(setup, options.target)
    pair = parse_pair(options.clocks)
    job.measure(setup, path, what, pair, options.campaign, options.repeat, options.output, session=options.session)


def _measure_as_configured(options: Namespace) -> None:
    from contextlib import nullcontext
    from tempfile import TemporaryDirectory

    from kernel_dvfs import shipped
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.plan.config import check, load
    from kernel_dvfs.plan.study import plan

    content = load(shipped.config_or(options.config)) | {"gpu": options.gpu}
    check(content, str(shipped.SCHEMA))
    # the process that measures a real GPU outlives this one, reads the setup and keeps files beside it
    is_real = options.gpu.partition(":")[0] == "nvml"
    with nullcontext("results") if is_real else TemporaryDirectory() as folder:
        planned = plan(content, folder).setup
        assert planned, "only tables have no setup"
        path = planned.write()
        _measure(read(path), path, options)


# --- compare --------------------------------------------------------------------------------------------------------

_MOST_REPEATS = 1000


def add_compare(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure compare --gpu SETUP.json --schedule kernel-global-waste-slack0.json -o fresh.json"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file")
    parser.add_argument("--schedule", default="", metavar="S.json", help="the chosen clocks")
    parser.add_argument(
        "--clocks", default="", metavar="CORE,MEM", help="instead of a schedule: these clocks for every kernel"
    )
    parser.add_argument("--target", default="", metavar="ID", help="one kernel or pass; without it, all")
    parser.add_argument("--first", type=REPEAT, default=0, metavar="N", help="number of the first repeat (default: 0)")
    parser.add_argument("--last", type=REPEAT, default=9, metavar="N", help="number of the last repeat (default: 9)")
    parser.add_argument(
        "--new-session",
        action="store_true",
        help="end the measuring process of a real GPU first, so that these repeats share nothing with earlier ones",
    )
    parser.add_argument("--session", default="", metavar="NAME", help=SESSION)
    parser.add_argument("-o", "--output", required=True, metavar="R.json", help="where the record goes")


def run_compare(options: Namespace) -> None:
    from kernel_dvfs.measurement import record
    from kernel_dvfs.measurement.campaign import compare, new_session
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.measurement.target import Target, parse

    setup = read(options.gpu)
    if bool(options.schedule) == bool(options.clocks):
        raise InputError("compare: expected --schedule S.json or --clocks CORE,MEM, one of them")
    every = parse_pair(options.clocks) if options.clocks else None
    granularity, chosen = ("kernel", {}) if every else _chosen(options.schedule, setup)
    if options.target:
        targets = [parse(setup, f"{granularity}/{options.target}")]
    else:
        targets = [Target(granularity, name) for name in setup.targets[granularity]]
    repeats = range(options.first, options.last + 1)
    if not 0 < len(repeats) <= _MOST_REPEATS:
        raise InputError(
            f"--first {options.first} --last {options.last}: {len(repeats) or 'no'} repeats; expected first <= last, "
            f"and at most {_MOST_REPEATS}"
        )
    if options.new_session:
        new_session(setup, options.gpu)
    # a kernel that the schedule does not know (another bias split) stays at auto
    pairs = {target: every or chosen.get(target.name, BASELINE) for target in targets}
    device, comparisons = compare(setup, options.gpu, pairs, repeats, options.session)
    record.write_comparison(options.output, setup, device, options.schedule or options.clocks, comparisons)
    if every:
        for target in targets:
            print(_difference(target.name, every, comparisons), file=sys.stderr)


def _difference(name: str, pair: Pair, comparisons: list[Comparison]) -> str:
    """What a pair changes against auto, in words."""
    from kernel_dvfs.measurement.point import QUANTITIES

    changes = []
    for field in QUANTITIES:
        values = [
            [point["summary"][field] for point in each["points"]] for each in comparisons if each["target"] == name
        ]
        changes.append(100 * (sum(v[1] + v[2] for v in values) / sum(v[0] + v[3] for v in values) - 1))
    return f"{name} at {label(pair)} against auto: time {changes[0]:+.2f} %, energy {changes[1]:+.2f} %"


def _chosen(path: str, setup: Setup) -> tuple[str, dict[str, Pair]]:
    """(kernel or pass, {target: Pair}) of a schedule, at least one target of it this setup's."""
    from kernel_dvfs.choice.schedule_file import REMEDY, pairs_of, read_schedule

    schedule = read_schedule(path)
    granularity, chosen = schedule["granularity"], pairs_of(path, schedule)
    if not set(chosen) & set(setup.targets[granularity]):
        raise InputError(f"schedule {path}: holds no {granularity} of workload {setup.workload['name']}; {REMEDY}")
    return granularity, chosen


# --- again ----------------------------------------------------------------------------------------------------------


def add_again(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "example: kernel-dvfs measure again --gpu SETUP.json --repeat 0 "
        "--schedules kernel-global-waste-slack0.json pass-global-waste-slack0.json -o strict.json pass.json"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file")
    parser.add_argument("--schedules", required=True, nargs="+", metavar="S.json", help="the chosen clocks")
    parser.add_argument("--repeat", type=REPEAT, default=0, metavar="N", help="number of the repeat (default: 0)")
    parser.add_argument(
        "-o", "--output", required=True, nargs="+", metavar="R.json", help="where the record of each schedule goes"
    )


def run_again(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    from kernel_dvfs.measurement import record
    from kernel_dvfs.measurement.campaign import compare_iteration, new_session
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.measurement.target import Target

    if len(options.schedules) != len(options.output):
        raise InputError(
            f"again: {len(options.schedules)} schedules and {len(options.output)} outputs; give one for each"
        )
    setup = read(options.gpu)
    choices = []
    for path in options.schedules:
        level, chosen = _chosen(path, setup)
        choices.append({Target(level, name): chosen.get(name, BASELINE) for name in setup.targets[level]})
    new_session(setup, options.gpu)
    device, found = compare_iteration(setup, options.gpu, choices, options.repeat)
    for output, schedule, comparisons in zip(options.output, options.schedules, found):
        record.write_comparison(output, setup, device, schedule, comparisons)


# --- sweep ----------------------------------------------------------------------------------------------------------


def add_sweep(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs measure sweep --gpu SETUP.json --pairs auto-auto,1470-auto -o profile.parquet"
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file")
    parser.add_argument("--pairs", required=True, help="clock pairs CORE-MEM, separated by commas")
    parser.add_argument(
        "--auto-repeats", type=COUNT, metavar="N", default=10, help="measurements of auto-auto (default: 10)"
    )
    parser.add_argument(
        "--studies", nargs="+", **one_of(("kernel", "pass")), default=("kernel", "pass"), help="default: kernel pass"
    )
    parser.add_argument("-o", "--output", required=True, metavar="P.parquet")


def run_sweep(options: Namespace) -> None:
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.profile import aggregate

    pairs = [parse_pair(text, "-") for text in options.pairs.split(",")]
    aggregate.from_bench(read(options.gpu), pairs, options.auto_repeats, options.output, options.studies)


# --- by clock -------------------------------------------------------------------------------------------------------


def add_by_clock(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "example: kernel-dvfs measure by-clock --gpu SETUP.json --records measurements --options JSON -o by_clock.json"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="the setup that is measured under")
    parser.add_argument("--records", required=True, metavar="DIR", help="folder with visit/")
    parser.add_argument(
        "--options",
        required=True,
        metavar="JSON",
        help="pairs (CORE-MEM that may be visited, separated by commas, auto-auto first), limits_percent, minutes, "
        "worth_percent, over_percent, ties, seed",
    )
    parser.add_argument(
        "--kernels",
        metavar="FILE",
        help="what `kernel-dvfs measure kernels` wrote: records of another build are measured again (real GPU)",
    )
    parser.add_argument("--token", default="", metavar="TEXT", help="kept in the file, for the workflow")
    parser.add_argument("-o", "--output", required=True, metavar="S.json", help="what was visited, chosen and shown")


def run_by_clock(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    from kernel_dvfs.search import loop

    given = json_object("--options", options.options)
    kernels = ""
    if options.kernels:
        with open(options.kernels, encoding="utf-8") as file:
            kernels = file.read().strip()
    loop.run(options.gpu, options.records, given, options.output, kernels, options.token)


# --- aggregate ------------------------------------------------------------------------------------------------------


def add_aggregate(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure aggregate --gpu SETUP.json --records measurements "
        "--pairs auto-auto,1470-auto -o profile.parquet"
    )
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="the setup that the records were measured under")
    parser.add_argument("--records", required=True, metavar="DIR", help="folder with kernel/ and pass/")
    parser.add_argument(
        "--pairs", default="", help="clock pairs CORE-MEM of the sweep, separated by commas; without: no sweep"
    )
    parser.add_argument(
        "--auto-repeats", type=COUNT, metavar="N", default=10, help="records of auto-auto (default: 10)"
    )
    parser.add_argument("--by-clock", metavar="B.json", help="make the profile of this study by clock, not of a sweep")
    parser.add_argument(
        "--published",
        default="",
        metavar="P.parquet",
        help="also write the profile of one sweep: the first measurement of each point",
    )
    parser.add_argument("-o", "--output", default="", metavar="P.parquet", help="where the profile goes")


def run_aggregate(options: Namespace) -> None:
    from kernel_dvfs.measurement import request
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.profile import aggregate
    from kernel_dvfs.search import study_file

    setup = read(options.gpu)
    pairs = [parse_pair(text, "-") for text in options.pairs.split(",") if text]
    requests = request.sweep(setup, pairs, options.auto_repeats)
    if bool(requests) == bool(options.by_clock):
        raise InputError("measure aggregate: give --pairs of the sweep, or --by-clock B.json, one of them")
    if not options.output and (options.by_clock or not options.published):
        raise InputError("measure aggregate: nothing to write; give --output P.parquet")
    if options.by_clock:
        found = study_file.read(options.by_clock)
        if found.setup != setup.digest:
            raise InputError(
                f"study by clock {options.by_clock}: its setup is {found.setup}, expected {setup.digest}; run "
                "kernel-dvfs measure by-clock again"
            )
        aggregate.from_visits(setup, options.records, found.records, found.rows, options.output)
    else:
        where = options.records, requests, options.auto_repeats
        aggregate.from_records(setup, *where, options.output, options.published)


# --- add step -------------------------------------------------------------------------------------------------------


def add_add_step(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure step step.json --profile profile.parquet -o step-measured.json; "
        "snakemake ... workload=step:step-measured.json gpu=h200_sxm then forecasts from it"
    )
    parser.add_argument("step", metavar="STEP.json", help="of kernel-dvfs capture")
    parser.add_argument("--profile", required=True, metavar="P.parquet", help="of a study of that step")
    parser.add_argument("-o", "--output", required=True, metavar="STEP.json")


def run_add_step(options: Namespace) -> None:
    from kernel_dvfs.profile.step import measured_step
    from kernel_dvfs.workload.step import write

    write(options.output, measured_step(options.step, options.profile))


# --- records --------------------------------------------------------------------------------------------------------


def add_records(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs measure records results/sim-rtx-3080-ti/gpt3-xl-b40-tp1/measurements "
        "--gpu SETUP.json --delete-bad"
    )
    parser.add_argument("folder", help="measurements/ of a study")
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="what they should have been measured under")
    parser.add_argument("--delete-bad", action="store_true", help="delete them, so that snakemake measures them again")


def run_records(options: Namespace) -> int:
    from pathlib import Path

    from kernel_dvfs.measurement.setup import read

    setup = read(options.gpu)
    # resolved, since the setups and variants are found from its parent, and `.` has none
    folder = Path(options.folder).resolve()
    points = sorted(path for study in ("kernel", "pass") for path in folder.glob(f"{study}/*/*/r*.json"))
    comparisons = sorted(
        [path for name in ("validation*", "locked-*", "batch-*", "tp-*") for path in folder.glob(f"{name}/**/*.json")]
        + list(folder.parent.glob("variants/*/fresh.json"))
    )
    total = len(points) + len(comparisons)
    if not total:
        raise InputError(f"{options.folder}: holds no records; name a folder 'measurements' with kernel/ and pass/")
    bad = 0
    for paths in (points, comparisons):
        for path in paths:
            try:
                if paths is points:
                    _check_point(path, setup)
                else:
                    _check_comparison(path, setup, folder)
            except InputError as error:
                bad += 1
                print(error, file=sys.stderr)
                if options.delete_bad:
                    path.unlink()
    print(f"{total} records, {bad} bad{' and deleted' if bad and options.delete_bad else ''}")
    return 2 if bad and not options.delete_bad else 0


def _check_point(path: Path, setup: Setup) -> None:
    from kernel_dvfs.measurement import record
    from kernel_dvfs.measurement.target import Target

    study, name, pair = path.parts[-4:-1]
    what = str(path), setup, Target(study, name), parse_pair(pair, "-")
    record.read_point(*what)


def _check_comparison(path: Path, setup: Setup, folder: Path) -> None:
    from kernel_dvfs.measurement import record

    digest, comparisons = record.read_comparison(str(path))
    own = folder.parent / "setup" / f"{digest}.json"
    if not own.is_file():
        raise InputError(f"record {path}: foreign: its setup {digest} is not in {own.parent}")
    name, is_validation = path.stem, path.parent.name.startswith("validation")
    if is_validation and digest != setup.digest:
        raise InputError(f"record {path}: foreign: its setup is {digest}, expected {setup.digest}")
    for each in comparisons:
        # validation/repeat-<k>.json holds a repeat, batch-<b>/<kernel>.json a kernel
        found = f"repeat-{each['repeat']}" if is_validation else each["target"]
        if name not in (found, "fresh"):
            raise InputError(f"record {path}: foreign: it holds {found}")


# --- kernels --------------------------------------------------------------------------------------------------------


def add_kernels(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs measure kernels -o results/native/kernels.sha256"
    parser.add_argument("--step", action="store_true", help="of what runs the kernels of a captured step")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where the library's checksum goes")


def run_kernels(options: Namespace) -> None:
    from kernel_dvfs.measurement.real.loads import library_sha256

    write_text(options.output, library_sha256(options.step) + "\n")


# --- serve ----------------------------------------------------------------------------------------------------------

# without a request for so long, other stages of the study are at work, and other users may have the node meanwhile
END_AFTER_S = 15.0

_NEXT = 75  # exit code of a process that another shall follow

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def add_serve(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs measure serve --gpu SETUP.json --stop"
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a real GPU")
    parser.add_argument("--stop", action="store_true", help="end the one that runs; back when its clocks are restored")
    parser.add_argument(
        "--ready", type=whole(3, 1_000_000), metavar="FD", help="file descriptor to tell that it listens"
    )
    parser.add_argument("--tell", metavar="FILE", help="in a job of Slurm: file to tell that it listens, or why not")
    parser.add_argument(
        "--ask", action="store_true", help="pass requests on to it: JSON from stdin, a line each, its answers out"
    )


def run_serve(options: Namespace) -> None:
    from kernel_dvfs.measurement.setup import read

    setup = read(options.gpu)
    if setup.gpu["kind"] != "nvml":
        raise InputError(
            f"setup {options.gpu}: its GPU is {setup.gpu['kind']}; only a real one has a measuring process"
        )
    if options.stop:
        from kernel_dvfs.measurement.real.client import stop

        stop(options.gpu)
        return
    if options.ask:
        from kernel_dvfs.measurement.real.client import ask
        from kernel_dvfs.measurement.window import is_measured

        for line in sys.stdin:
            answer = ask(setup.gpu["uuid"], parse_json(line))
            print(compact_json(answer), flush=True)
            if not is_measured(answer):
                break
        return
    if options.tell:
        _serve_in_job(options)
        return
    from kernel_dvfs.measurement.real.server import Server

    if options.ready is not None:
        os.set_inheritable(options.ready, False)
    _serve_and_end(Server(options.gpu, options.ready))


def _serve_and_end(server: Server) -> NoReturn:
    """Serve, then end this process at once: all is restored and said by then, and Python's own end would wait for
    CUDA, which never answers once a kernel hangs."""
    import traceback

    code = 1
    try:
        code = _NEXT if server.serve() else 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve_in_job(options: Namespace) -> NoReturn:
    """A measuring process for each session, one after the other at one socket: the job keeps its node between them."""
    import ctypes
    import signal
    import socket
    from contextlib import suppress

    from kernel_dvfs.measurement.real.client import socket_path
    from kernel_dvfs.measurement.setup import read

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    child, code, is_told = 0, _NEXT, False

    def pass_on(*_: object) -> None:
        nonlocal is_told
        is_told = True
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    # this one ends last: Slurm kills the other processes of a job as soon as this one is gone. After a killed session
    # its janitor is still restoring the clocks: so it becomes a child of this one
    signal.signal(signal.SIGTERM, pass_on)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    while code == _NEXT and not is_told:
        # a signal waits until it is known whom to pass it on to
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        is_first, child = not child, os.fork()
        if child == 0:
            _serve_session(options, listener, is_first)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(ChildProcessError):  # none is left
        while True:
            os.wait()
    if listener.getsockname():
        with suppress(OSError):  # it may have gone
            os.unlink(socket_path(read(options.gpu).gpu["uuid"]))
    sys.exit(code if code >= 0 else 128 - code)


def _serve_session(options: Namespace, listener: socket.socket, is_first: bool) -> NoReturn:
    """In a forked child: the measuring process of a session. Does not return."""
    import signal
    import traceback

    from kernel_dvfs.files import write_text
    from kernel_dvfs.measurement.real.server import Server
    from kernel_dvfs.measurement.real.specimen import check_is_here

    def end(*_: object) -> NoReturn:
        # once: Slurm signals each process of a step, and the one above passes it on
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    code = 1
    try:
        # end as any process does, with everything restored
        signal.signal(signal.SIGTERM, end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        ready = None
        try:
            check_is_here(options.gpu)
        except InputError as error:
            write_text(options.tell, f"{error}\n")
            print(f"error: {error}", file=sys.stderr, flush=True)
            os._exit(2)
        if is_first:
            ready = os.open(options.tell, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        _serve_and_end(Server(options.gpu, ready, END_AFTER_S, listener))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
