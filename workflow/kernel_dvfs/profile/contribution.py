"""A contribution: what somebody measured, in one archive that others read and import.

An archive (`.tar.gz`), or a folder of the same files as a public collection keeps it, holds contribution.json (schema,
licence, board, driver, workload, checksums), profile.csv, and latency.json where the latency of clock changes was
measured.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import re
import statistics
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from kernel_dvfs import shape
from kernel_dvfs.errors import InputError, unread
from kernel_dvfs.files import parse_json, write_text
from kernel_dvfs.measurement import latency_file
from kernel_dvfs.measurement.consistency import LIMIT_FACTOR
from kernel_dvfs.profile import store
from kernel_dvfs.profile.table import gpu_slug
from kernel_dvfs.shape import AtLeastOne, Is, Positive, Text
from kernel_dvfs.workload.step import paced_kernel

if TYPE_CHECKING:
    from typing import TypeAlias

    AnyPath: TypeAlias = str | os.PathLike[str]

SCHEMA = "kernel-dvfs/contribution/1"
LICENCE = "CC-BY-4.0"
ABOUT, PROFILE, LATENCY = "contribution.json", "profile.csv", "latency.json"
MEMBERS = (ABOUT, PROFILE, LATENCY)
_REMEDY = "get it again, or ask who made it (docs/tables.md says how)"
ENDINGS = (".tar.gz", ".tgz")
_LARGEST_BYTE = 256 << 20  # of an archive, unpacked


class _Board(TypedDict):
    name: Text
    driver: NotRequired[str]
    power_limit_mw: NotRequired[Positive | None]


class _Workload(TypedDict):
    name: Text


# {PROFILE, LATENCY: SHA-256}
_Files = TypedDict("_Files", {"profile.csv": str, "latency.json": NotRequired[str]})


def _are_settings(names: list[str]) -> bool:
    further = names[len(store.CLOCKS) :]
    return names[: len(store.CLOCKS)] == [*store.CLOCKS] and len(set(further) - {*store.COLUMNS}) == len(further)


class About(TypedDict):
    """What is relied on of a contribution.json; board, workload and protocol hold more."""

    schema: str
    licence: str
    credit: str
    date: Annotated[str, Is("a day as 2026-11-21, or nothing", re.compile(r"(\d{4}-\d{2}-\d{2})?").fullmatch)]
    board: _Board
    boards: list[Annotated[str, Is("board- and 16 hex digits", re.compile("board-[0-9a-f]{16}").fullmatch)]]
    workload: _Workload
    protocol: NotRequired[dict[str, Any]]
    settings: Annotated[
        list[Text], Is(f"{', '.join(store.CLOCKS)} and names of no other column, each once", _are_settings)
    ]
    rows: AtLeastOne
    files: _Files


# what no board does: watts, MHz, and the share of a time or an energy that its standard deviation is
LEAST_W, MOST_W, MOST_MHZ, MOST_SCATTER = 3.0, 2500.0, 10000.0, 0.5


@dataclass(frozen=True, slots=True)
class Contribution:
    """What an archive holds."""

    about: dict[str, Any]  # contribution.json
    columns: dict[str, list[Any]]  # of store.write_profile
    settings: list[str]
    latency: dict[str, Any] | None

    @property
    def board(self) -> dict[str, Any]:
        """Facts of the board."""
        return self.about["board"]


def is_contribution(path: AnyPath) -> bool:
    """Whether `path` is named as an archive is, or is a folder with a contribution's files."""
    return str(path).endswith(ENDINGS) or os.path.isfile(os.path.join(path, ABOUT))


def read(path: AnyPath) -> Contribution:
    """Read and check an archive, or a folder of its files. Raises InputError, one line: what, where."""
    texts = _folder(path) if os.path.isdir(path) else _unpack(path)
    try:
        about = parse_json(texts[ABOUT])
    except KeyError:
        raise InputError(f"{path}: no {ABOUT} in it; docs/tables.md says how such an archive is made") from None
    except ValueError as error:
        raise InputError(f"{path}: {ABOUT}: {error}; {_REMEDY}") from None
    fault = about_fault(about) or _files_fault(about["files"], texts)
    if fault:
        raise InputError(f"{path}: {ABOUT}: {fault}; {_REMEDY}")
    columns = _columns(f"{path}: {PROFILE}", texts[PROFILE], about["settings"][2:])
    if len(columns["target"]) != about["rows"]:
        rows = len(columns["target"])
        raise InputError(f"{path}: {PROFILE}: {rows} rows, {ABOUT} says {about['rows']}; {_REMEDY}")
    latency = None
    if LATENCY in texts:
        try:
            latency = parse_json(texts[LATENCY])
        except ValueError as error:
            raise InputError(f"{path}: {LATENCY}: {error}; {_REMEDY}") from None
        if (measured := latency_file.checked(f"{path}: {LATENCY}", latency)).gpu_name != about["board"]["name"]:
            board = about["board"]["name"]
            raise InputError(f"{path}: {LATENCY}: of {measured.gpu_name}, the rest is of {board}; {_REMEDY}")
    plausible(str(path), about, columns)
    return Contribution(about, columns, about["settings"], latency)


