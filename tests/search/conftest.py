"""Fixtures of a small study by clock."""

import json
from pathlib import Path

import pytest
from small_study import KERNELS, LAUNCHES, Board, Folder

from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.search import loop


@pytest.fixture(scope="session")
def folder_of(setup_of):
    """`folder_of(root, names)`: a study of these kernels in `root`."""
    setup = setup_of()

    def make(root: Path, names=tuple(KERNELS)) -> Folder:
        kernels = {name: setup.targets["kernel"][name] for name in names}
        assert all(LAUNCHES[name] == about["launches_per_iteration"] for name, about in kernels.items())
        launches = [[name, about["launches_per_iteration"]] for name, about in kernels.items()]
        passes = {"forward": launches[:2], "backward": launches[2:]}
        # JSON-ready all through, as a setup that was read
        targets = {"kernel": kernels, "pass": passes}
        content = json.loads(json.dumps([setup.gpu, setup.workload, targets, setup.measurement]))
        return Folder(root, setups.store(str(root / "setup"), *content))

    return make


@pytest.fixture
def folder(folder_of, tmp_path):
    return folder_of(tmp_path)


@pytest.fixture
def board(monkeypatch) -> Board:
    """The board that a study finds."""
    made = Board()
    monkeypatch.setattr(loop, "open_visitor", lambda setup, path: made)
    monkeypatch.setattr(loop, "new_session", lambda setup, path: None)
    return made
