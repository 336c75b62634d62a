"""Build one backend of the native layer into results/native/<backend>/, or keep the one that is there.

The one function behind `rule native` and `kernel-dvfs build`. scikit-build-core makes a wheel of the CMake project,
which finds its tools itself (native/CMakeLists.txt), and the library is taken out of it. What it made, of what and by
which tools, is written to build.json in the library's folder. Neither file holds a time, nor a folder except those of
cublasLt and cuDNN, which `_cuda` must know, and those that $CFLAGS and the like name: so the same sources and tools
give the same bytes.
"""

import fcntl
import glob
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from kernel_dvfs.native.load import BACKENDS, CUBLAS_REMEDY, SCHEMA, read_build
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import digest, write_json

MODES = ("auto", "on", "off")
SHOWN_LINES = 20
PACKAGES = "scikit-build-core pybind11 cmake ninja cmeel-eigen"
# the build backend's hook, to be run in the project's folder (PEP 517)
HOOK = "import json, sys, scikit_build_core.build as b; b.build_wheel(sys.argv[1], json.loads(sys.argv[2]))"
# settings that compilers read from the environment
VARIABLES = ("CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
# settings that the build's own tools read, of which no record would tell: they are kept from them
HIDDEN = re.compile(r"SKBUILD_|(CMAKE_ARGS|CMAKE_BUILD_TYPE|CMAKE_TOOLCHAIN_FILE)$")
LANGUAGES = {".c": "c", ".cpp": "cxx", ".cu": "cuda"}
TOOLS = ("pybind11", "eigen", "compilers", "architectures", "cublaslt", "cudnn")  # what CMake says of them
# what a backend is made of, below the source folder
_PROJECT = ("CMakeLists.txt", "pyproject.toml")
_SHARED = (*_PROJECT, "include/kdvfs/*.*", "bindings/*.hpp")
SOURCES = {
    "cpu": (*_SHARED, "cpu/**/*", "bindings/cpu.cpp"),
    "cuda": (*_SHARED, "cuda/**/*", "bindings/cuda.cpp"),
    "graph": (*_SHARED, "graph/**/*", "bindings/graph.cpp"),
    "pipeline": (*_PROJECT, "include/kdvfs/pipeline/*", "pipeline/*", "bindings/pipeline.cpp"),
}

Record = dict[str, Any]  # the content of a build.json
Say = Callable[[str], object]


class MissingTool(InputError):
    """A tool of the build is absent or does not work: what is missing, how to install it."""


def build(
    source_dir: str | PathLike[str],
    out_dir: str | PathLike[str],
    backend: str,
    mode: str = "auto",
    say: Say | None = None,
) -> Record:
    """Build `backend` ("cpu", "cuda", "graph", "pipeline") of the CMake project `source_dir` into `out_dir`/<backend>;
    return its build.json.

    mode: `on` demands the library; `auto` goes without it where a tool is missing (status "unavailable", with
    the reason); `off` builds nothing (status "unavailable"). A library that the same sources and tools have
    made already is kept. `out_dir`/<backend> holds the old build or the new one, never a mixture, and no other
    backend is touched; the output of all tools goes to `out_dir`/<backend>.log.
    say: called with one line (or the error in a compiler's output) for the user; default: print on stderr.
    Raises InputError: no such project; the sources do not compile (any mode). Raises MissingTool: a tool is missing
    in mode `on`.
    """
    say = say or _to_stderr
    source_dir, out_dir = Path(source_dir).resolve(), Path(out_dir)
    if backend not in BACKENDS:
        raise InputError(f"native build: backend is {backend!r}, expected one of {', '.join(BACKENDS)}")
    if mode not in MODES:
        raise InputError(f"native build: mode is {mode!r}, expected one of {', '.join(MODES)}")
    if not (source_dir / "CMakeLists.txt").is_file():
        raise InputError(f"native build: no CMakeLists.txt in {source_dir}: give the folder by --native-dir")
    target = out_dir / backend
    with _work_folder(target) as work:
        if mode == "off":
            return _unavailable(backend, work, target, f"switched off by --{backend} off")
        try:
            return _built(backend, source_dir, work, target, say)
        except MissingTool as missing:
            if mode == "on":
                raise
            say(f"native layer: {backend} not built, going on without it: {missing}")
            return _unavailable(backend, work, target, str(missing))


def source_files(source_dir: str | PathLike[str], backend: str) -> list[Path]:
    """Return every file that `backend` is made of, sorted."""
    paths = (path for pattern in SOURCES[backend] for path in Path(source_dir).glob(pattern))
    return sorted(path for path in paths if path.is_file())


def watched(backend: str) -> list[str | None]:
    """Return where the tools lie that a user installs, None for those that are absent: what a workflow watches.

    Looked up without running anything, unlike a build.
    """
    cxx = _which("CXX", "c++", "g++", "clang++")
    if backend != "cuda":
        return [cxx]
    # the places of native/cuda/nvcc.cmake, in its order
    wheel = (f"{place}/nvidia/cu13/bin/nvcc" for place in sys.path)
    nvcc = _which("CUDACXX", "nvcc", *wheel, "/usr/local/cuda/bin/nvcc")
    nvcc = nvcc and os.path.realpath(nvcc)
    wheels = [path for place in sys.path for path in glob.glob(f"{glob.escape(place)}/nvidia/*")]
    toolkit = [os.path.dirname(os.path.dirname(nvcc))] if nvcc else []
    libraries = {
        os.path.realpath(path)
        for place in (*wheels, *toolkit, "/usr/local/cuda", "/usr")
        for name in ("libcublasLt.so.[0-9]*", "libcudnn.so.[0-9]*")
        for folder in ("lib", "lib64", "lib/*", "targets/*/lib")
        for path in glob.glob(f"{glob.escape(place)}/{folder}/{name}")
    }
    return [cxx, nvcc, *sorted(libraries)]


def check_tools(backend: str) -> str:
    """Return what would build a backend, in words. It looks where `watched` does and runs nothing: a build finds out
    more. Raises MissingTool for what a user has to install."""
    cxx, *more = watched(backend)
    if not cxx:
        raise MissingTool("no C++ compiler: apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora)")
    if backend != "cuda":
        return cxx
    nvcc, *libraries = more
    if not nvcc:
        raise MissingTool("there is no nvcc: install a CUDA toolkit (12 or 13), put its nvcc on PATH, then make cuda")
    if not any(os.path.basename(library or "").startswith("libcublasLt") for library in libraries):
        raise MissingTool(f"cuBLAS is not installed: {CUBLAS_REMEDY}")
    return f"{cxx}, {nvcc}"


def lacks_cuda() -> str:
    """Return what the CUDA kernels lack here to be built, with the remedy, in a line; "" where nothing is missed."""
    try:
        check_tools("cuda")
    except MissingTool as missing:
        return str(missing)
    return ""


def _built(backend: str, source_dir: Path, work: Path, target: Path, say: Say) -> Record:
    """Return the record of the library in `target`, made now or before. Raises MissingTool, InputError."""
    made_of = {
        "source_sha256": _digest(source_dir, backend),
        "python": sysconfig.get_config_var("SOABI"),
        "environment": {name: os.environ[name] for name in VARIABLES if os.environ.get(name)},
    }
    work = work.resolve()  # the hook runs in another folder
    settings = {"build-dir": str(work / "build"), "cmake.define.KDVFS_BACKEND": backend}
    known = _reusable(target, made_of)
    if known:
        write_json(work / "known.json", {name: known[name] for name in TOOLS if name in known})
        settings["cmake.define.KDVFS_KNOWN"] = str(work / "known.json")
    start = time.monotonic()
    _run_hook(backend, source_dir, work, settings, f"{target}.log", say)
    tools = json.loads((work / "build" / "tools.json").read_text(encoding="utf-8"))
    (wheel,) = work.glob("*.whl")
    with ZipFile(wheel) as archive:
        library = next((name for name in archive.namelist() if name.startswith(f"_{backend}.")), None)
        if known and not library:
            say(f"native layer: sources and tools are unchanged, {target} is reused ({_summary(tools)})")
            return known
        assert library, f"{wheel} holds no _{backend}"
        archive.extract(library, work / "install")
    shutil.copy(work / "log", f"{target}.log")
    record = {
        "schema": SCHEMA,
        "backend": backend,
        "status": "built",
        "reason": None,
        **made_of,
        **tools,
        "flags": _flags(work / "build"),
        "library": {"file": library, "sha256": digest(work / "install" / library)},
    }
    _install(work / "install", record, target)
    say(f"native layer: {target / library} built by {_summary(tools)} in {time.monotonic() - start:.1f} s")
    return record


def _run_hook(backend: str, source_dir: Path, work: Path, settings: dict[str, str], log: str, say: Say) -> None:
    """Let scikit-build-core make a wheel in `work`; all output goes to `work`/log, and to `log` if it fails.

    Raises MissingTool; InputError, after the telling part of the output was given to `say`.
    """
    # packages of this Python are found wherever they were installed; CMake knows its site-packages alone
    places = [*filter(os.path.isdir, sys.path), os.environ.get("CMAKE_PREFIX_PATH", "")]
    environment = {name: value for name, value in os.environ.items() if not HIDDEN.match(name)}
    environment["CMAKE_PREFIX_PATH"] = os.pathsep.join(places)
    with open(work / "log", "w", encoding="utf-8") as output:
        done = subprocess.run(
            [sys.executable, "-P", "-c", HOOK, work, json.dumps(settings)],
            check=False,
            cwd=source_dir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if done.returncode == 0:
        return
    shutil.copy(work / "log", log)
    lines = Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
    missing = work / "build" / "missing.txt"
    if missing.exists():
        with open(log, "a", encoding="utf-8") as output:
            # what the tools answered when CMake tried them, each trial a project of its own
            for tried in sorted((work / "build").rglob("CMakeConfigureLog.yaml")):
                output.write(tried.read_text(encoding="utf-8", errors="replace"))
        raise MissingTool(missing.read_text(encoding="utf-8"))
    if not (work / "build" / "CMakeCache.txt").exists():
        last_line = lines[-1] if lines else "no message"
        raise MissingTool(
            f"the build does not start ({last_line}): {sys.executable} -m pip install --upgrade {PACKAGES}"
        )
    # from the first error on, as many lines as fit a screen; the last ones where none is called an error
    first = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), -SHOWN_LINES)
    say("\n".join(lines[first:][:SHOWN_LINES]))
    raise InputError(
        f"native layer: {backend}: build failed, its error stands above, all of its output in {log}; "
        f"--{backend} off (configuration: native.{backend}) goes without it"
    )


