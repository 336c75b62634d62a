"""How a value of a table is shown, from the name of its column, in which the unit stands."""

import math

NOTHING = "–"
MINUS = "−"  # as wide as a plus
_UNITS = {
    "percent": "%",
    "pp": "points",
    "mhz": "MHz",
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "mj": "mJ",
    "j": "J",
    "w": "W",
    "share": "share",
}
# words that a practitioner knows by another name than the column's
_TITLES = {
    "row": "row",
    "id": "id in schedules",
    "core_mhz": "core, MHz",
    "mem_mhz": "memory, MHz",
    "reached_core_mhz": "core ran at, MHz",
    "reached_mem_mhz": "memory ran at, MHz",
    "time_change_percent": "time, %",
    "energy_change_percent": "energy, %",
    "slack_percent": "slower by at most, %",
    "waste_j": "waste left, J",
    "optimism_pp": "fresh less claimed, points",
    "repeats_to_decide": "repeats that would decide",
    "n": "measurements",
    "pairs": "clock pairs",
    "number": "no.",
    "ours": "found here",
    "tensor_energy_pj_per_flop": "tensor core, pJ/FLOP",
    "is_default": "of the spec",
    "kernel_fresh_energy_change_percent": "energy, fresh, %",
    "kernel_fresh_time_change_percent": "time, fresh, %",
    "kernel_claimed_energy_change_percent": "energy, claimed, %",
    "kernel_claimed_time_change_percent": "time, claimed, %",
    "baseline_time_s": "time at auto, s",
    "baseline_energy_j": "energy at auto, J",
    "edp_time_change_percent": "time by EDP, %",
    "edp_energy_change_percent": "energy by EDP, %",
    "pass_time_change_percent": "time, clocks by pass, %",
    "pass_energy_change_percent": "energy, clocks by pass, %",
}
_SIGNED = ("change", "difference", "optimism", "cost", "low", "high", "drift")


def number(raw: str):
    """A finite number, or None for anything else."""
    try:
        value = float(raw)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def title(column: str) -> str:
    """A heading: `fresh_time_change_percent` is "fresh time, %"."""
    if column in _TITLES:
        return _TITLES[column]
    words = column.split("_")
    unit = _UNITS.get(words[-1]) if len(words) > 1 else None
    words = [word for word in (words[:-1] if unit else words) if word != "change"]
    return " ".join(words) + (f", {unit}" if unit else "")


def shown(column: str, raw: str) -> str:
    """The value as read by a person; a dash for nothing."""
    if raw == "":
        return NOTHING
    if raw in ("True", "False"):
        return "yes" if raw == "True" else "no"
    value = number(raw)
    if value is None:
        return raw
    words = column.split("_")
    if words[-1] in ("percent", "pp"):
        return signed(value) if any(word in _SIGNED for word in words) or words[-1] == "pp" else f"{value:.2f}"
    if words[-1] == "mhz" or (value == int(value) and "." not in raw and "e" not in raw):
        return f"{value:.0f}"
    return plain(value)


def signed(value: float, digits: int = 2) -> str:
    """A change: `−7.23`, `+0.24`; no sign on what rounds to zero."""
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}".replace("-", MINUS) if rounded else f"{0:.{digits}f}"


def plain(value: float) -> str:
    """Four digits that count, no exponent where it can be helped."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}".replace("-", MINUS)
    digits = 0 if not value or abs(value) >= 1000 else 3 - math.floor(math.log10(abs(value)))
    return f"{value:.{digits}f}".replace("-", MINUS)
