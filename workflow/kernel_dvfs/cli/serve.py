"""`kernel-dvfs serve`: the measuring process of a real GPU. Started by `measure` where it is needed."""

import os

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement.setup import read


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serve --gpu SETUP.json --stop"
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a real GPU")
    parser.add_argument("--stop", action="store_true", help="end the one that runs; back when its clocks are restored")
    parser.add_argument("--ready", type=int, metavar="FD", help="file descriptor to tell that it listens")


def run(options) -> None:
    setup = read(options.gpu)
    if setup.gpu["kind"] != "nvml":
        raise InputError(
            f"setup {options.gpu}: its GPU is {setup.gpu['kind']}; only a real one has a measuring process"
        )
    if options.stop:
        from kernel_dvfs.measurement.real.client import stop

        stop(options.gpu)
        return
    from kernel_dvfs.measurement.real.server import Server

    if options.ready is not None:
        os.set_inheritable(options.ready, False)
    Server(setup, options.ready).serve()
