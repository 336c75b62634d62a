"""A schedule as `kernel-dvfs choose` writes one, for tests that need one of a few clocks."""

from kernel_dvfs.layout import SCHEDULE


def whole_schedule(**changed):
    """A schedule with all its fields, some changed."""
    return {
        "schema": SCHEDULE,
        "gpu": {"kind": "simulated", "name": "G", "slug": "g"},
        "workload": {"name": "w"},
        "granularity": "kernel",
        "scope": "global",
        "objective": "waste",
        "slack_percent": 0,
        "weights": "counts",
        "ties": "tied",
        "status": "optimal",
        "proof": "tried all",
        "baseline_time": 1.0,
        "baseline_energy": 1.0,
        "time": 1.0,
        "energy": 0.95,
        "time_change_percent": 0.0,
        "energy_change_percent": -5.0,
        "edp_change_percent": -5.0,
        "lower_bound_energy": 0.95,
        "waste_j": 0.0,
        "baseline_waste_j": 0.05,
        "walk": None,
        "pooled": [],
        "apart": [],
        "targets": {},
    } | changed


def whole_walk(**changed):
    """What a schedule says of the walk that it was shown by, some of it changed."""
    return {
        "over_percent": 10,
        "blocks": 12,
        "schedules": 61,
        "passed": 40,
        "time_bound_percent": -0.02,
        "time_se_percent": 0.03,
        "energy_se_percent": 0.05,
        "reserve_percent": 0.05,
        "proposed_energy_percent": -5.2,
        "another_minute": 0.002,
    } | changed
