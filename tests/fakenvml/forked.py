"""Python programs started from a process in which their libraries lie imported: most of what a short one takes."""

import ctypes
import faulthandler
import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = str(Path(__file__).resolve().parents[1])
# of Snakemake, parsing a workflow, drawing and reading configurations
_IMPORTED = ["snakemake.cli", "snakemake.report", "docutils.core", "jsonschema", "numpy", "smart_open", "yte"]
_IMPORTED += ["pandas", "pyarrow.parquet", "plotnine", "tabulate", "mpmath"]
# of commands beside fake boards
_IMPORTED += ["pynvml", *(f"kernel_dvfs.cli.{own}" for own in ("main", "hardware", "measuring", "deploying"))]
_IMPORTED += [f"kernel_dvfs.measurement.{own}" for own in ("job", "real.client", "real.inventory", "real.latency")]
_IMPORTED += [f"kernel_dvfs.{own}" for own in ("plan.study", "plan.estimate", "gpu.nvml.facts", "deploy.command")]


def run(how: str, what: str, words, directory, environment, apart=False, seconds=800) -> subprocess.CompletedProcess:
    """`python -m MODULE words` or `python -c CODE words` in a folder; the finished process with all that it says in
    stdout, or with its errors apart. environment: all of it. One that takes longer than `seconds` says where it hangs;
    then TimeoutExpired."""
    starter = multiprocessing.get_context("forkserver")
    starter.set_forkserver_preload(_IMPORTED)
    own = [str(word) for word in words]
    with tempfile.NamedTemporaryFile("r") as said, tempfile.NamedTemporaryFile("r") as complained:
        files = said.name, complained.name if apart else said.name
        process = starter.Process(target=_run, args=(how, what, own, os.fspath(directory), files, environment, seconds))
        process.start()
        process.join(seconds + 10)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(own, seconds, said.read(), complained.read())
        return subprocess.CompletedProcess(words, process.exitcode, said.read(), complained.read())


def _run(how, what, words, directory, files, environment, seconds) -> None:
    """In that process."""
    gc.freeze()  # what lies imported is no garbage, and looking through it takes a tenth of a plan
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    more = environment.get("PYTHONPATH", "").split(os.pathsep)
    if what == "snakemake":  # it may run in a clone of the project, which has modules of its own
        for name in [name for name in sys.modules if name.startswith("kernel_dvfs")]:
            del sys.modules[name]
    sys.path[:] = [*filter(None, more), *(path for path in sys.path if not path.startswith(TESTS))]
    # LD_LIBRARY_PATH is read as a process starts, which this one has; what is loaded is found by its name
    library = os.path.join(environment.get("LD_LIBRARY_PATH", ""), "libnvidia-ml.so.1")
    if os.path.isfile(library):
        ctypes.CDLL(library)
    for number, name in enumerate(files, 1):
        with open(name, "a") as output:
            os.dup2(output.fileno(), number)
    faulthandler.dump_traceback_later(seconds, file=2)
    sys.argv[1:] = words
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv[0] = "-c"
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
