"""The profile on disk: its columns, its metadata, and the checks that writers and readers rely on.

Parquet through pyarrow only. It does not matter here where the rows came from (measurements, a table), nor what is
chosen from them. Metadata, names and cells stand under one checksum (see files), which is kept in the metadata; the
profiles of versions that wrote none are accepted without.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from kernel_dvfs_clocks import shape
from kernel_dvfs_clocks.errors import InputError, Missing, unread
from kernel_dvfs_clocks.files import CHECKSUM, checksum, parse_json, whole
from kernel_dvfs_clocks.shape import Is, Text

if TYPE_CHECKING:
    from os import PathLike

SCHEMA = "kernel-dvfs/profile/1"
METADATA_KEY = b"kernel_dvfs"
CLOCKS = ("core_mhz", "mem_mhz")
STUDIES = ("kernel", "pass", "step")
GPU_KINDS = ("simulated", "table", "nvml")


class _ProfileGpu(TypedDict):
    kind: Annotated[str, Is(f"one of {', '.join(GPU_KINDS)}", GPU_KINDS.__contains__)]
    name: Text
    slug: Text


class _Workload(TypedDict):
    name: str


class _Metadata(TypedDict):
    """What is relied on of a profile's metadata; GPU and workload say more."""

    schema: str
    gpu: _ProfileGpu
    workload: _Workload
    settings: Annotated[
        list[str], Is(f"a list that begins with {', '.join(CLOCKS)}", lambda value: tuple(value[:2]) == CLOCKS)
    ]
    sha256: NotRequired[str]


# name, type, may be null
FIELDS = (
    ("study", pa.string(), False),
    ("target", pa.string(), False),
    ("launches_per_iteration", pa.int64(), False),
    ("core_mhz", pa.float64(), True),
    ("mem_mhz", pa.float64(), True),
    ("reached_core_mhz", pa.float64(), True),
    ("reached_mem_mhz", pa.float64(), True),
    ("time_s", pa.float64(), False),
    ("time_sd_s", pa.float64(), True),
    ("energy_j", pa.float64(), False),
    ("energy_sd_j", pa.float64(), True),
    ("n", pa.int64(), False),
    ("verdict", pa.string(), False),
    ("replicate_group", pa.string(), True),
    ("is_baseline", pa.bool_(), False),
    # of time_s and energy_j, what differs between campaigns included; null where nothing tells
    ("time_se_s", pa.float64(), True),
    ("energy_se_j", pa.float64(), True),
)
COLUMNS = tuple(name for name, _, _ in FIELDS)


class Profile(NamedTuple):
    """A profile as read."""

    # the columns `COLUMNS`, then one per further setting; clocks in MHz (null = auto), time_s and energy_j per launch
    # in s and J, sd null where n = 1
    table: pa.Table
    metadata: dict[str, Any]  # schema, gpu {kind, name, slug}, workload {name, ...}, settings [core_mhz, mem_mhz, ...]
    path: str  # as messages name it


