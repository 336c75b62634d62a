"""A captured step as a workload: its targets are the kernels, its sections and the whole step the passes.

What cannot be repeated alone stays at auto and is no target. A kernel's work, where torch's shapes tell it, gives the
board its heater and the simulated GPU its forecast (gpu.forecast); on a real GPU no result depends on it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kernel_dvfs.workload.step import PACED
from kernel_dvfs.workload.workload import Workload
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.workload.step import Step, Target

# words in a kernel's name that say its matrix products are those of fused attention
_ATTENTION = ("flash", "fmha", "attention", "sdp")
# and that it is the one of the backward pass
_BACKWARD = ("backward", "bwd", "bprop")
# and words that say it has none, whatever was counted for the operation that it belongs to: an added bias, a sum
_STREAMS = ("elementwise_kernel", "reduce_kernel", "batch_norm", "layer_norm", "softmax")


def of_step(
    step: Step, name: str, path: str, code: str = "", paced: int | None = 0, most: int | None = None
) -> Workload:
    """Return the workload of a step on the GPU that runs it. name: of the results folder; path: of the step's file;
    code: FILE.py:FUNCTION, which makes the step: the configuration's, since a record may be anybody's.
    paced: so many of the kernels that the power cap may hold lower alone than in the step (Step.paced), the longest
    first, are passes as well; None: all.
    most: so many kernels are measured, those that take longest in the step, at least one of each section; None: all."""
    about = {"name": name, "step": {"file": path, "checksum": step.checksum, "code": code}}
    costliest = sorted(step.measured, key=lambda target: -target.launches * (target.time_us or target.alone_us or 0.0))
    # one of each section, or what is left of it could not be told
    first = {target.section: target for target in reversed(costliest)}.values()
    ordered = dict.fromkeys([*(target.id for target in first), *(target.id for target in costliest)])
    wanted = set([*ordered][: None if most is None else max(most, len(first))])
    measured = [target for target in step.measured if target.id in wanted]
    workload = with_works(step, about, {target.id: work_of(target) for target in measured})
    rested = [target for target in step.paced if target.id in wanted]
    for target in rested[:paced]:
        workload.passes[f"{PACED}{target.id}"] = [(target.id, 1)]
    return workload


def with_works(step: Step, about: dict[str, Any], works: dict[str, list[Any]]) -> Workload:
    """Return the workload of a step whose measured kernels do these works, {id: fields of a gpu.kernel.LaunchWork}.
    about: name, and what more is to be said of it. Raises InputError where none can be measured."""
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
    more: dict[str, Any] = {
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
    costs = {name: getattr(step.whole, name) for name in ("loop_us", "loop_j", "graph_us", "graph_j", "call_us")}
    maybe = {
        # what could be measured and is not, for want of time: [id, name, section, ms a step]
        "tail": [
            [
                target.id,
                target.name,
                target.section,
                1e-3 * target.launches * (target.time_us or target.alone_us or 0.0),
            ]
            for target in step.measured
            if target.id not in works
        ],
        "whole": {name: value for name, value in costs.items() if value is not None},
        "items": step.items,
        "said": [*step.frozen, *step.noticed],
    }
    more |= {name: value for name, value in maybe.items() if value}
    kernels = {
        target.id: _about(target, number, works[target.id])
        for number, target in enumerate((target for target in step.targets if target.id in works), start=1)
    }
    return Workload(about["name"], about | more, kernels, passes)


def work_of(target: Target) -> list[Any]:
    """Return [family, tensor_flop, fp32_flop, sfu_op, byte] of a launch by torch's counts: FLOP, which it counts of
    matrix products and convolutions, are the tensor cores'."""
    text = f"{target.function} {target.operation}".lower()
    family, flop = "residual", target.flop or 0.0
    if any(word in target.function.lower() for word in _STREAMS):
        flop = 0.0
    if flop:
        family = "gemm"
        if any(word in text for word in _ATTENTION):
            family = "flash_attention" + "_backward" * any(word in text for word in _BACKWARD)
    return [family, flop, 0.0, 0.0, target.byte or 0.0]


def _passes(step: Step, known: dict[str, int]) -> dict[str, list[tuple[str, int]]]:
    """Return {section, or `step`: [(id, launches)]}: their order is in `launches`."""
    passes = {
        name: list(Counter(target_id for target_id, _ in launched if target_id in known).items())
        for name, launched in step.passes.items()
    }
    return {name: launched for name, launched in passes.items() if launched}


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
