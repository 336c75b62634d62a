"""nvcc and cuBLASLt are found where users have them, belong together, and what is missing is named. No CUDA needed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_dvfs.native import cuda_toolkit
from kernel_dvfs.native.compilers import MissingTool

VERSION_HEADER = "".join(
    f"#define CUBLAS_VER_{part} {number}\n" for part, number in zip(("MAJOR", "MINOR", "PATCH", "BUILD"), (1, 2, 3, 4))
)


def program(path, script="") -> Path:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def nvcc(path, version="13.0.88", root=None) -> Path:
    """A stand-in that answers what nvcc is asked. root: where its toolkit lies, if not around it."""
    root = root or path.parent.parent
    return program(path, f'case $1 in --version) echo "release, V{version}";; *) echo "#\\$ TOP={root}" >&2;; esac')


def cublaslt(root, major=13, library="lib64", header="include") -> Path:
    """Header and library below `root`; the library's path."""
    (root / header).mkdir(parents=True, exist_ok=True)
    (root / header / "cublasLt.h").touch()
    (root / header / "cublas_api.h").write_text(VERSION_HEADER, encoding="utf-8")
    (root / library).mkdir(parents=True, exist_ok=True)
    path = root / library / f"libcublasLt.so.{major}"
    path.touch()
    return path


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Its folders, all empty: `path` (on PATH), `wheel` (site-packages/nvidia/cu13), `system` (/usr/local/cuda)."""
    folders = SimpleNamespace(path=tmp_path / "path", wheel=tmp_path / "nvidia" / "cu13", system=tmp_path / "cuda")
    monkeypatch.setenv("PATH", str(folders.path))
    monkeypatch.delenv("CUDACXX", raising=False)
    monkeypatch.delenv("CUDAHOSTCXX", raising=False)
    monkeypatch.setattr(cuda_toolkit, "SYSTEM", (str(folders.system),))
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(cuda_toolkit, "find_spec", {"nvidia": package}.get)
    return folders


def test_nvcc_is_the_named_one_else_that_on_path_else_the_wheels_else_the_systems(machine, monkeypatch, tmp_path):
    system = nvcc(machine.system / "bin" / "nvcc")
    assert cuda_toolkit.nvcc_path() == str(system)
    wheel = nvcc(machine.wheel / "bin" / "nvcc")
    assert cuda_toolkit.nvcc_path() == str(wheel)
    path = nvcc(machine.path / "nvcc")
    assert cuda_toolkit.nvcc_path() == str(path)
    monkeypatch.setenv("CUDACXX", str(nvcc(tmp_path / "mine" / "nvcc")))
    assert cuda_toolkit.nvcc_path() == str(tmp_path / "mine" / "nvcc")


@pytest.mark.parametrize("library", ["lib64", "lib", "targets/x86_64-linux/lib"])
def test_a_toolkits_own_cublaslt_is_found_beside_a_wrapped_nvcc(machine, tmp_path, library):
    home = tmp_path / "cuda-13.0"
    nvcc(machine.path / "nvcc", root=home / "bin" / "..")
    expected = cublaslt(home, library=library, header="targets/x86_64-linux/include")
    toolkit = cuda_toolkit.find()
    assert (toolkit.version, toolkit.root) == ("13.0.88", str(home))
    assert toolkit.cublaslt == cuda_toolkit.CublasLt(
        str(expected), str(home / "targets/x86_64-linux/include"), "1.2.3.4"
    )


def test_the_locked_wheel_goes_before_the_toolkits_own_cublaslt(machine):
    nvcc(machine.system / "bin" / "nvcc")
    cublaslt(machine.system)
    locked = cublaslt(machine.wheel, library="lib")
    assert cuda_toolkit.find().cublaslt.library == str(locked)


def test_cuda_12_takes_a_cublaslt_of_its_own_major_version(machine):
    nvcc(machine.system / "bin" / "nvcc", version="12.8.93")
    cublaslt(machine.wheel, library="lib")
    with pytest.raises(MissingTool, match=r"no cublasLt\.h with libcublasLt\.so\.12 .*install cuBLAS of CUDA 12"):
        cuda_toolkit.find()
    own = cublaslt(machine.system, major=12)
    assert cuda_toolkit.find().cublaslt.library == str(own)


def test_a_library_without_its_header_is_not_taken(machine):
    """As the wheel of a runtime-only installation: a header from elsewhere might be of another version."""
    nvcc(machine.path / "nvcc", root=machine.system)
    (cublaslt(machine.wheel, library="lib").parents[1] / "include" / "cublasLt.h").unlink()
    own = cublaslt(machine.system)
    assert cuda_toolkit.find().cublaslt.library == str(own)


def cudnn(root, version=(9, 19, 0)) -> str:
    """Header and library below `root`, as their wheel has them; the library's path."""
    (root / "include").mkdir(parents=True)
    parts = zip(("MAJOR", "MINOR", "PATCHLEVEL"), version)
    header = "".join(f"#define CUDNN_{part} {number}\n" for part, number in parts)
    (root / "include" / "cudnn_version.h").write_text(header, encoding="utf-8")
    (root / "lib").mkdir()
    path = root / "lib" / "libcudnn.so.9"
    path.touch()
    return str(path)


