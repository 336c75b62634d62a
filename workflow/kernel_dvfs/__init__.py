"""kernel-dvfs: clocks that waste no energy, for every kernel of an LLM training iteration.

The names that notebooks and programs use are those of kernel_dvfs.api, and what extensions add; `import kernel_dvfs`
offers them all.
"""

from kernel_dvfs.names import NAMES
from kernel_dvfs_clocks.package import VERSION, remedy

__version__ = VERSION

# kernel_dvfs.api is imported when one of its names is first asked for, since measurement jobs import little; typing is
# not, since root looks whose modules are before it imports any (trust)
TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernel_dvfs.api import *  # noqa: F403


def __dir__() -> list[str]:
    from kernel_dvfs.extensions import merged

    return sorted([*globals(), *NAMES, *merged("api")])


def __getattr__(name: str) -> object:
    # Python itself asks for names with underscores
    if not name.startswith("_"):
        from kernel_dvfs.extensions import at, merged

        place = f"kernel_dvfs.api:{name}" if name in NAMES else merged("api").get(name)
        if place:
            try:
                return at(place)
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(remedy(error) or error, name=error.name) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
