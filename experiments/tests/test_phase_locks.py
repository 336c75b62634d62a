"""The lock of a phase: by hand, and the kept table is what the script gives today."""

import pytest

from kernel_dvfs_serving.steps import StepModel


@pytest.fixture(scope="module")
def locks(script):
    return script("experiments/searches/phase_locks.py")


def test_the_lock_is_the_least_energy_within_the_limit(locks):
    own = {900: (1.31, 50.0), 1200: (1.09, 61.0), 1500: (1.021, 83.0), 1980: (1.0, 97.0)}
    assert [locks.locked(own, slack) for slack in (0.0, 0.02, 0.021, 0.1, 0.5)] == [1980, 1980, 1500, 1200, 900]


@pytest.mark.slow
def test_the_kept_table_is_todays(locks, root):
    lines = (root / "experiments/results/phase_locks.txt").read_text("utf-8").splitlines()
    row = next(line for line in lines if line.startswith("mixtral-8x7b, 2    decode 8 "))
    own = locks.steps(StepModel(locks.GPU, "mixtral-8x7b", 2), 8)
    watts, energy_j = own[max(own)][1] / own[max(own)][0] / 2, own[max(own)][1]
    for slack in locks.SLACKS:
        mhz = locks.locked(own, slack)
        assert f"{mhz} {100 * (own[mhz][1] / energy_j - 1):+8.1f} %" in row
    assert f"{watts:.0f} " in row
