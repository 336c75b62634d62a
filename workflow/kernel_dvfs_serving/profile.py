"""A serving profile: power and latencies of one instance over load, by class, tensor-parallel degree and clock.

A CSV, so that a measured one can take the place of the simulated one. Between profiled loads it is read by linear
interpolation; outside them it is refused, never extrapolated. A file that was cut off is refused: its first line says
how many rows follow, the last line must end, and a class must be there at all clocks of a degree. That line also says
what engine a simulated profile was made with, so that no other is run on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kernel_dvfs.profile.raw import RawTable, exactly, quote, read_csv, read_text, some
from kernel_dvfs.profile.units import UNIT_NAMES, UNITS, guess, is_possible, watts
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import sealed_csv, write_text
from kernel_dvfs_serving.requests import CLASSES, mean_tokens

LATENCIES = ("ttft_p50_s", "ttft_p99_s", "tbt_p50_s", "tbt_p99_s")
COLUMNS = ("model", "gpu", "tp", "core_mhz", "class", "tps", "power_w", *LATENCIES, "source")
# what a measured profile may say of its requests (means), and of its engine: KV cache of an instance, tokens, and bytes
# that a token takes in it
OPTIONAL = ("input_tokens", "output_tokens", "kv_tokens", "kv_byte_per_token")
# what the first line of a simulated profile says of its engine
ENGINE = ("host_s", "max_batch", "chunk_tokens")
SOURCES = ("measured", "simulated")
SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """An instance at one load."""

    power_w: float  # of all its GPUs
    ttft_p50_s: float  # time to the first token
    ttft_p99_s: float
    tbt_p50_s: float  # time between tokens
    tbt_p99_s: float


@dataclass(frozen=True, slots=True, eq=False)
class LoadCurve:
    """One class at one degree and clock over load. All arrays are of shape (n,)."""

    where: str  # whose curve it is, for messages
    tps: np.ndarray  # ascending, tokens/s, input and output together
    power_w: np.ndarray
    ttft_p50_s: np.ndarray
    ttft_p99_s: np.ndarray
    tbt_p50_s: np.ndarray
    tbt_p99_s: np.ndarray

    def check(self, tps: float | np.ndarray) -> None:
        """Raise InputError where a load lies outside what was profiled."""
        lowest, highest = np.min(tps), np.max(tps)
        if not (self.tps[0] <= lowest and highest <= self.tps[-1]):
            outside = lowest if lowest < self.tps[0] else highest
            raise InputError(
                f"{self.where}: {outside:.6g} tokens/s is outside the profiled {self.tps[0]:.6g} to "
                f"{self.tps[-1]:.6g}; profile that load too (a profile is not extrapolated)"
            )

    def power(self, tps: float | np.ndarray) -> np.ndarray:
        """Return the power, W, at loads (any shape), linear between profiled ones. Raises InputError outside them."""
        self.check(tps)
        return np.interp(tps, self.tps, self.power_w)

    def at(self, tps: float) -> LoadPoint:
        """Return all columns at one load. Raises InputError outside the profiled ones."""
        self.check(tps)
        return LoadPoint(*(float(np.interp(tps, self.tps, getattr(self, name))) for name in ("power_w", *LATENCIES)))

    def capacity(self, ttft_slo_s: float, tbt_slo_s: float) -> float:
        """Return the largest load at and below which both P99 latencies keep their promise; 0.0 if none does.

        Where the last profiled load still keeps it, that load: nothing is extrapolated.
        """
        reached = 0.0
        if self._excess(0, ttft_slo_s, tbt_slo_s) > 0:
            return reached
        for place in range(len(self.tps)):
            if self._excess(place, ttft_slo_s, tbt_slo_s) > 0:
                return self._crossing(place, ttft_slo_s, tbt_slo_s)
            reached = float(self.tps[place])
        return reached

    def _excess(self, place: int, ttft_slo_s: float, tbt_slo_s: float) -> float:
        return max(self.ttft_p99_s[place] - ttft_slo_s, self.tbt_p99_s[place] - tbt_slo_s)

    def _crossing(self, place: int, ttft_slo_s: float, tbt_slo_s: float) -> float:
        """Return where, between the load before `place` and that at it, the first promise breaks."""
        shares = []
        for values, limit in ((self.ttft_p99_s, ttft_slo_s), (self.tbt_p99_s, tbt_slo_s)):
            if values[place] > limit:
                shares.append((limit - values[place - 1]) / (values[place] - values[place - 1]))
        low, high = self.tps[place - 1], self.tps[place]
        return float(low + min(shares) * (high - low))


@dataclass(frozen=True, eq=False)
class ServingProfile:
    """All curves of one model on one GPU."""

    model: str
    gpu: str
    curves: dict[tuple[str, int, str], LoadCurve]  # by class, degree and clock's name
    sources: set[str]  # of SOURCES
    name: str = "profile"  # for messages
    lengths: dict[str, tuple[float, float]] = field(default_factory=dict)  # by class: mean prompt, answer, tokens
    kv_tokens: dict[int, int] = field(default_factory=dict)  # by degree: KV cache of an instance, where given
    kv_byte_per_token: float | None = None  # where given
    engine: dict[str, float] = field(default_factory=dict)  # by ENGINE: what it was simulated with, where said

    @property
    def simulated(self) -> bool:
        """Return whether all of it was simulated here; anything else is taken as a measurement."""
        return self.sources == {SIMULATED}

    def tokens(self, class_: str) -> tuple[float, float]:
        """Return the mean (prompt, answer) tokens of a class: the profile's, else those of the class as drawn here."""
        return self.lengths.get(class_) or mean_tokens(class_)

    @cached_property
    def classes(self) -> list[str]:
        """Return the classes profiled, in the order of CLASSES."""
        return [name for name in CLASSES if any(key[0] == name for key in self.curves)]

    @cached_property
    def degrees(self) -> list[int]:
        """Return the tensor-parallel degrees profiled, ascending."""
        return sorted({key[1] for key in self.curves})

    def clocks(self, tp: int) -> list[str]:
        """Return the names of the clocks profiled at a degree, by rising MHz."""
        return sorted({key[2] for key in self.curves if key[1] == tp}, key=int)

    def curve(self, class_: str, tp: int, core_mhz: int | str) -> LoadCurve:
        """Return a curve. core_mhz: MHz or a clock's name. Raises InputError where it was not profiled."""
        try:
            return self.curves[class_, tp, str(core_mhz)]
        except KeyError:
            raise InputError(
                f"{self.name}: no rows for class {class_}, tp {tp}, core clock {core_mhz}; profile it, or leave it out"
            ) from None

    def idle_w(self, tp: int, clock: str) -> float:
        """Return the power of an instance without load at a clock, W. Raises InputError where it was not profiled."""
        curves = [curve for (_, degree, name), curve in self.curves.items() if (degree, name) == (tp, clock)]
        return float(np.mean([curve.power(0.0) for curve in curves]))

    @cached_property
    def parked_w(self) -> float:
        """Return the power of a GPU without an instance, W: of the degree and clock that draws least at no load."""
        return min(self.idle_w(tp, clock) / tp for tp, clock in {key[1:] for key in self.curves})

    def at(self, class_: str, tp: int, core_mhz: int | str, tps: float) -> LoadPoint:
        """See LoadCurve.at."""
        return self.curve(class_, tp, core_mhz).at(tps)

    def capacity(self, class_: str, tp: int, core_mhz: int | str, ttft_slo_s: float, tbt_slo_s: float) -> float:
        """See LoadCurve.capacity; 0.0 also where it was not profiled."""
        curve = self.curves.get((class_, tp, str(core_mhz)))
        return curve.capacity(ttft_slo_s, tbt_slo_s) if curve else 0.0


