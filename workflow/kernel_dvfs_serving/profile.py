"""A serving profile: power and latencies of one instance over load, by class, tensor-parallel degree and clock.

A CSV, so that a measured one can take the place of the simulated one. Between profiled loads it is read by linear
interpolation; outside them it is refused, never extrapolated. A file that was cut off is refused: its first line says
how many rows follow, the last line must end, and a class must be there at all clocks of a degree. That line also says
what engine a simulated profile was made with, so that no other is run on it.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
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
class Point:
    """An instance at one load."""

    power_w: float  # of all its GPUs
    ttft_p50_s: float  # time to the first token
    ttft_p99_s: float
    tbt_p50_s: float  # time between tokens
    tbt_p99_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
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
        """W at loads (any shape), linear between profiled ones. Raises InputError outside them."""
        self.check(tps)
        return np.interp(tps, self.tps, self.power_w)

    def at(self, tps: float) -> Point:
        """All columns at one load. Raises InputError outside the profiled ones."""
        self.check(tps)
        return Point(*(float(np.interp(tps, self.tps, getattr(self, name))) for name in ("power_w", *LATENCIES)))

    def capacity(self, ttft_slo_s: float, tbt_slo_s: float) -> float:
        """The largest load at and below which both P99 latencies keep their promise; 0.0 if none does.

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
        """Where, between the load before `place` and that at it, the first promise breaks."""
        shares = []
        for values, limit in ((self.ttft_p99_s, ttft_slo_s), (self.tbt_p99_s, tbt_slo_s)):
            if values[place] > limit:
                shares.append((limit - values[place - 1]) / (values[place] - values[place - 1]))
        low, high = self.tps[place - 1], self.tps[place]
        return float(low + min(shares) * (high - low))


@dataclass(frozen=True, eq=False)
class Profile:
    """All curves of one model on one GPU."""

    model: str
    gpu: str
    curves: dict[tuple[str, int, str], Curve]  # by class, degree and clock's name
    sources: set[str]  # of SOURCES
    name: str = "profile"  # for messages
    lengths: dict[str, tuple[float, float]] = field(default_factory=dict)  # by class: mean prompt, answer, tokens
    kv_tokens: dict[int, int] = field(default_factory=dict)  # by degree: KV cache of an instance, where given
    kv_byte_per_token: float | None = None  # where given
    engine: dict[str, float] = field(default_factory=dict)  # by ENGINE: what it was simulated with, where said

    @property
    def simulated(self) -> bool:
        """Whether all of it was simulated here; anything else is taken as a measurement."""
        return self.sources == {SIMULATED}

    def tokens(self, class_: str) -> tuple[float, float]:
        """Mean (prompt, answer) tokens of a class's requests: the profile's, else those of the class as drawn here."""
        return self.lengths.get(class_) or mean_tokens(class_)

    @cached_property
    def classes(self) -> list[str]:
        """Classes profiled, in the order of CLASSES."""
        return [name for name in CLASSES if any(key[0] == name for key in self.curves)]

    @cached_property
    def degrees(self) -> list[int]:
        """Tensor-parallel degrees profiled, ascending."""
        return sorted({key[1] for key in self.curves})

    def clocks(self, tp: int) -> list[str]:
        """Names of the clocks profiled at a degree, by rising MHz."""
        return sorted({key[2] for key in self.curves if key[1] == tp}, key=int)

    def curve(self, class_: str, tp: int, core_mhz: int | str) -> Curve:
        """core_mhz: MHz or a clock's name. Raises InputError where it was not profiled."""
        try:
            return self.curves[class_, tp, str(core_mhz)]
        except KeyError:
            raise InputError(
                f"{self.name}: no rows for class {class_}, tp {tp}, core clock {core_mhz}; profile it, or leave it out"
            ) from None

    def idle_w(self, tp: int, clock: str) -> float:
        """Power of an instance without load at a clock, W. Raises InputError where it was not profiled."""
        own = [curve for (_, degree, name), curve in self.curves.items() if (degree, name) == (tp, clock)]
        return float(np.mean([curve.power(0.0) for curve in own]))

    @cached_property
    def parked_w(self) -> float:
        """Power of a GPU without an instance, W: of the degree and clock that draws least at no load."""
        return min(self.idle_w(tp, clock) / tp for tp, clock in {key[1:] for key in self.curves})

    def at(self, class_: str, tp: int, core_mhz: int | str, tps: float) -> Point:
        """See Curve.at."""
        return self.curve(class_, tp, core_mhz).at(tps)

    def capacity(self, class_: str, tp: int, core_mhz: int | str, ttft_slo_s: float, tbt_slo_s: float) -> float:
        """See Curve.capacity; 0.0 also where it was not profiled."""
        found = self.curves.get((class_, tp, str(core_mhz)))
        return found.capacity(ttft_slo_s, tbt_slo_s) if found else 0.0


