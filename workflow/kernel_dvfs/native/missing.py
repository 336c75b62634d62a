"""What the search for build tools raises."""

from kernel_dvfs.errors import InputError


class MissingTool(InputError):
    """A tool of the build is absent or does not work: what was found, what is missing, how to install it."""
