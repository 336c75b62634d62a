"""The program behind clock_probe.probe_apart: `python -m kernel_dvfs.measurement.real.probing UUID MHZ`.

It prints the clock of a GPU under next to no load, as JSON; a process of its own, so that nothing of it stays there.
"""

from __future__ import annotations

import json
import os
import sys

from kernel_dvfs.measurement.real import loads
from kernel_dvfs.measurement.real.clock_probe import probe_mhz


def main(uuid: str, until_mhz: float) -> None:
    """Print the clock of the GPU `uuid` as JSON."""
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    if loads.HOOK in os.environ:  # a test's simulation, on a fake NVML alone
        from kernel_dvfs_clocks.nvml.library import Library

        with Library() as nvml:
            print(json.dumps(loads.open_probing(nvml, uuid).clock_mhz(until_mhz)))
    else:
        print(json.dumps(probe_mhz(until_mhz)))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
