"""Find nvcc and a cuBLASLt of its major version, and cuDNN; or say what is there, what is missing and how to get it.

A toolkit comes as a system installation, as a conda environment, or as pip wheels, which unpack to
site-packages/nvidia/cu<major> and lack what a system has: lib64 and libraries without a version in their name.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from kernel_dvfs.native.compilers import MissingTool


@dataclass(frozen=True, slots=True)
class CublasLt:
    """A cuBLASLt to link against."""

    library: str  # path of libcublasLt.so.<major>
    include: str  # folder of cublasLt.h
    version: str


@dataclass(frozen=True, slots=True)
class Cudnn:
    """A cuDNN to link against, for fused attention."""

    library: str  # path of libcudnn.so.9
    include: str  # folder of cudnn.h
    version: str
    frontend: str  # folder of cudnn_frontend.h
    frontend_version: str


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A CUDA toolkit with its cuBLASLt."""

    nvcc: str  # path
    version: str
    root: str  # the folder that holds its bin/, include/ and libraries
    cublaslt: CublasLt
    cudnn: Cudnn | None  # None: a workload of fused attention cannot be run


OLDEST = 12
SYSTEM = ("/usr/local/cuda", "/usr")
NVCC_REMEDY = (
    "install a CUDA toolkit (12 or 13) and put its nvcc on PATH, or "
    "pip install 'cuda-toolkit[nvcc,crt,nvvm,cudart,cccl,cublas]==13.0.*'"
)
CUDNN = "libcudnn.so.9"
CUBLAS_REMEDY = "make cuda, or pip install -r envs/cuda.lock"
# all that a build takes from the toolkit: driver, host compiler, headers, assembler, static runtime
PROBE = "#include <cuda_bf16.h>\n__global__ void probe() {}\nint main() { probe<<<1, 1>>>(); }\n"


def find() -> Toolkit:
    """The toolkit on this machine. Raises MissingTool without nvcc, or without cuBLASLt for it."""
    nvcc = nvcc_path()
    if not nvcc:
        named = os.environ.get("CUDACXX")
        looked = f"$CUDACXX = {named}" if named else f"looked in {', '.join(['PATH', *_extra_folders()])}"
        raise MissingTool(f"no nvcc ({looked}): {NVCC_REMEDY}")
    version = _version(nvcc)
    major = int(version.partition(".")[0])
    if major < OLDEST:
        raise MissingTool(f"{nvcc} is of CUDA {version}, older than {OLDEST}: {NVCC_REMEDY}")
    root = _root(nvcc)
    places = _cublaslt_places(major, root)
    cublaslt = next(filter(None, (_cublaslt_in(place, major) for place in places)), None)
    if not cublaslt:
        remedy = CUBLAS_REMEDY if major == 13 else f"install cuBLAS of CUDA {major} next to its nvcc"
        raise MissingTool(
            f"nvcc {version} is there ({nvcc}), but no cublasLt.h with libcublasLt.so.{major} "
            f"(looked in {', '.join(places)}): {remedy}"
        )
    return Toolkit(nvcc, version, root, cublaslt, cudnn(root))


def cudnn(root: str) -> Cudnn | None:
    """cuDNN 9 with its C++ frontend, which is headers alone, of pip wheels or beside the toolkit in `root`; None where
    one of the two is absent: all but fused attention is built without them."""
    frontend = next((path for path in _frontend_places(root) if os.path.isfile(f"{path}/cudnn_frontend.h")), None)
    found = next(filter(None, (_cudnn_in(place) for place in (*_wheels("cudnn"), root, *SYSTEM))), None)
    if not frontend or not found:
        return None
    version = _defined(os.path.join(found[1], "cudnn_version.h"), "CUDNN_", "MAJOR", "MINOR", "PATCHLEVEL")
    of_frontend = _defined(
        f"{frontend}/cudnn_frontend_version.h", "CUDNN_FRONTEND_", "MAJOR_VERSION", "MINOR_VERSION", "PATCH_VERSION"
    )
    return Cudnn(*found, version, frontend, of_frontend)


def nvcc_path() -> str | None:
    """Where nvcc lies: $CUDACXX, else on PATH, in the pip wheel, in /usr/local/cuda; None without one. Asks nobody."""
    named = os.environ.get("CUDACXX")
    if named:
        return shutil.which(named)
    return shutil.which("nvcc", path=os.pathsep.join([os.environ.get("PATH", ""), *_extra_folders()]))


def watched() -> list[str | None]:
    """Where nvcc and every copy of cuBLASLt lie, looked up without running anything: what a workflow watches."""
    nvcc = nvcc_path()
    if not nvcc:
        return [None]
    root = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(nvcc)), ".."))
    libraries = {
        path
        for place in (*_wheels("cu*"), root, *SYSTEM)
        for folder in ("lib64", "lib", "targets/*/lib")
        for name in ("libcublasLt.so.[0-9]*", CUDNN)
        for path in glob.glob(os.path.join(glob.escape(place), folder, name))
    }
    return [os.path.realpath(nvcc), *sorted(libraries)]


