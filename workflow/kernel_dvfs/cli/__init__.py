"""Commands: options in, library called, one line on stderr when something is wrong."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

# help of an option that several commands have
THROUGH = "how clocks are set: nvml, broker, zeusd, sudo, dcgm, or auto, the first of these that works (auto)"


class Command(NamedTuple):
    """A command of `kernel-dvfs`."""

    help: str  # what it does, in a line
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int | None]  # the exit code; None: 0. Raises InputError
    listed: bool = True  # False: only rules of the workflow call it


def of_module(name: str, what: str, listed: bool = True) -> Command:
    """The command of a module of this package, which is imported when the command is called and not before."""

    def add_arguments(parser: ArgumentParser) -> None:
        import_module(f"kernel_dvfs.cli.{name}").add_arguments(parser)

    def run(options: Namespace) -> int | None:
        return import_module(f"kernel_dvfs.cli.{name}").run(options)

    return Command(what, add_arguments, run, listed)
