"""Build one backend of the native layer into results/native/<backend>/, or keep the one that is there.

The one function behind `rule native` and `kernel-dvfs build`. Knows nothing of the kernels. What it made, of what
and by which tools stands in build.json beside the library. Neither holds a time nor a folder (but that of cublasLt,
which `_cuda` must know, and what $CFLAGS or its like name), so that the same sources and tools give the same bytes.
"""

import fcntl
import hashlib
import json
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json
from kernel_dvfs.native import cmake, sources, toolchain
from kernel_dvfs.native.load import BACKENDS
from kernel_dvfs.native.missing import MissingTool

SCHEMA = "kernel-dvfs/build/1"
MODES = ("auto", "on", "off")


def build(source_dir, out_dir, backend, mode="auto", say=None) -> dict:
    """Build `backend` ("cpu", "cuda") of the CMake project `source_dir` into `out_dir`/<backend>; return its
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


def _reusable(folder, made_of) -> dict | None:
    """The record of the library in `folder`, if the same things made it and it is whole."""
    try:
        record = json.loads((folder / "build.json").read_text(encoding="utf-8"))
        same = record["status"] == "built" and all(record[key] == value for key, value in made_of.items())
        whole = same and record["library"]["sha256"] == _sha256(folder / record["library"]["file"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if whole else None


def _compile(backend, source_dir, work, target, tools, made_of, say) -> dict:
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


def _unavailable(backend, work, target, reason) -> dict:
    record = {"schema": SCHEMA, "backend": backend, "status": "unavailable", "reason": reason}
    _install(work / "install", record, target)
    return record


def _install(new, record, target) -> None:
    """Complete folder `new` by its record and put it where `target` is. Killed between the two renames,
    nothing is there, and the next run builds again."""
    write_json(new / "build.json", record)
    if target.exists():
        target.rename(new.with_name("old"))
    new.rename(target)


@contextmanager
def _work_folder(target):
    """A free path beside `target` (so that renames stay in one file system), held against a second build of it.
    What a killed build left there is cleared."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.with_name(f".{target.name}")
    with open(target.with_name(f".{target.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(work, ignore_errors=True)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _sha256(path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _to_stderr(line) -> None:
    print(line, file=sys.stderr, flush=True)
