"""Fixtures of a small study to search in."""

import json
from pathlib import Path

import pytest
from small_study import KERNELS, Folder

from kernel_dvfs.measurement import setup as setups


@pytest.fixture(scope="session")
def folder_of(setup_of):
    """folder_of(root, names): a study of these kernels in `root`."""
    setup = setup_of()

    def make(root: Path, names=KERNELS) -> Folder:
        targets = {"kernel": {name: setup.targets["kernel"][name] for name in names}, "pass": {}}
        # JSON-ready all through, as a setup that was read
        content = json.loads(json.dumps([setup.gpu, setup.workload, targets, setup.measurement]))
        return Folder(root, setups.store(str(root / "setup"), *content))

    return make


@pytest.fixture
def folder(folder_of, tmp_path):
    return folder_of(tmp_path)
