"""What a measurement job needs to know and nothing else: the resolved GPU, the workload's work, the protocol.

A setup is immutable and named by its content (`setup/<digest>.json`): a job cannot see half a change, two runs with
different settings cannot disturb each other, and a record says which setup it was measured under.
"""

import os

try:
    # hashlib costs a measurement job 4 ms to import
    from _sha2 import sha256
except ImportError:
    try:
        from _sha256 import sha256
    except ImportError:
        from hashlib import sha256

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import parse_json, write_text
from kernel_dvfs.tuples import named

SCHEMA = "kernel-dvfs/setup/1"
_GROUPS = ("gpu", "workload", "targets", "measurement")
_REMEDY = "snakemake rewrites it, run it again"

Setup = named(
    "Setup",
    "digest gpu workload targets measurement",
    """digest: 12 hex digits. gpu: kind, slug, name, spec. workload: name and options. targets: {"kernel":
{id: work and row}, "pass": {name: [[id, repeat], ...]}}. measurement: warmup_s, window_s, windows, seed.""",
)


def content(gpu: dict, workload: dict, targets: dict, measurement: dict) -> tuple:
    """(digest, text) of a setup: the name of its file without ending, and what it holds. Nothing is written."""
    # slow to import and of no use to a measurement job
    import json

    groups = {"schema": SCHEMA, "gpu": gpu, "workload": workload, "targets": targets, "measurement": measurement}
    text = json.dumps(groups, allow_nan=False) + "\n"
    return _digest(text), text


def write(path: str, text: str) -> str:
    """Write a setup's text unless it lies there whole; its path."""
    if not _holds(path, text):
        write_text(path, text)
    return path


def store(folder: str, gpu: dict, workload: dict, targets: dict, measurement: dict) -> str:
    """Write a setup into `folder` unless it lies there whole; its path."""
    digest, text = content(gpu, workload, targets, measurement)
    return write(os.path.join(folder, f"{digest}.json"), text)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def _holds(path: str, text: str) -> bool:
    """Whether the file is there and undamaged: a setup that is rewritten has every record measured again."""
    try:
        with open(path, "rb") as file:
            return file.read() == text.encode()
    except OSError:
        return False


def read(path: str) -> Setup:
    """The setup in a file. Raises InputError."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        content = parse_json(text)
    except (OSError, ValueError) as error:
        raise InputError(f"setup {path}: {error}; {_REMEDY}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(f"setup {path}: not a {SCHEMA} file; {_REMEDY}")
    for name in _GROUPS:
        if not isinstance(content.get(name), dict):
            raise InputError(f"setup {path}: {name} is missing or damaged; {_REMEDY}")
    for study in ("kernel", "pass"):
        if not isinstance(content["targets"].get(study), dict):
            raise InputError(f"setup {path}: targets.{study} is missing or damaged; {_REMEDY}")
    digest = os.path.splitext(os.path.basename(path))[0]
    if digest != _digest(text):
        raise InputError(f"setup {path}: was changed: its name is not that of its content; {_REMEDY}")
    return Setup(digest, content["gpu"], content["workload"], content["targets"], content["measurement"])
