"""What a change of clocks costs, as options say it: sequence and study deployable share them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from kernel_dvfs.cli.arguments import SECONDS, WATTS
from kernel_dvfs_deploy.sequence import costs

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    from kernel_dvfs.measurement.latency_file import Latency
    from kernel_dvfs_deploy.sequence.costs import Stalls


def add_stall_arguments(parser: ArgumentParser | _ArgumentGroup) -> None:
    """--core-stall, --mem-stall, --stall-w."""
    for domain in ("core", "mem"):
        parser.add_argument(
            f"--{domain}-stall",
            type=SECONDS,
            metavar="S",
            help=f"standstill as the {domain} clock changes, s (as measured, else {costs.ASSUMED_STALL_S:g}, assumed)",
        )
    parser.add_argument(
        "--stall-w",
        type=WATTS,
        metavar="W",
        help="power meanwhile (default: the least of any kernel at its pair)",
    )


def stalls_of(options: Namespace, measured: Latency | None) -> Stalls:
    """Return the stalls that the options, a file of `kernel-dvfs latency`, or nobody tells."""
    return costs.stalls(options.core_stall, options.mem_stall, measured)
