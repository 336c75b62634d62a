"""A workload: which kernels an iteration launches, how often and in which order, and the passes that they form.

The one home of these questions, whatever the workload is: the 46 rows of a model (`of_model`), or the targets of a
captured step (step_workload.of_step). A setup, and after it a profile, holds the answers as plain values: `about` as
its group `workload`, `targets` as its group of that name. Whoever has only those asks `launch_order` and `pass_begins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kernel_dvfs.workload import passes as model_passes
from kernel_dvfs.workload.rows import kernel_rows

if TYPE_CHECKING:
    from kernel_dvfs.workload.rows import Row

# options that change the work of a model and so stand in its name where they differ from these
_DEFAULT_WORK = {
    "bias_split": "table1",
    "row_parallel_bias": "sequence",
    "pass_boundary": "llmc",
    "token_ids_zipf": None,
}
OPTIONS = ("model", "batch", "tensor_parallel", *_DEFAULT_WORK)


@dataclass(frozen=True, slots=True)
class Workload:
    """What one iteration asks of a GPU.

    kernels: {id: what is known of it}: work (gpu.kernel.LaunchWork as a list), row, section, name, kind,
    launches_per_iteration, replicate_group; more of a captured step. passes: {name: [(kernel id, launches)]}, both in
    order of execution.
    """

    name: str  # of its folder below the GPU's
    about: dict[str, Any]  # name, and what else tells it from other workloads
    kernels: dict[str, dict[str, Any]]
    passes: dict[str, list[tuple[str, int]]]

    @property
    def has_passes(self) -> bool:
        """Its passes make up an iteration, so that clocks can be chosen for them."""
        return bool(self.about.get("passes", self.passes))

    @property
    def targets(self) -> dict[str, dict[str, Any]]:
        """The setup's group `targets`."""
        return {"kernel": self.kernels, "pass": self.passes}


def name_of_model(options: Mapping[str, Any]) -> str:
    """Return `<model>-b<batch>-tp<degree>`, and every other option that changes the work where it is not the
    default."""
    name = f"{options['model']}-b{options['batch']}-tp{options['tensor_parallel']}"
    extra = [f"-{key.replace('_', '-')}-{options[key]}" for key in _DEFAULT_WORK if options[key] != _DEFAULT_WORK[key]]
    return name + "".join(extra)


def rows_of(options: Mapping[str, Any], sm_count: int, threads_per_sm: int) -> list[Row]:
    """Return the rows of a model by the options of OPTIONS; of the GPU llm.c's split of the bias gradients depends on
    two numbers. Raises InputError on impossible options."""
    return kernel_rows(
        model=options["model"],
        batch=options["batch"],
        tensor_parallel=options["tensor_parallel"],
        bias_split=options["bias_split"],
        row_parallel_bias=options["row_parallel_bias"],
        sm_count=sm_count,
        threads_per_sm=threads_per_sm,
        zipf_exponent=options["token_ids_zipf"],
    )


def of_model(
    options: Mapping[str, Any],
    sm_count: int,
    threads_per_sm: int,
    products: Callable[[list[Row]], dict[str, tuple[float, float]]] | None = None,
) -> Workload:
    """Return the rows of a model of this project, by the arguments of `rows_of`. products: (DRAM traffic, share of the
    tensor cores in use) of rows that move more than their compulsory bytes (traffic.dense_products). Raises InputError
    on impossible options."""
    rows = rows_of(options, sm_count, threads_per_sm)
    name, moved = name_of_model(options), products(rows) if products else {}
    return Workload(
        name=name,
        about={"name": name} | {key: options[key] for key in OPTIONS},
        kernels={row.id: _about(row, moved.get(row.id, (row.read_byte + row.write_byte,))) for row in rows},
        passes=model_passes.passes(rows, options["pass_boundary"]),
    )


def _about(row: Row, moved: Sequence[float]) -> dict[str, Any]:
    return {
        "work": [row.family, row.tensor_flop, row.fp32_flop, row.sfu_op, *moved],
        "row": row.number,
        "section": row.section,
        "name": row.name,
        "kind": row.kind,
        "launches_per_iteration": row.multiplicity,
        "replicate_group": row.replicate_group,
    }


# the whole of a captured step, as a target
WHOLE = "step"


def study_of(about: Mapping[str, Any], kind: str, name: str) -> str:
    """Return the `study` of a target's rows in a profile: kernel, pass, or step.

    step: measured as a pass is, but no part of a choice: the whole of a captured step, whose sections are chosen for;
    and its sections where one of them cannot be repeated, so that those left do not make a step.
    """
    return WHOLE if kind == "pass" and name not in about.get("passes", (name,)) else kind


# --- what a setup's or a profile's plain values answer ----------------------------------------------------------------


def launch_order(about: Mapping[str, Any], launches: Mapping[str, int]) -> list[str]:
    """Return kernel ids in the order of an iteration's launches. about: a setup's or a profile's group `workload`.

    launches: {kernel id: launches per iteration}, in the order of the setup. A captured step says its order itself;
    kernels of a model, or of a table, are launched layer by layer (passes.launch_order).
    """
    if "launches" in about:
        names = list(launches)
        return [names[number] for number in about["launches"]]
    return model_passes.launch_order(launches.items())


def pass_begins(about: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return ((pass, first launch), ...) of an iteration that launches `names`; () where nothing is known of passes.

    about: of a profile, with `kernels`.
    """
    if "sections" in about:
        return tuple((name, first) for name, first in about["sections"])
    if "kernels" not in about or "pass_boundary" not in about:
        return ()
    # only what `passes` reads of a row of the workload, since a profile keeps no more
    rows: list[Any] = [
        SimpleNamespace(id=name, section=kernel["section"], multiplicity=1) for name, kernel in about["kernels"].items()
    ]
    listed = model_passes.passes(rows, about["pass_boundary"])
    pass_of = {name: pass_name for pass_name, steps in listed.items() for name, _ in steps}
    begins: list[tuple[str, int]] = []
    for number, name in enumerate(names):
        pass_name = pass_of.get(name)
        if pass_name is None:
            return ()
        if not begins or begins[-1][0] != pass_name:
            begins.append((pass_name, number))
    return tuple(begins)
