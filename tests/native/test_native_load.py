"""Loading is by path, works without anything built, and tells what is missing."""

import json
import subprocess
import sys

import pytest

from kernel_dvfs.native.load import BACKENDS, SCHEMA, backends, load
from kernel_dvfs_clocks.errors import InputError

BUILD = {"schema": SCHEMA, "status": "built", "reason": None}


def test_importing_the_package_with_nothing_built_loads_nothing_heavy(root, tmp_path):
    code = (
        "import sys, kernel_dvfs.native, kernel_dvfs.native.load as l\n"
        "print(l.backends())\n"
        "print({'numpy', 'subprocess', 'pathlib', 'pybind11', 'cmake', 'argparse'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root / "workflow")},
        check=True,
        capture_output=True,
        text=True,
    )
    status, heavy = done.stdout.splitlines()
    assert status.count("not built") == len(BACKENDS) and "kernel-dvfs build" in status
    assert heavy == "set()"


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_built_names_the_remedy(tmp_path, backend):
    with pytest.raises(InputError, match=rf"{backend} is not built .*run `kernel-dvfs build`"):
        load(backend, tmp_path)


def test_one_backend_is_there_without_the_other(results):
    assert backends(results)["cpu"] == "built"
    assert "not built" in backends(results)["cuda"]


def test_a_built_backend_loads_as_often_as_one_likes(results):
    first, second = load("cpu", results), load("cpu", results)
    assert first.OPERATIONS == second.OPERATIONS
    assert first.__file__.startswith(str(results / "native" / "cpu"))


def test_an_unknown_backend_is_refused(tmp_path):
    with pytest.raises(InputError, match="no backend 'opencl'; there is cpu, cuda, graph, pipeline"):
        load("opencl", tmp_path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            BUILD | {"status": "unavailable", "reason": "no C compiler: install one"},
            "unavailable: no C compiler: ",
        ),
        (BUILD | {"library": {"file": "_cpu.cpython-27-x.so", "sha256": ""}}, "built for another Python"),
        (BUILD | {"library": {"file": "_cpu@SUFFIX", "sha256": ""}}, "not whole"),
        (BUILD | {"library": {"file": "/tmp/_cpu@SUFFIX", "sha256": ""}}, "expected the name of a file; run"),
        (BUILD | {"library": {"file": "../_cpu@SUFFIX", "sha256": ""}}, "expected the name of a file; run"),
        (
            {"schema": SCHEMA, "status": "unavailable"},
            "unknown: build record @FOLDER/build.json: reason is missing; run `kernel-dvfs build`",
        ),
        (BUILD, "library is missing; run `kernel-dvfs build`"),
        ({"schema": "foreign"}, "build.json: not a kernel-dvfs/build/1 file; run `kernel-dvfs build`"),
        ([], "build.json: not a kernel-dvfs/build/1 file; run `kernel-dvfs build`"),
    ],
)
def test_a_record_that_leads_to_no_library_says_why(tmp_path, record, message):
    from importlib.machinery import EXTENSION_SUFFIXES

    folder = tmp_path / "native" / "cpu"
    folder.mkdir(parents=True)
    text = json.dumps(record).replace("@SUFFIX", EXTENSION_SUFFIXES[0])
    message = message.replace("@FOLDER", str(folder))
    (folder / "build.json").write_text(text, encoding="utf-8")
    assert message in backends(tmp_path)["cpu"]
    with pytest.raises(InputError, match="cpu is ") as refused:
        load("cpu", tmp_path)
    assert message in str(refused.value)


def test_a_file_that_is_no_library_does_not_load(tmp_path):
    from importlib.machinery import EXTENSION_SUFFIXES

    folder = tmp_path / "native" / "cpu"
    folder.mkdir(parents=True)
    name = f"_cpu{EXTENSION_SUFFIXES[0]}"
    (folder / name).write_bytes(b"not a library")
    (folder / "build.json").write_text(json.dumps(BUILD | {"library": {"file": name, "sha256": ""}}))
    with pytest.raises(InputError, match=r"does not load .*run `kernel-dvfs build`"):
        load("cpu", tmp_path)
