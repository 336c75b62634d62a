"""A captured step as a workload: its targets are the kernels, its sections and the whole step the passes.

What cannot be repeated alone stays at auto and is no target. A kernel's work, where torch's shapes tell it, gives the
board its heater and the simulated GPU its forecast; on a real GPU no result depends on it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.held import held, standing_power_w
from kernel_dvfs.gpu.kernel import BACKWARD, Work
from kernel_dvfs.workload.step import PACED
from kernel_dvfs.workload.workload import Workload

if TYPE_CHECKING:
    from kernel_dvfs.workload.step import Step, Target

# words in a kernel's name that say its matrix products are those of fused attention
_ATTENTION = ("flash", "fmha", "attention", "sdp")
# and that it is the one of the backward pass
_BACKWARD = ("backward", "bwd", "bprop")
# and words that say it has none, whatever was counted for the operation that it belongs to: an added bias, a sum
_STREAMS = ("elementwise_kernel", "reduce_kernel", "batch_norm", "layer_norm", "softmax")
# FLOP that would take this share more than the kernel's own time belong to another kernel of its operation
_TOO_FAST = 0.8


def of_step(step: Step, name: str, path: str, with_paced: bool = False) -> Workload:
    """The workload of a step on the GPU that runs it. name: of the results folder; path: of the step's file.
    with_paced: kernels that the power cap may hold lower alone than in the step (Step.paced) are passes as well."""
    about = {"name": name, "step": {"file": path, "checksum": step.checksum}}
    workload = _workload(step, about, {target.id: list(_work(target)[:5]) for target in step.measured})
    for target in step.paced if with_paced else []:
        workload.passes[f"{PACED}{target.id}"] = [(target.id, 1)]
    return workload


def forecast_of_step(step: Step, name: str, spec: dict[str, Any]) -> Workload:
    """The workload of a step on the simulated GPU of the type that it was captured on.

    Each kernel is held to what the step's file says of it at auto: time and power where a study measured them, else
    the time within the step. Raises InputError where the step is of another GPU, or a kernel has neither work nor time.
    """
    if spec["name"].partition(" SXM")[0] not in step.device["name"].replace("-", " "):
        raise InputError(
            f"step {step.name} was captured on {step.device['name']}, {spec['name']} is another GPU, which runs other "
            "kernels; forecast it for the GPU that it was captured on"
        )
    works = {target.id: list(_held(step, target, spec)) for target in step.measured}
    workload = _workload(step, {"name": name, "step": {"checksum": step.checksum}}, works)
    modelled = [target.id for target in step.measured if not _is_power_known(target)]
    if modelled:
        # what nobody has measured lies between these: a board that only waits, and one at its limit
        workload.about["modelled_power_w"] = [round(standing_power_w(spec), 3), spec["governor"]["cap_w"]]
    for target_id in modelled:
        workload.kernels[target_id]["is_power_modelled"] = True
    return workload


def is_power_modelled(step: Step) -> bool:
    """Whether a forecast of this step rests on a power that no study has measured."""
    return not all(map(_is_power_known, step.measured))


def _workload(step: Step, about: dict[str, Any], works: dict[str, list[Any]]) -> Workload:
    if not works:
        raise InputError(f"step {step.name}: none of its kernels can be repeated alone, so none can be measured")
    numbers = {target_id: number for number, target_id in enumerate(works)}
    launched = [step.targets[place] for place in step.order]
    launched = [target for target in launched if target.id in numbers]
    sections: list[tuple[str, int]] = []
    for number, target in enumerate(launched):
        if not sections or sections[-1][0] != target.section:
            sections.append((target.section, number))
    passes = _passes(step, numbers)
    more = {
        "captured_on": step.device["name"],
        "left_at_auto": [[target.id, target.launches, target.reason] for target in step.left_at_auto],
        "measured_share": step.coverage,
        "overlapped": list(step.whole.overlapped),
        "captured": step.date_utc,
        "source": step.source,
        "launches": [numbers[target.id] for target in launched],
        "sections": sections,
        "by_difference": step.by_difference,
        "not_repeated": step.not_repeated,
        "state_left_out": step.state.left_out,
        # which passes make up a step: none where one of its sections cannot be repeated
        "passes": list(step.sections) if all(name in passes for name in step.sections) else [],
    }
    kernels = {
        target.id: _about(target, number, works[target.id])
        for number, target in enumerate((each for each in step.targets if each.id in works), start=1)
    }
    return Workload(about["name"], about | more, kernels, passes)


def _passes(step: Step, known: dict[str, int]) -> dict[str, list[tuple[str, int]]]:
    """{section, or `step`: [(id, launches)]}: their order is in `launches`."""
    found = {
        name: list(Counter(target_id for target_id, _ in launched if target_id in known).items())
        for name, launched in step.passes.items()
    }
    return {name: launched for name, launched in found.items() if launched}


def _about(target: Target, number: int, work: list[Any]) -> dict[str, Any]:
    return {
        "work": work,
        "row": number,
        "section": target.section,
        "name": target.name,
        "kind": "gemm" if work[1] else "elementwise_or_reduction",
        "launches_per_iteration": target.launches,
        "replicate_group": None,
    } | target.about


def _work(target: Target) -> Work:
    """By torch's counts: FLOP, which it counts of matrix products and convolutions, are the tensor cores'."""
    text = f"{target.function} {target.operation}".lower()
    family, flop = "residual", target.flop or 0.0
    if any(word in target.function.lower() for word in _STREAMS):
        flop = 0.0
    if flop:
        family = "gemm"
        if any(word in text for word in _ATTENTION):
            family = "flash_attention" + BACKWARD * any(word in text for word in _BACKWARD)
    return Work(family, flop, 0.0, 0.0, target.byte or 0.0)


def _held(step: Step, target: Target, spec: dict[str, Any]) -> Work:
    work = _work(target)
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
