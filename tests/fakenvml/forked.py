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
# of Snakemake with its plugins, parsing a workflow, drawing and reading configurations
IMPORTED = ["tests.fakenvml.plugins", "snakemake.report", "docutils.core", "jsonschema", "numpy", "smart_open", "yte"]
IMPORTED += ["snakemake.report.html_reporter", "pandas", "pandas.io.formats.style", "pyarrow.parquet", "tabulate"]
IMPORTED += ["plotnine", "matplotlib.pyplot", "matplotlib.backends.backend_pdf", "mpmath"]
# of commands beside fake boards
IMPORTED += ["pynvml", *(f"kernel_dvfs.cli.{own}" for own in ("main", "devices", "reset", "measure", "serve"))]
IMPORTED += [f"kernel_dvfs.measurement.{own}" for own in ("job", "real.client", "real.inventory", "real.latency")]
IMPORTED += ["kernel_dvfs.plan.study", "kernel_dvfs.plan.estimate", "kernel_dvfs_clocks.nvml.facts"]
IMPORTED += ["kernel_dvfs_deploy.commands.apply", "kernel_dvfs_deploy.command"]


def run(how: str, what: str, words, directory, environment, apart=False, seconds=800) -> subprocess.CompletedProcess:
    """`python -m MODULE words` or `python -c CODE words` in a folder; the finished process with all that it says in
    stdout, or with its errors apart. environment: all of it. One that takes longer than `seconds` says where it hangs;
    then TimeoutExpired."""
    own = [str(word) for word in words]
    if "KERNEL_DVFS_TEST_NIGHTLY" in os.environ:  # a fresh one, as users start it
        errors = subprocess.PIPE if apart else subprocess.STDOUT
        command = [sys.executable, how, what, *own]
        return subprocess.run(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=seconds
        )
    with tempfile.NamedTemporaryFile("r") as said, tempfile.NamedTemporaryFile("r") as complained:
        files = said.name, complained.name if apart else said.name
        process = _started(how, what, own, directory, files, environment, seconds)
        process.join(seconds + 10)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(own, seconds, said.read(), complained.read())
        return subprocess.CompletedProcess(words, process.exitcode, said.read(), complained.read())


def start(what: str, words, directory, log, environment=None) -> multiprocessing.Process:
    """`python -m MODULE words`, begun, in a process group of its own; all that it says goes to the file `log`."""
    return _started("-m", what, words, directory, (log, log), dict(environment or os.environ), 800, group=True)


def _started(how, what, words, directory, files, environment, seconds, group=False):
    starter = multiprocessing.get_context("forkserver")
    starter.set_forkserver_preload(IMPORTED)
    files = [os.fspath(file) for file in files]
    own = (how, what, words, os.fspath(directory), files, environment, seconds, group)
    # begun, one that a failed test leaves behind ends with the tests
    process = starter.Process(target=_run, args=own, daemon=group)
    process.start()
    return process


def _run(how, what, words, directory, files, environment, seconds, group) -> None:
    """In that process."""
    if group:
        os.setsid()
    gc.freeze()  # what lies imported is no garbage, and looking through it takes a tenth of a plan
    sys.dont_write_bytecode = False  # a shell that says otherwise has said it to the process that this one comes from
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    more = environment.get("PYTHONPATH", "").split(os.pathsep)
    # Snakemake takes the modules of the clone that it runs. Its plugins stay as it has looked them up, here.
    if how == "-m" and (what != "kernel_dvfs" or os.path.exists("Snakefile")):
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
