"""Whether this process may set clocks, as far as one can tell without setting any."""

import os

from kernel_dvfs.gpu.nvml.errors import PERMISSION_REMEDY

_SYS_ADMIN = 21  # bit of CAP_SYS_ADMIN


def may_set_clocks() -> tuple:
    """(True or False, why in words). The driver has the last word, when the first clock is set."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            (mask,) = [int(line.split()[1], 16) for line in file if line.startswith("CapEff:")]
    except (OSError, ValueError):
        mask = 0
    who = f"user {os.geteuid()}"
    if mask >> _SYS_ADMIN & 1:
        return True, f"{who} has CAP_SYS_ADMIN"
    return False, f"{who} lacks CAP_SYS_ADMIN: {PERMISSION_REMEDY}"
