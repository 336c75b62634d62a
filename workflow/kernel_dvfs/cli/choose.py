"""`kernel-dvfs choose`: clocks from a profile, by scope and objective, as a schedule; or its frontier of slowdowns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import PERCENT, SECONDS, SHARE, STANDARD_ERRORS, one_of
from kernel_dvfs.cli.change_costs import STALL_OPTIONS, add_stall_arguments, stalls_of
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kernel_dvfs.measurement.latency_file import Latency

# options that say how an iteration is played
_OF_SEQUENCE = (
    "switch_latency",
    "switch_jitter",
    "switch_behaviour",
    *STALL_OPTIONS,
    "shared_pairs",
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "example: kernel-dvfs choose profile.parquet --scope global --objective waste --slack 0 -o schedule.json"
    )
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument("--granularity", **one_of(("kernel", "pass")), help="default: kernel")
    parser.add_argument(
        "--scope",
        **one_of(("single", "local", "global")),
        help="one pair for all, each on its own, or all together (required for a schedule)",
    )
    parser.add_argument("--objective", **one_of(("waste", "edp", "energy")), help="required for a schedule")
    parser.add_argument(
        "--slack", type=PERCENT, metavar="PERCENT", help="tolerated slowdown of waste, and of waste only (default: 0)"
    )
    parser.add_argument(
        "--frontier",
        action="store_true",
        help="instead of a schedule: least energy at every tolerated slowdown, kernel level, scopes local and global",
    )
    parser.add_argument(
        "--weights",
        **one_of(("counts", "raw", "equal-time")),
        help="default: counts for a workload, raw for a table",
    )
    parser.add_argument(
        "--ties",
        **one_of(("tied", "untied")),
        default="tied",
        help="one choice for identical launches, or each its own (default: tied)",
    )
    parser.add_argument(
        "--margin-z",
        type=STANDARD_ERRORS,
        metavar="Z",
        help="global waste: stay below the time limit by Z standard errors of the total, choosing among remeasured "
        "pairs (default: the optimum of the profile as it is)",
    )
    sequence = parser.add_argument_group(
        "an iteration, launch by launch (global waste)", "where a change of clocks takes time; docs/switching.md"
    )
    sequence.add_argument(
        "--sequence",
        metavar="ORDER",
        help="order of the launches: `profile`, or a JSON file with a list of kernel ids; makes an iteration schedule",
    )
    sequence.add_argument(
        "--switch-latency",
        type=_seconds_or_file,
        metavar="S",
        help="seconds from a request to its effect; or a file of kernel-dvfs latency, which has jitter and stalls too",
    )
    sequence.add_argument(
        "--switch-jitter",
        type=SHARE,
        metavar="SHARE",
        help="share of the latency by which a change may take effect early or late (default: 0)",
    )
    sequence.add_argument(
        "--switch-behaviour", **one_of(("lag", "ahead")), help="what launches do meanwhile (default: ahead)"
    )
    add_stall_arguments(sequence)
    sequence.add_argument(
        "--shared-pairs", action="store_true", default=None, help="leave out pairs that not every kernel has"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("-o", "--output", required=True, metavar="S.json")


def run(options: Namespace) -> None:
    if options.json and (options.frontier or options.sequence is not None):
        raise InputError("--json is the answer of a schedule; leave it out with --frontier and --sequence")
    if options.frontier:
        _run_frontier(options)
        return
    for name in ("scope", "objective"):
        if getattr(options, name) is None:
            raise InputError(f"choose: --{name} is missing; a schedule needs --scope and --objective")
    slack = options.slack or 0
    if options.slack is not None and options.objective != "waste":
        raise InputError(
            f"--slack {slack:g}: slack belongs to waste; leave it out with --objective {options.objective}"
        )
    if options.sequence is not None:
        _run_sequence(options, slack)
        return
    for name in _OF_SEQUENCE:
        if getattr(options, name) is not None:
            raise InputError(f"{_flag(name)} belongs to --sequence; add --sequence profile")
    _run_schedule(options, slack)


def _run_schedule(options: Namespace, slack: float) -> None:
    from kernel_dvfs.choice.schedule import choose
    from kernel_dvfs.report.words import answer_line, answer_of

    schedule = choose(
        options.profile,
        granularity=options.granularity or "kernel",
        scope=options.scope,
        objective=options.objective,
        slack_percent=slack,
        weights=options.weights,
        ties=options.ties,
        margin_z=options.margin_z,
    )
    if schedule["status"] != "optimal":
        raise InputError(
            f"{options.profile}: no choice keeps the limit of {slack:g} % slowdown ({schedule['proof']}); raise --slack"
        )
    write_json(options.output, schedule)
    print(json.dumps(answer_of(schedule)) if options.json else answer_line(schedule))


def _run_frontier(options: Namespace) -> None:
    from kernel_dvfs.choice.frontier import relaxed_frontier

    for name in ("granularity", "scope", "objective", "slack", "margin_z", "sequence", *_OF_SEQUENCE):
        if getattr(options, name) is not None:
            raise InputError(
                f"{_flag(name)} does not go with --frontier, which has kernels, waste, and every scope and slack"
            )
    write_json(options.output, relaxed_frontier(options.profile, options.ties, options.weights))


def _run_sequence(options: Namespace, slack: float) -> None:
    from kernel_dvfs.sequence.changes import Timing
    from kernel_dvfs.sequence.launches import read_sequence
    from kernel_dvfs.sequence.programme import choose_changes
    from kernel_dvfs.sequence.schedule import iteration_schedule

    asked = (options.granularity or "kernel", options.scope, options.objective)
    if asked != ("kernel", "global", "waste"):
        raise InputError(f"--sequence is for --scope global --objective waste of kernels, not {' '.join(asked)}")
    for name in ("weights", "margin_z"):
        if getattr(options, name) is not None:
            raise InputError(
                f"{_flag(name)} does not go with --sequence, where each launch counts once; lower --slack instead"
            )
    if options.switch_latency is None:
        raise InputError(
            "--sequence needs --switch-latency, seconds from a request to its effect (0: at once), or a file of "
            "kernel-dvfs latency"
        )
    read = read_sequence(options.profile, options.sequence, options.stall_w, bool(options.shared_pairs), options.ties)
    latency_s, jitter, source, measured = _latency(options, read.gpu)
    stalls = stalls_of(options, measured)
    timing = Timing(options.switch_behaviour or "ahead", latency_s, jitter, *stalls.both_s)
    tell(*(f"note: {notice}" for notice in read.notices))
    try:
        choice = choose_changes(read.sequence, timing, slack / 100)
    except InputError as error:
        raise InputError(f"{options.profile}: {error}") from None
    stall = "least power of any kernel at the pair" if options.stall_w is None else f"{options.stall_w:g} W"
    sources = {"latency": source, "stalls": stalls.source}
    write_json(options.output, iteration_schedule(read, timing, choice, slack, stall, sources))


def _latency(options: Namespace, gpu: dict[str, Any]) -> tuple[float, float, str, Latency | None]:
    """(latency s, jitter, where they are from in words, the file of `kernel-dvfs latency` that was named or None)."""
    from kernel_dvfs.sequence.costs import ASSUMED, read_latency

    if isinstance(options.switch_latency, float):
        return options.switch_latency, options.switch_jitter or 0.0, ASSUMED, None
    measured = read_latency(options.switch_latency, gpu)
    jitter = measured.jitter if options.switch_jitter is None else options.switch_jitter
    return measured.latency_s, jitter, measured.about, measured


def _seconds_or_file(text: str) -> float | str:
    try:
        float(text)
    except ValueError:
        return text
    return SECONDS(text)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
