"""A measured table from anywhere (CSV, Parquet, a Kernel Tuner file) as a profile that can be chosen on.

It reads what the columns mean, pools repeats and finds the baselines.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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

HIGHEST_SI = 1e15  # s or J, far above anything measured: keeps sums finite


@dataclass(frozen=True, slots=True)
class Imported:
    """A table as a profile, not yet written: times in s, energies in J, clocks in MHz."""

    columns: dict[str, list[Any]]  # these four: what store.write_profile takes
    gpu: dict[str, Any]
    workload: dict[str, Any]
    settings: list[str]
    read: list[str]  # what the table was taken for, one line each: size, baseline, units
    notices: list[str]  # what the user should look at, one line each


def import_table(
    path: AnyPath,
    name: str | None = None,
    settings: Iterable[str] = (),
    reference: object = None,
    columns_in: Mapping[str, str] | None = None,
) -> Imported:
    """Read a measured table.

    path: a .csv, .parquet (.pq) or Kernel Tuner .json file.
    name: of the table (default: the file's stem); the slug of its GPU is `table-<name>`.
    settings: columns that are part of a point's key, besides the clocks and a power cap.
    reference: the baseline of every kernel, `CORE,MEM` in MHz or `auto`, or `highest` (see choose_baselines);
        default: the auto row, else the row marked is_reference.
    columns_in: {column: unit} where a column is in another unit than its name says (units.UNITS), such as
        {"core_mhz": "khz"}. A unit that is stated is believed, however implausible what follows from it.

    Columns: kernel; time_s, time_ms, time_us or time_ns; energy_j, energy_mj, ..., or mean power of the board
    (power_w, avg_power_w, ...), from which energy is power x time; core_mhz or core_mhz_requested, mem_mhz or
    mem_mhz_requested (empty or `auto` = not locked; a memory clock that is missing, or empty in every row, was left to
    the GPU); optional is_auto, is_reference, gpu, core_mhz_applied. Rows equal in kernel and every setting are pooled:
    arithmetic means, sample sd (n - 1), n counted.

    Raises InputError: one line with file, place and column, on anything malformed.
    """
    raw, settings, notices = _read(path, list(settings))
    stated = _stated(raw, columns_in or {})
    columns = _roles(raw)
    setting_columns = _setting_columns(raw, settings)
    kernels = _kernels(raw)
    time_s = _positive(raw, columns["time"], stated.get(columns["time"], units.PER_SECOND[columns["time"]]))
    energy_j, notice = _energy(raw, columns, stated, time_s)
    notices += notice
    core = _clocks(raw, columns["core"], stated)
    mem, notice = _memory_clocks(raw, columns["mem"], stated)
    notices += notice
    reached_core, reached_mem = (_reached(raw, columns[role], stated) for role in ("reached core", "reached mem"))
    _leave_the_only_memory_clock(core, mem, reached_mem)
    auto, reference_marks = _flags(raw, core, mem)
    notices += _release_auto_rows(raw, auto, core, mem, reached_core, reached_mem)
    extra = {column: _setting(raw, column, stated) for column in setting_columns}

    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(kernels, core, mem, *extra.values(), strict=True)):
        groups.setdefault(key, []).append(row)
    notices += _unrecognised(raw, setting_columns, groups.values())
    notices += _copies(raw, groups.values())

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
    gpu = {"kind": "table", "name": _one_gpu(raw) or _title(path, name), "slug": gpu_slug(path, name)}
    _check_power(raw, columns, columns_in or {}, time_s, energy_j)

    profile = _profile_columns(points, list(extra), time_s, energy_j, reached_core, reached_mem, baselines)
    workload = {
        "name": "as-measured",
        "table": os.path.basename(path),
        "sha256": _sha256(path),
        "rows": len(kernels),
        # what the baseline is, where it is not auto
        "reference": _reference([points[index] for index in baselines], reference),
    }
    shown = {role: raw.shown.get(column, column) for role, column in columns.items() if column is not None}
    power = [energy / time for energy, time in zip(energy_j, time_s, strict=True)]
    read = [
        _size(raw, gpu["name"], points, ["core_mhz", "mem_mhz", *extra]),
        _baseline(points, baselines, reference),
        _units(shown, columns, columns_in or {}, min(power), max(power)),
    ]
    return Imported(profile, gpu, workload, ["core_mhz", "mem_mhz", *extra], read, notices)


def import_to_profile(
    path: AnyPath,
    out: AnyPath,
    name: str | None = None,
    settings: Iterable[str] = (),
    reference: object = None,
    columns_in: Mapping[str, str] | None = None,
) -> Imported:
    """Read a measured table (see import_table) and write it as a profile to `out`, whole or not at all."""
    from kernel_dvfs.profile.store import write_profile

    imported = import_table(path, name, settings, reference, columns_in)
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


def _stated(raw: Raw, columns_in: Mapping[str, str]) -> dict[str, float]:
    """{column: how many of its units make one s, J, W or MHz} as the user states them."""
    stated = {}
    for column, unit in columns_in.items():
        if column not in raw.columns:
            raise raw.fault(f"declared to be in {unit}, but the table has no such column", column)
        quantity = units.quantity(column)
        known = units.UNITS.get(quantity or "", {})
        if unit.lower() not in known:
            can = (
                f"a {quantity} is in {_either(list(known))}"
                if known
                else "its name is that of no time, energy or clock"
            )
            raise raw.fault(f"declared to be in {quote(unit)}; {can}", column)
        stated[column] = known[unit.lower()]
    return stated


_WANTED = {
    "kernel": (("kernel",), "name of the kernel"),
    "time": (tuple(units.PER_SECOND), "time per launch"),
    "energy": (tuple(units.PER_JOULE), "energy per launch"),
    "core": (units.CORE_MHZ, "core clock"),
    "mem": (units.MEM_MHZ, "memory clock"),
}


def _roles(raw: Raw) -> dict[str, Any]:
    """Role -> the one column that plays it; the reached clocks, a memory clock that no column looks like, and energy or
    else power, may be missing (None).

    Raises InputError naming everything that is missing, with columns that look like it.
    """
    roles = {role: _only(raw, names, quantity) for role, (names, quantity) in _WANTED.items()}
    roles["power"] = _only(raw, units.PER_WATT, "mean power") if roles["energy"] is None else None
    missing = [role for role in _WANTED if roles[role] is None and (role != "energy" or roles["power"] is None)]
    missing = [role for role in missing if role != "mem" or _near(raw, role)]
    if missing:
        raise raw.fault(f"missing: {'; '.join(_missing(raw, role) for role in missing)}")
    roles["reached core"] = _only(raw, units.REACHED_CORE_MHZ, "reached core clock")
    roles["reached mem"] = _only(raw, units.REACHED_MEM_MHZ, "reached memory clock")
    return roles


def _only(raw: Raw, names: Collection[str], quantity: str) -> str | None:
    found = [name for name in names if name in raw.columns]
    if len(found) > 1:
        raise raw.fault(f"gives the {quantity}, and so does column {found[0]}; keep one of them", found[1])
    return found[0] if found else None


def _missing(raw: Raw, role: str) -> str:
    """What to add, and the column whose name comes nearest."""
    names, quantity = _WANTED[role]
    text = f"{quantity}, named {_either(names)}"
    if role == "energy":
        text += ", or mean power, named power_w"
    near = _near(raw, role)
    # without one, the memory was left to the GPU; another column may look like it
    otherwise = ", or drop it" if role == "mem" else ""
    return f"{text} (rename column {quote(near)}{otherwise}?)" if near else text


def _near(raw: Raw, role: str) -> str | None:
    """The column whose name comes nearest to a role that none plays."""
    plain = {re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_"): column for column in raw.columns}
    free = [column for column in plain if not units.quantity(plain[column]) and plain[column] not in units.RESERVED]
    close = [near for alias in units.ALIASES[role] for near in difflib.get_close_matches(alias, free, 1, 0.75)]
    return plain[close[0]] if close else None


def _either(names: Collection[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


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


def _energy(
    raw: Raw, columns: dict[str, Any], stated: dict[str, float], time_s: list[float]
) -> tuple[list[float], list[str]]:
    """(J per row, notices): as the table has it, or mean power x time."""
    column = columns["energy"]
    if column is not None:
        return _positive(raw, column, stated.get(column, units.PER_JOULE[column])), []
    column = columns["power"]
    power_w = _positive(raw, column, stated.get(column, units.PER_WATT[column]))
    notice = f"{raw.path}: no energy; it is {raw.shown.get(column, column)} x {columns['time']}, the mean power x time"
    return [power * time for power, time in zip(power_w, time_s, strict=True)], [notice]


def _check_power(
    raw: Raw, columns: dict[str, Any], columns_in: Mapping[str, str], time_s: list[float], energy_j: list[float]
) -> None:
    """Refuses a mean power that no board has, unless the user states both units."""
    other = columns["energy"] or columns["power"]
    if columns["time"] in columns_in and other in columns_in:
        return
    for row, (time, energy) in enumerate(zip(time_s, energy_j, strict=True)):
        if not units.LEAST_W <= energy / time <= units.HIGHEST_W:
            measured, took = (quote(raw.columns[column][row]) for column in (other, columns["time"]))
            raise raw.fault(
                f"{measured} in {took} ({columns['time']}) is a mean power of {_watts(energy / time)}, which no GPU "
                "draws; rename the column that is in another unit, or state both units: "
                f"--units {columns['time']}=UNIT {other}=UNIT",
                other,
                row,
            )


def _watts(power_w: float) -> str:
    for unit, scale in (("MW", 1e-6), ("kW", 1e-3), ("W", 1.0)):
        if power_w * scale >= 1:
            return f"{power_w * scale:.3g} {unit}"
    return f"{power_w * 1e3:.3g} mW"


def _clocks(raw: Raw, column: str, stated: dict[str, float]) -> Clocks:
    """Clocks asked for, MHz; None = auto."""
    words: dict[Any, float | None] = {}  # a table has many rows and few clocks: each word is understood once
    clocks: Clocks = []
    for row, cell in enumerate(raw.columns[column]):
        word = cell if cell is None or isinstance(cell, (str, float)) else str(cell)
        if word not in words:
            words[word] = _clock(raw, column, row, cell, stated)
        clocks.append(words[word])
    return clocks


def _memory_clocks(raw: Raw, column: str | None, stated: dict[str, float]) -> tuple[Clocks, list[str]]:
    """(Memory clocks asked for, MHz; notices): a table without any was measured with the memory left to the GPU."""
    if column is not None:
        return _clocks(raw, column, stated), []
    notice = f"{raw.path}: no memory clock (mem_mhz): taken as left to the GPU in every row"
    return [None] * len(raw.columns["kernel"]), [notice]


def _clock(raw: Raw, column: str, row: int, cell: object, stated: dict[str, float]) -> float | None:
    if is_empty(cell) or (isinstance(cell, str) and cell.strip().lower() == "auto"):
        return None
    mhz = to_number(cell)
    if mhz is None or not mhz > 0:
        raise raw.fault(f"unknown clock {quote(cell)}: a positive number of MHz, or auto (or empty)", column, row)
    return _plausible(raw, column, row, mhz, stated)


def _plausible(raw: Raw, column: str, row: int, value: float, stated: dict[str, float]) -> float:
    """The clock in MHz; raises InputError where no GPU has such a clock and the user did not state the unit."""
    mhz = value / stated.get(column, 1.0)
    if units.LEAST_MHZ <= mhz <= units.HIGHEST_MHZ or (column in stated and 0 < mhz < HIGHEST_SI):
        return mhz
    likely = next(
        (unit for unit, per in units.UNITS["clock"].items() if units.LEAST_MHZ <= value / per <= units.HIGHEST_MHZ),
        "UNIT",
    )
    raise raw.fault(
        f"{quote(raw.columns[column][row])} is no clock in MHz ({units.LEAST_MHZ:g} to {units.HIGHEST_MHZ:g}); "
        f"if the column is in another unit, state it: --units {raw.shown.get(column, column)}={likely}",
        column,
        row,
    )


def _reached(raw: Raw, column: str | None, stated: dict[str, float]) -> Clocks:
    """Clocks seen in effect, MHz; None = not recorded."""
    if column is None:
        return [None] * len(raw.columns["kernel"])
    values = raw.numbers(column)
    for row, value in enumerate(values):
        if value is not None and value < 0:
            raise raw.fault(f"{quote(raw.columns[column][row])} is no clock in MHz", column, row)
    return [_plausible(raw, column, row, value, stated) if value else None for row, value in enumerate(values)]


def _leave_the_only_memory_clock(core: Clocks, mem: Clocks, reached_mem: Clocks) -> None:
    """A memory clock that every row has is no choice: where the core is left to the GPU, so is the memory."""
    if len(set(mem)) > 1 or mem[0] is None:
        return
    for row, mhz in enumerate(core):
        if mhz is None:
            reached_mem[row], mem[row] = reached_mem[row] or mem[row], None


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


def _setting(raw: Raw, column: str, stated: dict[str, float]) -> list[Any]:
    """A further setting: numbers if every cell is one, else text; None where empty."""
    cells = raw.columns[column]
    numeric = all(is_empty(cell) or to_number(cell) is not None for cell in cells)
    if numeric or column in units.POWER_CAPS:
        values = raw.numbers(column)
        if column in units.POWER_CAPS:
            for row, value in enumerate(values):
                if value is not None and not value > 0:
                    raise raw.fault(f"{quote(cells[row])} is no power cap: a number above zero", column, row)
            per = stated.get(column, 1.0)
            values = [None if value is None else value / per for value in values]
            for row, value in enumerate(values):
                if value is not None and value > units.HIGHEST_W and column not in stated:
                    raise raw.fault(
                        f"{quote(cells[row])} is no power cap in W; if the column is in mW, state it: "
                        f"--units {raw.shown.get(column, column)}=mw",
                        column,
                        row,
                    )
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


def _copies(raw: Raw, groups: Iterable[list[int]]) -> list[str]:
    """A notice of rows that are equal in every cell: repeats never are to the last digit, so these may be copies."""
    copies = []
    for rows in groups:
        seen = set()
        for row in rows if len(rows) > 1 else ():
            cells = tuple(str(column[row]) for column in raw.columns.values())
            if cells in seen:
                copies.append(row)
            seen.add(cells)
    if not copies:
        return []
    many = f"{_many(len(copies), 'row')} {'is an exact copy' if len(copies) == 1 else 'are exact copies'} of another"
    return [
        f"{raw.path}, {raw.place(copies[0])}: {many}, counted as measured again; drop copies, if that is what they are"
    ]


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _size(raw: Raw, gpu: str, points: list[Point], settings: list[str]) -> str:
    kernels = len({point.kernel for point in points})
    keys = {(point.core_mhz, point.mem_mhz, *point.settings.values()) for point in points}
    rows = sum(len(point.rows) for point in points)
    pooled = [len(point.rows) for point in points if len(point.rows) > 1]
    text = (
        f"{raw.path}: {_many(kernels, 'kernel')} of {gpu}, {_many(len(keys), 'setting')} of {', '.join(settings)}; "
        f"{_many(len(points), 'point')} from {_many(rows, 'row')}"
    )
    if pooled:
        text += f", of which {_many(sum(pooled), 'row')} are repeats pooled into {_many(len(pooled), 'point')}"
    return text


def _baseline(points: list[Point], baselines: set[int], reference: object) -> str:
    """Which rows are the baseline, and why."""
    own = [points[index] for index in sorted(baselines)]
    if reference is not None:
        why = f"the reference {reference} that was asked for"
    elif all(point.auto for point in own):
        why = "the rows that lock no clock (auto)"
    elif not any(point.auto for point in own):
        why = "the rows marked is_reference, as no row is auto"
    else:
        many = sum(point.auto for point in own)
        why = f"the rows that lock no clock (auto) of {_many(many, 'kernel')}, those marked is_reference of the others"
    keys = {_label(point) for point in own}
    return f"baseline: {why}; " + (keys.pop() if len(keys) == 1 else f"{len(keys)} settings, by kernel")


def _reference(own: list[Point], asked: object) -> str | None:
    """What the baseline is, where it is not auto, as `--reference` takes it: by its clocks where all kernels share
    them."""
    if all(point.auto for point in own):
        return None
    settings = {_argument(point) for point in own}
    return settings.pop() if len(settings) == 1 else str(asked or "as marked")


def _argument(point: Point) -> str:
    clocks = ["auto" if clock is None else f"{clock:g}" for clock in (point.core_mhz, point.mem_mhz)]
    return ",".join([*clocks, *(f"{name}={value}" for name, value in point.settings.items() if value is not None)])


def _label(point: Point) -> str:
    clocks = ["auto" if clock is None else f"{clock:g} MHz" for clock in (point.core_mhz, point.mem_mhz)]
    further = [f"{name} {value}" for name, value in point.settings.items() if value is not None]
    return ", ".join([f"core {clocks[0]}", f"memory {clocks[1]}", *further])


_UNIT_NAMES = {"j": "J", "mj": "mJ", "uj": "uJ", "nj": "nJ", "kj": "kJ", "w": "W", "mw": "mW", "kw": "kW"}


def _units(
    shown: dict[str, str], columns: dict[str, Any], columns_in: Mapping[str, str], least_w: float, most_w: float
) -> str:
    said = []
    for role in ("time", "energy", "power", "core", "mem"):
        if role in shown:
            unit = columns[role].rpartition("_")[2] if role in ("time", "energy", "power") else "MHz"
            unit = columns_in.get(columns[role], unit).lower() if unit != "MHz" or columns[role] in columns_in else unit
            said.append(f"{shown[role]} in {_UNIT_NAMES.get(unit, unit)}")
    return f"units: {', '.join(said)}; mean power {least_w:.4g} to {most_w:.4g} W"


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
