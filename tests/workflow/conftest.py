"""The reduced study, complete once a session and copied for each test that changes it."""

import shutil
from pathlib import Path

import pytest
from reduced_study import clone, snakemake


@pytest.fixture(scope="session")
def finished(once) -> Path:
    """A clone in which the reduced study is complete. Not to be changed: use `study`."""
    return once("finished", lambda folder: snakemake(clone(folder / "clone"), "all")) / "clone"


@pytest.fixture
def study(finished, tmp_path) -> Path:
    """A copy of it, times of files included, to change."""
    directory = tmp_path / "clone"
    shutil.copytree(finished, directory, symlinks=True)
    return directory
