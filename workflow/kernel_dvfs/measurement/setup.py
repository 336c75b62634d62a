"""What a measurement job needs to know: the resolved GPU, the work of the workload, the protocol's settings.

A setup is immutable and named by its content (`setup/<digest>.json`), so a job cannot see half a change, two runs with
different settings cannot disturb each other, and a record says which setup it was measured under.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

from kernel_dvfs_clocks import shape
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

SCHEMA = "kernel-dvfs/setup/1"
_REMEDY = "snakemake rewrites it, run it again"


# {"kernel": {id: work and row}, "pass": {name: [[id, repeat], ...]}}
_Targets = TypedDict("_Targets", {"kernel": dict[str, Any], "pass": dict[str, Any]})


class _SetupFile(TypedDict):
    schema: str
    gpu: dict[str, Any]
    workload: dict[str, Any]
    targets: _Targets
    measurement: dict[str, Any]


class Setup(NamedTuple):
    """The content of a setup's file."""

    digest: str  # 12 hex digits of the SHA-256 of the file: its name
    gpu: dict[str, Any]  # kind, slug, name, and the spec of a simulated GPU or the facts of a real one
    workload: dict[str, Any]  # name and options
    targets: dict[str, dict[str, Any]]  # {"kernel": {id: work and row}, "pass": {name: [[id, repeat], ...]}}
    measurement: dict[str, Any]  # warmup_s, window_s, windows, seed; more on a real GPU

    def __hash__(self) -> int:
        return hash(self.digest)


def content(
    gpu: dict[str, Any], workload: dict[str, Any], targets: dict[str, dict[str, Any]], measurement: dict[str, Any]
) -> tuple[str, str]:
    """Return the digest and the text of a setup's file, `<digest>.json`; writes nothing. Raises ValueError on NaN."""
    groups = {"schema": SCHEMA, "gpu": gpu, "workload": workload, "targets": targets, "measurement": measurement}
    text = json.dumps(groups, allow_nan=False) + "\n"
    return _digest(text), text


def store(
    folder: str,
    gpu: dict[str, Any],
    workload: dict[str, Any],
    targets: dict[str, dict[str, Any]],
    measurement: dict[str, Any],
) -> str:
    """Write a setup into `folder`, unless its file is there and whole; returns the file's path."""
    digest, text = content(gpu, workload, targets, measurement)
    return write(os.path.join(folder, f"{digest}.json"), text)


def write(path: str, text: str) -> str:
    """Write a setup's text to its path, unless it is there and whole; returns the path."""
    if not _holds(path, text):
        write_text(path, text)
    return path


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _holds(path: str, text: str) -> bool:
    """Return whether the file is there and undamaged. A setup that is rewritten has every record measured again."""
    try:
        with open(path, "rb") as file:
            return file.read() == text.encode()
    except OSError:
        return False


def read(path: str) -> Setup:
    """Return the setup in a file. Raises InputError where it is missing, damaged or not named by its content."""
    try:
        about = os.stat(path)
    except OSError:
        return _read.__wrapped__(path, ())  # which says what is wrong
    return _read(path, (about.st_mtime_ns, about.st_size, about.st_ino))


# thousands of jobs of one process read the same few
@lru_cache(maxsize=64)
def _read(path: str, version: tuple[int, ...]) -> Setup:
    groups = shape.read(path, _SetupFile, SCHEMA, _REMEDY, "setup")
    digest = os.path.splitext(os.path.basename(path))[0]
    with open(path, encoding="utf-8") as file:
        if digest != _digest(file.read()):
            raise InputError(f"setup {path}: was changed: its name is not that of its content; {_REMEDY}")
    targets = {"kernel": groups["targets"]["kernel"], "pass": groups["targets"]["pass"]}
    return Setup(digest, groups["gpu"], groups["workload"], targets, groups["measurement"])
