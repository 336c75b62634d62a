"""`kernel-dvfs ahead`: measures points of a simulated GPU ahead of their jobs. Started by the workflow."""

import sys

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement import ahead
from kernel_dvfs.measurement.setup import read


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs ahead --gpu SETUP.json <<< 'kernel/forward_gelu 1470-auto sweep 0 r0.json'"
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a simulated GPU")


def run(options) -> None:
    setup = read(options.gpu)
    if setup.gpu["kind"] != "simulated":
        raise InputError(f"setup {options.gpu}: its GPU is {setup.gpu['kind']}; only a simulated one is measured ahead")
    ahead.measure(setup, options.gpu, sys.stdin)
