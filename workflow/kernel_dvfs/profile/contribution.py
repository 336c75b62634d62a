"""Measurements for others: a profile with what is known of the board, anonymised, in one archive; and reading one.

An archive (`.tar.gz`), or a folder of the same files as a public collection keeps it, holds contribution.json (schema,
licence, board, driver, workload, checksums), profile.csv, and latency.json where the latency of clock changes was
measured. Who measured, on which machine and in which folder is not in it: only fields that are listed here leave, the
board goes by a salted hash, and what still looks like a path, a host or a user is refused. Nothing is sent anywhere.
"""

from __future__ import annotations

import csv
import getpass
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import socket
import statistics
import tarfile
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_dvfs import __version__
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import parse_json, read_json, whole, write_text
from kernel_dvfs.measurement import latency_file, setup
from kernel_dvfs.measurement.consistency import LIMIT_FACTOR
from kernel_dvfs.profile import store
from kernel_dvfs.profile.table import gpu_slug
from kernel_dvfs.strict_schema import StrictValidator
from kernel_dvfs.workload.step import WITHIN

if TYPE_CHECKING:
    from typing import TypeAlias

    AnyPath: TypeAlias = str | os.PathLike[str]

SCHEMA = "kernel-dvfs/contribution/1"
LICENCE = "CC-BY-4.0"
ABOUT, PROFILE, LATENCY = "contribution.json", "profile.csv", "latency.json"
MEMBERS = (ABOUT, PROFILE, LATENCY)
ENDINGS = (".tar.gz", ".tgz")
SALT = ".contribution-salt"  # beside the results: one site's boards can be told apart, by nobody else found out
_LARGEST_BYTE = 256 << 20  # of an archive, unpacked

# what leaves, by its place; everything else stays
_BOARD = (
    *("name", "driver", "vbios", "power_limit_mw", "ecc", "persistence", "compute_capability", "sm_count"),
    *("threads_per_sm", "energy_scope", "cuda", "cuda_runtime", "cublaslt", "nvml", "counter_period_ms", "clocks"),
)
_WORKLOAD = (
    *("name", "model", "batch", "tensor_parallel", "bias_split", "row_parallel_bias", "pass_boundary"),
    *("token_ids_zipf", "launches", "sections", "passes", "by_difference", "rows", "reference"),
)
_PROTOCOL = (
    *("warmup_s", "window_s", "windows", "max_windows", "energy_ci_percent", "clocks", "lock", "share", "temperature"),
    *("band_c", "gemm_algorithm"),
)
_KERNEL = ("row", "section", "name", "kind", "operation")
_LISTS = ("sections", "passes", "by_difference")  # fields of texts that may come as a list; numbers may in any field
_LATENCY_KEYS = (
    *("schema", "protocol", "through", "domains", "transitions", "trials", "domain", "from_mhz", "to_mhz", "n"),
    *("missed", "repeat", "verdict", "core", "mem", "repeats", "seed", "before_s", "hold_s", "limit_s", "lock"),
    *("step_s", "longest_stall_s", *latency_file.QUANTITIES, *latency_file.STATISTICS),
)
# words of ours, not of who measured
_OURS = {
    *(*store.STUDIES, *store.CLOCKS, latency_file.SCHEMA, "ok", "core", "mem", "auto", "lock", "auto-only", "external"),
    *("nvml", "range", "exact", "plateau", "cool", "timed", "heuristic", "board", "module"),
}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
# a slash before a letter, or that begins a word; a home; a backslash before a letter, as after a drive
_PATH = re.compile(r"/[^\W\d]|(?<![\w)])/[\w.]|~/|\\\w|\b[a-z]:[\\/]", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_PCI = re.compile(r"(?<![0-9a-f])([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?![0-9a-f])", re.IGNORECASE)
_SECRET = re.compile(r"[0-9a-fA-F]{32,}")

_TEXT = {"type": "string", "minLength": 1}
_FORM = {
    "type": "object",
    "required": ["credit", "date", "board", "boards", "workload", "settings", "rows", "files"],
    "properties": {
        "credit": {"type": "string"},
        "date": {"type": "string", "pattern": r"\A(\d{4}-\d{2}-\d{2})?\Z"},
        "board": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": _TEXT,
                "driver": {"type": "string"},
                "power_limit_mw": {"type": ["number", "null"], "exclusiveMinimum": 0},
            },
        },
        "boards": {"type": "array", "items": {"type": "string", "pattern": r"\Aboard-[0-9a-f]{16}\Z"}},
        "workload": {"type": "object", "required": ["name"], "properties": {"name": _TEXT}},
        "protocol": {"type": "object"},
        "settings": {
            "type": "array",
            "minItems": len(store.CLOCKS),
            "prefixItems": [{"const": name} for name in store.CLOCKS],
            "items": _TEXT | {"not": {"enum": [name for name in store.COLUMNS if name not in store.CLOCKS]}},
            "uniqueItems": True,
        },
        "rows": {"type": "integer", "minimum": 1},
        "files": {
            "type": "object",
            "required": [PROFILE],
            "propertyNames": {"enum": [PROFILE, LATENCY]},
            "additionalProperties": {"type": "string"},
        },
    },
}

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


