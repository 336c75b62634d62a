"""`kernel-dvfs preflight`: what must hold before the first point, checked once for all jobs."""

from kernel_dvfs.cli import quick
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json, write_text
from kernel_dvfs.measurement.real.client import check
from kernel_dvfs.measurement.setup import read

OPTIONS = (
    quick.Option("--gpu", None, "SETUP", "a setup file of a real GPU"),
    quick.Option("--log", "", "FILE", "where an error is written as well"),
    quick.Option("-o", None, "P.json", "where the GPU's facts go"),
)


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs preflight --gpu SETUP.json -o preflight.json"
    quick.add_arguments(parser, OPTIONS)


def run(options) -> None:
    setup = read(options.gpu)
    if setup.gpu["kind"] != "nvml":
        raise InputError(f"setup {options.gpu}: its GPU is {setup.gpu['kind']}; only a real one needs a preflight")
    write_text(options.output, compact_json(check(setup, options.gpu)) + "\n")
