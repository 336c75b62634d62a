"""On the measured calibration table the choices are the published optima, in every scope and objective."""

import csv
import json

import numpy as np
import pytest

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import solve

SCOPE = {"local": "local", "global": "global", "coarse": "single"}
SLACK = {"strict": 0.0, "relaxed_2pct": 0.02, "relaxed_5pct": 0.05}
CASES = [f"{slack}_{scope}" for slack in SLACK for scope in SCOPE] + [f"edp_{scope}" for scope in SCOPE]


@pytest.fixture(scope="module")
def expected(measured):
    return json.loads(measured("rtx3080ti_calibration_expected.json").read_text())


@pytest.fixture(scope="module")
def table(measured):
    """kernel -> {(core, mem): (time_ms, energy_mj)}; rows of one setting are averaged."""
    rows = {}
    with measured("rtx3080ti_calibration.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["core_mhz_requested"] or "auto", row["mem_mhz"] or "auto")
            point = float(row["time_ms"]), float(row["energy_mj"])
            rows.setdefault(row["kernel"], {}).setdefault(key, []).append(point)
    return {kernel: {k: np.mean(v, axis=0) for k, v in own.items()} for kernel, own in rows.items()}


def problem_of(table, weights) -> Problem:
    time, energy, keys, baseline = [], [], [], []
    for own in table.values():
        points = np.array(list(own.values()))
        baseline.append(list(own).index(("auto", "auto")))
        weight = 1 if weights == "raw" else 1 / points[baseline[-1], 0]
        time.append(weight * points[:, 0])
        energy.append(weight * points[:, 1])
        keys.append(list(own))
    return Problem.of(time, energy, baseline, keys, targets=list(table))


@pytest.mark.parametrize("weights", ["raw", "equal_time"])
@pytest.mark.parametrize("case", CASES)
def test_answers_are_the_published_optima(table, expected, weights, case):
    problem = problem_of(table, weights)
    asked, scope = case.rsplit("_", 1)
    answer = solve(problem, SCOPE[scope], "edp" if asked == "edp" else "waste", SLACK.get(asked, 0.0))
    truth = expected["results"][weights]["answers"][case]
    saving = 100 * (1 - answer.energy / problem.baseline_energy)
    change = 100 * (answer.time / problem.baseline_time - 1)
    is_global_waste = scope == "global" and asked != "edp"
    assert answer.status == "optimal"
    assert saving == pytest.approx(truth["energy_saving_pct"], abs=2e-4 if is_global_waste else 1e-4)
    assert change == pytest.approx(truth["time_change_pct"], abs=1e-4)
    if is_global_waste:
        assert change <= 100 * SLACK[asked] + 1e-7
        assert answer.lower_bound_energy == pytest.approx(truth["lp_lower_bound_energy"], rel=1e-8)
    if "pair" in truth:
        assert "/".join(problem.keys[problem.key[answer.option[0]]]) == truth["pair"]


@pytest.mark.parametrize("weights", ["raw", "equal_time"])
def test_the_baseline_is_the_published_one(table, expected, weights):
    problem = problem_of(table, weights)
    truth = expected["results"][weights]["baseline"]
    assert problem.baseline_time == pytest.approx(truth["time"])
    assert problem.baseline_energy == pytest.approx(truth["energy"])
