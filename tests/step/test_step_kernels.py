"""Why a kernel takes another time alone than in the step, as the table of kernels says it."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from kernel_dvfs_step.report import costs as step_costs
from kernel_dvfs_step.report.tables import step_kernels

ROW = {
    **dict.fromkeys(("name", "module", "section", "operation", "id", "verdict"), "x"),
    **{"launches": 1, "energy_j": 1.0, "time_ms": 1.0, "time_us": 1.0, "energy_mj": 1.0, "power_w": 1.0},
    **{
        "tflop_per_s": math.nan,
        "j_per_pflop": math.nan,
        "core_mhz": 1500.0,
        "is_paced": False,
        "is_power_modelled": False,
        "step_time_us": 100.0,
    },
}


@pytest.mark.parametrize(
    ("alone_us", "alone_mhz", "step_mhz", "cap_share", "why"),
    [
        (102.0, 1300.0, 1500.0, 1.0, ""),
        (110.0, 1300.0, 1500.0, 1.0, "power cap"),
        (110.0, 1500.0, 1500.0, 0.0, "not told by the record"),
        (110.0, 1980.0, 1980.0, 0.3, "not told by the record"),
        (110.0, 1900.0, 1980.0, 0.3, "power cap"),
        (110.0, 1300.0, math.nan, 1.0, "power cap"),
        (80.0, 1800.0, 1400.0, 0.2, "a higher clock, warm caches"),
        (80.0, 1410.0, 1400.0, 0.2, "warm caches"),
        (80.0, 1410.0, math.nan, 0.2, "warm caches, a clock of its own"),
        (80.0, math.nan, math.nan, 0.2, "warm caches, a clock of its own"),
    ],
)
def test_why_a_kernel_takes_another_time_alone(alone_us, alone_mhz, step_mhz, cap_share, why, monkeypatch):
    row = ROW | {"alone_us": alone_us, "alone_core_mhz": alone_mhz, "step_core_mhz": step_mhz}
    frame = pd.DataFrame([row | {"power_cap_share": cap_share}])
    monkeypatch.setattr(step_costs, "per_kernel", lambda results: frame)
    table = step_kernels(SimpleNamespace())
    assert list(table.expected) == [why]
    assert "module" in table
    monkeypatch.setattr(step_costs, "per_kernel", lambda results: frame.assign(module=""))
    assert "module" not in step_kernels(SimpleNamespace()), "of a compiled step none is known"
    assert ("step_core_mhz" in table) == (not math.isnan(step_mhz)) and list(table.step_time_us) == [100.0]


def test_a_product_says_its_rate_its_share_of_the_peak_and_its_joules_for_a_pflop(monkeypatch):
    rows = [
        {"study": "kernel", "target": name, "is_baseline": True, "launches_per_iteration": 3, "time_s": 2e-4}
        | {"energy_j": 0.11, "reached_core_mhz": 1500.0, "verdict": "ok"}
        for name in ("mm", "add")
    ]
    about = dict.fromkeys(("name", "module", "operation", "section"), "x") | {"step_time_s": 1e-4}
    kernels = {"mm": about | {"work": ["gemm", 9e10, 0.0, 0.0, 1e6]}, "add": about | {"work": None}}
    results = results_of(rows, kernels=kernels)
    monkeypatch.setattr(step_costs, "auto_records", lambda *_: [])
    table = step_kernels(results).set_index("id")
    # 9e10 FLOP in 200 us, of 540.7 x 1.98 TFLOP/s
    assert table.tflop_per_s["mm"] == pytest.approx(450) and math.isnan(table.tflop_per_s["add"])
    assert table.peak_percent["mm"] == pytest.approx(100 * 450 / (540.7 * 1.98))
    assert table.energy_per_pflop_j["mm"] == pytest.approx(0.11 / 9e10 * 1e15)
    results.gpu["name"] = "NVIDIA GeForce GTX 1080"
    assert "peak_percent" not in step_kernels(results), "no board of its type is known"
    results.workload["kernels"] = {"mm": about, "add": about}
    assert "tflop_per_s" not in step_kernels(results)


def results_of(rows, limit_w=None, **workload):
    gpu = {"name": "NVIDIA H200"} | ({"power_limit_mw": 1000 * limit_w} if limit_w else {})
    return SimpleNamespace(gpu=gpu, workload=workload, profile=pd.DataFrame(rows), folder=None)


def point(target, time_s, energy_j):
    return {"study": "pass", "target": target, "is_baseline": True, "time_s": time_s, "energy_j": energy_j}


COSTS = pd.DataFrame(
    [
        {"section": "forward", "time_ms": 3.0, "energy_j": 2.7, "is_paced": True},
        {"section": "forward", "time_ms": 2.0, "energy_j": 0.9, "is_paced": False},
        {"section": "backward", "time_ms": 5.0, "energy_j": 4.6, "is_paced": True},
        {"section": "optimiser", "time_ms": 1.0, "energy_j": 0.5, "is_paced": False},
    ]
)


def test_a_total_above_the_power_limit_is_scaled_to_the_sections_and_says_by_how_much():
    # 8.7 J in 11 ms are 791 W
    rows = [point("forward", 0.0052, 3.5), point("backward", 0.0054, 3.7), point("optimiser", 0.0009, 0.4)]
    found = step_costs.summed(results_of(rows, 700), COSTS)
    # of forward 3.2 ms and 2.6 J are left for what was paced, of backward all; the optimiser's kernel stays as it is
    assert found["time_ms"] == pytest.approx(3.2 + 2.0 + 5.4 + 1.0)
    assert found["energy_j"] == pytest.approx(2.6 + 0.9 + 3.7 + 0.5) and found["power_w"] < 700
    assert found["residual_time_percent"] == pytest.approx(100 * (8.6 / 8.0 - 1))
    assert found["residual_energy_percent"] == pytest.approx(100 * (6.3 / 7.3 - 1))


def test_where_a_paced_section_was_not_measured_the_whole_step_says_what_is_left():
    rows = [point("forward", 0.0052, 3.5), point("step", 0.0115, 7.6)]
    found = step_costs.summed(results_of(rows, 700), COSTS)
    assert (found["time_ms"], found["energy_j"]) == (pytest.approx(11.5), pytest.approx(7.6))
    # where nothing says what is left, a total is the limit at most
    assert step_costs.summed(results_of([point("forward", 0.0052, 3.5)], 700), COSTS)["power_w"] == pytest.approx(700)


@pytest.mark.parametrize(("limit_w", "costs"), [(800, COSTS), (None, COSTS), (700, COSTS.assign(is_paced=False))])
def test_a_total_below_the_limit_or_of_kernels_that_never_rested_is_what_they_add_up_to(limit_w, costs):
    found = step_costs.summed(results_of([point("forward", 0.0052, 3.5)], limit_w), costs)
    assert found == {"time_ms": pytest.approx(11), "energy_j": pytest.approx(8.7), "power_w": pytest.approx(8700 / 11)}


def test_kernels_left_out_have_their_time_in_the_step_at_the_power_left_of_their_section(monkeypatch):
    measured = [
        {"section": "forward", "time_ms": 6.0, "energy_j": 3.0, "power_w": 500.0},
        {"section": "backward", "time_ms": 8.0, "energy_j": 5.6, "power_w": 700.0},
    ]
    monkeypatch.setattr(step_costs, "per_kernel", lambda results: pd.DataFrame(measured))
    rows = [
        {"study": "pass", "target": "forward", "is_baseline": True, "time_s": 0.008, "energy_j": 4.1},
        {"study": "pass", "target": "backward", "is_baseline": True, "time_s": 0.009, "energy_j": 7.0},
    ]
    tail = [["a", "a", "forward", 1.5], ["b", "b", "forward", 0.4], ["c", "c", "backward", 0.9]]
    found = step_costs.tail(results_of(rows, tail=tail))
    # forward: 1.1 J in 2 ms is 550 W; backward: 1.4 J in 1 ms would be more than any kernel was measured at
    assert found == {"kernels": 3, "time_ms": pytest.approx(2.8), "energy_j": pytest.approx(0.55 * 1.9 + 0.7 * 0.9)}
    # 700 W is what a kernel drew; no mean of many lies above the limit
    assert step_costs.tail(results_of(rows, 600, tail=tail))["energy_j"] == pytest.approx(0.55 * 1.9 + 0.6 * 0.9)
    assert step_costs.tail(SimpleNamespace(workload={})) is None


def test_where_a_section_and_the_whole_cannot_be_repeated_what_was_left_out_draws_what_the_others_did(monkeypatch):
    measured = [{"section": "forward", "time_ms": 6.0, "energy_j": 3.0, "power_w": 500.0}]
    measured += [{"section": "backward", "time_ms": 8.0, "energy_j": 5.6, "power_w": 700.0}]
    monkeypatch.setattr(step_costs, "per_kernel", lambda results: pd.DataFrame(measured))
    rows = [{"study": "pass", "target": "forward", "is_baseline": True, "time_s": 0.008, "energy_j": 4.1}]
    tail = [["c", "c", "backward", 0.7]]
    found = step_costs.tail(results_of(rows, tail=tail))
    assert found["energy_j"] == pytest.approx(0.7 * 8.6 / 14)
