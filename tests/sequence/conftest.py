"""The iteration of GPT-3-xl on a simulated RTX 3080 Ti, measured once; and two of its layers, chosen for ten times as
fast."""

import pytest

from kernel_dvfs.profile import aggregate
from kernel_dvfs.profile.store import read_profile, write_profile
from kernel_dvfs_clocks.clocks import sweep_pairs
from kernel_dvfs_deploy.sequence.launches import read_sequence

LAYERS = 2


@pytest.fixture(scope="session")
def whole_profile(setup_of, config, once, earlier_board):
    """Path of the profile of a sweep of all kernels, 57 pairs."""

    def sweep(folder):
        setup = setup_of(gpu_overrides=earlier_board)
        pairs, _ = sweep_pairs(setup.gpu["spec"]["clocks"], config()["grid"])
        aggregate.from_bench(setup, pairs, 10, str(folder / "profile.parquet"), ("kernel",))

    return once("sequence-profile", sweep) / "profile.parquet"


@pytest.fixture(scope="session")
def iteration_profile(whole_profile, once):
    """Path of the same profile with each layer's kernels launched twice instead of 24 times."""

    def shorten(folder):
        whole = read_profile(whole_profile)
        columns = {name: whole.table[name].to_pylist() for name in whole.table.column_names}
        launches = "launches_per_iteration"
        columns[launches] = [min(LAYERS, count) for count in columns[launches]]
        about = (whole.metadata[name] for name in ("gpu", "workload", "settings"))
        write_profile(folder / "two-layers.parquet", columns, *about)

    return once("sequence-two-layers", shorten) / "two-layers.parquet"


@pytest.fixture(scope="session")
def iteration(iteration_profile):
    return read_sequence(iteration_profile).sequence


@pytest.fixture(scope="session")
def whole_iteration(whole_profile):
    return read_sequence(whole_profile).sequence