def contribute(
    study: AnyPath,
    out: AnyPath | None = None,
    latency: AnyPath | None = None,
    facts: AnyPath | None = None,
    credit: str | None = None,
    salt: AnyPath | None = None,
    settings: Iterable[str] = (),
) -> tuple[str, list[str]]:
    """Write an archive of a study's measurements; returns (its path, what to look at before it is sent, a line each).

    study: folder of a study of a real GPU, or a profile. latency: file of `kernel-dvfs latency`. facts: JSON with the
    board's facts (`device`) and, if it has them, `workload` and `protocol`, for a profile that was made of a table.
    credit: whom the licence names. salt: file with the secret that hashes the board's UUID, made where there is none;
    default: in the results folder. settings: columns of settings that are text and may leave; those of numbers do.
    out: an archive, or a folder to put the files into; default: a name made of board and workload. Raises InputError,
    one line: not measured, implausible, or still telling who measured where.
    """
    path = Path(study)
    path = path / "profile.parquet" if path.is_dir() else path
    profile = store.read_profile(path)
    gpu, workload = profile.metadata["gpu"], profile.metadata["workload"]
    if gpu["kind"] == "simulated":
        raise InputError(f"{path}: of a simulated GPU; only what a real one measured is collected")
    board, protocol, date, hosts = _found(path.parent, workload, facts)
    if facts is not None:
        workload = workload | (_object(facts).get("workload") or {})
    uuids = {str(value) for value in (board.pop("uuid", None), *board.pop("uuids", ())) if value}
    salt = Path(salt) if salt is not None else _results_of(path) / SALT
    columns = {name: profile.table[name].to_pylist() for name in profile.table.column_names}
    _refuse_text(str(path), columns, profile.metadata["settings"][2:], settings)
    texts = {PROFILE: _csv_text(columns)}
    if latency is not None:
        texts[LATENCY] = _latency_text(latency, gpu["name"], uuids, salt)
    about = {
        "schema": SCHEMA,
        "licence": LICENCE,
        "credit": credit or "",
        "made_with": f"kernel-dvfs {__version__}",
        "date": date,
        "board": {"name": gpu["name"]} | board,
        "boards": sorted(_hashed(uuid, salt) for uuid in uuids),
        "workload": _workload(workload),
        "protocol": protocol,
        "settings": profile.metadata["settings"],
        "rows": len(columns["target"]),
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
    }
    if fault := _about_fault(about):
        raise InputError(f"{facts or path}: {fault}")
    texts[ABOUT] = json.dumps(about, indent=1, allow_nan=False) + "\n"
    # the model of a board is its driver's word where the driver was asked
    known = {gpu["name"]} if gpu["kind"] == "nvml" else set()
    _refuse_telling(_free_words(about, columns, texts.get(LATENCY)), known, uuids, hosts, credit or "")
    notes = plausible(str(path), about, columns)
    name = f"{_slug(about['board']['name'])}-{_slug(about['workload']['name'])}"
    target = Path(out) if out is not None else Path(f"{name}.tar.gz")
    if target.name.endswith(ENDINGS):
        _pack(target, f"kernel-dvfs-{name}", texts)
    else:
        for member, text in texts.items():
            write_text(target / member, text)
        for member in set(MEMBERS) - set(texts):  # of an earlier contribution to this folder
            (target / member).unlink(missing_ok=True)
    return str(target), notes


