"""What the package says of itself: its version, the names that it offers, and where it lies. Imports nothing of it."""

import os

VERSION = "0.1.0"

# the folder that holds the package, which a process that is started from here must find it in
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# packages that not everything needs -> the extra of this one that brings them
_EXTRAS = (
    dict.fromkeys(("numpy", "pyarrow", "mpmath", "jinja2"), "tables")
    | dict.fromkeys(("pandas", "plotnine", "PIL", "tabulate"), "figures")
    | dict.fromkeys(("pybind11", "cmake", "scikit_build_core"), "native")
    | dict.fromkeys(("ortools", "scipy"), "solver")
    | dict.fromkeys(("snakemake", "simpy"), "workflow")
    | {"torch": "torch"}
)

# what kernel_dvfs.api offers, and `import kernel_dvfs` too
NAMES = (
    "InputError",
    "by_clock",
    "capture",
    "choose",
    "frontier",
    "import_table",
    "load_profile",
    "play",
    "plot",
    "simulate",
    "summary",
    "tune",
    "validate",
    "write_page",
)


def remedy(error: ModuleNotFoundError) -> str:
    """How to install what is missing, in a line; "" where no extra brings it."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    return f"this needs {package}: pip install 'kernel-dvfs[{extra}]'" if extra else ""
