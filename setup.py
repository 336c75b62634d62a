"""The compiled core of plans of pipelines comes with the wheel, which then is for its platform and Python alone.

Where it cannot be built, one line says why; that wheel is for all, and plans are searched for in Python. All else
stands in pyproject.toml.
"""

import sys
from glob import glob
from pathlib import Path

from setuptools import setup
from setuptools.dist import Distribution

HERE = Path(__file__).resolve().parent
BESIDE = "workflow/kernel_dvfs_pipeline/native"


class WithCore(Distribution):
    """Whose wheel is pure only where there is no core."""

    def has_ext_modules(self) -> bool:
        """Whether the core was built."""
        return bool(glob(f"{BESIDE}/pipeline/_pipeline.*"))


def build_core() -> None:
    """Build the core beside the package, as `kernel-dvfs build --pipeline auto --beside` does."""
    sys.path.insert(0, str(HERE / "workflow"))
    from kernel_dvfs.native.build import build
    from kernel_dvfs_clocks.errors import InputError

    try:
        build(HERE / "native", HERE / BESIDE, "pipeline", "auto")
    except InputError as error:
        print(f"plans of pipelines without their compiled core: {error}", file=sys.stderr)


if "bdist_wheel" in sys.argv:
    build_core()
setup(distclass=WithCore)
