"""On small instances every scope and objective gives what trying every combination gives."""

import itertools

import numpy as np
import pytest
from brute import best, score
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import OBJECTIVES, SCOPES, solve

positive = st.floats(0.01, 100, allow_subnormal=False)
coarse = st.integers(1, 6).map(float)  # few values: exact ties in time, energy and totals


@st.composite
def problems(draw, values):
    count = draw(st.integers(1, 4))
    time, energy, keys, baseline = [], [], [], []
    for _ in range(count):
        size = draw(st.integers(1, 6))
        time.append(draw(st.lists(values, min_size=size, max_size=size)))
        energy.append(draw(st.lists(values, min_size=size, max_size=size)))
        keys.append(draw(st.permutations(range(6)))[:size])
        baseline.append(draw(st.integers(0, size - 1)))
    return Problem.of(time, energy, baseline, keys)


@pytest.mark.parametrize(("scope", "objective"), list(itertools.product(SCOPES, OBJECTIVES)))
@pytest.mark.parametrize("values", [positive, coarse], ids=["any", "ties"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_combination_is_better(scope, objective, values, data):
    problem = data.draw(problems(values))
    slack = data.draw(st.sampled_from([-0.3, -0.05, 0.0, 0.02, 0.3]))
    answer, truth = solve(problem, scope, objective, slack), best(problem, scope, objective, slack)
    if truth is None:
        assert answer.status == "infeasible"
        assert answer.option is None
        return
    assert answer.status == "optimal"
    assert score(problem, scope, objective, answer.option) == pytest.approx(truth[0], rel=1e-9)
    assert answer.lower_bound_energy <= answer.energy * (1 + 1e-9)
    assert answer.time == pytest.approx(problem.time[answer.option].sum())
    if values is coarse:  # whole numbers: equal scores are really equal, and less time wins
        assert answer.time == pytest.approx(truth[1], rel=1e-9)
    if scope == "single":
        assert len(set(problem.key[answer.option])) == 1


@settings(max_examples=25, deadline=None)
@given(problem=problems(positive), slack=st.sampled_from([-0.05, 0.0, 0.1]), seed=st.integers(0, 99))
def test_relabelling_targets_gives_the_same_totals(problem, slack, seed):
    order = np.random.default_rng(seed).permutation(len(problem.targets))
    bounds = np.append(problem.first, len(problem.time))
    own = [slice(bounds[k], bounds[k + 1]) for k in order]
    other = Problem.of(
        [problem.time[s] for s in own],
        [problem.energy[s] for s in own],
        [problem.baseline[k] - bounds[k] for k in order],
    )
    for objective in OBJECTIVES:
        one, two = solve(problem, "global", objective, slack), solve(other, "global", objective, slack)
        assert one.status == two.status
        if one.status == "optimal":
            assert (one.time, one.energy) == pytest.approx((two.time, two.energy), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(problem=problems(positive), slack=st.sampled_from([0.0, 0.05]))
def test_a_wider_scope_never_costs_energy(problem, slack):
    single, local, wide = (solve(problem, scope, "waste", slack) for scope in SCOPES)
    assert wide.energy <= local.energy * (1 + 1e-9)
    if single.status == "optimal":
        assert wide.energy <= single.energy * (1 + 1e-9)
