"""`kernel-dvfs study deployable`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernel_dvfs.choice.schedule_file import read_schedule
from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import PERCENT, SECONDS, whole
from kernel_dvfs.layout import DEPLOYABLE, LAUNCH, RUN, iteration_name
from kernel_dvfs.measurement import setup
from kernel_dvfs.measurement.latency_file import ASSUMED, latencies
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_sealed
from kernel_dvfs_deploy.commands.costs import add_stall_arguments, stalls_of
from kernel_dvfs_deploy.sequence import costs
from kernel_dvfs_deploy.sequence.changes import Changes, Timing
from kernel_dvfs_deploy.sequence.deployable import ValidationProcedure, deploy, free_row, offered_pairs
from kernel_dvfs_deploy.sequence.launches import read_sequence
from kernel_dvfs_deploy.sequence.played import SimulatedPlayer
from kernel_dvfs_deploy.sequence.programme import Choice
from kernel_dvfs_deploy.sequence.schedule import iteration_schedule

if TYPE_CHECKING:
    from kernel_dvfs_deploy.sequence.launches import Read


def add_arguments(parser: ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = "example: kernel-dvfs study deployable profile.parquet --gpu SETUP.json --over 10 -o schedules"
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument(
        "--gpu", metavar="SETUP", help="of a simulated GPU, whose spec says what a change takes, and which can play"
    )
    parser.add_argument(
        "--over",
        type=PERCENT,
        metavar="PERCENT",
        help="play choices on the simulated GPU: at most so many are truly over the limit (default: claim them)",
    )
    parser.add_argument(
        "--repeats", type=whole(2, 1000), default=10, metavar="N", help="times that they are measured again (10)"
    )
    parser.add_argument(
        "--latencies",
        nargs="+",
        type=SECONDS,
        default=[None],
        metavar="S",
        help="medians of a change of the core clock, seconds (default: as measured, of the spec, or assumed)",
    )
    parser.add_argument("--measured", metavar="L.json", help="a file of kernel-dvfs latency, for values not given here")
    add_stall_arguments(parser)
    parser.add_argument(
        "--stalls",
        nargs="*",
        type=SECONDS,
        default=[],
        metavar="S",
        help="further stalls of both clocks, s, for the table",
    )
    parser.add_argument("--slack", type=PERCENT, default=0.0, metavar="PERCENT", help="tolerated slowdown (default: 0)")
    parser.add_argument(
        "--reserve-of",
        metavar="S.json",
        help="the strict schedule, with free changes: the first row; choices that are claimed keep as much in reserve",
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="where deployable.json and iterations go")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    strict = read_schedule(options.reserve_of, profile=options.profile) if options.reserve_of else None
    reserve = strict["walk"]["reserve_percent"] if strict and strict["walk"] else 0.0
    profile = read_profile(options.profile)
    read = read_sequence(profile, "profile", options.stall_w, shared_pairs=True)
    tell(*(f"note: {notice}" for notice in read.notices))
    sequence, alone = offered_pairs(read.sequence, profile)
    measured = costs.read_latency(options.measured, read.gpu) if options.measured else None
    board = setup.read(options.gpu) if options.gpu else None
    if options.over is not None and (board is None or board.gpu["kind"] != "simulated"):
        raise InputError("study deployable: --over plays choices on a simulated GPU; name its setup with --gpu")
    if options.over is not None and not 0.001 <= options.over <= 50:
        raise InputError(f"--over {options.over:g}: expected a number from 0.001 to 50")
    stalls = stalls_of(options, measured)
    swept = [(stall_s, stall_s) for stall_s in sorted(set(options.stalls)) if (stall_s, stall_s) != stalls.both_s]
    stall = "least power of any kernel at the pair" if options.stall_w is None else f"{options.stall_w:g} W"
    made_of = {
        "profile": options.profile,
        "strict": options.reserve_of,
        "latency": options.measured,
        "gpu": options.gpu,
    }
    made_of = {name: path for name, path in made_of.items() if path}
    rows: list[dict[str, Any]] = []
    if strict and strict["energy_change_percent"] is not None:
        rows.append(free_row(strict))
    switching = board.gpu["spec"]["switching"] if board else None
    for median_s in options.latencies:
        spreads, source = latencies(measured, switching, median_s)
        for both_s in (stalls.both_s, *swept):
            is_default = both_s == stalls.both_s
            sources = {"latency": source, "stalls": stalls.source if is_default else ASSUMED}
            timing = Timing.spread(*spreads, *both_s)
            procedure = None
            if options.over is not None:
                assert board is not None, "refused above"
                procedure = ValidationProcedure(SimulatedPlayer(board, sequence, timing), options.over, options.repeats)
            deployed = deploy(sequence, timing, options.slack / 100, reserve / 100, procedure, alone)
            shared = {"slack_percent": options.slack, "is_default": is_default, "costs": costs.in_words(**sources)}
            # one pair for the run is the same at each timing
            known = {row["way"] for row in rows} & {RUN}
            rows += [shared | entry.row(sequence, timing, options.over) for entry in deployed if entry.way not in known]
            if is_default:
                choice = next(entry.choice for entry in deployed if entry.way == LAUNCH)
                of = replace(read, sequence=sequence) if choice else read
                content = iteration_schedule(of, timing, choice or _at_auto(read), options.slack, stall, sources)
                write_sealed(f"{options.output}/{iteration_name(spreads[0].median_s)}.json", content, made_of)
    head = {"schema": DEPLOYABLE, "gpu": read.gpu, "workload": {"setup": read.workload.get("setup")}}
    write_sealed(f"{options.output}/deployable.json", head | {"over_percent": options.over, "rows": rows}, made_of)


def _at_auto(read: Read) -> Choice:
    """Return the choice to change nothing."""
    sequence = read.sequence
    assert sequence.baseline is not None, "of a profile as it was read"
    base_j = sequence.baseline_energy_j
    return Choice(Changes(sequence.baseline, (), ()), sequence.baseline_time_s, base_j, base_j)
