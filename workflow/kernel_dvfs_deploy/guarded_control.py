"""The clocks of a GPU for a program that has it in use: a Control that brings its guard along.

The program may have CUDA open, and threads. A driver that hangs ends the process that is asked, not the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from kernel_dvfs_clocks.clocks import check_after
from kernel_dvfs_clocks.errors import InputError, lines
from kernel_dvfs_clocks.guard import Guard
from kernel_dvfs_clocks.nvml.facts import facts_of
from kernel_dvfs_clocks.setters.choice import AUTO
from kernel_dvfs_deploy.control import Control

if TYPE_CHECKING:
    from types import TracebackType

    from kernel_dvfs_deploy.control import Pair


class GuardedControl(Control):
    """with GuardedControl(uuid, dry_run, say) as control. Arguments: as of Guard and Control. about: the GPU's facts,
    with its slug.

    Entering raises InputError where the GPU is taken, or lacks a clock of `after`; every method where the driver
    refuses, or the process that sets the clocks is gone. Methods may be called from several threads.
    """

    about: dict[str, Any]

    def __init__(
        self,
        uuid: str,
        dry_run: bool,
        say: Callable[[str], object],
        after: Mapping[str, list[int] | None] | None = None,
        through: str = AUTO,
        exact: bool = False,
    ) -> None:
        self._uuid, self._after, self._exact, self.reads_only = uuid, dict(after or {}), exact, dry_run
        self._guard = Guard(uuid, self._after, "dry-run" if dry_run else "lock", say, through, reads=False)

    def __enter__(self) -> Self:
        self.about = facts_of(self._uuid)
        check_after(self.about["clocks"], self._after)
        super().__init__(self._guard.__enter__(), self.about, self._exact, self.reads_only)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Have the clocks restored, and wait for that."""
        try:
            self._guard.__exit__(None, None, None)
        except ExceptionGroup as failed:
            raise InputError("; ".join(lines(failed))) from None

    def preflight(
        self,
        share: bool,
        say: Callable[[str], object],
        pairs: Sequence[Pair] | None = None,
        own_processes: int | None = 0,
    ) -> None:
        """See Control."""
        super().preflight(share, say, pairs, own_processes)
        self.about["clocks"] = self.clocks
