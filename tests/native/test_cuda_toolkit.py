"""nvcc and cuBLASLt are found where users have them, belong together, and what is missing is named. No CUDA needed."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_dvfs.native import build
from kernel_dvfs.native.build import watched

# what the project does before and between the two files that find things
SCRIPT = """
function(missing text)
  file(WRITE {folder}/missing.txt "${{text}}")
  message(FATAL_ERROR "${{text}}")
endfunction()
set(TOOLS "{{}}")
get_filename_component(CMAKE_CXX_COMPILER "$ENV{{CXX}}" PROGRAM PROGRAM_ARGS CMAKE_CXX_COMPILER_ARG1)
include({sources}/nvcc.cmake)
string(JSON TOOLS SET "${{TOOLS}}" host "\\"$ENV{{CUDAHOSTCXX}}\\"")
string(JSON TOOLS SET "${{TOOLS}}" nvcc "\\"${{NVCC}}\\"")
string(JSON TOOLS SET "${{TOOLS}}" flags "\\"${{CMAKE_CUDA_FLAGS_INIT}}\\"")
file(WRITE {folder}/tools.json "${{TOOLS}}")
set(CMAKE_CUDA_COMPILER_VERSION {version})
set(CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES {include})
include({sources}/libraries.cmake)
file(WRITE {folder}/tools.json "${{TOOLS}}")
"""


def program(path) -> str:
    """An executable file; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def header(path, prefix, **parts) -> None:
    """A header that defines a version part by part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"#define {prefix}{part} {number}\n" for part, number in parts.items()), encoding="utf-8")


def cublaslt(root, major=13, library="lib64", include="include") -> str:
    """Header and library below `root`; the library's folder."""
    header(root / include / "cublas_api.h", "CUBLAS_VER_", MAJOR=1, MINOR=2, PATCH=3, BUILD=4)
    (root / include / "cublasLt.h").touch()
    (root / library).mkdir(parents=True, exist_ok=True)
    (root / library / f"libcublasLt.so.{major}").touch()
    return str(root / library)


def cudnn(root) -> Path:
    """Header and library below `root`, as their wheel has them; the library."""
    header(root / "include" / "cudnn_version.h", "CUDNN_", MAJOR=9, MINOR=19, PATCHLEVEL=0)
    (root / "lib").mkdir()
    (root / "lib" / "libcudnn.so.9").touch()
    return root / "lib" / "libcudnn.so.9"


@pytest.fixture
def machine(root, tmp_path, monkeypatch):
    """Its folders, all empty: `path` (on PATH), `site` (site-packages), `wheel` (nvidia/cu13 in it), `system`
    (/usr/local/cuda). find(version): what is found for an nvcc of that version; raises LookupError(what is missing)."""
    cmake = pytest.importorskip("cmake")
    at = SimpleNamespace(path=tmp_path / "path", site=tmp_path / "site", system=tmp_path / "cuda")
    at.wheel = at.site / "nvidia" / "cu13"
    for name in ("CUDACXX", "CUDAARCHS", "CUDAHOSTCXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CXX", program(at.path / "c++"))

    def find(version="13.0.88", include=at.system / "include"):
        script = tmp_path / "find.cmake"
        sources = root / "native" / "cuda"
        script.write_text(SCRIPT.format(folder=tmp_path, sources=sources, version=version, include=include))
        places = (f"-DKDVFS_SYSTEM={at.system}", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF")
        environment = {**os.environ, "PATH": str(at.path), "CMAKE_PREFIX_PATH": str(at.site)}
        words = [Path(cmake.CMAKE_BIN_DIR) / "cmake", *places, "-P", script]
        done = subprocess.run(words, check=False, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            missing = tmp_path / "missing.txt"
            assert missing.exists(), done.stderr
            raise LookupError(missing.read_text(encoding="utf-8"))
        return json.loads((tmp_path / "tools.json").read_text(encoding="utf-8"))

    at.find = find
    return at


def test_nvcc_is_the_named_one_else_that_on_path_else_the_wheels_else_the_systems(machine, monkeypatch, tmp_path):
    cublaslt(machine.system)
    places = (machine.system / "bin", machine.wheel / "bin", machine.path, tmp_path / "mine")
    for place in places:
        expected = program(place / "nvcc")
        if place == places[-1]:
            monkeypatch.setenv("CUDACXX", expected)
        assert machine.find()["nvcc"] == expected


def test_a_workflow_watches_the_nvcc_that_is_found_and_the_libraries_of_its_toolkit(machine, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(machine.path))
    monkeypatch.setattr("sys.path", [str(machine.site)])
    of_cuda_12 = program(machine.site / "nvidia" / "cuda_nvcc" / "bin" / "nvcc")
    assert of_cuda_12 not in watched("cuda"), "no build takes it"
    of_wheel = program(machine.wheel / "bin" / "nvcc")
    cublaslt(machine.wheel, library="lib")
    assert watched("cuda")[1] == machine.find()["nvcc"] == of_wheel
    toolkit = tmp_path / "cuda-13.0"
    own = Path(cublaslt(toolkit, library="targets/sbsa-linux/lib"), "libcublasLt.so.13")
    real = program(toolkit / "bin" / "nvcc")
    (machine.path / "nvcc").symlink_to(real)
    assert machine.find()["nvcc"] == str(machine.path / "nvcc")
    assert watched("cuda")[1] == real
    assert {str(own), str(machine.wheel / "lib" / "libcublasLt.so.13")} <= set(watched("cuda"))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([None], "there is no nvcc: install a CUDA toolkit (12 or 13), put its nvcc on PATH, then make cuda"),
        (["/opt/bin/nvcc"], "cuBLAS is not installed: make cuda, or "),
        (["/opt/bin/nvcc", "/opt/lib/libcudnn.so.9.13"], "cuBLAS is not installed: make cuda, or "),
        (["/opt/bin/nvcc", "/opt/lib/libcudnn.so.9.13", "/opt/lib/libcublasLt.so.13.1"], ""),
    ],
)
def test_what_is_lacking_is_said_before_anything_is_built_with_the_remedy(found, said, monkeypatch):
    monkeypatch.setattr(build, "watched", lambda backend: ["/usr/bin/c++", *found])
    lacking = build.lacks_cuda()
    assert lacking.startswith(said) and bool(lacking) == bool(said)


