"""The CUDA backend builds without a GPU, from a system's toolkit or from wheels, and finds its cuBLASLt again.

What concerns the build alone is shown on a project of one kernel, which takes seconds; `cuda` is the real thing.
"""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys

import cuda_signatures
import pytest

from kernel_dvfs.native.build import MissingTool, build, watched
from kernel_dvfs.native.load import backends, load
from kernel_dvfs_clocks.errors import InputError

pytestmark = pytest.mark.compiles


@pytest.fixture
def one_architecture(monkeypatch):
    """As `finished` was built."""
    monkeypatch.setenv("CUDAARCHS", "80-real")


@pytest.fixture
def built(finished, one_architecture, tmp_path):
    """A copy of it to change."""
    return shutil.copytree(finished, tmp_path / "results")


def record_in(results):
    return json.loads((results / "native" / "cuda" / "build.json").read_text(encoding="utf-8"))


def library_in(results):
    return results / "native" / "cuda" / record_in(results)["library"]["file"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def dynamic_section(library):
    readelf = shutil.which("readelf") or pytest.skip("no readelf")
    return subprocess.run([readelf, "-d", library], check=True, capture_output=True, text=True).stdout


def test_the_record_says_what_decides_the_machine_code(finished):
    record = record_in(finished)
    assert (record["backend"], record["status"]) == ("cuda", "built")
    assert record["compilers"]["cuda"]["version"].count(".") == 2
    assert record["compilers"]["cuda_host"]["version"].count(".") == 2
    assert record["architectures"] == ["80-real"]
    assert "--generate-code=arch=compute_80,code=[sm_80]" in record["flags"]["cuda"]
    # what a workflow watches holds the libraries that were taken
    libraries = {os.path.dirname(path) for path in watched("cuda")[1:]}
    folders = {os.path.realpath(record[name]["directory"]) for name in ("cublaslt", "cudnn") if record[name]}
    assert folders and folders <= libraries


def test_the_cublaslt_that_runs_is_the_recorded_one(root, finished):
    major, minor, patch, _ = map(int, record_in(finished)["cublaslt"]["version"].split("."))
    # in a process of its own: pybind11 knows one `_cuda` per process, and it shall be the real one
    code = "import sys, kernel_dvfs.native.load as l; print(l.load('cuda', sys.argv[1]).cublaslt())"
    words = [sys.executable, "-c", code, finished]
    said = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(root / "workflow")}, check=True, capture_output=True, text=True
    ).stdout
    assert int(said) == major * 10000 + minor * 100 + patch


def test_the_library_names_where_its_cublaslt_is_and_needs_no_other_part_of_cuda(finished):
    """RPATH goes before LD_LIBRARY_PATH, RUNPATH (the newer tag) behind it. The runtime is inside; the driver's
    library is opened when it is first needed, so that importing works on a machine without one."""
    section = dynamic_section(library_in(finished))
    record = record_in(finished)
    folders = [record[name]["directory"] for name in ("cublaslt", "cudnn") if record[name]]
    assert f"Library rpath: [{':'.join(folders)}]" in section
    needed = [line for line in section.splitlines() if "NEEDED" in line]
    assert [line for line in needed if "cu" in line.partition("[")[2]] == [
        line for line in needed if "cublasLt" in line or "libcudnn.so.9" in line
    ]


def test_the_same_sources_give_the_same_bytes_from_another_folder(project, finished, one_architecture, tmp_path):
    elsewhere = shutil.copytree(project, tmp_path / "elsewhere" / "sources")
    build(elsewhere, tmp_path / "native", "cuda", mode="on")
    assert contents(tmp_path / "native" / "cuda") == contents(finished / "native" / "cuda")


def test_unchanged_sources_and_tools_are_not_compiled_again(project, built, said):
    record = build(project, built / "native", "cuda", mode="on", say=said.append)
    assert record == record_in(built)
    assert len(said) == 1 and "reused (nvcc " in said[0] and "cublasLt" in said[0]


