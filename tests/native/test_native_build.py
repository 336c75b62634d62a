"""A build is whole, repeatable, reused while nothing changed, and says in one line what it lacks."""

import argparse
import json
import os
import shutil

import pytest

from kernel_dvfs.cli import build as command
from kernel_dvfs.native.build import MissingTool, build, source_files, watched
from kernel_dvfs.native.load import BACKENDS
from kernel_dvfs_clocks.errors import InputError


def record_in(out_dir):
    return json.loads((out_dir / "cpu" / "build.json").read_text(encoding="utf-8"))


def build_command(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


@pytest.fixture
def no_compiler(monkeypatch):
    """The one that is asked for is not there."""
    monkeypatch.setenv("CC", "cc-0")


@pytest.fixture
def built(results, tmp_path):
    """A copy of the session's build to change, as an out folder."""
    return shutil.copytree(results / "native", tmp_path / "native-out")


def test_a_build_says_what_made_it_and_compiles_without_a_warning(results):
    out_dir = results / "native"
    record = record_in(out_dir)
    assert record["schema"] == "kernel-dvfs/build/1"
    assert (record["backend"], record["status"], record["reason"]) == ("cpu", "built", None)
    assert sorted(os.listdir(out_dir / "cpu")) == sorted(["build.json", record["library"]["file"]])
    assert "-ffp-contract=off" in record["flags"]["c"]
    assert not {"-ffast-math", "-Ofast", "-march=native"} & {*record["flags"]["c"], *record["flags"]["cxx"]}
    assert "warning" not in (out_dir / "cpu.log").read_text(encoding="utf-8").lower()
    assert "/" not in (out_dir / "cpu" / "build.json").read_text(encoding="utf-8").replace(record["schema"], "")


def test_every_source_of_the_project_is_watched_by_a_backend(root):
    watched = (set(source_files(root / "native", backend)) for backend in BACKENDS)
    assert set().union(*watched) == {path for path in (root / "native").rglob("*") if path.is_file()}


def test_a_backend_does_not_watch_the_others_sources(root):
    folders = {backend: {path.parent.name for path in source_files(root / "native", backend)} for backend in BACKENDS}
    for backend, own in folders.items():
        assert backend in own and not own & ({*BACKENDS} - {backend})


@pytest.mark.nightly
@pytest.mark.compiles
def test_the_same_sources_give_the_same_bytes_from_another_folder(results, sources, tmp_path):
    build(sources, tmp_path / "out", "cpu", mode="on")
    first, second = results / "native" / "cpu", tmp_path / "out" / "cpu"
    assert sorted(os.listdir(first)) == sorted(os.listdir(second))
    for name in os.listdir(first):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_unchanged_sources_are_not_compiled_again(root, built, said):
    library = built / "cpu" / record_in(built)["library"]["file"]
    before = library.stat().st_mtime_ns
    log = (built / "cpu.log").read_text(encoding="utf-8")
    record = build(root / "native", built, "cpu", mode="on", say=said.append)
    assert record == record_in(built)
    assert len(said) == 1 and "reused" in said[0]
    assert library.stat().st_mtime_ns == before
    assert (built / "cpu.log").read_text(encoding="utf-8") == log


@pytest.mark.parametrize("harm", ["source", "library", "flags", "record"])
def test_a_change_of_what_made_it_compiles_again(built, sources, said, monkeypatch, harm):
    """Seen by making the project unbuildable: who tries to compile, fails."""
    library = built / "cpu" / record_in(built)["library"]["file"]
    lists = sources / "CMakeLists.txt"
    if harm == "source":
        lists.write_text("message(FATAL_ERROR here)\n" + lists.read_text(encoding="utf-8"), encoding="utf-8")
    elif harm == "library":
        library.write_bytes(library.read_bytes()[:-1])
    elif harm == "flags":
        monkeypatch.setenv("CFLAGS", "-fno-such-flag-here")
    elif harm == "record":
        (built / "cpu" / "build.json").write_text("{", encoding="utf-8")
    if harm in ("library", "record"):
        monkeypatch.setenv("LDFLAGS", "--no-such-flag-here")
    with pytest.raises(InputError, match=r"build failed.*cpu\.log"):
        build(sources, built, "cpu", say=said.append)


@pytest.mark.compiles
def test_a_compile_error_shows_the_compilers_words_and_keeps_the_old_library(built, sources, emptied, said):
    """In mode auto too: going on without the library is for a missing tool, not for broken sources."""
    before = {path.name: path.read_bytes() for path in (built / "cpu").iterdir()}
    emptied(sources, "cpu")
    source = sources / "bindings" / "cpu.cpp"
    source.write_text("#error nowhere\n" + source.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError) as failed:
        build(sources, built, "cpu", mode="auto", say=said.append)
    assert str(failed.value).startswith("native layer: cpu: build failed")
    assert str(built / "cpu.log") in str(failed.value)
    assert "error: #error nowhere" in said[0]
    assert "cpu.cpp" in said[0] and "-ffile-prefix-map" not in said[0]
    assert "nowhere" in (built / "cpu.log").read_text(encoding="utf-8")
    assert {path.name: path.read_bytes() for path in (built / "cpu").iterdir()} == before
    assert sorted(os.listdir(built)) == [".cpu.lock", "cpu", "cpu.log"]


def test_without_a_compiler_auto_goes_on_and_says_how_to_get_one(root, tmp_path, capfd, no_compiler):
    out = tmp_path / "out"
    assert build_command("--native-dir", str(root / "native"), "--out", str(out), "--cpu", "auto") == 0
    (line,) = capfd.readouterr().err.splitlines()
    assert "no C compiler" in line
    assert "apt-get install g++" in line and "xcode-select --install" in line
    record = record_in(out)
    assert record["status"] == "unavailable"
    assert "no C compiler" in record["reason"] and "\n" not in record["reason"]
    assert os.listdir(out / "cpu") == ["build.json"]


def test_without_a_compiler_on_is_an_error(root, tmp_path, no_compiler):
    with pytest.raises(InputError, match=r"no C compiler .*apt-get install g\+\+"):
        build(root / "native", tmp_path / "out", "cpu", mode="on")
    assert not (tmp_path / "out" / "cpu").exists()


def test_a_compiler_that_is_there_in_name_only_counts_as_none(root, tmp_path, monkeypatch, said):
    """As the stubs of a bare macOS are, or gcc without the headers of libc."""
    stub = tmp_path / "cc-stub"
    stub.write_text("#!/bin/sh\necho 'no developer tools were found' >&2\nexit 1\n")
    stub.chmod(0o755)
    monkeypatch.setenv("CC", str(stub))
    record = build(root / "native", tmp_path / "out", "cpu", say=said.append)
    assert record["status"] == "unavailable"
    assert f"no C compiler that works ($CC = {stub})" in said[0]
    assert "no developer tools were found" in (tmp_path / "out" / "cpu.log").read_text(encoding="utf-8")


def test_a_compiler_named_by_cxx_that_does_not_exist_is_named(root, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "g++-0")
    with pytest.raises(InputError, match=r"no C\+\+ compiler that works \(\$CXX = g\+\+-0\)"):
        build(root / "native", tmp_path / "out", "pipeline", mode="on")


def test_a_launcher_before_the_compiler_is_kept(sources, tmp_path, monkeypatch, results):
    launcher = tmp_path / "ccache"
    launcher.write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    monkeypatch.setenv("CXX", f"{launcher} c++ -pipe")
    found = 'missing("${CMAKE_CXX_COMPILER}${CMAKE_CXX_COMPILER_ARG1}")'
    (sources / "pipeline" / "CMakeLists.txt").write_text(found, encoding="utf-8")
    with pytest.raises(MissingTool, match=f"^{launcher} c\\+\\+ -pipe$"):
        build(sources, tmp_path / "out", "pipeline", mode="on")


def test_settings_of_the_builds_own_tools_do_not_reach_it(root, tmp_path, monkeypatch, results):
    """No record would tell of them, so a library made with others would be taken for a fresh one. Seen by a project
    that ends with what it was told, by any of them."""
    project = tmp_path / "native"
    project.mkdir()
    shutil.copy(root / "native" / "pyproject.toml", project)
    (project / "told.cmake").write_text("set(TOLD yes)", encoding="utf-8")
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.31)\nproject(told LANGUAGES NONE)\n"
        'file(WRITE ${CMAKE_BINARY_DIR}/missing.txt "${CMAKE_BUILD_TYPE} told: ${TOLD}.")\nmessage(FATAL_ERROR here)\n',
        encoding="utf-8",
    )
    for variable, value in (
        ("CMAKE_ARGS", "-DTOLD=yes"),
        ("CMAKE_BUILD_TYPE", "Debug"),
        ("CMAKE_TOOLCHAIN_FILE", str(project / "told.cmake")),
        ("SKBUILD_CMAKE_ARGS", "-DTOLD=yes"),
        ("SKBUILD_CMAKE_DEFINE", "TOLD=yes"),
        ("SKBUILD_CMAKE_BUILD_TYPE", "Debug"),
    ):
        monkeypatch.setenv(variable, value)
    with pytest.raises(MissingTool, match=r"^Release told: \.$"):
        build(project, tmp_path / "out", "cpu", mode="on")


