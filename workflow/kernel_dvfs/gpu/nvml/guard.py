"""A GPU taken and its clocks given back: lease and janitor on entering, restored on leaving, however that happens.

To be entered before NVML and CUDA are opened by this process.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.board import Board
from kernel_dvfs.gpu.nvml.errors import TIMEOUT, Denied, NvmlError, Unsupported
from kernel_dvfs.gpu.nvml.janitor import Janitor
from kernel_dvfs.gpu.nvml.lease import NO_CLOCKS, Lease
from kernel_dvfs.gpu.nvml.library import Library
from kernel_dvfs.gpu.nvml.locks import NotRestored, leave_as_configured, not_restored, reset
from kernel_dvfs.gpu.setters import choice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from kernel_dvfs.gpu.setters.setter import Range, Setter

# one run's measuring process may be ending while the next one's starts
_PATIENCE_S = 3.0


class Guard:
    """with Guard(uuid, after) as guard: guard.board is the GPU, guard.nvml the library, open until the end.

    after: clocks to leave behind instead of none, see locks.leave_as_configured. mode: `lock`; `auto-only`, where
    nothing will be set, so that only what another run has left needs restoring; or `external` and `dry-run`, where not
    even that is touched: the one cannot tell it from what the batch system has set, the other sets nothing at all.
    say: called with one line for the user; default: print on stderr. through: the way that clocks are set, see
    setters.choice; once it is known, the one that it means here. Raises InputError where the GPU is taken, and where
    that way could not set `after`; on leaving, NotRestored where clocks could not be given back, errors.Denied where
    that comes of the same lack of rights as what ended the context. What could not be given back stays in the lease,
    and so is told by `devices` and by the next run until it is. A forked child holds nothing: it sets no
    clocks, and leaving does nothing.
    """

    nvml: Library  # open within the context
    board: Board  # the GPU, within the context

    def __init__(
        self,
        uuid: str,
        after: Mapping[str, list[int] | None] | None = None,
        mode: str = "lock",
        say: Callable[[str], object] | None = None,
        through: str = choice.AUTO,
    ) -> None:
        self._after, self._sets_clocks, self._sweeps = after or {}, mode == "lock", mode in ("lock", "auto-only")
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        self._lease = Lease(uuid)
        self._janitor = Janitor(self._lease, self._after)
        self.through = through
        self._opened_setter: Setter | None = None
        self._opened = False  # whether NVML is open
        self._touched = False  # whether a control may have been changed
        self._may_land = False  # whether a call that had no answer may still change one
        self._owner = 0  # the process that entered: a fork of it holds nothing

    def __enter__(self) -> Guard:
        if self._sweeps:
            choice.check(self.through, self._after)
        self._owner = os.getpid()
        self._lease.take(_PATIENCE_S)
        try:
            if self._sets_clocks:
                self.through = choice.resolve(self.through, self._lease.uuid)
                choice.check_after(self.through, self._after)
                self._janitor.start(self.through)
        except BaseException:
            # what another run has left in it stays
            self._lease.close() if self._lease.stale else self._lease.release()
            raise
        try:
            # open all through: without a client, a driver without persistence unloads, and forgets locks and counter
            self.nvml = Library()
            self.nvml.__enter__()
            self._opened = True
            self.board = Board(self.nvml, self._lease.uuid)
            self._sweep()
            # not earlier: until it is swept, a stale lease has to stay what it is
            left = self._lease.stale
            self.announce("nothing yet" if self._sets_clocks else left.requested if left else NO_CLOCKS)
        except BaseException:
            self._leave(restored=self._lease.stale is None)
            raise
        return self

    def announce(self, requested: str) -> None:
        """Write down what is about to be asked of the clocks."""
        self._lease.write(requested)

    @property
    def setter(self) -> Setter:
        """What sets the clocks. Raises errors.NvmlError where it cannot be reached, here and below."""
        if self._opened_setter is None:
            self.through = choice.resolve(self.through, self._lease.uuid)
            choice.check_after(self.through, self._after)
            self._opened_setter = choice.opened(self.through, self.board)
        return self._opened_setter

    def lock(self, core: Range | None, mem: Range | None) -> None:
        """Keep the clocks that are given in their ranges, MHz, memory first; the other is left as it is.

        Raises InputError where this guard sets none; memory may be locked where this fails.
        """
        self._check_ours()
        for step in self.setter.locks(core, mem):
            self._touch(step)

    def lock_mem(self, lowest_mhz: int, highest_mhz: int) -> None:
        """Keep the memory clock in a range."""
        self.lock(None, (lowest_mhz, highest_mhz))

    def lock_core(self, lowest_mhz: int, highest_mhz: int) -> None:
        """Keep the core clock in a range."""
        self.lock((lowest_mhz, highest_mhz), None)

    def reset_mem(self) -> None:
        """Free the memory clock."""
        self._check_ours()
        self._touch(self.setter.reset_mem)

    def reset_core(self) -> None:
        """Free the core clock."""
        self._check_ours()
        self._touch(self.setter.reset_core)

    def reset(self) -> None:
        """Give the clocks back for now. Raises NotRestored."""
        reset(self.setter)

    def _check_ours(self) -> None:
        if not self._sets_clocks:
            raise InputError(f"GPU {self._lease.uuid}: its clocks are not ours to set; configure clocks: lock")
        if os.getpid() != self._owner:
            raise InputError(
                f"GPU {self._lease.uuid}: a forked process does not hold it; set clocks in process {self._owner}"
            )

    def _touch(self, control: Callable[[], None]) -> None:
        if not self._janitor.is_alive():
            raise InputError(
                f"GPU {self._lease.uuid}: the process that would restore its clocks, should this one be killed, is "
                "gone; nothing more is locked; run it again"
            )
        # before the call: whatever interrupts it, or comes just after it, finds that there is something to restore
        before, self._touched = self._touched, True
        try:
            control()
        except BaseException as error:
            if not isinstance(error, NvmlError) or error.code == TIMEOUT:
                self._may_land = True
            # nothing has changed; but of two clocks that are set at once, one may have
            elif isinstance(error, Denied) or (isinstance(error, Unsupported) and self.setter.capabilities.alone):
                self._touched = before
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._owner:
            return  # a forked child that leaves: nothing here is its own
        restored = not self._touched
        try:
            if self._touched:
                leave_as_configured(self.setter, self._after)
                restored = True
        except NotRestored as failed:
            self._lease.note(not_restored(failed))
            if isinstance(error, Denied):
                raise Denied(
                    f"{error}; what had been locked by then could not be reset either ({failed.calls}): kernel-dvfs "
                    f"reset --uuid {self._lease.uuid} does, with that right",
                    *(error.code, error.call),
                ) from error
            if error is not None:
                # what went wrong first, then what came of it
                raise NotRestored(failed.message, [_as_exception(error), *failed.exceptions]) from error
            raise
        finally:
            # what has had no answer may undo it: the janitor waits for that, and restores once more
            self._leave(restored and not self._may_land)

    def _sweep(self) -> None:
        """Restore what another run has left locked."""
        stale = self._lease.stale
        if stale is None:
            return
        if stale.rebooted:
            self._say(f"GPU {self._lease.uuid}: {stale.owner} left a lease before the last boot; removed")
        elif not self._sweeps:
            self._say(
                f"GPU {self._lease.uuid}: {stale.owner} ended and may have left its clocks locked; they are left as "
                "they are, since nothing is set here (kernel-dvfs reset --stale resets them)"
            )
            return  # and the lease stays what it is, for the next one who may
        else:
            leave_as_configured(self.setter, self._after)
            self._say(f"GPU {self._lease.uuid}: {stale.owner} ended without restoring its clocks; reset")
        self._lease.stale = None

    def _leave(self, restored: bool) -> None:
        if self._opened_setter:
            self._opened_setter.close()  # first: a broker lets nobody else at the clocks before
        if restored and self._sets_clocks:
            self._janitor.dismiss()
        elif self._sets_clocks:
            # not ours to delete: the janitor tries once more with an NVML of its own, and deletes it if that helps
            self._janitor.abandon()
        if restored and self._lease.stale is None:
            self._lease.release()
        else:
            self._lease.close()
        if self._opened:
            self.nvml.__exit__()


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"stopped by {type(error).__name__}")
