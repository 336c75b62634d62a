"""`kernel-dvfs measure serve`. Light, as measure is: a point waits for it to begin."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, NoReturn

from kernel_dvfs.cli.arguments import whole
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import compact_json, parse_json, write_text

if TYPE_CHECKING:
    import socket

    from kernel_dvfs.measurement.real.server import MeasuringServer


# without a request for so long, other stages of the study are at work, and other users may have the node meanwhile
END_AFTER_S = 15.0


_NEXT = 75  # exit code of a process that another shall follow


_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs measure serve --gpu SETUP.json --stop"
    parser.add_argument("--gpu", required=True, metavar="SETUP", help="a setup file of a real GPU")
    parser.add_argument("--stop", action="store_true", help="end the one that runs; back when its clocks are restored")
    parser.add_argument(
        "--ready", type=whole(3, 1_000_000), metavar="FD", help="file descriptor to tell that it listens"
    )
    parser.add_argument("--tell", metavar="FILE", help="in a job of Slurm: file to tell that it listens, or why not")
    parser.add_argument(
        "--ask", action="store_true", help="pass requests on to it: JSON from stdin, a line each, its answers out"
    )


def run(options: Namespace) -> None:
    from kernel_dvfs.measurement.setup import read

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
        from kernel_dvfs.measurement.window import is_measured

        for line in sys.stdin:
            answer = ask(setup.gpu["uuid"], parse_json(line))
            print(compact_json(answer), flush=True)
            if not is_measured(answer):
                break
        return
    if options.tell:
        _serve_in_job(options)
        return
    from kernel_dvfs.measurement.real.server import MeasuringServer

    if options.ready is not None:
        os.set_inheritable(options.ready, False)
    _serve_and_end(MeasuringServer(options.gpu, options.ready))


def _serve_and_end(server: MeasuringServer) -> NoReturn:
    """Serve, then end this process at once: all is restored and said by then, and Python's own end would wait for
    CUDA, which never answers once a kernel hangs."""
    import traceback

    code = 1
    try:
        code = _NEXT if server.serve() else 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve_in_job(options: Namespace) -> NoReturn:
    """A measuring process for each session, one after the other at one socket: the job keeps its node between them."""
    import ctypes
    import signal
    import socket
    from contextlib import suppress

    from kernel_dvfs.measurement.real.client import socket_path
    from kernel_dvfs.measurement.setup import read

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    child, code, is_told = 0, _NEXT, False

    def pass_on(*_: object) -> None:
        nonlocal is_told
        is_told = True
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    # this one ends last: Slurm kills the other processes of a job as soon as this one is gone. After a killed session
    # its holder is still restoring the clocks: so it becomes a child of this one
    signal.signal(signal.SIGTERM, pass_on)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    while code == _NEXT and not is_told:
        # a signal waits until it is known whom to pass it on to
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        is_first, child = not child, os.fork()
        if child == 0:
            _serve_session(options, listener, is_first)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(ChildProcessError):  # none is left
        while True:
            os.wait()
    if listener.getsockname():
        with suppress(OSError):  # it may have gone
            os.unlink(socket_path(read(options.gpu).gpu["uuid"]))
    sys.exit(code if code >= 0 else 128 - code)


def _serve_session(options: Namespace, listener: socket.socket, is_first: bool) -> NoReturn:
    """In a forked child: the measuring process of a session. Does not return."""
    import signal
    import traceback

    from kernel_dvfs.measurement.real.server import MeasuringServer
    from kernel_dvfs.measurement.real.specimen import check_is_here

    def end(*_: object) -> NoReturn:
        # once: Slurm signals each process of a step, and the one above passes it on
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    code = 1
    try:
        # end as any process does, with everything restored
        signal.signal(signal.SIGTERM, end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        ready = None
        try:
            check_is_here(options.gpu)
        except InputError as error:
            write_text(options.tell, f"{error}\n")
            print(f"error: {error}", file=sys.stderr, flush=True)
            os._exit(2)
        if is_first:
            ready = os.open(options.tell, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        _serve_and_end(MeasuringServer(options.gpu, ready, END_AFTER_S, listener))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
