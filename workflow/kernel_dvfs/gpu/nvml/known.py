"""The facts of a GPU as a study needs them: asked of the driver, or, away from the GPU, as they were when it was
measured, so that its results can be looked at anywhere."""

from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json, write_json
from kernel_dvfs.gpu.nvml.facts import facts, slug
from kernel_dvfs.gpu.nvml.find import resolve
from kernel_dvfs.gpu.nvml.library import Library

_FILE = "gpu.json"


def known_facts(which: str, results: str) -> dict:
    """Facts and slug of the GPU that `which` (UUID, index or nothing) names. Raises InputError.

    Where there is no driver, a UUID is looked up in the results folders (see `keep`).
    """
    try:
        with Library() as nvml:
            found = facts(nvml, resolve(nvml, which))
    except InputError:
        for path in Path(results).glob(f"*/{_FILE}"):
            kept = read_json(path)
            if which and kept.get("uuid") == which:
                return kept
        raise
    found["slug"] = slug(found)
    return found


def keep(found: dict, results: str) -> None:
    """Leave the facts in the GPU's results folder."""
    path = Path(results, found["slug"], _FILE)
    if not path.is_file() or read_json(path) != found:
        write_json(path, found)
