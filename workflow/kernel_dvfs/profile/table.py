"""A measured table from anywhere (CSV, Parquet, a Kernel Tuner file) as a profile that can be chosen on.

It reads what the columns mean, pools repeats and finds the baselines.
"""

from __future__ import annotations

import difflib
import itertools
import math
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_dvfs.profile import units
from kernel_dvfs.profile.baseline import KernelSetting, choose_baselines
from kernel_dvfs.profile.raw import (
    RawTable,
    is_empty,
    is_not_there,
    many,
    quote,
    read_csv,
    read_parquet,
    some,
    to_number,
)
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import digest

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
    columns: Mapping[str, str] | None = None,
    only: Mapping[str, str] | None = None,
) -> Imported:
    """Read a measured table.

    path: a .csv, .parquet (.pq) or Kernel Tuner .json file.
    name: of the table (default: the file's stem); the slug of its GPU is `table-<name>`.
    settings: columns that are part of a point's key, besides the clocks and a power cap.
    reference: the baseline of every kernel, `CORE,MEM` in MHz or `auto`, or `highest` (see choose_baselines);
        default: the auto row, else the row marked is_reference.
    columns_in: {column: unit} where a column is in another unit than its name says (units.UNITS), such as
        {"core_mhz": "khz"}. A unit that is stated is believed, however implausible what follows from it.
    columns: {column: its heading in the file} where that is no known one, such as {"core_mhz": "coreF"}.
    only: {column: cell}: of several workloads in one table, the one whose rows have these cells.

    Columns: kernel; time_s, time_ms, time_us or time_ns; energy_j, energy_mj, ..., or mean power of the board
    (power_w, avg_power_w, ...), from which energy is power x time; core_mhz or core_mhz_requested, mem_mhz or
    mem_mhz_requested (empty, `auto`, `default` or -1 = not locked; a memory clock that is missing, or empty in every
    row, was left to the GPU, and so was the core clock where a power cap is there alone); optional is_auto,
    is_reference, gpu, core_mhz_applied. Rows equal in kernel and every setting are pooled: arithmetic means, sample sd
    (n - 1), n counted; those that differ by more than repeats do are refused. Rows whose time, energy or power is N/A
    are left out.

    Raises InputError: one line with file, place and column, on anything malformed.
    """
    raw, settings, notices = _read(path, list(settings), columns or {})
    in_file = raw.rows
    raw = _only_these(raw, only or {})
    settings = [raw.column(name) or name for name in settings]
    columns_in = {raw.column(name) or name: unit for name, unit in (columns_in or {}).items()}
    stated = _stated(raw, columns_in)
    roles = _roles(raw)
    raw = _measured(raw, roles)
    notices += raw.notices
    setting_columns = _setting_columns(raw, settings)
    kernels = _kernels(raw)
    time_s = _times(raw, roles["time"], stated)
    energy_j, notice = _energy(raw, roles, stated, time_s)
    notices += notice
    core, mem = (_clocks(raw, roles[role], stated) for role in ("core", "mem"))
    notices += _left_to_the_gpu(raw, roles)
    reached_core, reached_mem = (_reached(raw, roles[role], stated) for role in ("reached core", "reached mem"))
    _leave_the_only_memory_clock(core, mem, reached_mem)
    auto, reference_marks = _flags(raw, core, mem)
    notices += _release_auto_rows(raw, auto, core, mem, reached_core, reached_mem)
    extra = {column: _setting(raw, column, stated) for column in setting_columns}

    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(kernels, core, mem, *extra.values(), strict=True)):
        groups.setdefault(key, []).append(row)
    notices += _unrecognised(raw, setting_columns, groups.values(), only or {})
    notices += _copies(raw, groups.values())
    for column, values in ((roles["time"], time_s), (roles["energy"] or roles["power"], energy_j)):
        raw.refuse_scatter(column, values, groups.values(), lambda row: _what(kernels[row], core[row], mem[row]))

    points = [
        KernelSetting(
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
    notices += _ran_alike(raw, points, reached_core)
    gpu = {"kind": "table", "name": _one_gpu(raw) or _title(path, name), "slug": gpu_slug(path, name)}
    _check_power(raw, roles, columns_in, time_s, energy_j)

    profile = _profile_columns(points, list(extra), time_s, energy_j, reached_core, reached_mem, baselines)
    workload = {
        "name": "as-measured",
        "table": os.path.basename(path),
        "sha256": digest(path),
        "rows": len(kernels),
        # what the baseline is, where it is not auto
        "reference": _reference([points[index] for index in baselines], reference),
    }
    if len(kernels) < in_file:
        workload["rows_in_file"] = in_file
    shown = {role: raw.name(column) for role, column in roles.items() if column is not None}
    power = [energy / time for energy, time in zip(energy_j, time_s, strict=True)]
    read = [
        _size(raw, gpu["name"], points, ["core_mhz", "mem_mhz", *extra]),
        _baseline(points, baselines, reference),
        _units(shown, roles, columns_in, min(power), max(power)),
    ]
    if max(power) > _ONE_GPU_W:
        notices.append(
            f"{path}: {units.watts(max(power))} is more than one GPU is known to draw; if it is of several, "
            "divide it by how many"
        )
    return Imported(profile, gpu, workload, ["core_mhz", "mem_mhz", *extra], read, notices)


_ONE_GPU_W = 1_500.0  # no board of today is allowed more


def import_to_profile(
    path: AnyPath,
    out: AnyPath,
    name: str | None = None,
    settings: Iterable[str] = (),
    reference: object = None,
    columns_in: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    only: Mapping[str, str] | None = None,
) -> Imported:
    """Read a measured table (see import_table) and write it as a profile to `out`, whole or not at all."""
    from kernel_dvfs.profile.store import write_profile  # pyarrow, which a plan does without

    imported = import_table(path, name, settings, reference, columns_in, columns, only)
    write_profile(out, imported.columns, imported.gpu, imported.workload, imported.settings)
    return imported


def gpu_slug(path: AnyPath, name: str | None = None) -> str:
    """Return `table-<name or the file's stem>`, the name of the results folder; the file itself is not read.

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
    points: list[KernelSetting],
    extra: list[str],
    time_s: list[float],
    energy_j: list[float],
    reached_core: Clocks,
    reached_mem: Clocks,
    baselines: set[int],
) -> dict[str, list[Any]]:
    """Return the columns of store.write_profile: a row per point, in the order the table first names them."""
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


def _read(path: AnyPath, settings: list[str], named: Mapping[str, str]) -> tuple[RawTable, list[str], list[str]]:
    """Return (RawTable, settings, notices) by the file's ending."""
    for column in named:
        if units.known_as(column) != column and column not in units.POWER_CAPS:
            raise InputError(f"{path}: no column {quote(column)} to name {quote(named[column])} as; {_NAMES}")
    ending = os.path.splitext(path)[1].lower()
    if ending == ".csv":
        return read_csv(path, named=named), settings, []
    if ending in (".parquet", ".pq"):
        return read_parquet(path, named), settings, []
    if ending == ".json":
        if named:
            raise InputError(f"{path}: a Kernel Tuner file names its columns itself; leave `columns` out")
        from kernel_dvfs.profile.kernel_tuner import read_kernel_tuner  # pyarrow, as above

        read = read_kernel_tuner(path, settings)
        # a declared name that is no parameter is left to be reported
        unknown = [name for name in settings if name not in read.raw.shown.values()]
        return read.raw, read.settings + unknown, read.notices
    raise InputError(f"{path}: unknown file ending {ending or '(none)'}; give .csv, .parquet or a Kernel Tuner .json")


_NAMES = "columns are kernel, time_s, time_ms, energy_j, power_w, core_mhz, mem_mhz, power_cap_w and the like"


def _only_these(raw: RawTable, only: Mapping[str, str]) -> RawTable:
    """Return the rows of one workload of several."""
    for name, wanted in only.items():
        column = raw.column(name)
        if column is None:
            raise raw.fault("a workload is chosen by it, but the table has no such column", name)
        cells = raw.texts(column)
        if wanted not in cells:
            raise raw.fault(f"no row has {quote(wanted)}; it has {some(dict.fromkeys(map(quote, cells)))}", column)
        raw = raw.without([row for row, cell in enumerate(cells) if cell != wanted], f"{name} is not {wanted}")
    return raw


def _measured(raw: RawTable, roles: dict[str, Any]) -> RawTable:
    """Return the rows in which nothing that was measured is N/A."""
    of = [raw.columns[roles[role]] for role in ("time", "energy", "power") if roles[role] is not None]
    gone = [row for row in range(raw.rows) if any(is_not_there(cells[row]) for cells in of)]
    if len(gone) == raw.rows:
        raise raw.fault("no row has a time and an energy or power; all are N/A", None, 0)
    return raw.without(gone, "N/A where a measurement belongs")


def _stated(raw: RawTable, columns_in: Mapping[str, str]) -> dict[str, float]:
    """Return {column: how many of its units make one s, J, W or MHz} as the user states them."""
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


def _roles(raw: RawTable) -> dict[str, Any]:
    """Return role -> the one column that plays it; the reached clocks, a memory clock that no column looks like, and
    energy or else power, may be missing (None).

    Raises InputError naming everything that is missing, with columns that look like it.
    """
    roles = {role: _only(raw, names, quantity) for role, (names, quantity) in _WANTED.items()}
    roles["power"] = _only(raw, units.PER_WATT, "mean power") if roles["energy"] is None else None
    missing = [role for role in _WANTED if roles[role] is None and (role != "energy" or roles["power"] is None)]
    missing = [role for role in missing if role != "mem" or _near(raw, role)]
    if any(column in units.POWER_CAPS for column in raw.columns) and not _near(raw, "core"):
        missing = [role for role in missing if role != "core"]  # limits of power alone: no clock was locked
    if missing:
        raise raw.fault(f"missing: {'; '.join(_missing(raw, role) for role in missing)}")
    roles["reached core"] = _only(raw, units.REACHED_CORE_MHZ, "reached core clock")
    roles["reached mem"] = _only(raw, units.REACHED_MEM_MHZ, "reached memory clock")
    return roles


def _only(raw: RawTable, names: Collection[str], quantity: str) -> str | None:
    columns = [name for name in names if name in raw.columns]
    if len(columns) > 1:
        raise raw.fault(f"gives the {quantity}, and so does column {columns[0]}; keep one of them", columns[1])
    return columns[0] if columns else None


def _missing(raw: RawTable, role: str) -> str:
    """Return what to add, and the column whose name comes nearest."""
    names, quantity = _WANTED[role]
    text = f"{quantity}, named {_either(names)}"
    if role == "energy":
        text += ", or mean power, named power_w"
    near = _near(raw, role)
    # without one, the memory was left to the GPU; another column may look like it
    otherwise = ", or drop it" if role == "mem" else ""
    if near is None:
        return text
    name = next((column for column in names if units.plain(near).endswith(column[column.rfind("_") :])), names[0])
    return f"{text} (--columns {shlex.quote(f'{name}={near}')}{otherwise}?)"


_LOOKED_AT = 200  # columns, for one whose name comes near: each is compared with a dozen words


def _near(raw: RawTable, role: str) -> str | None:
    """Return the column whose name comes nearest to a role that none plays."""
    plain = {units.plain(column): column for column in raw.columns}
    free = [column for column in plain if not units.quantity(plain[column]) and plain[column] not in units.RESERVED]
    free = free[:_LOOKED_AT]
    close = [near for alias in units.ALIASES[role] for near in difflib.get_close_matches(alias, free, 1, 0.75)]
    return plain[close[0]] if close else None


def _either(names: Collection[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _setting_columns(raw: RawTable, declared: list[str]) -> list[str]:
    """Return the columns beyond the clocks that are part of a point's key, in the table's order."""
    from kernel_dvfs.profile.store import COLUMNS  # pyarrow, as above

    for column in declared:
        if column not in raw.columns:
            raise raw.fault("declared a setting, but the table has no such column", column)
        if column in units.RESERVED or column in COLUMNS:
            raise raw.fault("declared a setting, but the name means something else; rename the column", column)
    return [column for column in raw.columns if column in declared or column in units.POWER_CAPS]


def _kernels(raw: RawTable) -> list[str]:
    for row, cell in enumerate(raw.columns["kernel"]):
        if is_empty(cell):
            raise raw.fault("is empty; name the kernel", "kernel", row)
    return [str(cell).strip() for cell in raw.columns["kernel"]]


def _times(raw: RawTable, column: str, stated: dict[str, float]) -> list[float]:
    """Return s per launch: any where the user stated the unit, else what a launch can take."""
    time_s = raw.positive(column, HIGHEST_SI, stated.get(column, units.PER_SECOND[column]))
    for row, time in enumerate(time_s):
        if column not in stated and not units.is_possible("time", time):
            raise raw.fault(
                f"{quote(raw.columns[column][row])} is {time:.3g} s, no time of a launch; if the column is in another "
                f"unit, state it: --units {column}=UNIT",
                column,
                row,
            )
    return time_s


def _energy(
    raw: RawTable, columns: dict[str, Any], stated: dict[str, float], time_s: list[float]
) -> tuple[list[float], list[str]]:
    """Return (J per row, notices): as the table has it, or mean power x time."""
    column = columns["energy"]
    if column is not None:
        energy_j = raw.positive(column, HIGHEST_SI, stated.get(column, units.PER_JOULE[column]))
        return energy_j, _other_power(raw, stated, time_s, energy_j)
    column = columns["power"]
    power_w = raw.positive(column, HIGHEST_SI, stated.get(column, units.PER_WATT[column]))
    notice = f"{raw.path}: no energy; it is {raw.name(column)} x {columns['time']}, the mean power x time"
    return [power * time for power, time in zip(power_w, time_s, strict=True)], [notice]


_SAME_POWER = 0.1  # of the energy over the time, that a column of power may be off


def _other_power(
    raw: RawTable, stated: Mapping[str, float], time_s: Sequence[float], energy_j: Sequence[float]
) -> list[str]:
    """Return a line where a table has both, and its power is another than its energy over its time."""
    for column in (name for name in units.PER_WATT if name in raw.columns):
        for row, cell in enumerate(raw.columns[column]):
            power_w, mean_w = to_number(cell), energy_j[row] / time_s[row]
            if power_w and abs(power_w / stated.get(column, units.PER_WATT[column]) / mean_w - 1) > _SAME_POWER:
                difference = f"{raw.name(column)} is {quote(cell)} where energy over time is {units.watts(mean_w)}"
                return [f"{raw.path}, {raw.place(row)}: {difference}; the energy counts: is it of the whole board?"]
    return []


def _check_power(
    raw: RawTable, columns: dict[str, Any], columns_in: Mapping[str, str], time_s: list[float], energy_j: list[float]
) -> None:
    """Refuses a mean power that no board has, unless the user states both units."""
    other = columns["energy"] or columns["power"]
    if columns["time"] in columns_in and other in columns_in:
        return
    for row, (time, energy) in enumerate(zip(time_s, energy_j, strict=True)):
        if not units.is_possible("power", energy / time):
            measured, took = (quote(raw.columns[column][row]) for column in (other, columns["time"]))
            raise raw.fault(
                f"{measured} in {took} ({columns['time']}) is a mean power of {units.watts(energy / time)}, which no "
                f"GPU draws; {_likely(columns, columns_in, energy / time)}",
                other,
                row,
            )


def _likely(columns: dict[str, Any], columns_in: Mapping[str, str], power_w: float) -> str:
    """Return what to state about units where a mean power is impossible."""

    def taken(column: str) -> str:
        return columns_in.get(column, column.rpartition("_")[2]).lower()

    time = columns["time"]
    if columns["energy"]:
        guesses = units.guess_pair(power_w, taken(time), taken(columns["energy"]))
    else:
        unit = units.guess("power", power_w * units.UNITS["power"][taken(columns["power"])])
        guesses = [("power", unit)] if unit else []
    words = [
        f"{columns[role]} is in {units.UNIT_NAMES.get(unit, unit)}: --units {columns[role]}={unit}"
        for role, unit in guesses
    ]
    if not words:
        return f"state both units: --units {time}=UNIT {columns['energy'] or columns['power']}=UNIT"
    return "if " + ", or if ".join(words)


def _clocks(raw: RawTable, column: str | None, stated: dict[str, float]) -> Clocks:
    """Return clocks asked for, MHz; None = auto, as every one of a clock that the table has no column of."""
    if column is None:
        return [None] * raw.rows
    return raw.clocks(column, stated.get(column), _state(raw, column))


def _state(raw: RawTable, column: str) -> Callable[[str], str]:
    return lambda unit: (
        f"if the column is in another unit, state it: --units {shlex.quote(f'{raw.name(column)}={unit}')}"
    )


def _left_to_the_gpu(raw: RawTable, roles: dict[str, Any]) -> list[str]:
    """Return notices: a table without a clock was measured with it left to the GPU, and so was a row that says -1."""
    notices = []
    for role, column, clock in (("core", "core_mhz", "core"), ("mem", "mem_mhz", "memory")):
        if roles[role] is None:
            notices.append(f"{raw.path}: no {clock} clock ({column}): taken as left to the GPU in every row")
        elif odd := [row for row, cell in enumerate(raw.texts(roles[role])) if cell in ("-1", "-1.0")]:
            what = f"{raw.name(roles[role])} is -1 in {many(len(odd), 'row')}: taken as not locked"
            notices.append(f"{raw.path}, {raw.place(odd[0])}: {what}")
    return notices


def _reached(raw: RawTable, column: str | None, stated: dict[str, float]) -> Clocks:
    """Return clocks seen in effect, MHz; None = not recorded."""
    if column is None:
        return [None] * raw.rows
    values = raw.numbers(column)
    for row, value in enumerate(values):
        if value is not None and value < 0:
            raise raw.fault(f"{quote(raw.columns[column][row])} is no clock in MHz", column, row)
    per, remedy = stated.get(column), _state(raw, column)
    return [raw.plausible_mhz(column, row, value, per, remedy) if value else None for row, value in enumerate(values)]


def _leave_the_only_memory_clock(core: Clocks, mem: Clocks, reached_mem: Clocks) -> None:
    """A memory clock that every row has is no choice: where the core is left to the GPU, so is the memory."""
    if len(set(mem)) > 1 or mem[0] is None:
        return
    for row, mhz in enumerate(core):
        if mhz is None:
            reached_mem[row], mem[row] = reached_mem[row] or mem[row], None


def _flags(raw: RawTable, core: Clocks, mem: Clocks) -> tuple[list[bool], list[bool]]:
    """Return (is_auto, is_reference) by row. Without a column is_auto, a row is auto when it locks neither clock."""
    unlocked = [c is None and m is None for c, m in zip(core, mem, strict=True)]
    auto = _marks(raw, "is_auto") if "is_auto" in raw.columns else unlocked
    return auto, _marks(raw, "is_reference") if "is_reference" in raw.columns else [False] * len(core)


def _marks(raw: RawTable, column: str) -> list[bool]:
    no, yes = ("", "0", "0.0", "false", "no"), ("1", "1.0", "true", "yes")
    words = dict.fromkeys(no, False) | dict.fromkeys(yes, True)
    marks = []
    for row, cell in enumerate(raw.columns[column]):
        mark = words.get("" if cell is None else str(cell).strip().lower())
        if mark is None:
            raise raw.fault(f"{quote(cell)} is neither 1/yes/true nor 0/no/false", column, row)
        marks.append(mark)
    return marks


def _release_auto_rows(
    raw: RawTable, auto: list[bool], core: Clocks, mem: Clocks, reached_core: Clocks, reached_mem: Clocks
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


def _setting(raw: RawTable, column: str, stated: dict[str, float]) -> list[Any]:
    """Return a further setting: numbers if every cell is one, else text; None where empty."""
    cells, is_cap = raw.columns[column], column in units.POWER_CAPS
    if not is_cap and not all(is_empty(cell) or to_number(cell) is not None for cell in cells):
        return [None if is_empty(cell) else str(cell).strip() for cell in cells]
    values = raw.numbers(column)
    for row, value in enumerate(values) if is_cap else ():
        if value is not None and not value > 0:
            raise raw.fault(f"{quote(cells[row])} is no power cap: a number above zero", column, row)
        if value is not None and value > units.HIGHEST_W and column not in stated:
            remedy = f"if the column is in mW, state it: --units {shlex.quote(f'{raw.name(column)}=mw')}"
            raise raw.fault(f"{quote(cells[row])} is no power cap in W; {remedy}", column, row)
    return [None if value is None else value / stated.get(column, 1.0) for value in values]


def _unrecognised(
    raw: RawTable, setting_columns: list[str], groups: Iterable[list[int]], only: Mapping[str, str]
) -> list[str]:
    """Return a notice of the columns whose meaning is unknown; an error if one of them tells pooled rows apart."""
    unknown = [
        column
        for column in raw.columns
        if column not in units.RESERVED
        and column not in setting_columns
        and not units.is_known(units.plain(column))
        and raw.name(column) not in only
    ]
    pooled = [rows for rows in groups if len(rows) > 1]
    for column in unknown:
        cells = raw.columns[column]
        for rows in pooled:
            other = next((row for row in rows if cells[row] != cells[rows[0]]), None)
            if other is not None:
                raise raw.fault(
                    f"{quote(cells[rows[0]])} in {raw.place(rows[0])} but {quote(cells[other])} here, in rows with the "
                    f"same settings; if these are workloads, read one: --only {_word(column, cells[rows[0]])}; if it "
                    f"is a setting: --settings {shlex.quote(column)}; if it says nothing, leave it out of the table",
                    column,
                    other,
                )
    if not unknown:
        return []
    plural = "columns" if len(unknown) > 1 else "column"
    notices = [f"{raw.path}: {plural} {some(unknown)} ignored: neither a setting nor a known measurement"]
    return notices + [notice for column in unknown for notice in _maybe_workloads(raw, column)]


def _maybe_workloads(raw: RawTable, column: str) -> list[str]:
    """Return a notice where words that nobody understands tell settings of one kernel apart: another workload at each
    would be compared with the baseline's."""
    first: dict[str, str] = {}
    for row, (kernel, word) in enumerate(zip(raw.texts("kernel"), raw.texts(column), strict=True)):
        before = first.setdefault(kernel, word)
        if before != word and to_number(word) is None and to_number(before) is None:
            what = f"{quote(word)} here but {quote(before)} before, both of {kernel}: if these are workloads, they are"
            where = f"{raw.path}, {raw.place(row)}, column {column}"
            return [f"{where}: {what} compared with each other; read one: --only {_word(column, before)}"]
    return []


def _word(column: str, cell: object) -> str:
    return shlex.quote(f"{column}={cell}"[:80])


# MHz between reached clocks that are one: boards lock in steps of 15
_ONE_CLOCK_MHZ = 8.0


def _ran_alike(raw: RawTable, points: list[KernelSetting], reached_mhz: Clocks) -> list[str]:
    """Return a notice of requests for different core clocks that ran at one: they differ by noise alone."""
    lines: list[str] = []
    groups: dict[tuple[Any, ...], list[tuple[float, float, KernelSetting]]] = {}
    for point in points:
        mhz = _mean_known(reached_mhz, point.rows)
        if mhz is not None and point.core_mhz is not None:
            key = (point.kernel, point.mem_mhz, *point.settings.values())
            groups.setdefault(key, []).append((mhz, point.core_mhz, point))
    for key, asked_for in groups.items():
        asked_for.sort(key=lambda request: request[:2])
        for (mhz, asked, _), (other, more, point) in itertools.pairwise(asked_for):
            if other - mhz < _ONE_CLOCK_MHZ <= abs(more - asked):
                lines.append(
                    f"{raw.path}, {raw.place(point.rows[0])}: {key[0]} asked for {asked:g} and {more:g} MHz ran at one "
                    f"clock ({mhz:.0f}, {other:.0f} MHz): between these only noise chooses"
                )
    return lines[:1] + ([f"{raw.path}: {len(lines) - 1} more requests that ran at one clock"] if lines[1:] else [])


def _what(kernel: str, core_mhz: float | None, mem_mhz: float | None) -> str:
    return f"{kernel} at {', '.join('auto' if mhz is None else f'{mhz:g} MHz' for mhz in (core_mhz, mem_mhz))}"


def _copies(raw: RawTable, groups: Iterable[list[int]]) -> list[str]:
    """Return a notice of rows that are equal in every cell: repeats never are to the last digit, so these may be
    copies."""
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
    what = f"{many(len(copies), 'row')} {'is an exact copy' if len(copies) == 1 else 'are exact copies'} of another"
    return [
        f"{raw.path}, {raw.place(copies[0])}: {what}, counted as measured again; drop copies, if that is what they are"
    ]


def _size(raw: RawTable, gpu: str, points: list[KernelSetting], settings: list[str]) -> str:
    kernels = len({point.kernel for point in points})
    keys = {(point.core_mhz, point.mem_mhz, *point.settings.values()) for point in points}
    rows = sum(len(point.rows) for point in points)
    pooled = [len(point.rows) for point in points if len(point.rows) > 1]
    text = (
        f"{raw.path}: {many(kernels, 'kernel')} of {gpu}, {many(len(keys), 'setting')} of {', '.join(settings)}; "
        f"{many(len(points), 'point')} from {many(rows, 'row')}"
    )
    if pooled:
        text += f", of which {many(sum(pooled), 'row')} are repeats pooled into {many(len(pooled), 'point')}"
    return text


def _baseline(points: list[KernelSetting], baselines: set[int], reference: object) -> str:
    """Return which rows are the baseline, and why."""
    marked = [points[index] for index in sorted(baselines)]
    if reference is not None:
        why = f"the reference {reference} that was asked for"
    elif all(point.auto for point in marked):
        why = "the rows that lock no clock (auto)"
    elif not any(point.auto for point in marked):
        why = "the rows marked is_reference, as no row is auto"
    else:
        auto = sum(point.auto for point in marked)
        why = f"the rows that lock no clock (auto) of {many(auto, 'kernel')}, those marked is_reference of the others"
    keys = {_label(point) for point in marked}
    return f"baseline: {why}; " + (keys.pop() if len(keys) == 1 else f"{len(keys)} settings, by kernel")


def _reference(points: list[KernelSetting], asked: object) -> str | None:
    """Return what the baseline is, where it is not auto, as `--reference` takes it: by its clocks where all kernels
    share them."""
    if all(point.auto for point in points):
        return None
    settings = {_argument(point) for point in points}
    return settings.pop() if len(settings) == 1 else str(asked or "as marked")


def _argument(point: KernelSetting) -> str:
    clocks = ["auto" if clock is None else f"{clock:g}" for clock in (point.core_mhz, point.mem_mhz)]
    return ",".join([*clocks, *(f"{name}={value}" for name, value in point.settings.items() if value is not None)])


def _label(point: KernelSetting) -> str:
    clocks = ["auto" if clock is None else f"{clock:g} MHz" for clock in (point.core_mhz, point.mem_mhz)]
    further = [f"{name} {value}" for name, value in point.settings.items() if value is not None]
    return ", ".join([f"core {clocks[0]}", f"memory {clocks[1]}", *further])


def _units(
    shown: dict[str, str], columns: dict[str, Any], columns_in: Mapping[str, str], least_w: float, most_w: float
) -> str:
    stated = []
    for role in ("time", "energy", "power", "core", "mem"):
        if role in shown:
            measured = role in ("time", "energy", "power")
            unit = columns[role].rpartition("_")[2] if measured else units.clock_unit(shown[role])
            unit = columns_in.get(columns[role], unit).lower()
            stated.append(f"{shown[role]} in {units.UNIT_NAMES.get(unit, unit)}")
    return f"units: {', '.join(stated)}; mean power {least_w:.4g} to {most_w:.4g} W"


def _one_gpu(raw: RawTable) -> str | None:
    """Return the GPU's name, None where the table has none."""
    name = None
    for row, cell in enumerate(raw.columns.get("gpu", ())):
        if is_empty(cell):
            continue
        gpu = str(cell).strip()
        name = gpu if name is None else name
        if gpu != name:
            raise raw.fault(f"{quote(gpu)} after {quote(name)}: a table holds one GPU; split it by GPU", "gpu", row)
    return name


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if len(values) > 1 else values[0]


def _mean_known(values: Clocks, rows: list[int]) -> float | None:
    known = [value for value in (values[row] for row in rows) if value is not None]
    return _mean(known) if known else None


def _sd(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1); None for a single value."""
    if len(values) < 2:
        return None
    mean = _mean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
