"""Each backend of the native layer is a job of its own, run again when its own sources, tools or mode change; and a
study holds its kernels to what the layer counts."""

import json
import shutil

import pytest
from reduced_study import FOLDER, clone, planned, snakemake

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


def rows_of(directory) -> dict:
    return json.loads((directory / FOLDER / "native_rows.json").read_text(encoding="utf-8"))


def test_the_layer_is_built_and_run_by_every_study_of_a_model(finished):
    """Here it is switched off, which is said."""
    assert planned(finished, "all") == {}
    found = rows_of(finished)
    assert found["status"] == "unavailable" and found["reason"] == "switched off by --cpu off"
    page = (finished / FOLDER / "report.html").read_text(encoding="utf-8")
    assert "not built here (switched off by --cpu off), so shapes, FLOP and bytes were counted once only" in page


@pytest.fixture
def built(tmp_path, native_results):
    """A clone with the C reference in it, as a run would leave it: a build finds that it will do."""
    directory = clone(tmp_path / "clone")
    shutil.copytree(native_results("cpu") / "native", directory / "results/native")
    return directory


def test_the_rows_are_held_to_the_layer_once_and_again_when_it_changes(built):
    target, asked = str(FOLDER / "native_rows.json"), ("native={cpu: 'on', cuda: 'off', pipeline: 'off'}",)
    assert planned(built, "all", config=asked)["build"] == 2, "with CUDA, where it can be built"
    said = snakemake(built, target, config=asked).stdout
    assert "46 kernels are those that the C reference counts" in said
    found = rows_of(built)
    assert found["status"] == "agreed" and len(found["rows"]) == len(found["ran"]) == 46
    assert found["compiler"] in said and found["backends"]["cuda"] == "unavailable: switched off by --cuda off"
    assert planned(built, target, config=asked) == {}

    source = built / "native/cpu/gelu.c"
    source.write_text(source.read_text(encoding="utf-8") + "/* a remark */\n", encoding="utf-8")
    assert planned(built, target, config=asked) == {"build": 1, "native_rows": 1}


def test_a_wrong_formula_of_the_workload_ends_the_study_with_a_line_that_names_the_row(built):
    formulas = built / "workflow/kernel_dvfs/workload/formulas.py"
    right = formulas.read_text(encoding="utf-8")
    assert right.count("_work(9 * n,") == 1
    formulas.write_text(right.replace("_work(9 * n,", "_work(8 * n,"), encoding="utf-8")
    asked = ("native={cpu: 'on', cuda: 'off', pipeline: 'off'}",)
    failed = snakemake(built, str(FOLDER / "native_rows.json"), config=asked, check=False)
    assert failed.returncode != 0 and "Traceback" not in failed.stdout
    (line,) = {each for each in failed.stdout.splitlines() if each.startswith("error: ")}
    assert "row forward_gelu (gelu_forward): flop is 2,684,354,560 by the study's formula" in line
    assert "3,019,898,880 by the layer" in line
    assert not (built / FOLDER / "native_rows.json").exists()
