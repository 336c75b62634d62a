"""What all packages say of themselves: their version, and where they lie. Imports nothing of them."""

import os
import shutil
import sys
from importlib.util import find_spec

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
    | {"torch": "torch", "prometheus_client": "metrics"}
)
# an extra -> the extras that it brings, itself among them
_BRINGS = {"tables": ("tables",), "workflow": ("tables", "figures", "solver", "native", "workflow")}


def lacking(extra: str) -> str:
    """Return in a line which packages of an extra, tables or workflow, this Python does not find, with the remedy; ""
    where it finds all. Imports none."""
    wanted = [name for name, brought_by in _EXTRAS.items() if brought_by in _BRINGS[extra]]
    # a build asks for the program, which need not come from pip
    missing = [name for name in wanted if find_spec(name) is None and not (name == "cmake" and shutil.which(name))]
    pip = f"{sys.executable} -m pip install 'kernel-dvfs[{extra}]', or make install in a clone of the project"
    return f"{sys.executable} lacks {', '.join(missing)}: {pip}" if missing else ""


def remedy(error: ModuleNotFoundError) -> str:
    """Return how to install what is missing, in a line; "" where no extra brings it."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    return f"this needs {package}: pip install 'kernel-dvfs[{extra}]'" if extra else ""
