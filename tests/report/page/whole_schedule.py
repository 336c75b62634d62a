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
