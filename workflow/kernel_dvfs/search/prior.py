"""What is public about GPUs, before anything is measured. Wide on purpose: measured points soon weigh more.

Voltage: V/V0 against the share of the highest core clock, the mean of three GPUs that no study here searches: V100 and
RTX 8000 (our fits on the published tables of NV-DVFS-Benchmark) and Titan Xp (published with gpmTOOL). Power: the clock
tree of the same V100 and RTX 8000. The exponent p = 3 and its spread: gpu.model. No constant is taken from the spec of
a simulated GPU.
"""

import numpy as np

# share of the highest core clock, V/V0, relative uncertainty (standard deviation of its logarithm)
VOLTAGE = np.array(
    [
        (0.40, 1.00, 0.005),
        (0.55, 1.01, 0.02),
        (0.62, 1.03, 0.035),
        (0.72, 1.08, 0.06),
        (0.81, 1.19, 0.10),
        (0.90, 1.29, 0.15),
        (1.00, 1.48, 0.20),
    ]
)
VOLTAGE_LENGTH = 0.12  # share of the highest clock over which a deviation from that curve is alike

# of a kernel, relative to its baseline time t, energy e, and the highest core clock f: mean and spread of log
# C/(t f), M/t, t0/t, p, A/e, B/e
KERNEL_MEAN = np.log([0.5, 0.4, 0.05, 3.0, 0.2, 0.15])
KERNEL_SPREAD = np.array([1.0, 1.0, 1.3, 0.35, 0.8, 1.0])
# how many kernels that is worth, when the measured ones say otherwise
KERNEL_STRENGTH = 8.0

# of the board, relative to the highest mean power seen: static power at the highest memory clock, k f of the clock tree
STATIC = (0.25, 0.5)
CLOCK = (0.08, 0.7)
BANDWIDTH_SPREAD = 0.12  # bandwidth is proportional to the memory clock, within this
STATIC_SPREAD = 0.6  # static power of a memory clock: (clock / highest)^STATIC_POWER, within this
STATIC_POWER = 0.4
SCALE_SPREAD = 0.4  # DRAM energy per byte against that at the highest memory clock


def log_voltage(share):
    """(mean, spread) of log(V/V0) at shares of the highest core clock (array)."""
    at = VOLTAGE[:, 0]
    return np.interp(share, at, np.log(VOLTAGE[:, 1])), np.interp(share, at, VOLTAGE[:, 2])
