"""Where the compiled core lies beside the package, a wheel holds it and is for its platform and Python alone:

    kernel-dvfs build --pipeline on --beside
    pip wheel --no-deps .

Without it the wheel is for all, and plans are searched for in Python. All else stands in pyproject.toml.
"""

from glob import glob

from setuptools import setup
from setuptools.dist import Distribution


class WithCore(Distribution):
    """Whose wheel is pure only where there is no core."""

    def has_ext_modules(self) -> bool:
        """Whether the core was built."""
        return bool(glob("workflow/kernel_dvfs_pipeline/native/pipeline/_pipeline.*"))


setup(distclass=WithCore)
