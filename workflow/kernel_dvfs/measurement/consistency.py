"""Do the numbers of a record agree with each other? They do not where a unit is wrong or one field was edited alone.

Works on the content of a record whose fields have been checked one by one already; reads no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

from kernel_dvfs.measurement.point import Judged, Point, reached_of, summary
from kernel_dvfs.measurement.window import RecordDevice, Window
from kernel_dvfs_clocks.clocks import AUTO, DOMAINS
from kernel_dvfs_clocks.shape import Count, Is


class CheckedPoint(Point):
    """A point's record, as far as its numbers must agree."""

    device: RecordDevice


class ComparedPoint(Judged):
    """A point as a comparison keeps it: without its windows."""

    by_difference: NotRequired[bool]  # of windows; true, or not there


class Comparison(TypedDict):
    """Auto and chosen clocks of one target, interleaved."""

    target: str
    repeat: Count
    session: str  # what was measured in one go
    # auto, chosen, chosen, auto; or of the whole iteration auto and chosen (measurement.again)
    points: Annotated[list[ComparedPoint], Is("a list of two or four points", lambda value: len(value) in (2, 4))]


# every GPU's clocks and power lie within these, so a number in GHz, kHz, W or uW is found out
_CLOCK_MHZ = (30, 20000)
_LEAST_POWER_MW = 1000
_MOST_POWER_MW = 1e7
_TEMPERATURE_C = (-50, 200)
_PERIOD_MS = (1, 10000)
# mean power may exceed a board's limit for a while, since the driver keeps it on average, and a limit may have been
# lowered after the measurement. A wrong unit is further off than this
LIMIT_FACTOR = 1.5
# where the counter is the whole module's, what it counts besides is not held by the GPU's limit
_MODULE_FACTOR = 2
_SAME = 1e-6
# of a window that is a difference
_PARTS: tuple[Literal["with_beginning", "beginning"], ...] = ("with_beginning", "beginning")
# launches are counted between whole batches inside a window
_LEAST_SHARE, _MOST_SHARE = 0.5, 1.05


def of_point(content: CheckedPoint) -> str:
    """Return what is wrong with a point's record, in words; "" where its numbers agree."""
    windows, wrong = content["windows"], ""
    most_mw = _most_mw(content["device"])
    for number, window in enumerate(windows):
        wrong = wrong or _of_window(f"windows[{number}].", window, most_mw)
    if wrong:
        return wrong
    groups: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        ("summary", content["summary"], summary(windows)),
        ("reached", content["reached"], reached_of(windows)),
    ]
    for group, recorded, expected in groups:
        for name, value in expected.items():
            if not _agree(recorded[name], value):
                return f"{group}.{name} is {recorded[name]}, but its windows give {value}"
    return of_summary("", cast("ComparedPoint", content | by_difference(windows)), content["device"])


def by_difference(windows: Sequence[Window]) -> dict[str, bool]:
    """Return {"by_difference": True} for a point of differences of windows; nothing for any other."""
    return {"by_difference": True} if any("with_beginning" in window for window in windows) else {}


def without_windows(point: Point) -> ComparedPoint:
    """Return a point as a comparison keeps it: the summary, and whether it is of differences."""
    rest = {name: value for name, value in point.items() if name != "windows"}
    return cast("ComparedPoint", rest | by_difference(point["windows"]))


def of_summary(where: str, point: ComparedPoint, device: RecordDevice, is_part: bool = False) -> str:
    """Return what is wrong with the summary and the clocks of a point, in words; "" where they agree.

    where: what precedes a field's name in the answer. is_part: of an iteration, which the power cap holds as a whole,
    so no limit of the board bounds what a part draws. Nor does one bound a difference, which multiplies the noise of
    its windows.
    """
    total, request = point["summary"], point["request"]
    if (request["policy"] == AUTO) != (request["core_mhz"] == request["mem_mhz"] == AUTO):
        return f"{where}request.policy is {request['policy']}, which its clocks are not"
    for domain in DOMAINS:
        if not _CLOCK_MHZ[0] <= point["reached"][domain] <= _CLOCK_MHZ[1]:
            return f"{where}reached.{domain} is {point['reached'][domain]}: no clock in MHz"
    limit_mw, period_ms = device["power_limit_mw"], device["counter_period_ms"]
    if not _PERIOD_MS[0] <= period_ms <= _PERIOD_MS[1] or device["counter_read_ms"] > period_ms:
        return f"device.counter_period_ms is {period_ms}, a read takes {device['counter_read_ms']}: no such counter"
    if limit_mw and not _LEAST_POWER_MW <= limit_mw <= _MOST_POWER_MW:
        return f"device.power_limit_mw is {limit_mw}: no limit in mW"
    most_mw = _MOST_POWER_MW if is_part or point.get("by_difference") else _most_mw(device)
    if not _LEAST_POWER_MW <= total["power_mw"] <= most_mw:
        return f"{where}summary.power_mw is {total['power_mw']}: no power of this GPU in mW"
    energy_mj = total["power_mw"] * total["time_us"] * 1e-6
    # means of products are not products of means, but nearly
    if not 0.9 * energy_mj <= total["energy_mj"] <= 1.1 * energy_mj:
        return f"{where}summary.energy_mj is {total['energy_mj']}, but power x time is {energy_mj}"
    return ""


def _most_mw(device: RecordDevice) -> float:
    limit_mw = device["power_limit_mw"]
    factor = LIMIT_FACTOR if device["energy_scope"] == "board" else _MODULE_FACTOR
    return factor * limit_mw if limit_mw else _MOST_POWER_MW


def _of_window(where: str, window: Window, most_mw: float) -> str:
    for part in _PARTS:
        if raw := window.get(part):
            power_mw = raw["energy_mj"] / raw["duration_s"]
            if not _LEAST_POWER_MW <= power_mw <= most_mw:
                return f"{where}{part} has {power_mw} mW: no power of this GPU"
    run_s = window["time_us"] * 1e-6
    busy_s = window["launches"] * run_s
    if not _LEAST_SHARE * window["duration_s"] - 2 * run_s <= busy_s <= _MOST_SHARE * window["duration_s"] + run_s:
        return f"{where}launches x time_us is {busy_s:g} s of its {window['duration_s']:g} s"
    if not all(_TEMPERATURE_C[0] <= celsius <= _TEMPERATURE_C[1] for celsius in window["temp_c"]):
        return f"{where}temp_c is {window['temp_c']}: no temperatures in degrees C"
    if window["cap_ns"] > _MOST_SHARE * window["duration_s"] * 1e9:
        return f"{where}cap_ns is {window['cap_ns']}, more than its {window['duration_s']:g} s"
    for domain in DOMAINS:
        if not _CLOCK_MHZ[0] <= window[domain][0] <= window[domain][2] <= _CLOCK_MHZ[1]:
            return f"{where}{domain} is {window[domain]}: no clocks in MHz"
    return ""


def _agree(value: float | None, expected: float | None) -> bool:
    if value is None or expected is None:
        return value is expected
    return abs(value - expected) <= _SAME * max(abs(value), abs(expected))
