"""Shared fixtures: where the measured data of the developers lie, if they are there at all."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


def shared_file(relative: str) -> Path:
    """A file of the developers' measured data; skips the test where the folder is absent."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"measured data not found at ../shared/data/{relative}")
    return path


@pytest.fixture(scope="session")
def measured():
    """`measured("x.csv")` is the path of a measured table, or a skip."""
    return lambda name: shared_file(f"measured/{name}")


@pytest.fixture(scope="session")
def shared():
    """`shared("workload/x.csv")` is the path of a shared file, or a skip."""
    return shared_file


@pytest.fixture(scope="session")
def config(root):
    """The shipped configuration, a fresh copy each call: `config(batch=20)`."""
    from kernel_dvfs.study import load

    return lambda **changed: load(root / "config.yaml") | changed


@pytest.fixture(scope="session")
def setup_of(config, tmp_path_factory):
    """The setup of a simulated study: `setup_of()`, `setup_of(gpu="rtx_a4000")`."""
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.study import plan

    quick = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}
    return lambda **changed: read(plan(config(**(quick | changed)), str(tmp_path_factory.mktemp("setup"))).setup)
