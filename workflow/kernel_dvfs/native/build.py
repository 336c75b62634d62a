"""Build the native layer: configure, compile and install the CMake project into results/native/<backend>/.

The one function behind `rule native` and `kernel-dvfs build`. Knows nothing of the kernels. What it made, of
what and by which compiler stands in build.json beside the library; neither holds a time, nor (unless $CFLAGS
or its like name one) a folder, so that the same sources and tools give the same bytes.
"""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json
from kernel_dvfs.native import toolchain

SCHEMA = "kernel-dvfs/build/1"
MODES = ("auto", "on", "off")
# what the CPU extension is made of, below the source folder
CPU_SOURCES = ("CMakeLists.txt", "include/**/*", "cpu/**/*", "bindings/cpu.cpp")
TAIL_LINES = 20


def build(source_dir, out_dir, mode="auto", say=None) -> dict:
    """Build backend `cpu` of the CMake project `source_dir` into `out_dir`/cpu; return its build.json.

    mode: `on` demands the library; `auto` goes without it where a tool is missing (status "unavailable", with
    the reason); `off` builds nothing (status "unavailable"). A library that the same sources and tools have
    made already is kept. `out_dir`/cpu holds the old build or the new one, never a mixture; the output of all
    tools goes to `out_dir`/cpu.log.
    say: called with one line (or the tail of a compiler's output) for the user; default: print on stderr.
    Raises InputError: no such project; a tool is missing in mode `on`; the sources do not compile (any mode).
    """
    say = say or _to_stderr
    source_dir, out_dir = Path(source_dir).resolve(), Path(out_dir)
    if mode not in MODES:
        raise InputError(f"native build: mode is {mode!r}, expected one of {', '.join(MODES)}")
    if not (source_dir / "CMakeLists.txt").is_file():
        raise InputError(f"native build: no CMakeLists.txt in {source_dir}: give the folder by --native-dir")
    with _workplace(out_dir) as work:
        if mode == "off":
            return _unavailable(out_dir, work, "switched off by --cpu off")
        try:
            tools = toolchain.find()
        except toolchain.MissingTool as missing:
            if mode == "on":
                raise
            say(f"native layer not built, going on without it: {missing}")
            return _unavailable(out_dir, work, str(missing))
        made_of = _made_of(source_dir, tools)
        record = _reusable(out_dir / "cpu", made_of)
        if record:
            say(f"native layer: sources and compiler are unchanged, {out_dir / 'cpu'} is reused")
            return record
        start = time.monotonic()
        record = _compile(source_dir, out_dir, work, tools, made_of, say)
        compiler = record["compilers"]["cxx"]
        say(
            f"native layer: {out_dir / 'cpu' / record['library']['file']} built by {compiler['id']} "
            f"{compiler['version']} in {time.monotonic() - start:.1f} s"
        )
        return record


def source_files(source_dir) -> list[Path]:
    """Every file that the CPU extension is made of, sorted."""
    found = (path for pattern in CPU_SOURCES for path in Path(source_dir).glob(pattern))
    return sorted(path for path in found if path.is_file())


def _made_of(source_dir, tools) -> dict:
    """All that decides the library's bytes, and so whether an old one will do."""
    digest = hashlib.sha256()
    for path in source_files(source_dir):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(source_dir).as_posix()}\0{len(content)}\0".encode() + content)
    return {
        "source_sha256": digest.hexdigest(),
        "python": tools.python,
        "pybind11": tools.pybind11_version,
        "compilers": {
            language: {"id": compiler.id, "version": compiler.version, "name": compiler.name}
            for language, compiler in (("c", tools.c), ("cxx", tools.cxx))
        },
        "environment": {name: os.environ[name] for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS") if os.environ.get(name)},
    }


def _reusable(folder, made_of) -> dict | None:
    """The record of the library in `folder`, if the same things made it and it is whole."""
    try:
        record = json.loads((folder / "build.json").read_text(encoding="utf-8"))
        same = record["status"] == "built" and all(record[key] == value for key, value in made_of.items())
        whole = same and record["library"]["sha256"] == _sha256(folder / record["library"]["file"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if whole else None


def _compile(source_dir, out_dir, work, tools, made_of, say) -> dict:
    build_dir, install_dir = work / "build", work / "install"
    configure = [
        tools.cmake,
        *("-S", source_dir, "-B", build_dir, "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={tools.ninja}",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DCMAKE_INSTALL_PREFIX={install_dir.resolve()}",
        "-DCMAKE_BUILD_TYPE=Release",
    ]
    if tools.pybind11_dir:
        configure.append(f"-Dpybind11_DIR={tools.pybind11_dir}")
    steps = {
        "configure": configure,
        "compile": [tools.cmake, "--build", build_dir, "--verbose"],
        "install": [tools.cmake, "--install", build_dir, "--strip"],
    }
    environment = {**os.environ, "CC": shlex.join(tools.c.command), "CXX": shlex.join(tools.cxx.command)}
    log_path = out_dir / "cpu.log"
    with open(log_path, "w", encoding="utf-8") as log:
        for name, command in steps.items():
            _step(name, [os.fspath(word) for word in command], environment, log, say)
    (library,) = install_dir.glob("_cpu.*")
    record = {
        "schema": SCHEMA,
        "backend": "cpu",
        "status": "built",
        "reason": None,
        **made_of,
        "flags": _flags(build_dir),
        "library": {"file": library.name, "sha256": _sha256(library)},
    }
    _install(install_dir, record, out_dir / "cpu")
    return record


def _step(name, command, environment, log, say) -> None:
    log.write(f"$ {shlex.join(command)}\n")
    log.flush()
    start = log.tell()
    done = subprocess.run(
        command, check=False, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        with open(log.name, encoding="utf-8", errors="replace") as written:
            written.seek(start)
            say(_last_words(written.read().splitlines()))
        raise InputError(
            f"native layer: {name} failed (exit code {done.returncode}), the last lines stand above, "
            f"all of them in {log.name}; --cpu off (configuration: native.cpu) goes without it"
        )


def _last_words(lines) -> str:
    failed = next((i for i, line in enumerate(lines) if line.startswith("FAILED: ")), None)
    if failed is not None:  # Ninja: this line, then the long command, then what the compiler said
        lines = lines[failed + 2 :]
    return "\n".join(lines[-TAIL_LINES:])


def _flags(build_dir) -> dict:
    """The flags that each language was compiled with, in order, without the ones that name folders."""
    commands = json.loads((build_dir / "compile_commands.json").read_text(encoding="utf-8"))
    flags = {}
    for entry in commands:
        language = "c" if entry["file"].endswith(".c") else "cxx"
        words = [word for word in shlex.split(entry["command"])[1:] if word.startswith("-")]
        flags[language] = [word for word in words if "/" not in word and word not in ("-c", "-o", "-isystem")]
    return flags


def _unavailable(out_dir, work, reason) -> dict:
    record = {"schema": SCHEMA, "backend": "cpu", "status": "unavailable", "reason": reason}
    _install(work / "install", record, out_dir / "cpu")
    return record


def _install(new, record, target) -> None:
    """Complete folder `new` by its record and put it where `target` is. Killed between the two renames,
    nothing is there, and the next run builds again."""
    write_json(new / "build.json", record)
    if target.exists():
        target.rename(new.with_name("old"))
    new.rename(target)


@contextmanager
def _workplace(out_dir):
    """A free path beside the backends (so that renames stay in one file system), held against a second build.
    What a killed build left there is cleared."""
    out_dir.mkdir(parents=True, exist_ok=True)
    work = out_dir / ".cpu"
    with open(out_dir / ".lock", "w") as lock:
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