def import_contribution(path: AnyPath, out: AnyPath, name: str | None = None) -> tuple[Contribution, list[str]]:
    """Read an archive and write its profile to `out`, its latency file beside it; returns (it, what was read)."""
    found = read(path)
    title = name or os.path.basename(os.path.normpath(path)).removesuffix(".tar.gz").removesuffix(".tgz")
    gpu = {"kind": "table", "name": found.board["name"], "slug": gpu_slug(title, title)}
    own = {key: found.about[key] for key in ("licence", "credit", "date", "boards")}
    workload = found.about["workload"] | {"contribution": own}
    try:
        store.write_profile(out, found.columns, gpu, workload, found.settings)
    except ValueError as error:
        raise InputError(f"{path}: {PROFILE}: {error}") from None
    targets, auto = len(set(found.columns["target"])), sum(found.columns["is_baseline"])
    lines = [
        f"{path}: {targets} targets of {found.board['name']}, {len(found.columns['target'])} points, {auto} of them "
        f"the baseline; driver {found.board.get('driver', 'unknown')}, {found.about['date'] or 'no date'}",
        f"licence {found.about['licence']}" + (f", credit {found.about['credit']}" if found.about["credit"] else ""),
    ]
    if found.latency is not None:
        beside = f"{os.path.splitext(os.fspath(out))[0]}-{LATENCY}"
        write_text(beside, json.dumps(found.latency, indent=1, allow_nan=False) + "\n")
        lines.append(f"{beside}: what a change of clocks takes, {latency_file.read(beside).about}")
    return found, lines


# --- files ------------------------------------------------------------------------------------------------------------


