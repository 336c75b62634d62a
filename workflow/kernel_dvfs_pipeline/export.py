"""A plan for other programs: a plain CSV, and the file that the pipeline-frequency server of Zeus loads.

Zeus (Chung et al., Apache-2.0): `PointSolution` of `zeus.optimizer.pipeline_frequency.server.scheduler` loads a Python
literal with a list per pipeline rank of ("instruction", core MHz) in the order in which they run; `PointSolution3D`
copies it to the tensor- and data-parallel ranks of each stage. Checked against zeus 0.13.1 and 0.16.0.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import whole, write_text
from kernel_dvfs_pipeline.study import PlanDocument

COLUMNS = (
    "stage",
    "place",
    "instruction",
    "virtual_stage",
    "microbatch",
    "begin_s",
    "end_s",
    "core_mhz",
    "mem_mhz",
    "share_of_kernels",
)


def write_csv(path: Path | str, plan: PlanDocument) -> None:
    """Write a row per instruction, or per part of one that changes clocks, in the order in which each stage runs them.

    plan: a plan's document (study.read_plan). Empty clocks: auto, or work that keeps what its stage runs at.
    Raises InputError where the plan sets single kernels.
    """
    rows = list(_rows(plan))
    with whole(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_zeus(path: Path | str, plan: PlanDocument) -> None:
    """Write every stage's frequencies as Zeus's PointSolution loads them. Raises InputError as zeus_frequencies."""
    if not str(path).endswith(".py"):
        raise InputError(f"{path}: Zeus loads a file that ends in .py; name one")
    lines = (f"    {frequencies!r},\n" for frequencies in zeus_frequencies(plan))
    write_text(path, f"[\n{''.join(lines)}]\n")


def zeus_frequencies(plan: PlanDocument) -> list[list[tuple[str, int]]]:
    """Return, per stage, its instructions in order with their core clocks, MHz. Work without a clock is left out.

    Raises InputError for what Zeus cannot say: several clocks within an instruction, memory clocks, parts of MHz.
    """
    stages: list[list[tuple[str, int]]] = [[] for _ in plan["ranks"]]
    for row in _rows(plan):
        where = f"plan: stage {row['stage']} {row['instruction']} of microbatch {row['microbatch']}"
        if row["core_mhz"] is None and row["microbatch"] < 0:
            continue
        if row["share_of_kernels"] != 1:
            raise InputError(f"{where} changes clocks on its way, which Zeus cannot: plan again without --split")
        if row["mem_mhz"] is not None:
            raise InputError(f"{where} sets the memory clock, which Zeus cannot: leave mem_mhz empty in the profile")
        if row["core_mhz"] is None or row["core_mhz"] != int(row["core_mhz"]):
            raise InputError(f"{where} runs at {row['core_mhz'] or 'auto'}; Zeus needs whole MHz: profile such clocks")
        stages[row["stage"]].append((row["instruction"], int(row["core_mhz"])))
    return stages


def _rows(plan: PlanDocument) -> Iterator[dict[str, Any]]:
    for rank in plan["ranks"]:
        for place, instruction in enumerate(rank["instructions"]):
            for part in instruction["clocks"]:
                if "kernel_setting" in part:
                    raise InputError("plan: it sets the clocks of single kernels; only its JSON holds them")
                about: dict[str, Any] = {**instruction, **part, "stage": rank["stage"], "place": place}
                yield {name: value for name, value in about.items() if name in COLUMNS}


FORMATS = {"csv": write_csv, "zeus": write_zeus}
