"""How long a study of a real GPU takes."""

from kernel_dvfs.layout import LOCKING_REPEATS

# measurement settings of a point in a comparison
COMPARED = {"windows": 1, "max_windows": 1}

_SETTLE_S = 0.5  # until the clocks have settled
_PERIOD_S = 0.1  # up to which a window waits for its first edge
_POINTS_COMPARED = 4  # auto, chosen, chosen, auto


def study_s(study, measurement: dict, validation_repeats: int, can_compare: bool) -> dict:
    """{part: seconds} at the least number of windows: the sweep, its fresh validation, the schedule at other sizes."""
    sweep = (len(study.kernels) + len(study.passes)) * len(study.points)
    parts = {"sweep": sweep * point_s(measurement)}
    if can_compare:
        compared_s = comparison_s(measurement)
        repeats_s = validation_repeats * compared_s
        parts["locking"] = 3 * LOCKING_REPEATS * compared_s
        parts["validation"] = len(study.kernels) * repeats_s
        parts["other sizes"] = sum(len(variant.kernels) for variant in study.variants.values()) * repeats_s
    return parts


def comparison_s(measurement: dict) -> float:
    """A fresh repeat of one kernel at least."""
    return _POINTS_COMPARED * point_s(measurement | COMPARED)


def point_s(measurement: dict) -> float:
    """A point at least."""
    return measurement["warmup_s"] + _SETTLE_S + measurement["windows"] * (measurement["window_s"] + _PERIOD_S)
