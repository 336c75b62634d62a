"""The iteration of GPT-3-xl on a simulated RTX 3080 Ti, measured once; and two of its layers, chosen for ten times as
fast."""

import pytest

from kernel_dvfs.profile import aggregate
from kernel_dvfs.profile.store import read_profile, write_profile
from kernel_dvfs_clocks.clocks import sweep_pairs
from kernel_dvfs_deploy.sequence.launches import read_sequence

LAYERS = 2


@pytest.fixture(scope="session")
def whole_profile(setup_of, config, tmp_path_factory, earlier_board):
    """Path of the profile of a sweep of all kernels, 57 pairs."""
    setup = setup_of(gpu_overrides=earlier_board)
    pairs, _ = sweep_pairs(setup.gpu["spec"]["clocks"], config()["grid"])
    path = tmp_path_factory.mktemp("iteration") / "profile.parquet"
    aggregate.from_bench(setup, pairs, 10, str(path), ("kernel",))
    return path


@pytest.fixture(scope="session")
def iteration_profile(whole_profile):
    """Path of the same profile with each layer's kernels launched twice instead of 24 times."""
    whole = read_profile(whole_profile)
    columns = {name: whole.table[name].to_pylist() for name in whole.table.column_names}
    launches = "launches_per_iteration"
    columns[launches] = [min(LAYERS, count) for count in columns[launches]]
    path = whole_profile.with_name("two-layers.parquet")
    write_profile(path, columns, whole.metadata["gpu"], whole.metadata["workload"], whole.metadata["settings"])
    return path


@pytest.fixture(scope="session")
def iteration(iteration_profile):
    return read_sequence(iteration_profile).sequence


@pytest.fixture(scope="session")
def whole_iteration(whole_profile):
    return read_sequence(whole_profile).sequence
