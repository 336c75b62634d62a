"""From work to the parameters of the time and power model, by physics alone.

C = max over units of work / (rate per GHz x efficiency), M = bytes / (bandwidth x efficiency), t0 = launch + latency,
A = sum of unit energies, B = DRAM energy. Nothing here is particular to one kernel: a kernel is its work, the
efficiency of its family, and its launch latency.
"""

from typing import NamedTuple


class Kernel(NamedTuple):
    """The model parameters of one launch."""

    core_s_ghz: float  # core work, s at 1 GHz
    memory_s: float  # memory work, s at the reference memory clock
    latency_s: float
    overlap: float  # exponent p
    core_j: float  # switching energy in the core at V0
    dram_j: float  # energy in DRAM


class Work(NamedTuple):
    """The work of one launch: the fields of a workload row that a GPU needs to know."""

    family: str
    tensor_flop: float
    fp32_flop: float
    sfu_op: float  # special-function operations
    byte: float  # to and from DRAM


def clock_share(spec: dict, work: Work) -> float:
    """Share of the core clock's cycles that the SMs run: less than 1 where tensor cores work, on GPUs of which it is
    known. The core clock is the one that is asked for, that sets the voltage, and that the driver reports."""
    return spec["core"].get("tensor_clock_share", 1.0) if work.tensor_flop else 1.0


def parameters(spec: dict, work: Work) -> Kernel:
    """The model parameters of one launch of `work` on the GPU of `spec`."""
    family = spec["families"][work.family]
    rates, energy = spec["rates"], spec["energy_pj"]
    # streaming through the SMs: bytes that a family moves per clock of one SM
    sm_cycles = work.byte / family["sm_byte_per_clock"]
    tensor_flop_per_s = rates["tensor_bf16_tflop_per_s_per_ghz"] * 1e12 * family["tensor_efficiency"]
    core_s_ghz = max(
        work.tensor_flop / (tensor_flop_per_s * clock_share(spec, work)),
        work.fp32_flop / (rates["fp32_tflop_per_s_per_ghz"] * 1e12),
        work.sfu_op / (rates["sfu_top_per_s_per_ghz"] * 1e12),
        sm_cycles / (spec["sm_count"] * 1e9),
    )
    bandwidth_byte_per_s = spec["memory"]["gb_per_s"] * 1e9 * family["dram_efficiency"]
    core_pj = (
        energy["tensor_bf16_flop"] * family.get("tensor_energy", 1.0) * work.tensor_flop
        + energy["fp32_flop"] * work.fp32_flop
        + energy["sfu_op"] * work.sfu_op
        + energy["stream_byte"] * work.byte
        + energy["sm_cycle"] * sm_cycles
        + energy.get("instruction", 0.0) * family.get("instruction_per_byte", 0.0) * work.byte
    )
    return Kernel(
        core_s_ghz=core_s_ghz,
        memory_s=work.byte / bandwidth_byte_per_s,
        latency_s=family["latency_us"] * 1e-6,
        overlap=family["overlap"],
        core_j=core_pj * 1e-12,
        dram_j=energy["dram_byte"] * family.get("dram_energy", 1.0) * work.byte * 1e-12,
    )
