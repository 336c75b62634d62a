"""Give the clocks back: every control is tried, whatever became of the others."""

from kernel_dvfs.gpu.nvml.errors import NvmlError, Unsupported


class NotRestored(ExceptionGroup):
    """Controls that could not be reset; an error each."""


def reset(board) -> None:
    """Reset both locks. Raises NotRestored after trying both; a lock that the GPU lacks needs no reset."""
    errors = []
    for control in (board.reset_mem, board.reset_core):
        try:
            control()
        except Unsupported:
            pass
        except NvmlError as error:
            errors.append(error)
    if errors:
        raise NotRestored(f"clocks of {board.uuid} not restored", errors)


def leave_as_configured(board, after: dict) -> None:
    """Reset both locks, then set what the site wants to find: {"core": [min, max], "mem": [min, max]} or less."""
    reset(board)
    errors = []
    for domain, lock in (("mem", board.lock_mem), ("core", board.lock_core)):
        if after.get(domain):
            try:
                lock(*after[domain])
            except NvmlError as error:
                errors.append(error)
    if errors:
        raise NotRestored(f"clocks of {board.uuid} reset, but not set as `after` asks", errors)
