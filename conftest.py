"""Shared fixtures: where the measured data of the developers lie, if they are there at all; a fake NVML."""

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parent
SHARED = ROOT.parent / "shared" / "data"

# a shell ignores Ctrl-C for what it starts in the background, nohup ignores that a terminal is gone, and processes
# inherit that: the tests' signals must arrive
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# a pool of threads in each of many processes only makes them wait, and a process with threads is not safe to fork
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# thousands of processes are started from here: what they import is compiled once, whatever the shell says
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true", help="the tests marked `nightly` as well")
    parser.addoption("--fuzz", type=int, default=100, help="damaged inputs of each kind (100; 2000 each night in CI)")
    parser.addoption("--fuzz-seed", default="", help="other damaged inputs than those of every day")


def pytest_xdist_auto_num_workers(config) -> int:
    """A worker a core. More where tests wait, for processes that they started or for time to pass: about half of their
    time; of more workers, what boards do in real time comes too late."""
    waits = "not boards" not in config.option.markexpr
    return len(os.sched_getaffinity(0)) + 2 * waits


# about what a test of each mark takes, s
_TAKES_S = {"workflow": 8, "compiles": 8, "boards": 3, "slow": 2}


def pytest_collection_modifyitems(config, items) -> None:
    """What is for the night is left out by day. Files that take long come first: one that comes last leaves all cores
    but one idle."""
    if config.option.nightly:
        os.environ["KERNEL_DVFS_TEST_NIGHTLY"] = "1"
    elif not any("::" in each for each in config.args):  # who names a test wants it
        by_day, at_night = [], []
        for item in items:
            (at_night if item.get_closest_marker("nightly") else by_day).append(item)
        config.hook.pytest_deselected(items=at_night)
        items[:] = by_day
    takes_s = Counter()
    for item in items:
        # what a test starts follows from what it asks for
        asked = {*getattr(item, "fixturenames", ())}
        if "fake_library" in asked:
            item.add_marker("boards")
        takes_s[item.path] += max((_TAKES_S.get(mark.name, 0) for mark in item.iter_markers()), default=0)
        if asked & {"native_results", "cuda_results"}:
            item.add_marker("compiles")  # once for all of them
    items.sort(key=lambda item: -takes_s[item.path])


@pytest.fixture(scope="session")
def fuzz(request) -> int:
    """How many damaged inputs of a kind are tried."""
    return request.config.getoption("--fuzz")


