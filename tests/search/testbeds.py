"""Made-up testbeds for a search: kernels that the model of the simulated GPU makes, and one that it cannot describe."""

import numpy as np

from experiments.searches.testbed import Testbed
from kernel_dvfs.gpu.clocks import AUTO, Pair
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import Kernel
from kernel_dvfs.search.candidates import Candidates

# name: (C s GHz, M s, t0 s, A J, B J)
KERNELS = {
    "core": (4e-3, 0.02e-3, 1e-5, 0.16, 0.002),
    "core-hot": (2e-3, 0.1e-3, 2e-5, 0.30, 0.005),
    "memory": (0.3e-3, 1e-3, 1e-5, 0.05, 0.07),
    "memory-lean": (0.3e-3, 2e-3, 5e-5, 0.03, 0.13),
    "balanced": (1e-3, 0.8e-3, 3e-5, 0.04, 0.03),
    "latency": (0.2e-3, 0.1e-3, 8e-4, 0.01, 0.004),
    "stream": (0.5e-3, 0.9e-3, 2e-5, 0.06, 0.06),
    "mixed": (2e-3, 0.9e-3, 2e-5, 0.09, 0.05),
}
CORE_MHZ = (210, 420, 630, 840, 1050, 1260, 1470, 1680, 1890, 2100)
MEM_MHZ = (810, 5001, 9251)


def made_up(spec: dict, noise: float = 0.0, seed: int = 1, spoil=None, recorded: bool = True) -> Testbed:
    """Every kernel at every pair, auto first. noise: relative sd of a point. spoil(name, pair, time, energy): changes
    what is measured and true. recorded: whether reached clocks are known."""
    warm_c = spec["thermal"]["reference_c"]
    pairs = [Pair(AUTO, AUTO)] + [Pair(core, mem) for mem in MEM_MHZ for core in CORE_MHZ]
    shape = len(KERNELS), len(pairs)
    time, energy, core, mem = np.zeros((4, *shape))
    for k, (name, (work, memory, latency, core_j, dram_j)) in enumerate(KERNELS.items()):
        kernel = Kernel(work, memory, latency, 3, core_j, dram_j)
        for p, pair in enumerate(pairs):
            ran = settle(spec, [(kernel, 1)], pair, warm_c)
            point = ran.time_s, ran.time_s * ran.power_w
            time[k, p], energy[k, p] = spoil(name, pair, *point) if spoil else point
            core[k, p], mem[k, p] = ran.core_mhz, ran.mem_mhz
    rng = np.random.default_rng(seed)
    measured_time = time * np.exp(noise * rng.standard_normal(shape))
    measured_energy = energy * np.exp(noise * rng.standard_normal(shape))
    if not recorded:
        core, mem = np.full((2, *shape), np.nan)
    candidates = Candidates(
        targets=tuple(KERNELS),
        pairs=tuple(tuple(None if clock == AUTO else float(clock) for clock in pair) for pair in pairs),
        offered=np.ones(shape, dtype=bool),
        weight=1 / time[:, 0],
        baseline=np.zeros(len(KERNELS), dtype=int),
        copies=np.ones(len(KERNELS), dtype=int),
    )
    measured = measured_time, measured_energy
    return Testbed(
        candidates, *measured, *measured, measured_time[:, :1], measured_energy[:, :1], core, mem, time, energy
    )