def test_cudnn_is_taken_with_its_frontend_or_not_at_all(machine, tmp_path, monkeypatch):
    nvcc(machine.path / "nvcc", root=machine.system)
    cublaslt(machine.system)
    library = cudnn(tmp_path / "nvidia" / "cudnn")
    monkeypatch.setattr(cuda_toolkit.sys, "path", [str(tmp_path / "site"), *cuda_toolkit.sys.path])
    frontend = tmp_path / "site" / "include"
    if cuda_toolkit.cudnn(str(machine.system)) is None:  # no frontend where these tests run
        assert cuda_toolkit.find().cudnn is None
    frontend.mkdir(parents=True)
    (frontend / "cudnn_frontend.h").touch()
    names = ("MAJOR_VERSION", "MINOR_VERSION", "PATCH_VERSION")
    lines = [f"#define CUDNN_FRONTEND_{name} {number}" for name, number in zip(names, (1, 18, 2))]
    (frontend / "cudnn_frontend_version.h").write_text("\n".join(lines), encoding="utf-8")
    found = cuda_toolkit.find().cudnn
    include = str(tmp_path / "nvidia" / "cudnn" / "include")
    assert found == cuda_toolkit.Cudnn(library, include, "9.19.0", str(frontend), "1.18.2")
    assert library in cuda_toolkit.watched()
    Path(library).unlink()
    assert cuda_toolkit.find().cudnn is None, "a header without its library"


def test_without_nvcc_the_places_and_both_remedies_are_named(machine):
    cublaslt(machine.wheel)
    with pytest.raises(MissingTool) as missing:
        cuda_toolkit.find()
    assert f"no nvcc (looked in PATH, {machine.wheel}/bin, {machine.system}/bin)" in str(missing.value)
    assert "install a CUDA toolkit (12 or 13)" in str(missing.value)
    assert "pip install 'cuda-toolkit[" in str(missing.value)


def test_without_cublaslt_it_is_said_what_is_there_and_how_to_get_the_rest(machine):
    path = nvcc(machine.path / "nvcc", root=machine.system)
    with pytest.raises(MissingTool) as missing:
        cuda_toolkit.find()
    assert f"nvcc 13.0.88 is there ({path}), but no cublasLt.h with libcublasLt.so.13" in str(missing.value)
    assert "pip install -r envs/cuda.lock" in str(missing.value)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [("echo release, V11.8.89", "11.8.89, older than 12"), ("echo broken >&2; exit 1", r"does not work \(broken\)")],
)
def test_an_nvcc_that_will_not_do_is_refused(machine, script, complaint):
    program(machine.path / "nvcc", script)
    with pytest.raises(MissingTool, match=complaint):
        cuda_toolkit.find()


def test_a_toolkit_that_lacks_a_part_is_found_out_in_one_line(machine):
    program(machine.path / "nvcc", 'case $1 in --version) echo V13.0.88;; *) echo "cicc: not found" >&2; exit 1;; esac')
    cublaslt(machine.system)
    with pytest.raises(MissingTool, match=r"does not work with g\+\+ \(cicc: not found\): .*\$CUDAHOSTCXX"):
        cuda_toolkit.check(cuda_toolkit.find(), "g++")


def test_host_code_goes_to_the_named_compiler_else_to_the_cxx_compiler_behind_its_launcher(machine, monkeypatch):
    for name in ("ccache", "g++", "g++-12"):
        program(machine.path / name)
    assert cuda_toolkit.host_compiler(["ccache", "g++"]) == str(machine.path / "g++")
    assert cuda_toolkit.host_compiler(["g++", "-m64"]) == str(machine.path / "g++")
    monkeypatch.setenv("CUDAHOSTCXX", "g++-12")
    assert cuda_toolkit.host_compiler(["g++"]) == str(machine.path / "g++-12")
    monkeypatch.setenv("CUDAHOSTCXX", "g++-0")
    with pytest.raises(MissingTool, match=r"\$CUDAHOSTCXX = g\+\+-0"):
        cuda_toolkit.host_compiler(["g++"])


def test_only_wheels_need_to_be_told_where_the_runtime_is(machine):
    nvcc(machine.path / "nvcc", root=machine.wheel)
    cublaslt(machine.wheel, library="lib")
    assert cuda_toolkit.link_flags(cuda_toolkit.find()) == []
    (machine.wheel / "lib" / "libcudart_static.a").touch()
    assert cuda_toolkit.link_flags(cuda_toolkit.find()) == [f"-L{machine.wheel}/lib"]
