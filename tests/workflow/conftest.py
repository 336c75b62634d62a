"""The reduced study and a step's beside fake boards, complete once a session and copied for tests that change them."""

import shutil
from pathlib import Path

import pytest
from real_study import Real, Stepped
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


@pytest.fixture(scope="session")
def finished_step(once, fake_library) -> Stepped:
    """A clone in which the study of a captured step is complete, and its boards. Not to be changed: use `stepped`."""
    folder = once("step", lambda folder: Stepped.unmeasured(folder, fake_library).run("all"))
    return Stepped.found(folder, fake_library)


@pytest.fixture
def stepped(finished_step, fake_library, tmp_path) -> Stepped:
    """A copy of it with boards of its own, to change."""
    shutil.copytree(finished_step.directory, tmp_path / "clone", symlinks=True)
    return Stepped.beside_boards(tmp_path, fake_library)


@pytest.fixture
def fresh(fake_library, tmp_path) -> Real:
    """A clone beside boards in which nothing is measured."""
    return Real.unmeasured(tmp_path, fake_library)