def test_host_code_goes_to_the_named_compiler_else_to_the_cxx_compiler_behind_its_launcher(machine, monkeypatch):
    program(machine.path / "nvcc")
    cublaslt(machine.system)
    cxx, launcher = program(machine.path / "g++-12"), program(machine.path / "ccache")
    for words, host in (
        ("g++-12", cxx),
        ("g++-12 -m64", cxx),
        ("ccache g++-12", "g++-12"),
        (f"{launcher} {cxx} -m64", cxx),
    ):
        monkeypatch.setenv("CXX", words)
        assert machine.find()["host"] == host, words
    monkeypatch.setenv("CUDAHOSTCXX", "g++-11")
    assert machine.find()["host"] == "g++-11"


@pytest.mark.parametrize("library", ["lib64", "lib"])
@pytest.mark.parametrize("folder", ["", "targets/x86_64-linux"])
def test_a_toolkits_own_cublaslt_is_found_where_nvcc_says_its_headers_are(machine, tmp_path, folder, library):
    home = tmp_path / "cuda-13.0" / folder
    program(machine.path / "nvcc")
    expected = cublaslt(home, library=library)
    assert machine.find(include=home / "include")["cublaslt"] == {"version": "1.2.3.4", "directory": expected}


def test_the_locked_wheel_goes_before_the_toolkits_own_cublaslt(machine):
    program(machine.system / "bin" / "nvcc")
    cublaslt(machine.system)
    assert machine.find()["cublaslt"]["directory"] == str(machine.system / "lib64")
    locked = cublaslt(machine.wheel, library="lib")
    assert machine.find()["cublaslt"]["directory"] == locked


def test_cuda_12_takes_a_cublaslt_of_its_own_major_version(machine):
    program(machine.system / "bin" / "nvcc")
    cublaslt(machine.wheel, library="lib")
    with pytest.raises(LookupError, match=r"no cublasLt\.h with libcublasLt\.so\.12 .*install cuBLAS of CUDA 12"):
        machine.find("12.8.93")
    own = cublaslt(machine.system, major=12)
    assert machine.find("12.8.93")["cublaslt"]["directory"] == own


def test_a_library_without_its_header_is_not_taken(machine):
    """As the wheel of a runtime-only installation: a header from elsewhere might be of another version."""
    program(machine.path / "nvcc")
    cublaslt(machine.wheel, library="lib")
    (machine.wheel / "include" / "cublasLt.h").unlink()
    own = cublaslt(machine.system)
    assert machine.find()["cublaslt"]["directory"] == own


def test_cudnn_is_taken_with_its_frontend_or_not_at_all(machine):
    program(machine.path / "nvcc")
    cublaslt(machine.system)
    assert machine.find()["cudnn"] is None
    library = cudnn(machine.site / "nvidia" / "cudnn")
    assert machine.find()["cudnn"] is None, "no frontend"
    parts = {"MAJOR_VERSION": 1, "MINOR_VERSION": 18, "PATCH_VERSION": 2}
    header(machine.site / "include" / "cudnn_frontend_version.h", "CUDNN_FRONTEND_", **parts)
    (machine.site / "include" / "cudnn_frontend.h").touch()
    found = machine.find()["cudnn"]
    assert found == {"version": "9.19.0", "frontend": "1.18.2", "directory": str(library.parent)}
    library.unlink()
    assert machine.find()["cudnn"] is None, "a header without its library"


def test_without_nvcc_the_places_and_both_remedies_are_named(machine):
    cublaslt(machine.wheel)
    with pytest.raises(LookupError) as missing:
        machine.find()
    assert f"no nvcc (looked in PATH, pip's wheels, {machine.system}/bin)" in str(missing.value)
    assert "install a CUDA toolkit (12 or 13)" in str(missing.value)
    assert "pip install 'cuda-toolkit[" in str(missing.value)


def test_without_cublaslt_it_is_said_what_is_there_and_how_to_get_the_rest(machine):
    path = program(machine.path / "nvcc")
    with pytest.raises(LookupError) as missing:
        machine.find()
    assert f"nvcc 13.0.88 is there ({path}), but no cublasLt.h with libcublasLt.so.13" in str(missing.value)
    assert "pip install -r envs/cuda.lock" in str(missing.value)


def test_a_toolkit_older_than_12_is_refused(machine):
    path = program(machine.path / "nvcc")
    cublaslt(machine.system)
    with pytest.raises(LookupError, match=f"{path} is of CUDA 11.8.89, older than 12: install a CUDA toolkit"):
        machine.find("11.8.89")


def test_only_wheels_need_to_be_told_where_the_runtime_is(machine):
    program(machine.wheel / "bin" / "nvcc")
    cublaslt(machine.wheel, library="lib")
    assert machine.find()["flags"] == ""
    (machine.wheel / "lib" / "libcudart_static.a").touch()
    assert machine.find()["flags"] == f"-L{machine.wheel}/lib"