def write_profile(path: str | Path, rows: list[dict], engine: dict[str, float] | None = None) -> None:
    """Rows as a profile, whole or not at all: dicts by COLUMNS and what the first has of OPTIONAL; floats: 6 digits.

    engine: by ENGINE, what it was simulated with. Raises InputError, and writes nothing, where read_profile would
    refuse the file.
    """
    columns = [*COLUMNS, *(name for name in OPTIONAL if rows and name in rows[0])]
    head = {"rows": len(rows)} | {name: value for name, value in (engine or {}).items() if name in ENGINE}
    lines = ["# " + "; ".join(f"{name}: {value}" for name, value in head.items()), ",".join(columns)]
    for row in rows:
        cells = (row[name] for name in columns)
        lines.append(",".join(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in cells))
    text = "\n".join(lines) + "\n"
    _parsed(path, text)
    write_text(path, text)


def read_profile(path: str | Path) -> Profile:
    """A profile from its CSV. Raises InputError: what is wrong in which line and column, and the remedy."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return _parsed(path, file.read())
    except FileNotFoundError:
        raise InputError(f"{path}: no such serving profile") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a CSV in UTF-8 ({error})") from None


def _parsed(path: str | Path, text: str) -> Profile:
    """See read_profile; path: for messages."""
    lines, said = _lines(path, text)
    promised = said.pop("rows", None)
    (_, first), *body = lines or [(1, [])]
    header = [name.strip() for name in first]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise InputError(f"{path}: column {', '.join(missing)} missing; a serving profile has {','.join(COLUMNS)}")
    if promised is not None and len(body) != promised:
        raise InputError(f"{path}: {len(body)} rows, but its first line promises {promised}: cut off? make it again")
    found: dict = {}
    heads, sources = set(), set()
    given = _Given(path)
    for number, cells in body:
        if len(cells) != len(header):
            raise InputError(f"{path}: line {number}: {len(cells)} cells under {len(header)} columns; mend the line")
        row = _Line(path, number, {name: cell.strip() for name, cell in zip(header, cells)})
        heads.add((row.cells["model"], row.cells["gpu"]))
        sources.add(row.one_of("source", SOURCES))
        key = (row.one_of("class", CLASSES), row.count("tp"), row.clock("core_mhz"))
        tps = row.number("tps", 0)
        points = found.setdefault(key, {})
        if tps in points:
            raise InputError(f"{path}: line {number}, column tps: {tps:g} appears twice for {_where(*key)}; keep one")
        points[tps] = [row.number(name, 0, positive=True) for name in ("power_w", *LATENCIES)]
        for name, owner in zip(OPTIONAL, (key[0], key[0], f"tp {key[1]}", "the model")):
            if name in row.cells:
                given.add(row, name, owner)
    if not found:
        raise InputError(f"{path}: no rows under the header; profile at least one class")
    if len(heads) > 1:
        names = ", ".join(f"{model} on {gpu}" for model, gpu in sorted(heads))
        raise InputError(f"{path}: rows of several models or GPUs ({names}); give each a file of its own")
    _require_whole(path, found)
    curves = {key: _curve(points, f"{path}: {_where(*key)}") for key, points in found.items()}
    model, gpu = heads.pop()
    return Profile(model, gpu, curves, sources, str(path), **given.of_profile([key[1] for key in found]), engine=said)


def _lines(path: str | Path, text: str) -> tuple[list[tuple[int, list[str]]], dict[str, float]]:
    """([(number, cells)] of all lines that hold something, header first; what the file's first line says: its rows, and
    by ENGINE what it was simulated with)."""
    try:
        cells = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV in UTF-8 ({error})") from None
    if text and not text.endswith("\n"):
        raise InputError(f"{path}: its last line has no end: cut off? make it again, or end the line")
    lines = [(number, each) for number, each in enumerate(cells, start=1) if any(cell.strip() for cell in each)]
    said: dict[str, float] = {}
    if lines and lines[0][1][0].startswith("# rows:"):
        for each in lines.pop(0)[1][0].removeprefix("#").split(";"):
            name, _, value = (word.strip() for word in each.partition(":"))
            try:
                said[name] = int(value) if name == "rows" else float(value)
            except ValueError:
                said[name] = -1
            if said[name] < 0 or name not in ("rows", *ENGINE):
                what = "the number of rows" if name == "rows" else f"numbers for {', '.join(ENGINE)}"
                raise InputError(f"{path}: line 1: {each.strip()!r}; expected {what}")
    return lines, said


def _require_whole(path: str | Path, found: Collection[tuple[str, int, str]]) -> None:
    """A class that a degree has at one clock has to be there at all of that degree's clocks."""
    clocks = {(tp, clock) for _, tp, clock in found}
    for class_, tp in sorted({key[:2] for key in found}):
        for clock in sorted(clock for degree, clock in clocks if degree == tp):
            if (class_, tp, clock) not in found:
                raise InputError(
                    f"{path}: no rows for {_where(class_, tp, clock)}, which other classes have: cut off? measure it, "
                    "or leave that clock or that class out"
                )


