"""Commands: options in, library called, one line on stderr when something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a group."""

    help: str  # one line
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]  # its exit code; None: 0
