"""The reduced study, complete once a session and copied for each test that changes it."""

import shutil
from pathlib import Path

import pytest
from reduced_study import clone, snakemake


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A clone in which the reduced study is complete. Not to be changed: use `study`."""
    directory = clone(tmp_path_factory.mktemp("finished") / "clone")
    snakemake(directory, "all")
    return directory


@pytest.fixture
def study(finished, tmp_path) -> Path:
    """A copy of it, times of files included, to change."""
    directory = tmp_path / "clone"
    shutil.copytree(finished, directory, symlinks=True)
    return directory
