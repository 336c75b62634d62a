"""A pair of clocks put in force on a guarded board, memory first: the core clocks that exist depend on it."""

from kernel_dvfs.gpu.clocks import AUTO, supported_core_mhz


def ranges(clocks: dict, pair, exact: bool = False) -> tuple:
    """([min, max], [min, max]) of core and memory that a pair asks for; None where it is left to the governor.

    clocks: of the GPU's facts. exact: the target alone, else from the lowest clock up to it.
    """
    core, mem = pair
    lowest_core = core if exact or core == AUTO else supported_core_mhz(clocks, mem)[0]
    lowest_mem = mem if exact or mem == AUTO else min(clocks["mem_mhz"])
    return (None if core == AUTO else [lowest_core, core]), (None if mem == AUTO else [lowest_mem, mem])


def lock_pair(guard, clocks: dict, pair, exact: bool = False) -> None:
    """Ask for a pair. Where it raises (gpu.nvml.errors), memory may be locked already: reset the guard then."""
    core, mem = ranges(clocks, pair, exact)
    if mem:
        guard.lock_mem(*mem)
    elif clocks["mem_mhz"]:
        guard.reset_mem()
    if core:
        guard.lock_core(*core)
    else:
        guard.reset_core()