def test_a_build_package_that_is_absent_is_named_with_the_remedy(root, built, said, monkeypatch, tmp_path):
    (tmp_path / "scikit_build_core.py").write_text("raise ImportError('absent')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MissingTool, match=r"does not start \(ImportError: absent\): .*pip install .*scikit-build-core"):
        build(root / "native", built, "cpu", mode="on")
    assert record_in(built)["status"] == "built"
    assert build(root / "native", built, "cpu", say=said.append)["status"] == "unavailable"
    assert len(said) == 1


def test_a_compiler_that_is_installed_later_is_seen_by_what_a_workflow_watches(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert watched("graph") == [None]
    (tmp_path / "g++").touch(0o755)
    assert watched("graph") == [str(tmp_path / "g++")]
    monkeypatch.setenv("CXX", "g++-0")
    assert watched("graph") == [None]


def test_off_builds_nothing_and_removes_the_old_library(root, built, said):
    record = build(root / "native", built, "cpu", mode="off", say=said.append)
    assert record["status"] == "unavailable" and "off" in record["reason"]
    assert os.listdir(built / "cpu") == ["build.json"]
    assert said == []


def test_what_a_killed_build_left_is_cleared(root, built, said):
    (built / ".cpu" / "build").mkdir(parents=True)
    build(root / "native", built, "cpu", mode="off", say=said.append)
    assert not (built / ".cpu").exists()


def test_a_folder_without_the_project_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no CMakeLists\.txt in .*--native-dir"):
        build(tmp_path, tmp_path / "out", "cpu")
    assert not (tmp_path / "out").exists()


def test_an_unknown_mode_is_refused(root, tmp_path):
    with pytest.raises(InputError, match="expected one of auto, on, off"):
        build(root / "native", tmp_path / "out", "cpu", mode="maybe")


def test_an_unknown_backend_is_refused(root, tmp_path):
    with pytest.raises(InputError, match="expected one of cpu, cuda, graph, pipeline"):
        build(root / "native", tmp_path / "out", "opencl")


def test_the_command_builds_what_is_named_and_leaves_the_other_backend_alone(root, built):
    before = record_in(built)
    assert build_command("--native-dir", str(root / "native"), "--out", str(built), "--cuda", "off") == 0
    assert record_in(built) == before
    assert (
        json.loads((built / "cuda" / "build.json").read_text(encoding="utf-8"))["reason"]
        == "switched off by --cuda off"
    )


@pytest.mark.nightly
@pytest.mark.compiles
def test_the_command_without_a_name_builds_all_that_can_be_built(
    sources, emptied, built, native_results, monkeypatch, capfd
):
    monkeypatch.setenv("CUDACXX", "nvcc-0")
    emptied(sources, "graph")
    shutil.copytree(native_results("pipeline") / "native" / "pipeline", built / "pipeline")
    capfd.readouterr()  # what was said of that build
    assert build_command("--native-dir", str(sources), "--out", str(built)) == 0
    cpu, cuda, graph, pipeline = capfd.readouterr().err.splitlines()
    for name, line, how in (("cpu", cpu, "reused"), ("graph", graph, "built by"), ("pipeline", pipeline, "reused")):
        assert name in line and how in line
    assert "cuda not built, going on without it: no nvcc ($CUDACXX = nvcc-0)" in cuda
