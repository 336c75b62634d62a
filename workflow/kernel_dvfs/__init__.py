"""kernel-dvfs: clocks that waste no energy, for every kernel of an LLM training iteration."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kernel_dvfs.step.api import capture as capture


def __getattr__(name: str) -> object:
    # imported when it is first asked for: measurement jobs import little
    if name == "capture":
        from kernel_dvfs.step.api import capture

        return capture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
