"""The baseline table: share of time under the power cap, and drift, from the repeats of auto."""

import pytest

from kernel_dvfs.report.tables import baseline


def record(hour, energy_mj, cap_s):
    return {
        "run": {"started_utc": f"2026-11-21T{hour:02}:00:00Z"},
        "summary": {"energy_mj": energy_mj},
        "windows": [{"cap_ns": round(1e9 * cap_s), "duration_s": 5.0}],
    }


def test_drift_is_the_slope_of_the_energy_in_percent_per_hour():
    assert baseline._drift([record(hour, 100 + hour, 0) for hour in range(5)]) == pytest.approx(100 / 102)


@pytest.mark.parametrize("hours", [[], [1, 2], [3, 3, 3]])
def test_a_run_too_short_has_no_drift(hours):
    assert baseline._drift([record(hour, 100, 0) for hour in hours]) is None


def test_the_share_under_the_cap_is_over_all_windows():
    assert baseline._cap_share([record(0, 1, 5.0), record(0, 1, 0.0), record(0, 1, 2.5)]) == pytest.approx(0.5)
    assert baseline._cap_share([]) is None