def is_contribution(path: AnyPath) -> bool:
    """Whether `path` is named as an archive is, or is a folder with a contribution's files."""
    return str(path).endswith(ENDINGS) or os.path.isfile(os.path.join(path, ABOUT))


def read(path: AnyPath) -> Contribution:
    """Read and check an archive, or a folder of its files. Raises InputError, one line: what, where."""
    texts = _folder(path) if os.path.isdir(path) else _unpack(path)
    try:
        about = parse_json(texts[ABOUT])
    except KeyError:
        raise InputError(f"{path}: no {ABOUT} in it; kernel-dvfs contribute makes such an archive") from None
    except ValueError as error:
        raise InputError(f"{path}: {ABOUT}: {error}") from None
    fault = _about_fault(about) or _files_fault(about["files"], texts)
    if fault:
        raise InputError(f"{path}: {ABOUT}: {fault}")
    columns = _columns(f"{path}: {PROFILE}", texts[PROFILE], about["settings"][2:])
    if len(columns["target"]) != about["rows"]:
        raise InputError(f"{path}: {PROFILE}: {len(columns['target'])} rows, {ABOUT} says {about['rows']}")
    latency = None
    if LATENCY in texts:
        try:
            latency = parse_json(texts[LATENCY])
        except ValueError as error:
            raise InputError(f"{path}: {LATENCY}: {error}") from None
        if (measured := latency_file.checked(f"{path}: {LATENCY}", latency)).gpu_name != about["board"]["name"]:
            raise InputError(f"{path}: {LATENCY}: of {measured.gpu_name}, the rest is of {about['board']['name']}")
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


# --- what is known, without who and where -----------------------------------------------------------------------------


def _found(
    folder: Path, workload: Mapping[str, Any], facts: AnyPath | None
) -> tuple[dict[str, Any], dict[str, Any], str, set[str]]:
    """(facts of the board with its `uuid`, protocol, date, hosts), from the study's setup and records, or `facts`."""
    if facts is not None:
        given = _object(facts)
        device, protocol, gpus = given.get("device") or given, given.get("protocol") or {}, given.get("gpus") or []
        if not isinstance(device, dict) or not isinstance(protocol, dict) or not isinstance(gpus, list):
            raise InputError(f"{facts}: device, protocol or gpus is of another kind; expected objects and a list")
        board = _only(device, (*_BOARD, "uuid")) | {"uuids": gpus}
        return board, _only(protocol, _PROTOCOL), _date(given.get("last_utc")), set()
    path = folder / "setup" / f"{workload.get('setup')}.json"
    if not path.is_file():
        raise InputError(
            f"{folder}: no setup of the profile ({path.name}), so nothing is known of the board; give its study's "
            "folder, or the board's facts with --facts"
        )
    found = setup.read(str(path))
    board = _only(found.gpu, (*_BOARD, "uuid"))
    uuids, hosts, date = set(), set(), ""
    for each in sorted(folder.glob("measurements/*/*/auto-auto/r*.json")):
        record = _object(each)
        device = record.get("device") or {}
        board |= {key: value for key, value in _only(device, _BOARD).items() if key not in board}
        uuids.add(device.get("uuid"))
        run = record.get("run") or {}
        hosts.add(str(run.get("host") or ""))
        date = max(date, _date(run.get("started_utc")))
    return board | {"uuids": sorted(filter(None, uuids))}, _only(found.measurement, _PROTOCOL), date, hosts


def _workload(workload: Mapping[str, Any]) -> dict[str, Any]:
    kept = _only(workload, _WORKLOAD)
    if isinstance(kernels := workload.get("kernels"), dict):
        kept["kernels"] = {name: _only(about, _KERNEL) for name, about in kernels.items() if isinstance(about, dict)}
    if isinstance(sections := workload.get("by_difference"), dict):
        kept["by_difference"] = sorted(sections)  # without the reasons
    return kept