def _where(class_: str, tp: int, clock: str) -> str:
    return f"class {class_}, tp {tp}, {clock} MHz"


def _curve(points: dict[float, list[float]], where: str) -> Curve:
    if len(points) < 2:
        raise InputError(f"{where}: one load alone; a profile needs at least two to read between")
    if 0.0 not in points:
        raise InputError(
            f"{where}: no row at load 0 (idle power, latencies of a lone request); add one: idle power is not guessed"
        )
    tps = np.array(sorted(points))
    return Curve(where, tps, *np.array([points[load] for load in tps.tolist()]).T)


class _Given:
    """What the optional columns say, which is the same in all rows of a class, a degree, or the file."""

    def __init__(self, path: str | Path):
        self._path = path
        self._said: dict[tuple[str, str], float] = {}  # by column, and whose it is

    def add(self, row: _Line, name: str, owner: str) -> None:
        value = row.number(name, 0, positive=True)
        if self._said.setdefault((name, owner), value) != value:
            raise InputError(
                f"{self._path}: line {row.line}, column {name}: {value:g}, but {self._said[name, owner]:g} above for "
                f"{owner}; it is one figure for all rows of {owner}"
            )

    def of_profile(self, degrees: Collection[int]) -> dict[str, Any]:
        """As keywords of Profile."""
        said = self._said
        lengths = {
            owner: (value, said["output_tokens", owner])
            for (name, owner), value in said.items()
            if name == "input_tokens" and ("output_tokens", owner) in said
        }
        kv_tokens = {tp: int(said["kv_tokens", f"tp {tp}"]) for tp in degrees if ("kv_tokens", f"tp {tp}") in said}
        byte = said.get(("kv_byte_per_token", "the model"))
        return {"lengths": lengths, "kv_tokens": kv_tokens, "kv_byte_per_token": byte}


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the CSV."""

    path: str | Path
    line: int
    cells: dict[str, str]  # by column

    def _refuse(self, name: str, allowed: str) -> NoReturn:
        raise InputError(f"{self.path}: line {self.line}, column {name}: {self.cells[name]!r}; expected {allowed}")

    def one_of(self, name: str, allowed: Collection[str]) -> str:
        if self.cells[name] not in allowed:
            self._refuse(name, f"one of {', '.join(allowed)}")
        return self.cells[name]

    def number(self, name: str, least: float, positive: bool = False) -> float:
        try:
            value = float(self.cells[name])
        except ValueError:
            value = float("nan")
        if not isfinite(value) or value < least or (positive and value == 0):
            self._refuse(name, "a number above 0" if positive else f"a number of at least {least}")
        return value

    def count(self, name: str, allowed: str = "a whole number of at least 1") -> int:
        if not self.cells[name].isdecimal() or int(self.cells[name]) < 1:
            self._refuse(name, allowed)
        return int(self.cells[name])

    def clock(self, name: str) -> str:
        self.count(name, "MHz")
        return self.cells[name]
