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
