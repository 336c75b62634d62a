"""A command of `kernel-dvfs`, as what has one says it: imported when it is called, and not before."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """A command of `kernel-dvfs`."""

    help: str  # what it does, in a line
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int | None]  # the exit code; None: 0. Raises InputError
    listed: bool = True  # False: only rules of the workflow call it
    talks: bool = False  # True: what it says while it runs is for the user, so only its errors go to a log


def command_of(module: str, what: str, listed: bool = True, talks: bool = False) -> Command:
    """Return the command that `add_arguments` and `run` of a module make. It is imported when the command is called,
    and not before. module: one of this package, or in full."""
    module = module if "." in module else f"kernel_dvfs.cli.{module}"

    def add_arguments(parser: ArgumentParser) -> None:
        import_module(module).add_arguments(parser)

    def run(options: Namespace) -> int | None:
        code: int | None = import_module(module).run(options)
        return code

    return Command(what, add_arguments, run, listed, talks)
