"""`kernel-dvfs study deployable`: what a study can deploy at known latencies, and the schedules that do it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import PERCENT, SECONDS
from kernel_dvfs.cli.change_costs import add_stall_arguments, stalls_of
from kernel_dvfs.errors import InputError


def add_arguments(parser: ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = "example: kernel-dvfs study deployable profile.parquet --latencies 0.001 0.01 0.05 -o schedules"
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument(
        "--latencies",
        nargs="+",
        type=SECONDS,
        metavar="S",
        help="latencies of a change, seconds (default: as measured, median and 95 %%)",
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
        "--reserve-of", metavar="S.json", help="keep as much time in reserve as this schedule's margin does"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="where deployable.json and iterations go")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    import sys

    from kernel_dvfs.choice.schedule_file import read_schedule
    from kernel_dvfs.files import write_json
    from kernel_dvfs.layout import DEPLOYABLE, iteration_name
    from kernel_dvfs.sequence.changes import Timing
    from kernel_dvfs.sequence.costs import ASSUMED, in_words, read_latency
    from kernel_dvfs.sequence.deployable import deployables
    from kernel_dvfs.sequence.launches import read_sequence
    from kernel_dvfs.sequence.schedule import iteration_schedule

    reserve = 0.0
    if options.reserve_of:
        margin = read_schedule(options.reserve_of)["margin"]
        reserve = margin.get("time_percent", 0.0) if margin else 0.0
    read = read_sequence(options.profile, "profile", options.stall_w, shared_pairs=True)
    tell(*(f"note: {notice}" for notice in read.notices))
    measured = read_latency(options.measured, read.gpu) if options.measured else None
    if options.latencies is None and measured is None:
        raise InputError("study deployable: --latencies or --measured is missing")
    stalls = stalls_of(options, measured)
    stalls_s, swept_s = stalls.both_s, sorted(set(options.stalls))
    latencies_s = measured.latencies_s if measured and options.latencies is None else sorted(set(options.latencies))
    source = measured.about if measured and options.latencies is None else ASSUMED
    sources = {"latency": source, "stalls": stalls.source}
    told = in_words(**sources)
    try:
        try:
            rows, choices = deployables(read.sequence, latencies_s, stalls_s, swept_s, (options.slack - reserve) / 100)
        except InputError:
            if not reserve:
                raise
            # stalls can cost more time than any clocks gain; auto always keeps a limit without reserve
            print(
                f"note: no choice keeps {reserve:.3g} % of time in reserve at each stall; none is kept", file=sys.stderr
            )
            reserve = 0.0
            rows, choices = deployables(read.sequence, latencies_s, stalls_s, swept_s, options.slack / 100)
    except InputError as error:
        raise InputError(f"{options.profile}: {error}") from None
    stall = "least power of any kernel at the pair" if options.stall_w is None else f"{options.stall_w:g} W"
    for latency_s, choice in choices.items():
        timing = Timing("ahead", latency_s, 0.0, *stalls_s)
        # the limit that a player judges by; the reserve was kept free of it when choosing
        content = iteration_schedule(read, timing, choice, options.slack, stall, sources) | {"reserve_percent": reserve}
        write_json(f"{options.output}/{iteration_name(latency_s)}.json", content)
    about = {"schema": DEPLOYABLE, "gpu": read.gpu, "workload": {"setup": read.workload.get("setup")}}
    for row in rows:
        # stalls that are swept are a question, not a measurement
        row["costs"] = None if row["latency_ms"] in (None, 0) else told if row["is_default"] else ASSUMED
    write_json(
        f"{options.output}/deployable.json", about | {"reserve_percent": reserve, "sources": sources, "rows": rows}
    )
