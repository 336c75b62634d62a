"""The native layer, built once a session of tests; skipped where a tool is missing."""

import shutil
import subprocess

import pytest

from kernel_dvfs.native.load import load

PTX_FLAGS = ("-std=c++17", "-O3", "--use_fast_math")

# without pybind11, whose compiling would take most of the time of the builds that tests make
BINDING = """
#include <Python.h>
#include <cublasLt.h>
#include <cuda_runtime.h>
void run();
static PyObject *cublaslt(PyObject *, PyObject *) { return PyLong_FromSize_t(cublasLtGetVersion()); }
static PyObject *launched(PyObject *, PyObject *) {
  run();
  return PyLong_FromLong(cudaGetLastError());
}
PyMODINIT_FUNC PyInit__cuda() {
  static PyMethodDef methods[] = {
      {"cublaslt", cublaslt, METH_NOARGS, ""}, {"run", launched, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_cuda", "", -1, methods, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&module);
}
"""
KERNEL = "__global__ void empty_kernel() {}\nvoid run() { empty_kernel<<<1, 1>>>(); }\n"


@pytest.fixture(scope="session")
def nvcc() -> str:
    """Path of nvcc."""
    return shutil.which("nvcc") or pytest.skip("PTX not testable: no nvcc")


@pytest.fixture(scope="session")
def to_ptx(nvcc, root):
    """A .cu file's PTX, compiled with the flags of the build."""

    def compile_(source) -> str:
        words = [nvcc, "-ptx", "-arch=sm_86", *PTX_FLAGS, "-I", root / "native" / "include", "-o", "-", source]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return compile_


@pytest.fixture(scope="session")
def results(native_results):
    """A results folder that holds the built backend `cpu`."""
    return native_results("cpu")


@pytest.fixture(scope="session")
def project(root, tmp_path_factory):
    """native/ with one empty kernel in place of ours."""
    folder = tmp_path_factory.mktemp("project") / "native"
    (folder / "bindings").mkdir(parents=True)
    for name in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(root / "native" / name, folder)
    shutil.copytree(root / "native" / "include", folder / "include")
    shutil.copytree(root / "native" / "cuda", folder / "cuda", ignore=shutil.ignore_patterns("*.cu", "*.cpp"))
    (folder / "bindings" / "cuda.cpp").write_text(BINDING, encoding="utf-8")
    (folder / "cuda" / "empty.cu").write_text(KERNEL, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def finished(project, build_or_skip, once):
    """A results folder with the project's library. Not to be changed."""

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUDAARCHS", "80-real")
            build_or_skip(project, folder / "native", "cuda")

    return once("finished-cuda", make)


@pytest.fixture(scope="session")
def cuda_results(finished, native_results):
    """A results folder that holds the built backend `cuda` and its log. `finished`, of one empty kernel, comes before:
    it shows in seconds whether a tool is missing."""
    return native_results("cuda")


@pytest.fixture(scope="session")
def cpu(results):
    """The C reference."""
    return load("cpu", results)


@pytest.fixture(scope="session")
def cuda(cuda_results):
    """The CUDA kernels; loads without a GPU."""
    return load("cuda", cuda_results)


@pytest.fixture
def said():
    """A list that collects what a build says: pass `said.append`."""
    return []


@pytest.fixture
def sources(root, tmp_path):
    """A copy of native/ to change."""
    return shutil.copytree(root / "native", tmp_path / "elsewhere" / "native")