def host_compiler(cxx_command: Sequence[str]) -> str:
    """The compiler that nvcc shall give host code to: $CUDAHOSTCXX, else the C++ compiler, without its launcher.

    Raises MissingTool where there is none.
    """
    named = os.environ.get("CUDAHOSTCXX")
    words = [named] if named else reversed(cxx_command)
    path = next(filter(None, map(shutil.which, words)), None)
    if not path:
        raise MissingTool(f"no host compiler for nvcc ($CUDAHOSTCXX = {named}): name a C++ compiler or unset it")
    return path


def check(toolkit: Toolkit, host: str) -> None:
    """Compile and link an empty kernel: a toolkit that lacks a part, or that does not take the host compiler, is
    found out here and in one line. Raises MissingTool."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "probe.cu")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROBE)
        tried = _run(toolkit.nvcc, "-ccbin", host, *link_flags(toolkit), "-o", os.path.join(folder, "probe"), source)
    if tried.returncode != 0:
        lines = [line for line in (tried.stderr + tried.stdout).splitlines() if line.strip()]
        said = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
        raise MissingTool(
            f"{toolkit.nvcc} {toolkit.version} does not work with {host} ({said.strip()}): install the whole toolkit, "
            "or name a C++ compiler that it takes in $CUDAHOSTCXX"
        )


def link_flags(toolkit: Toolkit) -> list[str]:
    """What nvcc needs to link: in wheels of 13.0 and 13.1 it looks for its runtime in lib64, and it lies in lib."""
    folder = os.path.join(toolkit.root, "lib")
    return [f"-L{folder}"] if os.path.exists(os.path.join(folder, "libcudart_static.a")) else []


def _extra_folders() -> list[str]:
    """Where nvcc may lie without being on PATH."""
    return [os.path.join(root, "bin") for root in (*_wheels("cu[0-9]*"), *SYSTEM)]


def _wheels(name: str) -> list[str]:
    """Folders of NVIDIA's pip wheels of that name (a pattern), newest first: cu13, the toolkit's, or cudnn."""
    package = find_spec("nvidia")
    places = (package.submodule_search_locations if package else None) or ()
    return sorted(
        (path for place in places for path in glob.glob(os.path.join(glob.escape(place), name))), reverse=True
    )


def _version(nvcc: str) -> str:
    answer = _run(nvcc, "--version")
    found = re.search(r"\bV(\d+\.\d+\.\d+)", answer.stdout)
    if answer.returncode != 0 or not found:
        said = next(iter((answer.stderr + answer.stdout).splitlines()), "no message")
        raise MissingTool(f"{nvcc} does not work ({said.strip()}): {NVCC_REMEDY}")
    return found[1]


def _root(nvcc: str) -> str:
    """nvcc may be a wrapper or a link, so it is asked; its answer lists the variables of its profile."""
    answer = _run(nvcc, "--dryrun", "-E", "-x", "cu", os.devnull)
    found = re.search(r"^#\$ TOP=(.+)$", answer.stderr, re.MULTILINE)
    return os.path.normpath(found[1].strip() if found else os.path.join(os.path.dirname(os.path.realpath(nvcc)), ".."))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )


def _frontend_places(root: str) -> list[str]:
    """Where cudnn_frontend.h may lie: its wheel unpacks to a folder `include` beside the packages."""
    return [os.path.join(place or ".", "include") for place in (*sys.path, root, *SYSTEM)]


def _cudnn_in(place: str) -> tuple[str, str] | None:
    """(library, folder of cudnn.h), from one place, since they must agree."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or "."
    include = _folder_with("cudnn_version.h", place, "include", f"include/{multiarch}", "targets/*/include")
    folder = _folder_with(CUDNN, place, "lib64", "lib", f"lib/{multiarch}", "targets/*/lib")
    return (os.path.join(folder, CUDNN), include) if include and folder else None


def _cublaslt_places(major: int, root: str) -> list[str]:
    """Where a cuBLASLt may lie: the locked wheel first, so that the version is the one that was chosen."""
    return list(dict.fromkeys([*_wheels(f"cu{major}"), root, *SYSTEM]))


def _cublaslt_in(place: str, major: int) -> CublasLt | None:
    """Header and library are taken from one place, since they must agree."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or "."
    include = _folder_with("cublasLt.h", place, "include", "targets/*/include")
    name = f"libcublasLt.so.{major}"
    folder = _folder_with(name, place, "lib64", "lib", f"lib/{multiarch}", "targets/*/lib")
    return CublasLt(os.path.join(folder, name), include, _cublaslt_version(include)) if include and folder else None


def _folder_with(file: str, place: str, *patterns: str) -> str | None:
    found = (path for pattern in patterns for path in glob.glob(os.path.join(glob.escape(place), pattern, file)))
    return next(map(os.path.dirname, found), None)


def _cublaslt_version(include: str) -> str:
    return _defined(os.path.join(include, "cublas_api.h"), "CUBLAS_VER_", "MAJOR", "MINOR", "PATCH", "BUILD")


def _defined(header: str, prefix: str, *parts: str) -> str:
    """The version that a header defines part by part."""
    with open(header, encoding="utf-8") as file:
        numbers = dict(re.findall(rf"#define {prefix}(\w+) (\d+)", file.read()))
    return ".".join(numbers.get(part, "?") for part in parts)
