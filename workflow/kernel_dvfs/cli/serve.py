"""`kernel-dvfs measure serve`: the measuring process of a real GPU. Started by `measure` where it is needed."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING

from kernel_dvfs.cli.numbers import whole
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json, parse_json
from kernel_dvfs.measurement.setup import read

if TYPE_CHECKING:
    from kernel_dvfs.measurement.real.server import Server

# without a request for so long, other stages of the study are at work, and other users may have the node meanwhile
END_AFTER_S = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs measure serve --gpu SETUP.json --stop"
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a real GPU")
    parser.add_argument("--stop", action="store_true", help="end the one that runs; back when its clocks are restored")
    parser.add_argument(
        "--ready", type=whole(3, 1_000_000), metavar="FD", help="file descriptor to tell that it listens"
    )
    parser.add_argument("--tell", metavar="FILE", help="in a job of Slurm: file to tell that it listens, or why not")
    parser.add_argument("--ask", action="store_true", help="pass a request on to it: JSON from stdin, its answer out")


def run(options: argparse.Namespace) -> None:
    setup = read(options.gpu)
    if setup.gpu["kind"] != "nvml":
        raise InputError(
            f"setup {options.gpu}: its GPU is {setup.gpu['kind']}; only a real one has a measuring process"
        )
    if options.stop:
        from kernel_dvfs.measurement.real.client import stop

        stop(options.gpu)
        return
    if options.ask:
        from kernel_dvfs.measurement.real.client import ask

        print(compact_json(ask(setup.gpu["uuid"], parse_json(sys.stdin.read()))))
        return
    if options.tell:
        _serve_in_job(options)
        return
    from kernel_dvfs.measurement.real.server import Server

    if options.ready is not None:
        os.set_inheritable(options.ready, False)
    _serve_and_end(Server(options.gpu, options.ready))


def _serve_and_end(server: Server) -> None:
    """Serve, then end this process at once: all is restored and said by then, and Python's own end would wait for
    CUDA, which never answers once a kernel hangs."""
    code = 1
    try:
        server.serve()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve_in_job(options: argparse.Namespace) -> None:
    from kernel_dvfs.files import write_text
    from kernel_dvfs.measurement.real.server import Server
    from kernel_dvfs.measurement.real.specimen import check_is_here

    # end as any process does: when a job is cancelled, Slurm kills its other processes as soon as this one is gone
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        check_is_here(options.gpu)
    except InputError as error:
        write_text(options.tell, f"{error}\n")
        raise
    ready = os.open(options.tell, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    _serve_and_end(Server(options.gpu, ready, END_AFTER_S))
