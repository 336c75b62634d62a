"""The kinds of study, by name: which modules declare what one makes, what reads its folder, which a folder is of.

Nothing is imported before it is asked for: the pipeline and the serving study are packages beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json
from kernel_dvfs.outputs import Outputs


class Kind(NamedTuple):
    """A kind of study."""

    report: str  # package whose modules `tables` and `figures` declare what is made
    reader: tuple[str, str]  # (module, class) of what reads a folder; the class takes the folder
    schema: str  # how the `schema` of its study.json begins; "": it has none
    page: str = ""  # module whose `make` takes a folder and makes its page; "": that of a GPU's study


KINDS = {
    "gpu": Kind("kernel_dvfs.report", ("kernel_dvfs.report.results", "Results"), ""),
    "pipeline": Kind(
        "kernel_dvfs_pipeline.report",
        ("kernel_dvfs_pipeline.study", "PipelineStudy"),
        "kernel-dvfs/pipeline-study/",
        "kernel_dvfs_pipeline.report.page",
    ),
    "serving": Kind(
        "kernel_dvfs_serving.report",
        ("kernel_dvfs_serving.study", "ServingStudy"),
        "kernel-dvfs/serving/",
        "kernel_dvfs_serving.report.page",
    ),
}


@cache
def outputs(kind: str) -> Outputs:
    """Every table and figure of a kind of study."""
    modules = [import_module(f"{KINDS[kind].report}.{name}") for name in ("tables", "figures")]
    return Outputs(modules[0].OUTPUTS | modules[1].OUTPUTS)


def page_of(folder: str | Path) -> Callable[[str | Path], tuple[str, list[str]]] | None:
    """What makes the page of a study that has one of its own: folder -> (HTML, what is missing)."""
    if not (Path(folder) / "study.json").is_file() or not (module := KINDS[kind_of(folder)].page):
        return None
    found: Callable[[str | Path], tuple[str, list[str]]] = import_module(module).make
    return found


def kind_of(folder: str | Path) -> str:
    """Which kind of study a results folder is of, by the files that lie there. Raises InputError for none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; expected results/<gpu>/<workload>, or a pipeline or serving study's"
        )
    try:
        schema = str(read_json(folder / "study.json").get("schema"))
    except (OSError, ValueError, AttributeError):
        schema = ""
    for name, kind in KINDS.items():
        if kind.schema and schema.startswith(kind.schema):
            return name
    if (folder / "experiments").is_dir():
        return "serving"  # what is said of one instance has no study.json
    if (folder / "profile.parquet").is_file() or (folder / "measurements").is_dir():
        return "gpu"
    raise InputError(
        f"{folder}: neither a profile nor records nor a study.json; expected results/<gpu>/<workload>, or a pipeline "
        "or serving study's folder"
    )


def reader(folder: str | Path) -> Any:
    """What reads a results folder: its `subject` and the data that its tables and figures take. Raises InputError."""
    module, name = KINDS[kind_of(folder)].reader
    return getattr(import_module(module), name)(folder)
