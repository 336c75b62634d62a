"""Build one backend of the native layer into results/native/<backend>/, or keep the one that is there.

The one function behind `rule native` and `kernel-dvfs build`. What it made, of what and by which tools, is written to
build.json in the library's folder. Neither file holds a time, nor a folder except that of cublasLt, which `_cuda` must
know, and those that $CFLAGS and the like name: so the same sources and tools give the same bytes.
"""

import fcntl
import hashlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json
from kernel_dvfs.native import cmake, sources, toolchain
from kernel_dvfs.native.compilers import MissingTool
from kernel_dvfs.native.load import BACKENDS, SCHEMA, read_build
from kernel_dvfs.native.toolchain import Toolchain

MODES = ("auto", "on", "off")

Record = dict[str, Any]  # the content of a build.json


def build(
    source_dir: str | PathLike[str],
    out_dir: str | PathLike[str],
    backend: str,
    mode: str = "auto",
    say: Callable[[str], object] | None = None,
) -> Record:
    """Build `backend` ("cpu", "cuda", "graph") of the CMake project `source_dir` into `out_dir`/<backend>; return its
    build.json.

    mode: `on` demands the library; `auto` goes without it where a tool is missing (status "unavailable", with
    the reason); `off` builds nothing (status "unavailable"). A library that the same sources and tools have
    made already is kept. `out_dir`/<backend> holds the old build or the new one, never a mixture, and no other
    backend is touched; the output of all tools goes to `out_dir`/<backend>.log.
    say: called with one line (or the error in a compiler's output) for the user; default: print on stderr.
    Raises InputError: no such project; a tool is missing in mode `on`; the sources do not compile (any mode).
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
            tools = toolchain.find(backend)
        except MissingTool as missing:
            if mode == "on":
                raise
            say(f"native layer: {backend} not built, going on without it: {missing}")
            return _unavailable(backend, work, target, str(missing))
        made_of = {"source_sha256": sources.digest(source_dir, backend), **tools.identity}
        record = _reusable(target, made_of)
        if record:
            say(f"native layer: sources and tools are unchanged, {target} is reused ({tools.summary})")
            return record
        start = time.monotonic()
        record = _compile(backend, source_dir, work, target, tools, made_of, say)
        library = target / record["library"]["file"]
        say(f"native layer: {library} built by {tools.summary} in {time.monotonic() - start:.1f} s")
        return record


def _reusable(folder: Path, made_of: Record) -> Record | None:
    """The record of the library in `folder`, if the same things made it and it is whole."""
    try:
        record: Record = {**read_build(str(folder / "build.json"))}
        same = all(record.get(key) == value for key, value in made_of.items())
        whole = same and record["library"]["sha256"] == _sha256(folder / record["library"]["file"])
    except (OSError, InputError):
        return None
    return record if whole else None


def _compile(
    backend: str,
    source_dir: Path,
    work: Path,
    target: Path,
    tools: Toolchain,
    made_of: Record,
    say: Callable[[str], object],
) -> Record:
    build_dir, install_dir = work / "build", work / "install"
    try:
        cmake.run(source_dir, build_dir, install_dir, tools, f"{target}.log", say)
    except cmake.StepFailed as failed:
        raise InputError(
            f"native layer: {backend}: {failed}; --{backend} off (configuration: native.{backend}) goes without it"
        ) from None
    (library,) = install_dir.glob(f"_{backend}.*")
    record = {
        "schema": SCHEMA,
        "backend": backend,
        "status": "built",
        "reason": None,
        **made_of,
        "flags": cmake.flags(build_dir),
        "library": {"file": library.name, "sha256": _sha256(library)},
    }
    _install(install_dir, record, target)
    return record


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
    """A free path next to `target` (so that renames stay in one file system), locked against a second build of it.
    What a killed build left there is deleted first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.with_name(f".{target.name}")
    with open(target.with_name(f".{target.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(work, ignore_errors=True)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
