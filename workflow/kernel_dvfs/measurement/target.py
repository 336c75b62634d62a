"""Names of what is measured: `kernel/<id>` or `pass/<name>`."""

from __future__ import annotations

from typing import NamedTuple

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement.setup import Setup


class Target(NamedTuple):
    """What is measured: one kernel or one pass of a setup."""

    study: str  # `kernel` or `pass`
    name: str  # a kernel's id or a pass


def parse(setup: Setup, text: str) -> Target:
    """The target that `text` (`kernel/<id>`, `pass/<name>` or a bare kernel id) names. Raises InputError."""
    study, slash, name = text.partition("/")
    if not slash:
        study, name = "kernel", text
    known = setup.targets.get(study, {})
    if name not in known:
        names = ", ".join(f"{study}/{name}" for study, names in setup.targets.items() for name in names)
        raise InputError(f"target '{text}': not in workload {setup.workload['name']}; it has {names}")
    return Target(study, name)
