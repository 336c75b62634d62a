"""What a captured step would take otherwise: under a power limit, with its core clock locked, on another board.

Where a study has set clocks, from its own points of the step. Where it measured auto alone, from the simulated board of
the same type, whose kernels are held to what each took: a forecast, and every row of it says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.forecast import AS_MODELLED, BY_CORE, BY_MEMORY, KernelAtAuto, held_load, settled
from kernel_dvfs.workload.workload import WHOLE
from kernel_dvfs_clocks.clocks import supported_core_mhz
from kernel_dvfs_step.report import costs as step_costs

if TYPE_CHECKING:
    from kernel_dvfs.report.results import Results

MEASURED, BETWEEN, FORECAST = "measured", "between measured points", "forecast"
# the row that says how far a forecast is from what was measured: of auto itself
HELD = "nothing: how well the forecast is held to auto"
# shares of the power limit and of the highest clock that are looked at
_LIMITS, _LOCKS = (0.9, 0.8, 0.7, 0.6, 0.5), (0.9, 0.8, 0.7, 0.6, 0.5)
# a forecast's band: what kernels without products wait for, and how much of the board's power stands whatever runs
_BOUNDS, _STANDING = (AS_MODELLED, BY_CORE, BY_MEMORY), (1.0, 0.8, 1.2)
_NORMAL = 1.96
_ENDS = [f"{quantity}_change_{end}_percent" for quantity in ("energy", "time") for end in ("least", "most")]
_CHANGES = ["energy_change_percent", "time_change_percent", "known", *_ENDS]
LIMIT_COLUMNS = ["what", *_CHANGES, "power_w"]
BOARD_COLUMNS = ["board", "time_ms", "energy_j", "power_w", *_CHANGES]


class ForecastRange(NamedTuple):
    """A change, percent of auto, and the ends that it may have."""

    at: float
    least: float
    most: float


class _Point(NamedTuple):
    """The whole step at a clock pair."""

    core_mhz: float | None  # asked for; None: auto
    time_s: float
    energy_j: float
    time_error: float  # standard error, of the value; NaN: nothing tells
    energy_error: float

    @property
    def power_w(self) -> float:
        return self.energy_j / self.time_s


def limits(results: Results) -> list[dict[str, Any]]:
    """Return rows of power limits and locks of the core: what, time and energy of a step against auto, and how that is
    known; none where the whole step was not measured, or nothing but auto was and no simulated board is of its type."""
    auto, locked = _points(results)
    if auto is None:
        return []
    limit_w = step_costs.power_limit_w(results) or auto.power_w
    if locked:
        rows = [*_measured_locks(auto, locked), *_limits_between(auto, locked, limit_w)]
        # points of a simulated board are its forecast, however many there are
        return [row | {"known": FORECAST} for row in rows] if results.gpu.get("kind") == "simulated" else rows
    return _forecast_limits(results, auto, limit_w)


def boards(results: Results) -> list[dict[str, Any]]:
    """Return rows of boards, this one first: time and energy of a step; of all others a forecast, held to this one's
    kernels; none where the whole step was not measured, or no simulated board is of this one's type."""
    auto, _ = _points(results)
    spec = step_costs.spec_of(results)
    if auto is None or spec is None:
        return []
    items = next(iter((results.workload.get("items") or {}).items()), None)

    def row(board: str, time_s: ForecastRange | None, energy_j: ForecastRange | None, how: str) -> dict[str, Any]:
        time_ms = 1e3 * auto.time_s * (1 + (time_s.at if time_s else 0.0) / 100)
        joule = auto.energy_j * (1 + (energy_j.at if energy_j else 0.0) / 100)
        columns = {"board": board, "time_ms": time_ms, "energy_j": joule, "power_w": 1e3 * joule / time_ms}
        if items:
            columns[f"energy_per_{items[0]}_mj"] = 1e3 * joule / items[1]
        return columns | _change_columns(energy_j, time_s, how)

    rows = [row(results.gpu["name"], None, None, MEASURED)]
    runs = [(load, settled(scaled, load)) for scaled, load in _loads(results, spec)]
    for other_spec in map(gpu_spec.resolve, gpu_spec.names()):
        if other_spec["name"] != spec["name"]:
            time, energy = _changes([(settled(other_spec, load), before) for load, before in runs])
            rows.append(row(other_spec["name"], time, energy, FORECAST))
    return [rows[0], *sorted(rows[1:], key=lambda board: board["energy_j"])]


# --- from points ------------------------------------------------------------------------------------------------------


def _points(results: Results) -> tuple[_Point | None, list[_Point]]:
    """Return (the whole step at auto, at its locked core clocks, rising), all at the memory clock that auto runs."""
    profile = results.profile
    rows = profile[(profile.study != "kernel") & (profile.target == WHOLE)]
    at_auto = rows[rows.is_baseline]
    if at_auto.empty:
        return None, []

    def point(row: Any) -> _Point:
        errors = (row.time_se_s / row.time_s, row.energy_se_j / row.energy_j)
        return _Point(
            None if math.isnan(row.core_mhz) else row.core_mhz,
            *(row.time_s, row.energy_j),
            *(float(error) if error is not None else math.nan for error in errors),
        )

    auto = next(at_auto.itertuples())
    beside = rows[~rows.is_baseline & rows.core_mhz.notna()]
    same = beside[beside.mem_mhz.isna() | (beside.mem_mhz == auto.reached_mem_mhz)]
    return point(auto), sorted(map(point, same.itertuples()), key=lambda locked: locked.core_mhz or 0.0)


