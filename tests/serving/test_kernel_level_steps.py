"""A clock for each kernel of a step: never slower, never dearer, and close to what the exact choice finds."""

import random

import numpy as np
import pytest

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import solve
from kernel_dvfs_serving.steps import KNOTS, engine_at


@pytest.fixture
def model(instances):
    return instances(4)


@pytest.mark.parametrize("core_mhz", [800, 1200, 1605, 1980])
def test_no_step_is_slower_or_dearer_than_at_one_clock(model, core_mhz):
    draw = random.Random(core_mhz)
    one, each = model.at(core_mhz), engine_at(model, core_mhz)
    for _ in range(150):
        tokens = draw.choice([1, 7, 40, 200, 512, 3000])
        asked = (tokens, draw.choice([0, tokens**2 / 2]), draw.choice([0, 1000, 200_000]))
        for ours, theirs in zip(each.step(*asked), one.step(*asked)):
            assert ours <= theirs * (1 + 1e-12)
        run = (draw.randint(1, 256), draw.randint(1, 400_000), draw.randint(1, 500))
        for ours, theirs in zip(each.run(*run), one.run(*run)):
            assert ours <= theirs * (1 + 1e-12)


def test_it_saves_within_a_percent_of_the_exact_choice(model):
    """The exact least energy of this project's choice over all clocks of every row, no time lost."""
    core_mhz, knot = 1605, abs(KNOTS - 64).argmin()
    own = [(name, kernel, count) for name, kernel, count in model.token_kernels[knot] if count]
    options = [[model.launch(kernel, mhz) for mhz in model.clocks] for _, kernel, _ in own]
    time_s, energy_j = (
        [count * np.array([option[part] for option in row]) for row, (_, _, count) in zip(options, own)]
        for part in (0, 1)
    )
    at = model.clocks.index(core_mhz)
    exact = solve(Problem.of(time_s, energy_j, [at] * len(own)), "global", "waste", effort=0)
    tokens = int(KNOTS[knot])
    one, each = (engine_at(model, core_mhz, level).step(tokens, 0, 0)[1] / model.tp for level in (False, True))
    assert exact.energy <= each * (1 + 1e-9) < one
    assert one - each > 0.8 * (one - exact.energy)
