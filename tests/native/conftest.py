"""The native layer, built once per test session into a temporary folder."""

import shutil

import pytest

from kernel_dvfs.native import toolchain
from kernel_dvfs.native.build import build
from kernel_dvfs.native.load import load


@pytest.fixture(scope="session")
def compiler():
    """Skips without a working toolchain."""
    try:
        return toolchain.find()
    except toolchain.MissingTool as missing:
        pytest.skip(f"native layer not testable: {missing}")


@pytest.fixture(scope="session")
def results(root, compiler, tmp_path_factory):
    """A results folder that holds the built backend `cpu`."""
    folder = tmp_path_factory.mktemp("results")
    build(root / "native", folder / "native", mode="on")
    return folder


@pytest.fixture(scope="session")
def cpu(results):
    """The C reference."""
    return load("cpu", results)


@pytest.fixture
def said():
    """A list that collects what a build says: pass `said.append`."""
    return []


@pytest.fixture
def sources(root, tmp_path):
    """A copy of native/ to change."""
    return shutil.copytree(root / "native", tmp_path / "elsewhere" / "native")
