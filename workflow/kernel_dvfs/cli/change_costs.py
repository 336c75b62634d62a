"""The options that say what a change of clocks costs, the same for every command that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.cli.arguments import SECONDS, WATTS
from kernel_dvfs.sequence.costs import ASSUMED_STALL_S

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _ArgumentGroup

    from kernel_dvfs.measurement.latency_file import Latency
    from kernel_dvfs.sequence.costs import Stalls

STALL_OPTIONS = ("core_stall", "mem_stall", "stall_w")


def add_stall_arguments(parser: ArgumentParser | _ArgumentGroup) -> None:
    """--core-stall, --mem-stall, --stall-w."""
    for domain in ("core", "mem"):
        parser.add_argument(
            f"--{domain}-stall",
            type=SECONDS,
            metavar="S",
            help=f"seconds that the GPU stands still as its {domain} clock changes (as measured, else "
            f"{ASSUMED_STALL_S:g}, assumed)",
        )
    parser.add_argument(
        "--stall-w",
        type=WATTS,
        metavar="W",
        help="power while the GPU stands still, W (default: the least of any kernel at its pair)",
    )


def stalls_of(options: Namespace, measured: Latency | None) -> Stalls:
    """The stalls that the options, a file of `kernel-dvfs latency`, or nobody tells."""
    from kernel_dvfs.sequence.costs import stalls

    return stalls(options.core_stall, options.mem_stall, measured)
