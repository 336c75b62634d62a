"""`kernel-dvfs measure kernels`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.measurement.real.loads import library_sha256
from kernel_dvfs_clocks.files import write_text


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs measure kernels -o results/native/kernels.sha256"
    parser.add_argument("--step", action="store_true", help="of what runs the kernels of a captured step")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where the library's checksum goes")


def run(options: Namespace) -> None:
    write_text(options.output, library_sha256(options.step) + "\n")
