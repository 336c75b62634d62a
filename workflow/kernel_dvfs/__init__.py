"""kernel-dvfs: clocks that waste no energy, for every kernel of an LLM training iteration.

The names that notebooks and programs use are those of kernel_dvfs.api; `import kernel_dvfs` offers them too.
"""

from typing import TYPE_CHECKING

from kernel_dvfs.package import NAMES, VERSION, remedy

__version__ = VERSION

# kernel_dvfs.api is imported when one of its names is first asked for, since measurement jobs import little
if TYPE_CHECKING:
    from kernel_dvfs.api import *  # noqa: F403


def __dir__() -> list[str]:
    return sorted([*globals(), *NAMES])


def __getattr__(name: str) -> object:
    if name in NAMES:
        from importlib import import_module

        try:
            return getattr(import_module("kernel_dvfs.api"), name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(remedy(error) or error, name=error.name) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