@pytest.fixture(scope="session")
def fuzz_seed(request) -> str:
    """Which damaged inputs are tried."""
    return request.config.getoption("--fuzz-seed")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """script("experiments/benchmarks/pipeline.py"): a script of the repository as a module, which is in no package."""

    def load(path: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # its dataclasses look themselves up
        spec.loader.exec_module(module)
        return module

    return load


def shared_file(relative: str) -> Path:
    """A file of the developers' measured data; skips the test where the folder is absent."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"measured data not found at ../shared/data/{relative}")
    return path


@pytest.fixture(scope="session")
def measured():
    """`measured("x.csv")` is the path of a measured table, or a skip."""
    return lambda name: shared_file(f"measured/{name}")


@pytest.fixture(scope="session")
def shared():
    """`shared("workload/x.csv")` is the path of a shared file, or a skip."""
    return shared_file


@pytest.fixture(scope="session")
def config(root):
    """The shipped configuration, a fresh copy each call: `config(batch=20)`."""
    from kernel_dvfs.plan.config import load

    shipped = load(root / "config.yaml")
    return lambda **changed: deepcopy(shipped) | changed


@pytest.fixture(scope="session")
def setup_of(config, tmp_path_factory):
    """The setup of a simulated study: `setup_of()`, `setup_of(gpu="rtx_a4000")`."""
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.plan.study import plan

    quick = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}
    return lambda **changed: read(
        plan(config(**(quick | changed)), str(tmp_path_factory.mktemp("setup"))).setup.write()
    )


@pytest.fixture(scope="session")
def earlier_board(root) -> dict:
    """Overrides that make the simulated RTX 3080 Ti the one before today's, for tests that need a board that stays."""
    return yaml.safe_load((root / "config/earlier_board.yaml").read_text())["gpu_overrides"]


@pytest.fixture(scope="session")
def study_options() -> dict:
    """What the study.json of a pipeline says, but for its name; to copy and change."""
    return {
        "stages": 4,
        "schedule": "1f1b",
        "chunks": 1,
        "early_recompute": False,
        "transfer_s": 0.0,
        "transfer_w": 0.0,
        "constant": [],
        "microbatches": [4, 6],
        "total_microbatches": 24,
        "tensor_parallel": 2,
        "blocking_w": 80.0,
        "straggler": [1.05, 1.2],
        "unit_time_s": 0.001,
        "kernels": 10,
        "switch_latency_s": [0, 0.001],
    }


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """`once("name", make)`: a folder that `make(folder)` fills once, whichever of several test processes asks first.
    Where that is skipped, so is whatever asks later."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder_of(name: str, make) -> Path:
        folder, done = root / f"once-{name}", root / f"once-{name}.done"
        with open(root / f"once-{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                why = ""
                try:
                    make(folder)
                except pytest.skip.Exception as skipped:
                    why = str(skipped)
                done.write_text(why, encoding="utf-8")
        if why := done.read_text(encoding="utf-8"):
            pytest.skip(why)
        return folder

    return folder_of


@pytest.fixture(scope="session")
def build_or_skip():
    """`build` of the native layer in mode `on`; skips the test where a tool is missing."""
    from kernel_dvfs.native.build import MissingTool, build

    def built(source_dir, out_dir, backend):
        try:
            return build(source_dir, out_dir, backend, mode="on")
        except MissingTool as missing:
            pytest.skip(f"{backend} not testable: {missing}")

    return built


@pytest.fixture(scope="session")
def native_results(root, build_or_skip, once):
    """`native_results("cpu")` is a results folder that holds this backend and its log, not to be changed; skips where a
    tool for it is missing. Compiling takes up to minutes, so what `make install`, `make cuda` or a run has built is
    taken where the build itself finds that it will do."""

    def make(backend, native):
        for earlier in (root / "results" / "native", root / "workflow" / "kernel_dvfs_pipeline" / "native"):
            log = earlier / f"{backend}.log"
            if not (log.is_file() and (earlier / backend).is_dir()):
                continue
            # a log that ends in an installation is the log of the library beside it
            if "-- Installing: " in log.read_text(encoding="utf-8", errors="replace"):
                marks = shutil.ignore_patterns("*.ended")  # the workflow's own
                shutil.copytree(earlier / backend, native / backend, ignore=marks)
                shutil.copy(log, native)
                break
        build_or_skip(root / "native", native, backend)

    return lambda backend: once(f"native-{backend}", lambda folder: make(backend, folder / "native"))


# a module of nothing, under the name of an extension
_EMPTY = """\
#include <Python.h>
PyMODINIT_FUNC PyInit__{0}() {{
  static PyModuleDef module = {{PyModuleDef_HEAD_INIT, "_{0}", {{}}, -1, {{}}, {{}}, {{}}, {{}}, {{}}}};
  return PyModule_Create(&module);
}}
"""


@pytest.fixture(scope="session")
def emptied():
    """`emptied(native, "cpu")`: in a copy of native/, an extension of nothing in place of a backend's, for tests of its
    building: it compiles in a second."""

    def empty(native: Path, backend: str) -> None:
        (native / "bindings" / f"{backend}.cpp").write_text(_EMPTY.format(backend))
        (native / backend / "CMakeLists.txt").write_text(f"add_extension(_{backend})\n")

    return empty


@pytest.fixture(scope="session")
def fake_library(once) -> Path:
    """The fake NVML, compiled; skips where there is no C compiler."""
    import fake

    if not shutil.which("cc"):
        pytest.skip("no C compiler (cc) for the fake NVML")
    return once("fakenvml", fake.build) / fake.LIBRARY


@pytest.fixture
def boards(fake_library, tmp_path):
    """`boards("h200,h200", time="virtual")` makes fake boards in a state file of their own (tests/fakenvml/fake.py)."""
    import fake

    return lambda profiles="h200", **knobs: fake.Boards(fake_library, tmp_path / "boards.state", profiles, **knobs)


@pytest.fixture(scope="session")
def binding(once):
    """`binding("12.535")` is a folder with that version of nvidia-ml-py alone; skips where it cannot be installed."""

    def install(version, folder):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        words = [*pip, "--target", str(folder), f"nvidia-ml-py=={version}.*"]
        if subprocess.run(words, capture_output=True).returncode:
            pytest.skip(f"nvidia-ml-py {version} cannot be installed here")

    return lambda version: once(f"nvidia-ml-py-{version}", lambda folder: install(version, folder))


@pytest.fixture
def refused(capsys):
    """`refused(*words)` runs a command that must fail with one line, and returns that line."""
    from kernel_dvfs.cli.main import main

    def run(*words):
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1
        return said

    return run


@pytest.fixture(scope="session")
def cut_off():
    """`cut_off(plot)` draws a figure: [] or what cannot be read in it, text over the edge or over other text."""
    import io
    from itertools import combinations

    from matplotlib.text import Text

    def unreadable(plot) -> list[str]:
        figure = plot.draw()
        figure.savefig(io.BytesIO(), format="png")  # lays it out; a canvas without a window draws nothing by itself
        shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        boxes = {text: text.get_window_extent() for text in shown}
        over = [
            f"over the edge: {text.get_text()}"
            for text, box in boxes.items()
            if box.x0 < -1 or box.y0 < -1 or box.x1 > figure.bbox.width + 1 or box.y1 > figure.bbox.height + 1
        ]
        # labels of points may touch; what stands around the panels may not
        around = [text for text in shown if not any(text in axes.texts for axes in figure.axes)]
        return over + [
            f"one over the other: {first.get_text()} | {second.get_text()}"
            for first, second in combinations(around, 2)
            if boxes[first].shrunk(0.98, 0.9).overlaps(boxes[second].shrunk(0.98, 0.9))
        ]

    return unreadable