def _latency_text(path: AnyPath, board: str, uuids: set[str], salt: Path) -> str:
    if (measured := latency_file.read(path)).gpu_name != board:
        raise InputError(f"{path}: of {measured.gpu_name}, the study is of {board}")
    found = _object(path)
    gpu, uuid = found["gpu"], found["gpu"]["uuid"]
    uuids.add(uuid)
    kept = _pruned(found)
    kept["gpu"] = _only(gpu, ("name", "driver")) | {"uuid": _hashed(uuid, salt)}
    return json.dumps(kept | {"started_utc": _date(found.get("started_utc"))}, indent=1, allow_nan=False) + "\n"


def _object(path: AnyPath) -> dict[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: not a JSON object")
    return found


def _only(found: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The fields of these names, each a single value or numbers: what is nested can hold anything."""
    return {
        key: found[key]
        for key in keys
        if key in found and (_is_single(found[key]) or _is_numbers(found[key], texts=key in _LISTS))
    }


def _is_single(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _is_numbers(value: Any, texts: bool = False) -> bool:
    """Whether a value holds numbers alone, in lists or under clocks. texts: or texts, in lists."""
    if isinstance(value, dict):
        return (
            not texts
            and all(key in store.CLOCKS or key.isdecimal() for key in value)
            and _is_numbers([*value.values()])
        )
    if isinstance(value, (list, tuple)):
        return all(_is_numbers(each, texts) for each in value)
    return _is_single(value) and (texts or not isinstance(value, str))


def _pruned(found: Any) -> Any:
    """What `kernel-dvfs latency` writes of changes and protocol, without other fields, at any depth."""
    if isinstance(found, dict):
        return {key: _pruned(value) for key, value in found.items() if key in _LATENCY_KEYS}
    return [_pruned(each) for each in found] if isinstance(found, list) else found


def _refuse_text(where: str, columns: Mapping[str, list[Any]], extra: list[str], named: Iterable[str]) -> None:
    """Refuse a setting that is text, such as the node of each row, unless it is named."""
    named = set(named)
    if unknown := sorted(named - set(extra)):
        raise InputError(f"{where}: has no setting {unknown[0]!r}; it has {', '.join(extra) or 'clocks alone'}")
    for name in extra:
        if name not in named and any(isinstance(value, str) for value in columns[name]):
            raise InputError(
                f"{where}: its setting {name!r} is text, which may tell who measured where; let it leave with "
                f"--settings {name}, or import the table without it"
            )


def _date(stamp: Any) -> str:
    """The day alone: the hour would tell when somebody was at work."""
    return stamp[:10] if isinstance(stamp, str) and _DATE.match(stamp) else ""


def _hashed(uuid: str, salt: Path) -> str:
    """A name of the board that its UUID gives and that does not give the UUID, not even to who knows it."""
    return "board-" + hashlib.sha256(f"{_secret(salt)}:{uuid}".encode()).hexdigest()[:16]


def _secret(salt: Path) -> str:
    """The secret in a file, made where there is none; never readable by others. Raises InputError where it is none."""
    try:
        try:
            secret = salt.read_bytes().decode("ascii", "replace").strip()
        except FileNotFoundError:
            secret = secrets.token_hex(16)
            salt.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(salt, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secret + "\n")
    except OSError as error:
        raise InputError(f"{salt}: {error.strerror}; name another file with --salt") from None
    if not _SECRET.fullmatch(secret):
        raise InputError(
            f"{salt}: holds no secret of at least 32 hex digits, so boards could be told by it; remove it, and another "
            "is made, or name another file with --salt"
        )
    return secret


def _results_of(profile: Path) -> Path:
    """results/ of results/<gpu>/<workload>/profile.parquet; else the profile's own folder."""
    folder = profile.resolve().parent
    return folder.parents[1] if (folder / "setup").is_dir() else folder


def _free_words(
    about: Mapping[str, Any], columns: Mapping[str, list[Any]], latency: str | None
) -> Iterator[tuple[str, str]]:
    """(file, text) of every text that leaves and is not ours: a name can hold anything. The credit is meant to tell."""
    kernels = about["workload"].get("kernels") or {}
    for found in (about["board"], about["workload"], about["protocol"], about["settings"][2:], [*kernels]):
        yield from ((ABOUT, text) for text in _texts(found))
    for column in columns.values():
        yield from ((PROFILE, text) for text in dict.fromkeys(column) if isinstance(text, str))
    if latency is not None:
        # its board goes by a hash
        yield from ((LATENCY, text) for key, own in parse_json(latency).items() for text in _texts(own) if key != "gpu")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _refuse_telling(
    words: Iterable[tuple[str, str]], known: set[str], uuids: set[str], hosts: set[str], credit: str
) -> None:
    """Refuse what still tells who measured where, although only listed fields are in."""
    own = sorted({*uuids, *_own_names(hosts)} - {""})
    told = [(word, re.compile(rf"(?<![^\W_]){re.escape(_folded(word))}(?![^\W_])")) for word in own]
    told = [(word, pattern) for word, pattern in told if not pattern.search(_folded(credit))]
    for name, text in words:
        if text in _OURS or text in known:
            continue
        for word, pattern in told:
            if pattern.search(_folded(text)):
                raise InputError(f"contribute: {name} would hold {word!r}, which tells who measured where; rename it")
        if any(pattern.search(text) for pattern in (_PATH, _UUID, _PCI)):
            raise InputError(f"contribute: {name} would hold {text[:80]!r}, a path or a board's own number; rename it")


def _folded(text: str) -> str:
    """Alike for texts that differ in case or in how a letter is composed."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _own_names(hosts: set[str]) -> Iterator[str]:
    """This user's, this machine's and that of those that measured, but for those that everyone has."""
    common = {"root", "user", "ubuntu", "localhost", "admin"}
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    names = {user, *(name for host in (socket.gethostname(), *hosts) for name in (host, host.partition(".")[0]))}
    yield from (name for name in names if name.lower() not in common)


# --- files ------------------------------------------------------------------------------------------------------------


def _csv_text(columns: Mapping[str, list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(["" if cell is None else int(cell) if isinstance(cell, bool) else cell for cell in row])
    return text.getvalue()


def _columns(where: str, text: str, extra: list[str]) -> dict[str, list[Any]]:
    """The columns of a profile.csv. Raises InputError naming line and column."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise InputError(f"{where}: {error}") from None
    names = [*store.COLUMNS, *extra]
    if not rows or rows[0] != names:
        raise InputError(f"{where}: its columns are not those of a profile: {', '.join(names)}")
    kinds = {name: str(type_) for name, type_, _ in store.FIELDS}
    filled = {name for name, _, may_be_null in store.FIELDS if not may_be_null}
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise InputError(f"{where}, line {number}: {len(row)} cells, {len(names)} columns")
        for name, cell in zip(names, row):
            if cell == "" and name in filled:
                raise InputError(f"{where}, line {number}: {name} is empty")
            try:
                columns[name].append(_cell(cell, kinds.get(name, "double")))
            except ValueError:
                if name in extra:
                    columns[name].append(cell)  # a setting that is text
                    continue
                raise InputError(f"{where}, line {number}: {name} is {cell[:40]!r}") from None
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


def _pack(path: Path, folder: str, texts: Mapping[str, str]) -> None:
    """The same content gives the same bytes, whoever packs it and when."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(texts):
            content = texts[name].encode()
            member = tarfile.TarInfo(f"{folder[:90]}/{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    try:
        with whole(path) as temporary:
            Path(temporary).write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


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
        raise InputError(f"{path}: {error}") from None


def _about_fault(about: Any) -> str | None:
    """What is wrong with a contribution.json, or None."""
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        return f"its schema is not {SCHEMA}"
    if about.get("licence") != LICENCE:
        return f"its licence is {str(about.get('licence'))[:60]!r}, expected {LICENCE}"
    errors = sorted(StrictValidator(_FORM).iter_errors(about), key=lambda error: list(map(str, error.path)))
    if not errors:
        return None
    where = ".".join(map(str, errors[0].path))
    found = " ".join(errors[0].message.split())
    return f"{where}: {found if len(found) <= 160 else found[:157] + '...'}" if where else found


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
        if not (row["time_s"] and row["energy_j"] and row["time_s"] > 0 and row["energy_j"] > 0):
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
    return row["study"] != "kernel" and (differs or row["target"].startswith(WITHIN))


def _clock(mhz: float | None) -> str:
    return "auto" if mhz is None else f"{mhz:g}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"
