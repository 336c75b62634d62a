"""The iteration of GPT-3-xl on the simulated RTX 3080 Ti, measured once."""

import pytest

from kernel_dvfs.gpu.clocks import sweep_pairs
from kernel_dvfs.profile import aggregate
from kernel_dvfs.sequence.launches import read_sequence


@pytest.fixture(scope="session")
def iteration_profile(setup_of, config, tmp_path_factory):
    """Path of the profile of a sweep of all kernels, 57 pairs."""
    setup = setup_of()
    pairs, _ = sweep_pairs(setup.gpu["spec"]["clocks"], config()["grid"])
    path = tmp_path_factory.mktemp("iteration") / "profile.parquet"
    aggregate.from_bench(setup, pairs, 10, str(path), ("kernel",))
    return path


@pytest.fixture(scope="session")
def iteration(iteration_profile):
    return read_sequence(iteration_profile).sequence
