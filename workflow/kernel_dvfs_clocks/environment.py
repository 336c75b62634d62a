"""The environment variables of a workflow's jobs: this Python, its tools and this library, activated or not."""

import os
import sys

# holds sbatch's options for a node with a GPU; set by the workflow where its profile names them
SLURM = "KERNEL_DVFS_SLURM"


def slurm_gpu() -> str:
    """Return sbatch's options for a node with a GPU; "" where no cluster is used."""
    return os.environ.get(SLURM, "")


def prepare(library: str, slurm_gpu: str | None = None) -> None:
    """Set PATH and PYTHONPATH, so that processes started from here find the running Python first, and `library`.

    library: the folder that holds the package. slurm_gpu: options of sbatch for a node with a GPU, where a real one is
    measured through Slurm.
    """
    os.environ[SLURM] = slurm_gpu or ""
    # not resolved: the interpreter of a virtual environment is a link, and its tools lie beside the link
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    # after it whatever else the user's Python finds there, as the modules of a cluster put it
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", library)]
    os.environ["PYTHONPATH"] = os.pathsep.join([library, *others])
    # thousands of short jobs are quick only with compiled bytecode
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
