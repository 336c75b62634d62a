"""`kernel-dvfs measure kernels`: writes down which kernels a real GPU runs, for measurements to depend on."""

from __future__ import annotations

import argparse

from kernel_dvfs.files import write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs measure kernels -o results/native/kernels.sha256"
    parser.add_argument("--step", action="store_true", help="of what runs the kernels of a captured step")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where the library's checksum goes")


def run(options: argparse.Namespace) -> None:
    from kernel_dvfs.measurement.real.loads import library_sha256

    write_text(options.output, library_sha256(options.step) + "\n")
