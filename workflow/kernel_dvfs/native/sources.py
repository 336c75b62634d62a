"""Which files a backend is made of, and their checksum."""

import hashlib
from os import PathLike
from pathlib import Path

# below the source folder
_SHARED = ("CMakeLists.txt", "include/kdvfs/*.*", "bindings/*.hpp")
SOURCES = {
    "cpu": (*_SHARED, "cpu/**/*", "bindings/cpu.cpp"),
    "cuda": (*_SHARED, "cuda/**/*", "bindings/cuda.cpp"),
    "graph": (*_SHARED, "graph/**/*", "bindings/graph.cpp"),
    "pipeline": ("CMakeLists.txt", "include/kdvfs/pipeline/*", "pipeline/*", "bindings/pipeline.cpp"),
}


def source_files(source_dir: str | PathLike[str], backend: str) -> list[Path]:
    """Every file that `backend` is made of, sorted."""
    found = (path for pattern in SOURCES[backend] for path in Path(source_dir).glob(pattern))
    return sorted(path for path in found if path.is_file())


def digest(source_dir: str | PathLike[str], backend: str) -> str:
    """SHA-256 of the names and contents of the files that `backend` is made of."""
    total = hashlib.sha256()
    for path in source_files(source_dir, backend):
        content = path.read_bytes()
        total.update(f"{path.relative_to(source_dir).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()
