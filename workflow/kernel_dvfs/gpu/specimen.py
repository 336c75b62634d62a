"""Another specimen of the same GPU model: its constants moved as chips of one model differ.

What differs between chips is leakage (static power), the voltage that each clock needs, and a little of the clock
tree's and the DRAM's power; clocks, rates and bandwidth do not. How much is assumed: boards of one model under one
power cap are known to differ by some percent in speed ("Not all GPUs are created equal", SC22), and spreads of this
size let the simulated boards differ as much. Made for studies; no measured board is meant.
"""

import math
from typing import Any

from kernel_dvfs.gpu.draws import normals

# standard deviation of the logarithm of a factor
STATIC = 0.05
VOLTAGE_RISE = 0.10
CLOCK_TREE = 0.04
DRAM = 0.03


def overrides(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """What to override in a GPU's spec (gpu.spec.resolve) to get specimen number `seed`; 0 is the spec itself."""
    if not seed:
        return {}
    static, rise = (math.exp(sd * z) for sd, z in zip((STATIC, VOLTAGE_RISE), normals(seed, "specimen", "supply")))
    tree, dram = (math.exp(sd * z) for sd, z in zip((CLOCK_TREE, DRAM), normals(seed, "specimen", "power")))
    memory, core = spec["memory"], spec["core"]
    return {
        "memory": {
            "static_w": {mhz: watt * static for mhz, watt in memory["static_w"].items()},
        },
        "core": {
            "clock_w_per_ghz": core["clock_w_per_ghz"] * tree,
            "v_over_v0": [[mhz, 1 + (volt - 1) * rise] for mhz, volt in core["v_over_v0"]],
        },
        "energy_pj": {"dram_byte": spec["energy_pj"]["dram_byte"] * dram},
    }