def write_profile(
    path: str | Path,
    rows: list[dict],
    engine: dict[str, float] | None = None,
    made_of: Mapping[str, str | Path] | None = None,
) -> None:
    """Rows as a profile, under seal, whole or not at all: dicts by COLUMNS and what the first has of OPTIONAL; floats:
    6 digits.

    engine: by ENGINE, what it was simulated with. made_of: files that it follows from. Raises InputError, and writes
    nothing, where read_profile would refuse the file.
    """
    columns = [*COLUMNS, *(name for name in OPTIONAL if rows and name in rows[0])]
    header = {"rows": len(rows)} | {name: value for name, value in (engine or {}).items() if name in ENGINE}
    head = "# " + "; ".join(f"{name}: {value}" for name, value in header.items()) + "\n"
    cells = [
        [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in (row[name] for name in columns)]
        for row in rows
    ]
    text = sealed_csv([columns, *cells], made_of, head)
    _parsed(path, text)
    write_text(path, text)


def read_profile(path: str | Path) -> ServingProfile:
    """Return a profile from its CSV. Raises InputError: what is wrong in which line and column, and the remedy."""
    return _parsed(path, read_text(path))


def _parsed(path: str | Path, text: str) -> ServingProfile:
    """Return what read_profile does. path: for messages."""
    if text and not text.endswith("\n"):
        raise InputError(f"{path}: its last line has no end: cut off? make it again, or end the line")
    header = _header(path, text)
    promised = header.pop("rows", None)
    raw = read_csv(path, exactly(*COLUMNS, *OPTIONAL, *_SCALED), text=text)
    columns = {name: column for name in COLUMNS if (column := _column(raw, name))}
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise raw.fault(f"column {', '.join(missing)} missing; a serving profile has {','.join(COLUMNS)}")
    if promised is not None and raw.rows != promised:
        raise InputError(f"{path}: {raw.rows} rows, but its first line promises {promised}: cut off? make it again")
    texts = {name: raw.texts(name) for name in ("model", "gpu", "class", "source")}
    for name, allowed in (("class", CLASSES), ("source", SOURCES)):
        for row, word in enumerate(texts[name]):
            if word not in allowed:
                raise raw.fault(f"{quote(word)}; expected one of {', '.join(allowed)}", name, row)
    heads = set(zip(texts["model"], texts["gpu"], strict=True))
    if len(heads) > 1:
        names = some([f"{model} on {gpu}" for model, gpu in sorted(heads)])
        raise InputError(f"{path}: rows of several models or GPUs ({names}); give each a file of its own")
    degrees, clocks = raw.whole("tp", least=1, most=1024), raw.whole("core_mhz", least=1, most=10**12)
    for row, mhz in enumerate(clocks):
        raw.plausible_mhz("core_mhz", row, mhz)
    loads = raw.numbers("tps")
    values = {name: _positive(raw, columns[name]) for name in ("power_w", *LATENCIES)}
    _check(raw, columns, values, degrees, loads)
    given = _Given(raw)
    points_by_key: dict[tuple[str, int, str], dict[float, list[float]]] = {}
    for row, key in enumerate(zip(texts["class"], degrees, map(str, clocks), strict=True)):
        tps, points = loads[row], points_by_key.setdefault(key, {})
        if tps is None or tps < 0:
            raise raw.fault(f"{quote(raw.columns['tps'][row])}; expected a number of at least 0", "tps", row)
        if tps in points:
            raise raw.fault(f"{tps:g} appears twice for {_where(*key)}; keep one", "tps", row)
        points[tps] = [values[name][row] for name in ("power_w", *LATENCIES)]
        for name, owner in zip(OPTIONAL, (key[0], key[0], f"tp {key[1]}", "the model")):
            given.add(row, name, owner)
    _require_whole(path, points_by_key)
    curves = {key: _curve(points, f"{path}: {_where(*key)}") for key, points in points_by_key.items()}
    model, gpu = heads.pop()
    optional = given.of_profile([key[1] for key in points_by_key])
    return ServingProfile(model, gpu, curves, set(texts["source"]), str(path), **optional, engine=header)


