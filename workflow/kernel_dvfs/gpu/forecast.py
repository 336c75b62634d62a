"""A captured step forecast on a simulated GPU: kernels held to what the real ones took, time and energy scaled.

How a kernel answers to clocks is the model's, from its work; what it takes at auto is the board's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs.gpu.governor import GovernedLoad, OperatingPoint, held_factor, settle
from kernel_dvfs.gpu.kernel import BACKWARD, LaunchWork, family_of, parameters
from kernel_dvfs.workload.step_workload import with_works, work_of
from kernel_dvfs_clocks.clocks import BASELINE, Clock, asked_core_mhz, reached_core_mhz
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_dvfs.workload.step import Step, Target
    from kernel_dvfs.workload.workload import Workload

# a core clock lower by more than a step of any grid is held down by the power cap
_STEP_MHZ = 15
# FLOP that would take this share more than the kernel's own time belong to another kernel of its operation
_TOO_FAST = 0.8


def forecast_of_step(step: Step, name: str, spec: dict[str, Any]) -> Workload:
    """Return the workload of a step on the simulated GPU of the type that it was captured on.

    Each kernel is held to what the step's file says of it at auto: time and power where a study measured them, else
    the time within the step. Raises InputError where the step is of another GPU, or a kernel has neither work nor time.
    """
    if spec["name"].partition(" SXM")[0] not in step.device["name"].replace("-", " "):
        raise InputError(
            f"step {step.name} was captured on {step.device['name']}, {spec['name']} is another GPU, which runs other "
            "kernels; forecast it for the GPU that it was captured on"
        )
    works = {target.id: list(_held(step, target, spec)) for target in step.measured}
    workload = with_works(step, {"name": name, "step": {"checksum": step.checksum}}, works)
    modelled = [target.id for target in step.measured if not _is_power_known(target)]
    if modelled:
        # what nobody has measured lies between these: a board that only waits, and one at its limit
        workload.about["modelled_power_w"] = [round(standing_power_w(spec), 3), spec["governor"]["cap_w"]]
    for target_id in modelled:
        workload.kernels[target_id]["is_power_modelled"] = True
    return workload


class KernelAtAuto(NamedTuple):
    """A kernel as it was measured at auto."""

    work: LaunchWork | None  # None: what it computes and moves is not known
    launches: int  # in one step
    time_s: float  # of one launch
    power_w: float
    core_mhz: float | None  # that it ran; None: not known


# what a kernel without matrix products may be bound by: what its work says, or either end
AS_MODELLED, BY_CORE, BY_MEMORY = "as modelled", "core", "memory"


def held_load(
    seen: Sequence[KernelAtAuto], spec: dict[str, Any], bound: str = AS_MODELLED
) -> list[tuple[LaunchWork, int]]:
    """Return [(work, launches)], each held to its time and power at auto on the GPU of `spec`. bound: what kernels
    without matrix products are taken to wait for; one whose work is not known waits for the memory where that is not
    said."""
    load = []
    for kernel in seen:
        work = kernel.work
        if work is None or not (work.tensor_flop or work.byte) or (bound != AS_MODELLED and not work.tensor_flop):
            work = LaunchWork("residual", 0.0, 0.0, 0.0, 0.0)
            if bound == BY_CORE:
                flop_per_s = 1e12 * spec["rates"]["fp32_tflop_per_s_per_ghz"]
                work = work._replace(fp32_flop=flop_per_s * kernel.time_s)
            else:
                byte_per_s = 1e9 * spec["memory"]["gb_per_s"] * family_of(spec, work)["dram_efficiency"]
                work = work._replace(byte=byte_per_s * kernel.time_s)
        load.append((held(spec, work, kernel.time_s, kernel.power_w, kernel.core_mhz), kernel.launches))
    return load


def settled(
    spec: dict[str, Any],
    load: Sequence[tuple[LaunchWork, int]],
    core_mhz: Clock = BASELINE.core_mhz,
    cap_w: float | None = None,
) -> OperatingPoint:
    """Return what a step of these kernels settles at on the GPU of `spec`: at auto, or with the core locked, or under
    another power limit. Its temperature is that of a board at the limit."""
    governor, thermal = spec["governor"], spec["thermal"]
    capped = spec if cap_w is None else spec | {"governor": governor | {"cap_w": cap_w}}
    temperature_c = thermal["ambient_c"] + thermal["c_per_w"] * capped["governor"]["cap_w"]
    pair = (core_mhz, BASELINE.mem_mhz)
    return settle(capped, [(parameters(capped, work), launches) for work, launches in load], pair, temperature_c)


def peak_tflop_per_s(spec: dict[str, Any]) -> float:
    """Return the TFLOP/s of dense bfloat16 products, at the highest clock that the board runs by itself."""
    return float(spec["rates"]["tensor_bf16_tflop_per_s_per_ghz"] * spec["clocks"]["auto_core_mhz"] / 1000)


def is_power_modelled(step: Step) -> bool:
    """Return whether a forecast of this step rests on a power that no study has measured."""
    return not all(map(_is_power_known, step.measured))


def standing_power_w(spec: dict[str, Any]) -> float:
    """Return the mean board power, W, at auto of a GPU of `spec` that only waits: no kernel draws less."""
    clocks, thermal = spec["clocks"], spec["thermal"]
    idle = LaunchWork("residual", 0.0, 1.0, 0.0, 1.0)._replace(energy_factor=0.0)
    running = GovernedLoad(spec, [(parameters(spec, idle), 1)], BASELINE)
    asked_mhz, ran_mhz = asked_core_mhz(clocks, BASELINE), reached_core_mhz(clocks, BASELINE, 0.0)
    return running.at(asked_mhz, ran_mhz, thermal["ambient_c"])[1]


def held(
    spec: dict[str, Any], work: LaunchWork, time_s: float, power_w: float | None = None, core_mhz: float | None = None
) -> LaunchWork:
    """Return `work` with factors that give it this time, s, and mean board power, W, at auto on the GPU of `spec`.

    power_w: None leaves the model's energy, but for what would exceed the power cap: the board ran the kernel in that
    time, so it did not. core_mhz: clock that the board ran; None: auto's own, as without a power
    cap. Time is proportional to its factor and power linear in the other, so both are solved for at that clock. A board
    that drew less than the model's standing power leaves the kernel no energy of its own (factor 0).
    """
    clocks = spec["clocks"]
    top_mhz = reached_core_mhz(clocks, BASELINE, power_w or 0.0)
    ran_mhz = core_mhz or top_mhz
    # the voltage is that of the clock that the governor asks for: below the top, the one that the cap leaves
    is_held = ran_mhz < top_mhz - _STEP_MHZ
    asked_mhz = ran_mhz if is_held else asked_core_mhz(clocks, BASELINE)
    factor_of_cap = held_factor(spec["governor"]) if is_held else 1.0
    thermal = spec["thermal"]
    temperature_c = thermal["ambient_c"] + thermal["c_per_w"] * (power_w or 0.0)

    def at(trial: LaunchWork) -> tuple[float, float]:
        running = GovernedLoad(spec, [(parameters(spec, trial), 1)], BASELINE)
        reached_s, reached_w = running.at(asked_mhz, ran_mhz, temperature_c)
        return reached_s, factor_of_cap * reached_w

    work = work._replace(time_factor=time_s / at(work)[0])
    standing_w, full_w = (at(work._replace(energy_factor=factor))[1] for factor in (0.0, 1.0))
    if power_w is None:
        power_w = min(full_w, spec["governor"]["cap_w"])
    own_w = full_w - standing_w
    return work._replace(energy_factor=max(power_w - standing_w, 0.0) / own_w if own_w > 0 else 1.0)


def _held(step: Step, target: Target, spec: dict[str, Any]) -> LaunchWork:
    work = LaunchWork(*work_of(target))
    time_us = target.auto_time_us or target.time_us or target.alone_us
    if not time_us:
        if target.flop or target.byte:
            return work
        raise InputError(
            f"step {step.name}: of kernel {target.id} neither time nor work is known, so nothing can be forecast; "
            "capture the step with its trace"
        )
    # attention of the backward pass may come close to the forward one's rate, which its own efficiency is far below
    fastest = work._replace(family=work.family.removesuffix(BACKWARD))
    if work.tensor_flop and held(spec, fastest, 1e-6 * time_us).time_factor < _TOO_FAST:
        work = work._replace(family="residual", tensor_flop=0.0)
    if not (work.tensor_flop or work.byte):
        # bound by the core, which promises no saving that the kernel may not have
        work = work._replace(fp32_flop=1e12 * spec["rates"]["fp32_tflop_per_s_per_ghz"] * 1e-6 * time_us)
    power_w = None
    if _is_power_known(target):
        assert target.auto_time_us and target.auto_energy_mj
        power_w = 1e3 * target.auto_energy_mj / target.auto_time_us
    return held(spec, work, 1e-6 * time_us, power_w, target.auto_core_mhz)


def _is_power_known(target: Target) -> bool:
    return bool(target.auto_time_us and target.auto_energy_mj)