def _columns(where: str, text: str, extra: list[str]) -> dict[str, list[Any]]:
    """The columns of a profile.csv. Raises InputError naming line and column."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise InputError(f"{where}: {error}; {_REMEDY}") from None
    names = [*store.COLUMNS, *extra]
    if not rows or rows[0] != names:
        raise InputError(f"{where}: its columns are not those of a profile: {', '.join(names)}; {_REMEDY}")
    kinds = {name: str(type_) for name, type_, _ in store.FIELDS}
    filled = {name for name, _, may_be_null in store.FIELDS if not may_be_null}
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise InputError(f"{where}, line {number}: {len(row)} cells, {len(names)} columns; {_REMEDY}")
        for name, cell in zip(names, row):
            if cell == "" and name in filled:
                raise InputError(f"{where}, line {number}: {name} is empty; {_REMEDY}")
            try:
                columns[name].append(_cell(cell, kinds.get(name, "double")))
            except ValueError:
                if name in extra:
                    columns[name].append(cell)  # a setting that is text
                    continue
                raise InputError(f"{where}, line {number}: {name} is {cell[:40]!r}; {_REMEDY}") from None
    for name in extra:  # of one kind
        if any(isinstance(value, str) for value in columns[name]):
            columns[name] = [None if value is None else str(value) for value in columns[name]]
    return columns


def _cell(text: str, kind: str) -> Any:
    if text == "":
        return None
    if kind == "bool":
        return {"0": False, "1": True}[text] if text in ("0", "1") else int("")
    if kind == "string":
        return text
    if kind != "int64":
        return float(text)
    if not -(2**63) <= (value := int(text)) < 2**63:
        raise ValueError(f"{text[:40]} is too large")
    return value


def _unpack(path: AnyPath) -> dict[str, str]:
    """The files of an archive, by name; nothing of it is written anywhere."""
    texts: dict[str, str] = {}
    try:
        with gzip.open(path) as packed:
            content = packed.read(_LARGEST_BYTE + 1)  # to the end, so that its checksum is looked at
        if len(content) > _LARGEST_BYTE:
            raise InputError(f"{path}: holds more than {_LARGEST_BYTE} bytes, no contribution does")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if member.isdir():
                    continue
                if not member.isfile() or name not in MEMBERS or name in texts or member.name.count("/") > 1:
                    raise InputError(f"{path}: holds {member.name[:60]!r}; expected {', '.join(MEMBERS)} alone")
                if member.issparse() or member.size > len(content):
                    raise InputError(f"{path}: {member.name[:60]!r} is larger than the archive that holds it")
                file = archive.extractfile(member)
                assert file is not None  # it is a file
                texts[name] = file.read().decode()
    except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError, OverflowError) as error:
        raise InputError(f"{path}: not a readable .tar.gz archive ({error})") from None
    return texts


def _folder(path: AnyPath) -> dict[str, str]:
    try:
        return {name: Path(path, name).read_text("utf-8") for name in MEMBERS if Path(path, name).is_file()}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}; {_REMEDY}") from None


def about_fault(about: Any) -> str:
    """What is wrong with a contribution.json; "" where nothing is."""
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        return unread(about, SCHEMA)
    if about.get("licence") != LICENCE:
        return f"its licence is {str(about.get('licence'))[:60]!r}, expected {LICENCE}"
    return shape.fault(about, About)


def _files_fault(files: Mapping[str, str], texts: Mapping[str, str]) -> str | None:
    """Where the files are not those that contribution.json names, or None."""
    if set(files) != set(texts) - {ABOUT}:
        return f"files: {sorted(files)} are named, {sorted(set(texts) - {ABOUT})} are there"
    for name, checksum in files.items():
        if hashlib.sha256(texts[name].encode()).hexdigest() != checksum:
            return f"{name} was changed: its checksum is another"
    return None


# --- plausibility -----------------------------------------------------------------------------------------------------


def plausible(where: str, about: Mapping[str, Any], columns: Mapping[str, list[Any]]) -> list[str]:
    """Refuse what no board measures; returns what is odd but possible, a line each. Raises InputError, one line.

    Refused: mean power that is no board's or far above its limit, clocks that none has, a reached clock above the
    locked one, scatter of half the value, a target without a baseline, more odd verdicts than good ones.
    """
    limit_mw = about["board"].get("power_limit_mw")
    most_w = LIMIT_FACTOR * limit_mw / 1000 if limit_mw else MOST_W
    powers, odd = [], 0
    rows = [dict(zip(columns, cells)) for cells in zip(*columns.values(), strict=True)]
    for row in rows:
        what = f"{where}: {row['study']}/{row['target']} at {_clock(row['core_mhz'])}/{_clock(row['mem_mhz'])} MHz"
        if not (row["time_s"] > 0 and row["energy_j"] > 0):
            raise InputError(f"{what}: time and energy are not positive")
        power_w = row["energy_j"] / row["time_s"]
        powers.append(power_w)
        bound_w = MOST_W if _is_difference(row, about["workload"]) else most_w
        if not LEAST_W <= power_w <= bound_w:
            raise InputError(f"{what}: mean power {power_w:.4g} W, expected {LEAST_W:g} to {bound_w:.0f} W")
        for clock in ("core_mhz", "mem_mhz"):
            asked, reached = row[clock], row[f"reached_{clock}"]
            if any(value is not None and not 1 <= value <= MOST_MHZ for value in (asked, reached)):
                raise InputError(f"{what}: a clock of {asked} MHz, reached {reached}; expected 1 to {MOST_MHZ:.0f} MHz")
            if asked is not None and reached is not None and reached > 1.05 * asked + 15:
                raise InputError(f"{what}: {clock} reached {reached:.0f} MHz, more than was asked for")
        for value, sd in (("time_s", "time_sd_s"), ("energy_j", "energy_sd_j")):
            if row[sd] is not None and row[sd] > MOST_SCATTER * row[value]:
                raise InputError(f"{what}: {value} scatters by {100 * row[sd] / row[value]:.0f} %")
        odd += row["verdict"] != "ok"
    bare = {(row["study"], row["target"]) for row in rows} - {
        (row["study"], row["target"]) for row in rows if row["is_baseline"]
    }
    if bare:
        raise InputError(f"{where}: {'/'.join(min(bare))} has no baseline, so no change can be computed")
    if 2 * odd > len(rows):
        raise InputError(f"{where}: {odd} of {len(rows)} points have a verdict other than ok; measure them again")
    notes = [f"{odd} of {len(rows)} points have a verdict other than ok"] if odd else []
    if about["date"] == "":
        notes.append("the date of the measurements is not known")
    if all(row["is_baseline"] for row in rows):
        notes.append("only auto clocks were measured")
    return [*notes, f"mean power {min(powers):.0f} to {max(powers):.0f} W, median {statistics.median(powers):.0f} W"]


def _is_difference(row: Mapping[str, Any], workload: Mapping[str, Any]) -> bool:
    """Whether a row is a difference of two measurements, whose noise no limit of the board bounds."""
    by_difference = workload.get("by_difference")
    differs = isinstance(by_difference, list) and row["target"] in by_difference
    return row["study"] != "kernel" and (differs or bool(paced_kernel(row["target"])))


def _clock(mhz: float | None) -> str:
    return "auto" if mhz is None else f"{mhz:g}"