# latencies and power may be in the unit that their heading says
_SCALED = {
    **{f"{name[:-2]}_{unit}": (name, per) for name in LATENCIES for unit, per in UNITS["time"].items()},
    **{f"power_{unit}": ("power_w", per) for unit, per in UNITS["power"].items()},
}


def _column(raw: RawTable, name: str) -> str | None:
    """Return the column of a quantity, in whatever unit."""
    if name in raw.columns:
        return name
    return next((column for column, (of, _) in _SCALED.items() if of == name and column in raw.columns), None)


def _positive(raw: RawTable, column: str) -> list[float]:
    return raw.positive(column, 1e15, _SCALED[column][1])


# what an instance without load does at most, s: a profile in ms is far above
_MOST_IDLE_S = {"ttft_p50_s": 60.0, "tbt_p50_s": 5.0}


def _check(
    raw: RawTable,
    columns: Mapping[str, str],
    values: Mapping[str, list[float]],
    degrees: list[int],
    loads: list[float | None],
) -> None:
    """Refuse a power that no GPU draws, and waits that no instance without load has: another unit than is said."""
    for row, (power_w, tp) in enumerate(zip(values["power_w"], degrees, strict=True)):
        if not is_possible("power", power_w / tp):
            unit = guess("power", power_w / tp)
            likely = f"is it in {UNIT_NAMES[unit]}?" if unit else "write watts"
            what = f"{quote(raw.columns[columns['power_w']][row])} for {tp} GPUs is {watts(power_w / tp)} each"
            raise raw.fault(f"{what}, which no GPU draws; {likely}", columns["power_w"], row)
    for name, most_s in _MOST_IDLE_S.items():
        for row, (time_s, tps) in enumerate(zip(values[name], loads, strict=True)):
            if tps == 0 and time_s > most_s:
                raise raw.fault(f"{time_s:g} s without load; is it in ms?", columns[name], row)