# of other sources: test_a_compile_error_shows_nvccs_words_...; of other flags by day: test_native_build.py
@pytest.mark.parametrize(
    ("variable", "value"),
    [("CUDAARCHS", "1"), pytest.param("CUDAFLAGS", "--no-such-flag-here", marks=pytest.mark.nightly)],
)
def test_a_change_of_what_made_it_compiles_again(project, built, said, monkeypatch, variable, value):
    """Seen by making the project unbuildable: who tries to compile, fails."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=r"cuda: build failed.*cuda\.log; --cuda off"):
        build(project, built / "native", "cuda", say=said.append)


def test_a_compile_error_shows_nvccs_words_and_hurts_neither_the_old_library_nor_the_reference(
    project, built, tmp_path, said
):
    reference = built / "native" / "cpu"
    reference.mkdir()
    (reference / "build.json").write_text("{}", encoding="utf-8")
    before = contents(built / "native" / "cuda")
    sources = shutil.copytree(project, tmp_path / "broken")
    source = sources / "cuda" / "empty.cu"
    source.write_text("__global__ void f() { nowhere; }\n" + source.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match=r"^native layer: cuda: build failed"):
        build(sources, built / "native", "cuda", mode="auto", say=said.append)
    assert 'empty.cu(1): error: identifier "nowhere" is undefined' in said[0].splitlines()[0]
    assert contents(built / "native" / "cuda") == before
    assert os.listdir(reference) == ["build.json"]


def test_a_cublaslt_that_is_gone_is_named_with_the_remedy(built):
    library = library_in(built)
    library.write_bytes(library.read_bytes().replace(b"libcublasLt.so.", b"libcublasLt.xy."))
    assert backends(built)["cuda"] == "built"
    with pytest.raises(InputError, match=r"libcublasLt\.xy.* cannot open .*make cuda") as failed:
        load("cuda", built)
    assert "\n" not in str(failed.value)


def test_without_a_toolkit_on_is_an_error_and_auto_says_one_line(project, tmp_path, said, monkeypatch):
    monkeypatch.setenv("CUDACXX", "nvcc-0")
    with pytest.raises(MissingTool, match=r"no nvcc \(\$CUDACXX = nvcc-0\): install a CUDA toolkit"):
        build(project, tmp_path, "cuda", mode="on")
    record = build(project, tmp_path, "cuda", mode="auto", say=said.append)
    assert (record["backend"], record["status"]) == ("cuda", "unavailable")
    assert len(said) == 1 and record["reason"] in said[0]


@pytest.mark.parametrize(("variable", "why"), [("CUDACXX", "cicc: not found"), ("CUDAHOSTCXX", "g++-0")])
def test_an_nvcc_or_host_compiler_that_does_not_work_is_found_out_in_one_line(
    project, tmp_path, monkeypatch, variable, why
):
    """nvcc without a part of its toolkit, and a host compiler that is not there; the log holds what CMake was told."""
    (tmp_path / "nvcc").write_text("#!/bin/sh\necho 'cicc: not found' >&2\nexit 1\n", encoding="utf-8")
    (tmp_path / "nvcc").chmod(0o755)
    monkeypatch.setenv(variable, {"CUDACXX": str(tmp_path / "nvcc"), "CUDAHOSTCXX": "g++-0"}[variable])
    with pytest.raises(MissingTool, match=r"nvcc does not work \(host compiler: .*\$CUDAHOSTCXX$"):
        build(project, tmp_path / "out", "cuda", mode="on")
    assert why in (tmp_path / "out" / "cuda.log").read_text(encoding="utf-8")


def test_the_kernels_compile_for_every_architecture_without_a_warning(cuda_results):
    record = record_in(cuda_results)
    assert record["architectures"] == ["80-real", "86-real", "90-real", "90-virtual"]
    assert {"-O3", "--use_fast_math", "-std=c++17"} <= set(record["flags"]["cuda"])
    log = (cuda_results / "native" / "cuda.log").read_text(encoding="utf-8")
    assert [line for line in log.splitlines() if "warning" in line.lower()] == []


def test_signatures_read_from_the_binding_are_those_of_the_extension(cuda):
    """What tests hold their stand-ins to (tests/fakenvml/cuda_signatures.py)."""
    read = cuda_signatures.signatures()
    built = {
        f"{kind.__name__}.{name}": getattr(kind, name).__doc__.partition(") ->")[0].partition("(")[2]
        for kind in vars(cuda).values()
        if inspect.isclass(kind) and not issubclass(kind, Exception)
        for name in dir(kind)
        if (name == "__init__" or not name.startswith("_")) and "(self: " in getattr(kind, name).__doc__
    }
    assert built.keys() == {name for name in read if not name.startswith("DeviceArray.")}
    for name, parameters in built.items():
        # types hold commas of their own, in brackets
        parts = re.sub(r"\[[^()]*\]", "", parameters).split(", ")[1:]
        names = [part.partition(":")[0] for part in parts if part != "*"]
        optional = [part.partition(":")[0] for part in parts if " = " in part]
        assert names == list(read[name].parameters), name
        assert optional == [each.name for each in read[name].parameters.values() if each.default is ...], name


def test_the_kernels_load_without_a_driver_and_say_so_in_one_line(cuda):
    assert cuda.versions()["cublaslt"] // 10000 == cuda.versions()["runtime"] // 1000
    try:
        cuda.Device(0)
    except cuda.DeviceError as error:
        assert "\n" not in str(error)
    else:
        pytest.skip("there is a GPU")
