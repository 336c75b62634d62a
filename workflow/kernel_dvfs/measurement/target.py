"""Names of what is measured: `kernel/<id>` or `pass/<name>`."""

from kernel_dvfs.errors import InputError
from kernel_dvfs.tuples import named

Target = named(
    "Target",
    "study name",
    "study: `kernel` or `pass`; name: a kernel id or a pass.",
)


def parse(setup, text: str) -> Target:
    """The target that `text` (`kernel/<id>`, `pass/<name>` or a bare kernel id) names. Raises InputError."""
    study, slash, name = text.partition("/")
    if not slash:
        study, name = "kernel", text
    known = setup.targets.get(study, {})
    if name not in known:
        names = ", ".join(f"{study}/{name}" for study, names in setup.targets.items() for name in names)
        raise InputError(f"target '{text}': not in workload {setup.workload['name']}; it has {names}")
    return Target(study, name)