def write_profile(
    path: str | PathLike[str],
    columns: Mapping[str, Sequence[Any]],
    gpu: Mapping[str, Any],
    workload: Mapping[str, Any],
    settings: Iterable[str],
) -> None:
    """Write a profile, whole or not at all.

    columns: a list per column of `COLUMNS` and per further setting named in `settings`, all of one length.
    A setting of numbers is stored as float64, any other as text; None is null.

    Raises ValueError where the caller broke the contract, InputError where the file cannot be written.
    """
    settings = list(settings)
    if tuple(settings[:2]) != CLOCKS:
        raise ValueError(f"settings begin with {CLOCKS}, not {settings[:2]}")
    extra = settings[2:]
    expected = [*COLUMNS, *extra]
    if len(set(expected)) != len(expected):
        raise ValueError(f"a setting carries the name of another column: {settings}")
    if set(columns) != set(expected):
        raise ValueError(
            f"profile columns: missing {sorted(set(expected) - set(columns))}, "
            f"unexpected {sorted(set(columns) - set(expected))}"
        )
    if len({len(columns[name]) for name in expected}) != 1:
        raise ValueError(f"columns differ in length: { {name: len(columns[name]) for name in expected} }")

    metadata = {"schema": SCHEMA, "gpu": dict(gpu), "workload": dict(workload), "settings": settings}
    schema = pa.schema([pa.field(*field) for field in FIELDS])
    for name in extra:
        schema = schema.append(pa.field(name, _setting_type(columns[name])))
    try:
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"a profile column holds a value of the wrong type: {error}") from None
    table = pa.Table.from_arrays(arrays, schema=schema)
    fault = _metadata_fault(metadata) or _fault(table, extra)
    if fault:
        raise ValueError(f"not a profile: {fault}")
    metadata[CHECKSUM] = _checksum(table, metadata)
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata, allow_nan=False)})
    try:
        # opened here, because pyarrow's own errors name a file within their text alone
        with whole(path) as temporary, open(temporary, "wb") as file:
            # so that a flipped bit is found, instead of another schedule being chosen
            pq.write_table(table, file, write_page_checksum=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def read_profile(path: str | PathLike[str]) -> Profile:
    """Read and check a profile. Raises InputError, with the file's name, on anything that is not one."""
    remedy = "make it with `kernel-dvfs import` (a table) or the workflow's `profile` target"
    table = read_parquet(path, remedy)
    packed = (table.schema.metadata or {}).get(METADATA_KEY)
    if packed is None:
        raise InputError(f"{path}: a Parquet file, but not a profile (no kernel_dvfs metadata); {remedy}")
    try:
        metadata = parse_json(packed.decode())
    except ValueError:
        raise InputError(f"{path}: the kernel_dvfs metadata is not JSON; {remedy}") from None
    fault = _metadata_fault(metadata)
    fault = fault or _fault(table, metadata["settings"][2:])
    if fault:
        raise InputError(f"{path}: not a profile: {fault}; {remedy}")
    if CHECKSUM in metadata and metadata.pop(CHECKSUM) != _checksum(table, metadata):
        raise InputError(
            f"{path}: was changed since it was written: its {CHECKSUM} is another's; delete it, and {remedy}"
        )
    return Profile(table, metadata, os.fspath(path))


def read_parquet(path: str | PathLike[str], remedy: str) -> pa.Table:
    """Return the whole of any Parquet file. Raises InputError, with the file's name, if it is none or cut short."""
    try:
        # ParquetFile, not read_table: that one pulls in pyarrow.dataset
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if fault := _too_much(file, os.stat(path).st_size):
                raise InputError(f"{path}: {fault}; {remedy}")
            return _whole_table(file, path, remedy)
    except FileNotFoundError:
        raise Missing(f"{path}: no such file; {remedy}") from None
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name in the footer that is no UTF-8
        raise InputError(f"{path}: not a readable Parquet file ({_brief(error)}); {remedy}") from None


# what a file may hold without a look at its size; beyond, a byte for each value, which no measurement is packed below
_FREE_VALUES, _FREE_BYTE = 200_000, 64 << 20


def _too_much(file: pq.ParquetFile, size_byte: int) -> str:
    """Return what a file says that it unpacks to, where that is more than its size can mean; "" where it is not."""
    nested = next((field for field in file.schema_arrow if pa.types.is_nested(field.type)), None)
    if nested is not None:
        return f"column {nested.name} holds {nested.type}, where a number or a text belongs"
    values = file.metadata.num_rows * file.metadata.num_columns
    if values > max(_FREE_VALUES, size_byte):
        return f"{size_byte} bytes that unpack to {values} values, which no measurements are packed to"
    if _unpacked(file) > max(_FREE_BYTE, 20 * size_byte):
        return f"{size_byte} bytes that unpack to {_unpacked(file)} bytes"
    return ""


def _unpacked(file: pq.ParquetFile) -> int:
    """Return the bytes of the largest part of a file, unpacked. Of each column by itself pyarrow aborts where it is
    damaged."""
    about = file.metadata
    return max((about.row_group(part).total_byte_size for part in range(about.num_row_groups)), default=0)


def _whole_table(file: pq.ParquetFile, path: str | PathLike[str], remedy: str) -> pa.Table:
    """Return all rows. A text that the file holds once may stand in each of them: where that could be too much, rows
    are written out in parts, and no further than what is allowed."""
    longest = max(_unpacked(file), 1)
    if longest * file.metadata.num_rows <= _FREE_BYTE:
        return file.read(use_threads=False)
    parts, held = [], 0
    for part in file.iter_batches(max(1, _FREE_BYTE // longest), use_threads=False):
        parts.append(part)
        held += part.nbytes
        if held > max(_FREE_BYTE, 20 * os.stat(path).st_size):
            raise InputError(f"{path}: texts of more than {held} bytes in its rows; {remedy}")
    return pa.Table.from_batches(parts, file.schema_arrow)


def _checksum(table: pa.Table, metadata: Mapping[str, Any]) -> str:
    return checksum({"metadata": metadata, "columns": table.to_pydict()})


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 120 else text[:117] + "..."


def _setting_type(values: Sequence[Any]) -> pa.DataType:
    numeric = all(v is None or (isinstance(v, Real) and not isinstance(v, bool)) for v in values)
    return pa.float64() if numeric else pa.string()


def _metadata_fault(metadata: Any) -> str:
    """Return what is wrong with the metadata; "" where nothing is."""
    if not isinstance(metadata, dict) or metadata.get("schema") != SCHEMA:
        return unread(metadata, SCHEMA)
    return shape.fault(metadata, _Metadata)


def _fault(table: pa.Table, extra: Sequence[str]) -> str:
    """Return what is wrong with the columns; "" where nothing is."""
    names = [*COLUMNS, *extra]
    if table.column_names != names:
        missing = [name for name in names if name not in table.column_names]
        surplus = [name for name in table.column_names if name not in names]
        return f"columns missing: {missing}, unexpected: {surplus}" if missing or surplus else "columns out of order"
    for name, type_, nullable in FIELDS:
        column = table[name]
        if column.type != type_:
            return f"column {name} is {column.type}, not {type_}"
        if column.null_count and not nullable:
            return f"column {name} has empty cells"
    for name in extra:
        if table[name].type not in (pa.float64(), pa.string()):
            return f"column {name} is {table[name].type}, not double or string"
        if not all(math.isfinite(value) for value in table[name].to_pylist() if isinstance(value, float)):
            return f"column {name} holds a value that is not finite"
    if not table.num_rows:
        return "it has no rows"
    for name in [name for name, type_, _ in FIELDS if type_ == pa.float64()]:
        # lists, because pyarrow's to_numpy imports pandas, and its drop_null, unique and the like pyarrow.compute: half
        # a second in every job that chooses
        values = [value for value in table[name].to_pylist() if value is not None]
        least = 0.0 if "_sd_" in name or "_se_" in name else math.ulp(0.0)
        if not all(least <= value < math.inf for value in values):
            return f"column {name} holds a value that is not positive and finite"
    if min(table["n"].to_pylist()) < 1 or min(table["launches_per_iteration"].to_pylist()) < 1:
        return "n and launches_per_iteration are at least 1"
    strange = set(table["study"].to_pylist()) - set(STUDIES)
    return f"study {strange.pop()!r} is not one of {', '.join(STUDIES)}" if strange else ""
