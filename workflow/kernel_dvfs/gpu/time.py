"""Time of one launch: core work and memory work overlap, a latency comes on top.

t = ((C/f)^p + (M/b)^p)^(1/p) + t0, the form that fits the published RTX 3080 Ti measurements best with p = 3.
Pure functions on plain floats; knows nothing of power.
"""


def relative_bandwidth(memory: dict, mem_mhz: float) -> float:
    """DRAM bandwidth at a memory clock relative to the reference clock: eta(f) f / f_reference."""
    return memory["eta"][str(mem_mhz)] * mem_mhz / memory["reference_mhz"]


def launch_time_s(kernel, core_ghz: float, bandwidth: float) -> float:
    """Seconds of one launch of `kernel` (gpu.kernel.Kernel) at a core clock (GHz) and relative bandwidth."""
    core = kernel.core_s_ghz / core_ghz
    memory = kernel.memory_s / bandwidth
    longer = max(core, memory)
    if longer == 0:
        return kernel.latency_s
    p = kernel.overlap
    # factor out the longer part, so that large p cannot underflow
    return longer * ((core / longer) ** p + (memory / longer) ** p) ** (1 / p) + kernel.latency_s
