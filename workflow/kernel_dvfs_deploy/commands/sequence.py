"""`kernel-dvfs sequence`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import answer, tell
from kernel_dvfs.cli.arguments import PERCENT, SECONDS, SHARE, one_of
from kernel_dvfs.report.words import iteration_line
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_sealed
from kernel_dvfs_deploy.commands.costs import add_stall_arguments, stalls_of
from kernel_dvfs_deploy.sequence import costs
from kernel_dvfs_deploy.sequence.changes import Timing
from kernel_dvfs_deploy.sequence.launches import read_sequence
from kernel_dvfs_deploy.sequence.programme import choose_changes
from kernel_dvfs_deploy.sequence.schedule import iteration_schedule

if TYPE_CHECKING:
    from kernel_dvfs.measurement.latency_file import Latency


def add_arguments(parser: ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = "example: kernel-dvfs sequence profile.parquet --switch-latency latency.json -o iteration.json"
    parser.description = (
        "Choose clocks launch by launch for the least energy within the slowdown, where a change of clocks takes time "
        "and stalls the GPU (docs/deploy.md). What is written can be played."
    )
    parser.add_argument("profile", metavar="P.parquet")
    parser.add_argument(
        "--order",
        default="profile",
        metavar="ORDER",
        help="of launches: `profile` (default), or a JSON list of kernels",
    )
    parser.add_argument(
        "--switch-latency",
        required=True,
        type=_seconds_or_file,
        metavar="S",
        help="from a request to its effect (0: at once); or a file of kernel-dvfs latency",
    )
    parser.add_argument(
        "--switch-jitter", type=SHARE, metavar="SHARE", help="of the latency, early or late (default: 0)"
    )
    parser.add_argument(
        "--switch-behaviour",
        **one_of(("lag", "ahead")),
        default="ahead",
        help="what launches do meanwhile (default: ahead)",
    )
    add_stall_arguments(parser)
    parser.add_argument("--shared-pairs", action="store_true", help="leave out pairs that not every kernel has")
    parser.add_argument("--slack", type=PERCENT, default=0.0, metavar="PERCENT", help="tolerated slowdown (default: 0)")
    parser.add_argument(
        "--ties",
        **one_of(("tied", "untied")),
        default="tied",
        help="one choice for identical launches, or each its own (default: tied)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="S.json", help="where the iteration goes")


def run(options: Namespace) -> None:
    """Run the command. Raises InputError."""
    read = read_sequence(options.profile, options.order, options.stall_w, options.shared_pairs, options.ties)
    latency_s, jitter, source, measured = _latency(options, read.gpu)
    stalls = stalls_of(options, measured)
    timing = Timing(options.switch_behaviour, latency_s, jitter, *stalls.both_s)
    tell(*(f"note: {notice}" for notice in read.notices))
    try:
        choice = choose_changes(read.sequence, timing, options.slack / 100)
    except InputError as error:
        raise InputError(f"{options.profile}: {error}") from None
    stall = "least power of any kernel at the pair" if options.stall_w is None else f"{options.stall_w:g} W"
    sources = {"latency": source, "stalls": stalls.source}
    content = iteration_schedule(read, timing, choice, options.slack, stall, sources)
    write_sealed(options.output, content, {"profile": options.profile})
    answer(iteration_line(content))


def _latency(options: Namespace, gpu: dict[str, Any]) -> tuple[float, float, str, Latency | None]:
    """Return (latency s, jitter, where they are from in words, the file of `kernel-dvfs latency` that was named or
    None)."""
    if isinstance(options.switch_latency, float):
        return options.switch_latency, options.switch_jitter or 0.0, costs.ASSUMED, None
    measured = costs.read_latency(options.switch_latency, gpu)
    jitter = measured.jitter if options.switch_jitter is None else options.switch_jitter
    return measured.latency_s, jitter, measured.about, measured


def _seconds_or_file(text: str) -> float | str:
    try:
        float(text)
    except ValueError:
        return text
    return SECONDS(text)
