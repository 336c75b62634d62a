"""The kinds of study, by name: which modules declare what one makes, what reads its folder, which a folder is of.

Nothing is imported before it is asked for. The road has one kind, extensions add others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from kernel_dvfs.extensions import Kind, extensions, merged
from kernel_dvfs.outputs import Outputs
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import read_json

_GPU = Kind("kernel_dvfs.report", ("kernel_dvfs.report.results", "Results"), "GPUs", "")


def kinds() -> dict[str, Kind]:
    """Return {name: Kind} of all that are here, the road's own first."""
    return {"gpu": _GPU} | merged("kinds")


@cache
def outputs(kind: str) -> Outputs:
    """Return every table and figure of a kind of study."""
    names = [f"{kinds()[kind].report}.{name}" for name in ("tables", "figures")]
    names += [name for extension in extensions().values() for name in extension.outputs.get(kind, ())]
    of_kind = Outputs()
    for name in names:
        of_kind |= import_module(name).OUTPUTS
    return of_kind


def page_of(folder: str | Path) -> Callable[[str | Path], tuple[str, list[InputError]]] | None:
    """Return what makes the page of a study that has one of its own: folder -> (HTML, what is missing)."""
    if not (Path(folder) / "study.json").is_file() or not (module := kinds()[kind_of(folder)].page):
        return None
    make: Callable[[str | Path], tuple[str, list[InputError]]] = import_module(module).make
    return make


def kind_of(folder: str | Path) -> str:
    """Return which kind of study a results folder is of, by the files that lie there. Raises InputError for none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; expected results/<gpu>/<workload>, or a pipeline or serving study's"
        )
    try:
        schema = str(read_json(folder / "study.json").get("schema"))
    except (OSError, ValueError, AttributeError):
        schema = ""
    for name, kind in kinds().items():
        if (kind.schema and schema.startswith(kind.schema)) or (kind.sign and (folder / kind.sign).is_dir()):
            return name
    if (folder / "profile.parquet").is_file() or (folder / "measurements").is_dir():
        return "gpu"
    raise InputError(
        f"{folder}: neither a profile nor records nor a study.json; expected results/<gpu>/<workload>, or a pipeline "
        "or serving study's folder"
    )


def reader(folder: str | Path) -> Any:
    """Return what reads a results folder: its `subject` and the data that its tables and figures take. Raises
    InputError."""
    module, name = kinds()[kind_of(folder)].reader
    return getattr(import_module(module), name)(folder)