def _measured_locks(auto: _Point, locked: Sequence[_Point]) -> list[dict[str, Any]]:
    rows = []
    for point in reversed(locked):
        time, energy = (
            _with_error(now, before, math.hypot(error, auto_error))
            for now, before, error, auto_error in (
                (point.time_s, auto.time_s, point.time_error, auto.time_error),
                (point.energy_j, auto.energy_j, point.energy_error, auto.energy_error),
            )
        )
        rows.append(_row(f"core locked at {point.core_mhz:g} MHz", time, energy, point.power_w, MEASURED))
    return rows


def _with_error(now: float, before: float, error: float) -> ForecastRange:
    change, half = 100 * (now / before - 1), 100 * _NORMAL * error * now / before
    return ForecastRange(change, change - half, change + half)


def _limits_between(auto: _Point, locked: Sequence[_Point], limit_w: float) -> list[dict[str, Any]]:
    """Return rows of power limits: one holds a board between two clocks, so that its mean power is the limit."""
    by_power = sorted([*locked, auto], key=lambda point: point.power_w)
    rows = []
    for wanted_w in (share * limit_w for share in _LIMITS):
        pair = next(((a, b) for a, b in pairwise(by_power) if a.power_w <= wanted_w < b.power_w), None)
        if pair is None or wanted_w >= auto.power_w:
            continue
        low, high = pair
        share = (wanted_w - low.power_w) / (high.power_w - low.power_w)
        # of the time in the upper state: work done adds up, as does energy
        time_s = 1 / (share / high.time_s + (1 - share) / low.time_s)
        energy_j = wanted_w * time_s
        time, energy = (
            ForecastRange(100 * (at / before - 1), *sorted(100 * (end / before - 1) for end in ends))
            for at, before, ends in (
                (time_s, auto.time_s, (low.time_s, high.time_s)),
                (energy_j, auto.energy_j, (low.energy_j, high.energy_j)),
            )
        )
        rows.append(_row(f"power limit of {wanted_w:.0f} W", time, energy, wanted_w, BETWEEN))
    return rows


# --- forecast ---------------------------------------------------------------------------------------------------------


def _loads(results: Results, spec: dict[str, Any]) -> Iterable[tuple[dict[str, Any], list[tuple[Any, int]]]]:
    """Return (spec, load) of each end of the band, as modelled first; every load is held to what was measured on its
    spec."""
    costs = step_costs.per_kernel(results)
    total = step_costs.summed(results, costs)
    # what rested draws in the step what its section leaves it
    longer, more = (1 + total.get(f"residual_{quantity}_percent", 0.0) / 100 for quantity in ("time", "energy"))
    seen = []
    for row in costs.itertuples():
        slower, dearer = (longer, more) if row.is_paced else (1.0, 1.0)
        core_mhz = None if math.isnan(row.core_mhz) else row.core_mhz
        time_s = 1e-6 * row.time_us * slower
        seen.append(KernelAtAuto(row.work, int(row.launches), time_s, row.power_w * dearer / slower, core_mhz))
    for standing in _STANDING:
        static_w = {mhz: standing * watts for mhz, watts in spec["memory"]["static_w"].items()}
        scaled = spec | {"memory": spec["memory"] | {"static_w": static_w}}
        for bound in _BOUNDS:
            yield scaled, held_load(seen, scaled, bound)


def _forecast_limits(results: Results, auto: _Point, limit_w: float) -> list[dict[str, Any]]:
    spec = step_costs.spec_of(results)
    if spec is None:
        return []
    runs = [(scaled, load, settled(scaled, load)) for scaled, load in _loads(results, spec)]
    grid, highest = supported_core_mhz(spec["clocks"]), spec["clocks"]["auto_core_mhz"]

    def row(what: str, **request: Any) -> dict[str, Any] | None:
        states = [(settled(scaled, load, **request), before) for scaled, load, before in runs]
        if all(abs(now.time_s / before.time_s - 1) < 1e-6 for now, before in states):
            return None  # nothing changes
        time, energy = _changes(states)
        return _row(what, time, energy, states[0][0].power_w, FORECAST)

    held = _row(HELD, *_changes([(now, auto) for _, _, now in runs]), runs[0][2].power_w, FORECAST)
    rows = []
    for share in _LOCKS:
        mhz = min(grid, key=lambda clock_mhz: abs(clock_mhz - share * highest))
        rows.append(row(f"core locked at {mhz} MHz", core_mhz=mhz))
    for share in _LIMITS:
        # the mean power that the board's own limit leaves lies a little below it
        rows.append(row(f"power limit of {share * limit_w:.0f} W", cap_w=share * spec["governor"]["cap_w"]))
    return [held, *filter(None, rows)]


def _changes(states: Sequence[tuple[Any, Any]]) -> tuple[ForecastRange, ForecastRange]:
    """Return the changes of time and energy, from (now, before) at each end of the band."""
    time = _range(100 * (now.time_s / before.time_s - 1) for now, before in states)
    energy = _range(100 * (now.time_s * now.power_w / (before.time_s * before.power_w) - 1) for now, before in states)
    return time, energy


def _range(values: Iterable[float]) -> ForecastRange:
    """Return the first of them, and their ends."""
    changes = list(values)
    return ForecastRange(changes[0], min(changes), max(changes))


def _row(what: str, time: ForecastRange, energy: ForecastRange, power_w: float, how: str) -> dict[str, Any]:
    return {"what": what} | _change_columns(energy, time, how) | {"power_w": power_w}


def _change_columns(energy: ForecastRange | None, time: ForecastRange | None, how: str) -> dict[str, Any]:
    """Return changes, how they are known, and their ends, as columns; NaN of what is not changed."""
    changes = [change or ForecastRange(math.nan, math.nan, math.nan) for change in (energy, time)]
    values = [*(change.at for change in changes), how, *(end for change in changes for end in change[1:])]
    return dict(zip(_CHANGES, values))
