"""What a study derives, under seal: whether its choices, plans, records and tables are as they were written, and what
they were made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import Changed, digest, seal_of

# what is derived, of every kind of study
_DERIVED = (
    *("schedules/*.json", "variants/*/schedule*.json", "tables/*.json"),
    *("study.json", "stages.csv", "mb*/*.csv", "mb*/plans/*.json"),
    *("profile.csv", "experiments/*.json"),
)
_REMEDY = "delete it and run snakemake"
# by the name that it has among what something was made of, the files of a study that may be meant
_INPUTS = {"profile": ("profile.parquet", "published.parquet"), "stages": ("stages.csv",), "study": ("study.json",)}


def check(folder: str | Path) -> None:
    """Raise InputError for what a study derived and what was changed since it was written."""
    for path in derived(folder):
        check_file(path)


def check_inputs(folder: str | Path, inputs: Mapping[str, str | Path] | None = None) -> None:
    """The same, also for what was made of another file than there is now, unless that has a later date: then Snakemake
    makes it again. inputs: {name among what it was made of: path} of files that lie elsewhere."""
    for path in derived(folder):
        made_of, date = check_file(path), path.stat().st_mtime_ns
        near = [up for up in (path.parent, *path.parents[1:3]) if up.is_relative_to(folder)]
        for name, checksum in made_of.items():
            known = [Path(inputs[name])] if inputs and inputs.get(name) else []
            known += [up / file for up in near for file in _INPUTS.get(name, ())]
            inputs_there = [file for file in known if file.is_file()]
            # one job writes a study and its stages, so no date tells
            is_one_job = (path.name, name) == ("study.json", "stages")
            is_later = not is_one_job and any(file.stat().st_mtime_ns > date for file in inputs_there)
            if inputs_there and not is_later and checksum not in map(digest, inputs_there):
                raise InputError(f"{path}: was made of another {name} than {inputs_there[0]} is now; {_REMEDY}")


def derived(folder: str | Path) -> list[Path]:
    """Return the files of a study that stand under a seal of their own."""
    return sorted(path for pattern in _DERIVED for path in Path(folder).glob(pattern))


def check_file(path: str | Path) -> dict[str, str]:
    """Check one file as `check` does; return {name: SHA-256} of what it was made of. One that cannot be read at all is
    left to whoever reads it."""
    try:
        return seal_of(path)[1]
    except Changed as error:
        raise InputError(f"{path}: {error}; {_REMEDY}") from None
    except (OSError, ValueError):
        return {}
