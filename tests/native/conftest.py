"""The native layer, built once a session of tests; skipped where a tool is missing."""

import shutil
import subprocess

import pytest

from kernel_dvfs.native.build import MissingTool, build
from kernel_dvfs.native.load import load

PTX_FLAGS = ("-std=c++17", "-O3", "--use_fast_math")


@pytest.fixture(scope="session")
def build_or_skip():
    """`build` in mode `on`; skips the test where a tool is missing."""

    def built(source_dir, out_dir, backend):
        try:
            return build(source_dir, out_dir, backend, mode="on")
        except MissingTool as missing:
            pytest.skip(f"{backend} not testable: {missing}")

    return built


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
def cuda_results(root, build_or_skip, once):
    """A results folder that holds the built backend `cuda` and its log. Compiling all kernels takes minutes, so what
    `make cuda` or a run has built is taken where the build itself finds that it will do."""

    def make(folder):
        earlier = root / "results" / "native"
        log = earlier / "cuda.log"
        # a log that ends in an installation is the log of the library beside it
        if log.is_file() and "-- Installing: " in log.read_text(encoding="utf-8", errors="replace"):
            shutil.copytree(earlier / "cuda", folder / "native" / "cuda")
            shutil.copy(log, folder / "native")
        build_or_skip(root / "native", folder / "native", "cuda")

    return once("native-cuda", make)


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
