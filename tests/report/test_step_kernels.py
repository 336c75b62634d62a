"""Why a kernel takes another time alone than in the step, as the table of kernels says it."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from kernel_dvfs.report import step_costs
from kernel_dvfs.report.measured_tables import step_kernels

ROW = {
    **dict.fromkeys(("name", "module", "section", "operation", "id", "verdict"), "x"),
    **{"launches": 1, "energy_j": 1.0, "time_ms": 1.0, "time_us": 1.0, "energy_mj": 1.0, "power_w": 1.0},
    **{"core_mhz": 1500.0, "is_paced": False, "is_power_modelled": False, "step_time_us": 100.0},
}


@pytest.mark.parametrize(
    ("alone_us", "alone_mhz", "step_mhz", "cap_share", "why"),
    [
        (102.0, 1300.0, 1500.0, 1.0, ""),
        (110.0, 1300.0, 1500.0, 1.0, "power cap"),
        (110.0, 1500.0, 1500.0, 0.0, "not told by the record"),
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
    assert ("step_core_mhz" in table) == (not math.isnan(step_mhz)) and list(table.step_time_us) == [100.0]


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
    found = step_costs.tail(SimpleNamespace(workload={"tail": tail}, profile=pd.DataFrame(rows)))
    # forward: 1.1 J in 2 ms is 550 W; backward: 1.4 J in 1 ms would be more than any kernel was measured at
    assert found == {"kernels": 3, "time_ms": pytest.approx(2.8), "energy_j": pytest.approx(0.55 * 1.9 + 0.7 * 0.9)}
    assert step_costs.tail(SimpleNamespace(workload={})) is None


def test_where_a_section_and_the_whole_cannot_be_repeated_what_was_left_out_draws_what_the_others_did(monkeypatch):
    measured = [{"section": "forward", "time_ms": 6.0, "energy_j": 3.0, "power_w": 500.0}]
    measured += [{"section": "backward", "time_ms": 8.0, "energy_j": 5.6, "power_w": 700.0}]
    monkeypatch.setattr(step_costs, "per_kernel", lambda results: pd.DataFrame(measured))
    rows = [{"study": "pass", "target": "forward", "is_baseline": True, "time_s": 0.008, "energy_j": 4.1}]
    tail = [["c", "c", "backward", 0.7]]
    found = step_costs.tail(SimpleNamespace(workload={"tail": tail}, profile=pd.DataFrame(rows)))
    assert found["energy_j"] == pytest.approx(0.7 * 8.6 / 14)
