"""Each backend of the native layer is a job of its own, run again when its own sources, tools or mode change."""

import json
import shutil

import pytest
from reduced_study import clone, planned, snakemake

pytestmark = pytest.mark.workflow


def record_in(directory, backend):
    return json.loads((directory / "results" / "native" / backend / "build.json").read_text(encoding="utf-8"))


def test_a_change_runs_the_backends_that_it_touches(tmp_path):
    directory = clone(tmp_path / "clone")
    snakemake(directory, "native")
    assert {record_in(directory, backend)["status"] for backend in ("cpu", "cuda")} == {"unavailable"}
    assert planned(directory, "native") == {}

    kernel = sorted((directory / "native" / "cuda").glob("*.cu"))[0]
    kernel.write_text(kernel.read_text(encoding="utf-8") + "// a remark\n", encoding="utf-8")
    assert planned(directory, "native") == {"build": 1, "native": 1}
    header = directory / "native" / "include" / "kdvfs" / "kernels.h"
    header.write_text(header.read_text(encoding="utf-8") + "/* a remark */\n", encoding="utf-8")
    assert planned(directory, "native") == {"build": 3, "native": 1}


def test_what_a_study_asks_for_is_built_once(tmp_path, emptied):
    """The other runs of the tests switch the native layer off."""
    if not (shutil.which("cc") and shutil.which("c++")):
        pytest.skip("no C compiler")
    directory = clone(tmp_path / "clone")
    emptied(directory / "native", "cpu")
    asked = ("native={cpu: 'on', cuda: 'off', pipeline: 'off'}",)
    snakemake(directory, "native", config=asked)
    assert record_in(directory, "cpu")["status"] == "built"
    assert planned(directory, "native", config=asked) == {}


def test_an_error_in_one_backend_leaves_what_was_built_of_both(tmp_path, monkeypatch, emptied):
    directory = clone(tmp_path / "clone")
    emptied(directory / "native", "graph")  # it is asked for with the CUDA kernels
    snakemake(directory, "native")
    before = record_in(directory, "cpu"), record_in(directory, "cuda")
    monkeypatch.setenv("CUDACXX", "nvcc-0")
    # the second time too: nothing else of the run fails, so this job alone is left
    for _ in range(2):
        asked = ("native={cpu: 'off', cuda: 'on', pipeline: 'off'}",)
        failed = snakemake(directory, "native", config=asked, options=["--keep-going"], check=False)
        assert failed.returncode != 0
        assert "error: no nvcc ($CUDACXX = nvcc-0): install a CUDA toolkit" in failed.stdout
    assert (record_in(directory, "cpu"), record_in(directory, "cuda")) == before