def _reusable(folder: Path, made_of: Record) -> Record | None:
    """Return the record of the library in `folder`, if the same things made it, tools aside, and it is whole."""
    try:
        record: Record = {**read_build(str(folder / "build.json"))}
        same = all(record.get(key) == value for key, value in made_of.items())
        whole = same and record["library"]["sha256"] == digest(folder / record["library"]["file"])
    except (OSError, InputError):
        return None
    return record if whole else None


def _unavailable(backend: str, work: Path, target: Path, reason: str) -> Record:
    record = {"schema": SCHEMA, "backend": backend, "status": "unavailable", "reason": reason}
    _install(work / "install", record, target)
    return record


def _install(new: Path, record: Record, target: Path) -> None:
    """Complete folder `new` by its record and put it where `target` is. Killed between the two renames,
    nothing is there, and the next run builds again."""
    write_json(new / "build.json", record)
    if target.exists():
        target.rename(new.with_name("old"))
    new.rename(target)


@contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """Return a context with a free folder next to `target` (so that renames stay in one file system), locked against a
    second build of it. What a killed build left there is deleted first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.with_name(f".{target.name}")
    with open(target.with_name(f".{target.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _flags(build_dir: Path) -> dict[str, list[str]]:
    """Return {language: the flags that it was compiled with, in order, without the ones that name folders}. Those of
    bindings, which come last and compute nothing, only where no other source has their language."""
    commands = json.loads((build_dir / "compile_commands.json").read_text(encoding="utf-8"))
    by_language: dict[str, list[str]] = {}
    for entry in commands:
        language = LANGUAGES[os.path.splitext(entry["file"])[1]]
        words = [word for word in shlex.split(entry["command"])[1:] if word.startswith("-")]
        flags = [word for word in words if "/" not in word and word not in ("-c", "-o", "-x", "-isystem")]
        by_language.setdefault(language, flags)
    return by_language


def _summary(tools: Record) -> str:
    """Return what built it, in a few words."""
    compilers = tools["compilers"]
    if "cuda" not in compilers:
        return "{id} {version}".format(**compilers["cxx"])
    cudnn = tools["cudnn"]
    return (
        f"nvcc {compilers['cuda']['version']} with {compilers['cuda_host']['id']} {compilers['cuda_host']['version']} "
        f"for {' '.join(tools['architectures'])}, cublasLt {tools['cublaslt']['version']} of "
        f"{tools['cublaslt']['directory']}, "
        f"{'cuDNN ' + cudnn['version'] if cudnn else 'without cuDNN (no fused attention)'}"
    )


def _which(variable: str, *names: str) -> str | None:
    """Return the program that a variable names (a launcher such as ccache may stand before it), else the first of
    `names`."""
    named = shlex.split(os.environ.get(variable, ""))[:1]
    return next(filter(None, map(shutil.which, named or names)), None)


def _digest(source_dir: Path, backend: str) -> str:
    """Return the SHA-256 of the names and contents of the files that `backend` is made of."""
    total = hashlib.sha256()
    for path in source_files(source_dir, backend):
        content = path.read_bytes()
        total.update(f"{path.relative_to(source_dir).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
