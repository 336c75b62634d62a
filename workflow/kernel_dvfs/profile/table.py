"""A measured table from anywhere (CSV, Parquet, a Kernel Tuner file) as a profile that can be chosen on.

It reads what the columns mean, pools repeats and finds the baselines.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.profile import units
from kernel_dvfs.profile.baseline import Point, choose_baselines
from kernel_dvfs.profile.raw import Raw, is_empty, open_bytes, quote, read_csv, read_parquet, to_number

if TYPE_CHECKING:
    from typing import TypeAlias

    AnyPath: TypeAlias = str | os.PathLike[str]
    Clocks: TypeAlias = list[float | None]  # MHz by row; None = auto, or not recorded

HIGHEST_MHZ = 1e6  # above: kHz under a name that says MHz
HIGHEST_SI = 1e15  # s or J, far above anything measured: keeps sums finite


@dataclass(frozen=True, slots=True)
class Imported:
    """A table as a profile, not yet written: times in s, energies in J, clocks in MHz."""

    columns: dict[str, list[Any]]  # these four: what store.write_profile takes
    gpu: dict[str, Any]
    workload: dict[str, Any]
    settings: list[str]
    notices: list[str]  # one line each, for the user to read


def import_table(
    path: AnyPath, name: str | None = None, settings: Iterable[str] = (), reference: object = None
) -> Imported:
    """Read a measured table.

    path: a .csv, .parquet (.pq) or Kernel Tuner .json file.
    name: of the table (default: the file's stem); the slug of its GPU is `table-<name>`.
    settings: columns that are part of a point's key, besides the clocks and a power cap.
    reference: the baseline of every kernel, `CORE,MEM` in MHz or `auto`, or `highest` (see choose_baselines);
        default: the auto row, else the row marked is_reference.

    Columns: kernel; time_s, time_ms, time_us or time_ns; energy_j, energy_mj, ...; core_mhz or
    core_mhz_requested, mem_mhz or mem_mhz_requested (empty or `auto` = not locked; a memory clock empty in
    every row = the only one); optional is_auto, is_reference, gpu, core_mhz_applied. Rows equal in kernel and
    every setting are pooled: arithmetic means, sample sd (n - 1), n counted.

    Raises InputError: one line with file, place and column, on anything malformed.
    """
    raw, settings, notices = _read(path, list(settings))
    columns = _roles(raw)
    setting_columns = _setting_columns(raw, settings)
    kernels = _kernels(raw)
    time_s = _positive(raw, columns["time"], units.PER_SECOND[columns["time"]])
    energy_j = _positive(raw, columns["energy"], units.PER_JOULE[columns["energy"]])
    core, mem = _clocks(raw, columns["core"]), _clocks(raw, columns["mem"])
    reached_core, reached_mem = _reached(raw, columns["reached core"]), _reached(raw, columns["reached mem"])
    auto, reference_marks = _flags(raw, core, mem)
    notices += _release_auto_rows(raw, auto, core, mem, reached_core, reached_mem)
    extra = {column: _setting(raw, column) for column in setting_columns}

    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(kernels, core, mem, *extra.values(), strict=True)):
        groups.setdefault(key, []).append(row)
    notices += _unrecognised(raw, setting_columns, groups.values())

    points = [
        Point(
            kernel=key[0],
            core_mhz=key[1],
            mem_mhz=key[2],
            settings=dict(zip(extra, key[3:], strict=True)) if extra else {},
            rows=rows,
            time_s=_mean([time_s[row] for row in rows]),
            auto=any(auto[row] for row in rows),
            reference=any(reference_marks[row] for row in rows),
        )
        for key, rows in groups.items()
    ]
    baselines = choose_baselines(points, raw, reference)

    profile = _profile_columns(points, list(extra), time_s, energy_j, reached_core, reached_mem, baselines)
    gpu = {"kind": "table", "name": _one_gpu(raw) or _title(path, name), "slug": gpu_slug(path, name)}
    workload = {
        "name": "as-measured",
        "table": os.path.basename(path),
        "sha256": _sha256(path),
        "rows": len(kernels),
        "reference": None if reference is None else str(reference),
    }
    return Imported(profile, gpu, workload, ["core_mhz", "mem_mhz", *extra], notices)


def import_to_profile(
    path: AnyPath, out: AnyPath, name: str | None = None, settings: Iterable[str] = (), reference: object = None
) -> Imported:
    """Read a measured table (see import_table) and write it as a profile to `out`, whole or not at all."""
    from kernel_dvfs.profile.store import write_profile

    imported = import_table(path, name, settings, reference)
    write_profile(out, imported.columns, imported.gpu, imported.workload, imported.settings)
    return imported


def gpu_slug(path: AnyPath, name: str | None = None) -> str:
    """`table-<name or the file's stem>`, the name of the results folder; the file itself is not read.

    Raises InputError where the name has neither letters nor digits.
    """
    title = _title(path, name)
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if not slug:
        raise InputError(f"{path}: no letters or digits in the table's name {quote(title)}; give it a `name`")
    return f"table-{slug}"


def _title(path: AnyPath, name: str | None) -> str:
    return str(name) if name is not None else os.path.splitext(os.path.basename(path))[0]


def _profile_columns(
    points: list[Point],
    extra: list[str],
    time_s: list[float],
    energy_j: list[float],
    reached_core: Clocks,
    reached_mem: Clocks,
    baselines: set[int],
) -> dict[str, list[Any]]:
    """The columns of store.write_profile: a row per point, in the order the table first names them."""
    columns: dict[str, list[Any]] = {
        "study": ["kernel"] * len(points),
        "target": [point.kernel for point in points],
        "launches_per_iteration": [1] * len(points),
        "core_mhz": [point.core_mhz for point in points],
        "mem_mhz": [point.mem_mhz for point in points],
        "reached_core_mhz": [_mean_known(reached_core, point.rows) for point in points],
        "reached_mem_mhz": [_mean_known(reached_mem, point.rows) for point in points],
        "time_s": [point.time_s for point in points],
        "time_sd_s": [_sd([time_s[row] for row in point.rows]) for point in points],
        "energy_j": [_mean([energy_j[row] for row in point.rows]) for point in points],
        "energy_sd_j": [_sd([energy_j[row] for row in point.rows]) for point in points],
        "n": [len(point.rows) for point in points],
        "verdict": ["ok"] * len(points),
        "replicate_group": [None] * len(points),
        "is_baseline": [index in baselines for index in range(len(points))],
        "time_se_s": [None] * len(points),
        "energy_se_j": [None] * len(points),
        "is_checked": [None] * len(points),
    }
    return columns | {column: [point.settings[column] for point in points] for column in extra}


def _read(path: AnyPath, settings: list[str]) -> tuple[Raw, list[str], list[str]]:
    """(Raw, settings, notices) by the file's ending."""
    ending = os.path.splitext(path)[1].lower()
    if ending == ".csv":
        return read_csv(path), settings, []
    if ending in (".parquet", ".pq"):
        return read_parquet(path), settings, []
    if ending == ".json":
        from kernel_dvfs.profile.kernel_tuner import read_kernel_tuner

        read = read_kernel_tuner(path, settings)
        # a declared name that is no parameter is left to be reported
        unknown = [name for name in settings if name not in read.raw.shown.values()]
        return read.raw, read.settings + unknown, read.notices
    raise InputError(f"{path}: unknown file ending {ending or '(none)'}; give .csv, .parquet or a Kernel Tuner .json")


def _roles(raw: Raw) -> dict[str, Any]:
    """Role -> the one column that plays it; the reached clocks may be missing (None)."""
    return {
        "time": _only(raw, units.PER_SECOND, "time per launch"),
        "energy": _only(raw, units.PER_JOULE, "energy per launch"),
        "core": _only(raw, units.CORE_MHZ, "core clock"),
        "mem": _only(raw, units.MEM_MHZ, "memory clock", " (leave it empty where the GPU has only one)"),
        "reached core": _only(raw, units.REACHED_CORE_MHZ, "reached core clock", optional=True),
        "reached mem": _only(raw, units.REACHED_MEM_MHZ, "reached memory clock", optional=True),
    }


def _only(raw: Raw, names: Collection[str], quantity: str, hint: str = "", optional: bool = False) -> str | None:
    found = [name for name in names if name in raw.columns]
    if len(found) > 1:
        raise raw.fault(f"gives the {quantity}, and so does column {found[0]}; keep one of them", found[1])
    if not found and not optional:
        raise raw.fault(f"missing: add the {quantity}, named {_either(names)}{hint}", next(iter(names)))
    return found[0] if found else None


def _either(names: Collection[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"


def _setting_columns(raw: Raw, declared: list[str]) -> list[str]:
    """The columns beyond the clocks that are part of a point's key, in the table's order."""
    from kernel_dvfs.profile.store import COLUMNS

    for column in declared:
        if column not in raw.columns:
            raise raw.fault("declared a setting, but the table has no such column", column)
        if column in units.RESERVED or column in COLUMNS:
            raise raw.fault("declared a setting, but the name means something else; rename the column", column)
    return [column for column in raw.columns if column in declared or column in units.POWER_CAPS]


def _kernels(raw: Raw) -> list[str]:
    if "kernel" not in raw.columns:
        raise raw.fault("missing: add the name of the kernel each row measured", "kernel")
    for row, cell in enumerate(raw.columns["kernel"]):
        if is_empty(cell):
            raise raw.fault("is empty; name the kernel", "kernel", row)
    return [str(cell).strip() for cell in raw.columns["kernel"]]


def _positive(raw: Raw, column: str, per_unit: float) -> list[float]:
    """Times or energies in SI units: every cell a number above zero."""
    si = []
    for row, value in enumerate(raw.numbers(column)):
        if value is None:
            raise raw.fault("is empty; every row needs a value", column, row)
        if not 0 < value / per_unit < HIGHEST_SI:
            what = "too large to be true" if value > 0 else "not above zero"
            raise raw.fault(f"{quote(raw.columns[column][row])} is {what}", column, row)
        si.append(value / per_unit)
    return si


def _clocks(raw: Raw, column: str) -> Clocks:
    """Clocks asked for, MHz; None = auto."""
    words: dict[Any, float | None] = {}  # a table has many rows and few clocks: each word is understood once
    clocks: Clocks = []
    for row, cell in enumerate(raw.columns[column]):
        word = cell if cell is None or isinstance(cell, (str, float)) else str(cell)
        if word not in words:
            words[word] = _clock(raw, column, row, cell)
        clocks.append(words[word])
    return clocks


def _clock(raw: Raw, column: str, row: int, cell: object) -> float | None:
    if is_empty(cell) or (isinstance(cell, str) and cell.strip().lower() == "auto"):
        return None
    mhz = to_number(cell)
    if mhz is None or not 0 < mhz < HIGHEST_MHZ:
        raise raw.fault(f"unknown clock {quote(cell)}: a positive number of MHz, or auto (or empty)", column, row)
    return mhz


def _reached(raw: Raw, column: str | None) -> Clocks:
    """Clocks seen in effect, MHz; None = not recorded."""
    if column is None:
        return [None] * len(raw.columns["kernel"])
    values = raw.numbers(column)
    for row, value in enumerate(values):
        if value is not None and not 0 <= value < HIGHEST_MHZ:
            raise raw.fault(f"{quote(raw.columns[column][row])} is no clock in MHz", column, row)
    return [value or None for value in values]


def _flags(raw: Raw, core: Clocks, mem: Clocks) -> tuple[list[bool], list[bool]]:
    """(is_auto, is_reference) by row. Without a column is_auto, a row is auto when it locks neither clock."""
    if "is_auto" in raw.columns:
        auto = _marks(raw, "is_auto")
    else:
        auto = [c is None and m is None for c, m in zip(core, mem, strict=True)]
    reference = _marks(raw, "is_reference") if "is_reference" in raw.columns else [False] * len(core)
    return auto, reference


def _marks(raw: Raw, column: str) -> list[bool]:
    words = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "": False}
    marks = []
    for row, cell in enumerate(raw.columns[column]):
        mark = words.get("" if cell is None else str(cell).strip().lower())
        if mark is None:
            raise raw.fault(f"{quote(cell)} is neither 0 nor 1", column, row)
        marks.append(mark)
    return marks


def _release_auto_rows(
    raw: Raw, auto: list[bool], core: Clocks, mem: Clocks, reached_core: Clocks, reached_mem: Clocks
) -> list[str]:
    """Rows marked is_auto hold no lock: a clock written there is the clock that was seen. Returns notices."""
    noted = None
    for row, is_auto in enumerate(auto):
        if not is_auto:
            continue
        for asked, reached in ((core, reached_core), (mem, reached_mem)):
            if asked[row] is not None:
                noted = row if noted is None else noted
                if reached[row] is None:
                    reached[row] = asked[row]
                asked[row] = None
    if noted is None:
        return []
    notice = "rows with is_auto = 1 name a clock; none is locked there, so it is taken as the clock reached"
    return [f"{raw.path}, {raw.place(noted)}: {notice}"]


def _setting(raw: Raw, column: str) -> list[Any]:
    """A further setting: numbers if every cell is one, else text; None where empty."""
    cells = raw.columns[column]
    numeric = all(is_empty(cell) or to_number(cell) is not None for cell in cells)
    if numeric or column in units.POWER_CAPS:
        values = raw.numbers(column)
        if column in units.POWER_CAPS:
            for row, value in enumerate(values):
                if value is not None and not value > 0:
                    raise raw.fault(f"{quote(cells[row])} is no power cap: a number above zero", column, row)
        return values
    return [None if is_empty(cell) else str(cell).strip() for cell in cells]


def _unrecognised(raw: Raw, setting_columns: list[str], groups: Iterable[list[int]]) -> list[str]:
    """A notice of the columns whose meaning is unknown; an error if one of them tells pooled rows apart."""
    unknown = [
        column
        for column in raw.columns
        if column not in units.RESERVED and column not in setting_columns and not units.is_known(column)
    ]
    pooled = [rows for rows in groups if len(rows) > 1]
    for column in unknown:
        cells = raw.columns[column]
        for rows in pooled:
            other = next((row for row in rows if cells[row] != cells[rows[0]]), None)
            if other is not None:
                raise raw.fault(
                    f"{quote(cells[rows[0]])} in {raw.place(rows[0])} but {quote(cells[other])} here, in "
                    "rows with the same settings; name the column in `settings` if it is one, or drop it",
                    column,
                    other,
                )
    if not unknown:
        return []
    plural = "columns" if len(unknown) > 1 else "column"
    return [f"{raw.path}: {plural} {', '.join(unknown)} ignored: neither a setting nor a known measurement"]


def _one_gpu(raw: Raw) -> str | None:
    """The GPU's name, None where the table has none."""
    name = None
    for row, cell in enumerate(raw.columns.get("gpu", ())):
        if is_empty(cell):
            continue
        own = str(cell).strip()
        name = own if name is None else name
        if own != name:
            raise raw.fault(f"{quote(own)} after {quote(name)}: a table holds one GPU; split it by GPU", "gpu", row)
    return name


def _sha256(path: AnyPath) -> str:
    with open_bytes(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if len(values) > 1 else values[0]


def _mean_known(values: Clocks, rows: list[int]) -> float | None:
    known = [value for value in (values[row] for row in rows) if value is not None]
    return _mean(known) if known else None


def _sd(values: Sequence[float]) -> float | None:
    """Sample standard deviation (n - 1); None for a single value."""
    if len(values) < 2:
        return None
    mean = _mean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
