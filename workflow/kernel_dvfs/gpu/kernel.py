"""From the work of a kernel to the parameters of the time and power model (gpu.model), by physics alone.

C = max over units of work / (rate per GHz x efficiency), M = bytes / (bandwidth x efficiency), t0 = launch + latency,
g, p of the family,
A = sum of unit energies, B = DRAM energy. Nothing here is particular to one kernel: a kernel is its work, the
efficiency of its family, and its launch latency.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# what a family's name ends in that is another's in the backward pass
BACKWARD = "_backward"


class LaunchWork(NamedTuple):
    """One launch: the fields of a workload row that a GPU needs to know."""

    family: str  # whose efficiencies hold (specs/families.yaml)
    tensor_flop: float  # operations of the tensor cores
    fp32_flop: float  # other floating-point operations
    sfu_op: float  # special-function operations
    byte: float  # DRAM traffic, read and written
    # share of the tensor cores that have a tile to compute: a matrix product's last wave is seldom full
    tensor_share: float = 1.0
    # of a kernel that is held to a measurement (gpu.forecast): factors of the time and the energy that physics give it
    time_factor: float = 1.0
    energy_factor: float = 1.0


class Kernel(NamedTuple):
    """One launch, as the model sees it on one GPU."""

    core_s_ghz: float  # C: core work, s at 1 GHz
    memory_s: float  # M: memory work, s at the reference memory clock
    latency_s: float  # t0
    overlap: float  # the exponent p
    core_j: float  # A: switching energy in the core at V0
    dram_j: float  # B: energy in DRAM
    memory_exponent: float = 0.0  # g: memory work takes longer by this power of the core clock, in GHz


def clock_share(spec: dict[str, Any], work: LaunchWork) -> float:
    """Share of the core clock's cycles that the SMs run: less than 1 where tensor cores work, on GPUs of which it is
    known. The core clock is the one that is asked for, that sets the voltage, and that the driver reports."""
    return spec["core"].get("tensor_clock_share", 1.0) if work.tensor_flop else 1.0


def family_of(spec: dict[str, Any], work: LaunchWork) -> dict[str, Any]:
    """Return the figures of a kernel's family; of a backward one that the GPU's spec does not have, the forward
    one's."""
    return spec["families"].get(work.family) or spec["families"][work.family.removesuffix(BACKWARD)]


def parameters(spec: dict[str, Any], work: LaunchWork) -> Kernel:
    """Return the model parameters of one launch of `work` on the GPU of `spec` (gpu.spec.resolve)."""
    family = family_of(spec, work)
    rates, energy = spec["rates"], spec["energy_pj"]
    # streaming through the SMs: bytes that a family moves per clock of one SM
    sm_cycles = work.byte / family["sm_byte_per_clock"]
    efficiency = family["tensor_efficiency"] * work.tensor_share
    tensor_flop_per_s = rates["tensor_bf16_tflop_per_s_per_ghz"] * 1e12 * efficiency
    tensor_pj = energy["tensor_bf16_flop"] * family.get("tensor_energy", 1.0)
    if family.get("precision", "bf16") != "bf16":
        precision = spec["precisions"][family["precision"]]
        tensor_flop_per_s *= precision["rate"]
        tensor_pj *= precision["energy"]
    core_s_ghz = max(
        work.tensor_flop / (tensor_flop_per_s * clock_share(spec, work)),
        work.fp32_flop / (rates["fp32_tflop_per_s_per_ghz"] * 1e12),
        work.sfu_op / (rates["sfu_top_per_s_per_ghz"] * 1e12),
        sm_cycles / (spec["sm_count"] * 1e9),
    )
    bandwidth_byte_per_s = spec["memory"]["gb_per_s"] * 1e9 * family["dram_efficiency"]
    core_pj = (
        tensor_pj * work.tensor_flop
        + energy["fp32_flop"] * work.fp32_flop
        + energy["sfu_op"] * work.sfu_op
        + energy["stream_byte"] * work.byte
        + energy["sm_cycle"] * sm_cycles
        + energy.get("instruction", 0.0) * family.get("instruction_per_byte", 0.0) * work.byte
    )
    dram_pj = energy["dram_byte"] * family.get("dram_energy", 1.0) * work.byte
    memory_s, memory_exponent = work.byte / bandwidth_byte_per_s, family.get("memory_exponent", 0.0)
    if memory_exponent:  # the bandwidth is that at the highest clock
        memory_s *= (spec["clocks"]["auto_core_mhz"] / 1000) ** -memory_exponent
    return Kernel(
        core_s_ghz=work.time_factor * core_s_ghz,
        memory_s=work.time_factor * memory_s,
        latency_s=work.time_factor * family["latency_us"] * 1e-6,
        overlap=family["overlap"],
        core_j=work.energy_factor * core_pj * 1e-12,
        dram_j=work.energy_factor * dram_pj * 1e-12,
        memory_exponent=memory_exponent,
    )