def _header(path: str | Path, text: str) -> dict[str, float]:
    """Return what the file's first line says: its rows, and by ENGINE what it was simulated with."""
    header: dict[str, float] = {}
    first = text.partition("\n")[0].strip()
    if first.startswith("# rows:"):
        for entry in first.removeprefix("#").split(";"):
            name, _, value = (word.strip() for word in entry.partition(":"))
            try:
                header[name] = int(value) if name == "rows" else float(value)
            except ValueError:
                header[name] = -1
            if header[name] < 0 or name not in ("rows", *ENGINE):
                what = "the number of rows" if name == "rows" else f"numbers for {', '.join(ENGINE)}"
                raise InputError(f"{path}: line 1: {entry.strip()!r}; expected {what}")
    return header


def _require_whole(path: str | Path, keys: Collection[tuple[str, int, str]]) -> None:
    """A class that a degree has at one clock has to be there at all of that degree's clocks."""
    clocks = {(tp, clock) for _, tp, clock in keys}
    for class_, tp in sorted({key[:2] for key in keys}):
        for clock in sorted(clock for degree, clock in clocks if degree == tp):
            if (class_, tp, clock) not in keys:
                raise InputError(
                    f"{path}: no rows for {_where(class_, tp, clock)}, which other classes have: cut off? measure it, "
                    "or leave that clock or that class out"
                )


def _where(class_: str, tp: int, clock: str) -> str:
    return f"class {class_}, tp {tp}, {clock} MHz"


def _curve(points: dict[float, list[float]], where: str) -> LoadCurve:
    if len(points) < 2:
        raise InputError(f"{where}: one load alone; a profile needs at least two to read between")
    if 0.0 not in points:
        raise InputError(
            f"{where}: no row at load 0 (idle power, latencies of a lone request); add one: idle power is not guessed"
        )
    tps = np.array(sorted(points))
    return LoadCurve(where, tps, *np.array([points[load] for load in tps.tolist()]).T)


class _Given:
    """What the optional columns say, which is the same in all rows of a class, a degree, or the file."""

    def __init__(self, raw: RawTable):
        self._raw = raw
        self._columns = {name: raw.positive(name, 1e18) for name in OPTIONAL if name in raw.columns}
        self._values: dict[tuple[str, str], float] = {}  # by column, and whose it is

    def add(self, row: int, name: str, owner: str) -> None:
        """Take what a row says, where it says it."""
        if name not in self._columns:
            return
        value = self._columns[name][row]
        if self._values.setdefault((name, owner), value) != value:
            what = f"{value:g}, but {self._values[name, owner]:g} above for {owner}"
            raise self._raw.fault(f"{what}; it is one figure for all rows of {owner}", name, row)

    def of_profile(self, degrees: Collection[int]) -> dict[str, Any]:
        """Return them as keywords of ServingProfile."""
        values = self._values
        lengths = {
            owner: (value, values["output_tokens", owner])
            for (name, owner), value in values.items()
            if name == "input_tokens" and ("output_tokens", owner) in values
        }
        kv_tokens = {tp: int(values["kv_tokens", f"tp {tp}"]) for tp in degrees if ("kv_tokens", f"tp {tp}") in values}
        byte = values.get(("kv_byte_per_token", "the model"))
        return {"lengths": lengths, "kv_tokens": kv_tokens, "kv_byte_per_token": byte}
