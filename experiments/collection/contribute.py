"""Measurements for others: a study's profile with what is known of the board, anonymised, in one archive.

Who measured, on which machine and in which folder is not in it: only fields that are listed here leave, the board goes
by a salted hash, and what still looks like a path, a host or a user is refused. Nothing is sent anywhere.

    python experiments/collection/contribute.py results/nvidia-h200-9fca33e6/gpt3-xl-b40-tp1 --credit "A. Lab"
"""

from __future__ import annotations

import argparse
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
import sys
import tarfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import parse_json, read_json, whole, write_text
from kernel_dvfs.measurement import latency_file, setup
from kernel_dvfs.package import VERSION
from kernel_dvfs.profile import store
from kernel_dvfs.profile.contribution import (
    ABOUT,
    ENDINGS,
    LATENCY,
    LICENCE,
    MEMBERS,
    PROFILE,
    SCHEMA,
    about_fault,
    plausible,
)

if TYPE_CHECKING:
    from kernel_dvfs.profile.contribution import AnyPath

SALT = ".contribution-salt"  # beside the results: one site's boards can be told apart, by nobody else found out

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
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
_ADDRESS = re.compile(
    r"(?<![\d.])\d{1,3}(\.\d{1,3}){3}(?![\d.])"
    r"|(?<![0-9a-z_:])(f[cde][0-9a-f]{2}|[23][0-9a-f]{3}):([0-9a-f]{0,4}:){1,6}[0-9a-f]{1,4}(?![0-9a-z_:])",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"(?<![\w.])[a-z0-9-]+(\.[a-z0-9-]+)*\.(com|org|net|edu|gov|local|lan|internal|intra|corp|home|cluster)\b", re.I
)
_SECRET = re.compile(r"[0-9a-fA-F]{32,}")


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
        "made_with": f"kernel-dvfs {VERSION}",
        "date": date,
        "board": {"name": gpu["name"]} | board,
        "boards": sorted(_hashed(uuid, salt) for uuid in uuids),
        "workload": _workload(workload),
        "protocol": protocol,
        "settings": profile.metadata["settings"],
        "rows": len(columns["target"]),
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
    }
    if fault := about_fault(about):
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
    short = {part for uuid in uuids if len(part := uuid.removeprefix("GPU-").partition("-")[0]) >= 8}
    own = [*sorted(uuids), *sorted({*short, *_own_names(hosts)} - {""})]
    told = [(word, re.compile(rf"(?<![^\W_]){re.escape(_folded(word))}(?![^\W_])")) for word in own]
    told = [(word, pattern) for word, pattern in told if not pattern.search(_folded(credit))]
    for name, text in words:
        if text in _OURS or text in known:
            continue
        for word, pattern in told:
            if pattern.search(_folded(text)):
                raise InputError(f"contribute: {name} would hold {word!r}, which tells who measured where; rename it")
        if any(pattern.search(text) for pattern in (_PATH, _UUID, _PCI, _MAIL, _ADDRESS, _HOST)):
            raise InputError(
                f"contribute: {name} would hold {text[:80]!r}, a path, an address or a board's own number; rename it"
            )


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


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="folder of a study of a real GPU, or a profile")
    parser.add_argument("--latency", metavar="FILE", help="what `kernel-dvfs latency` measured of the board")
    parser.add_argument(
        "--facts", metavar="FILE.json", help="facts about the board, for a profile that was made from a table"
    )
    parser.add_argument("--credit", metavar="NAME", help=f"whom to name, as {LICENCE} asks (default: nobody)")
    parser.add_argument("--salt", metavar="FILE", help="secret that hashes the UUID (default: in the results folder)")
    parser.add_argument(
        "--settings", nargs="*", default=(), metavar="COLUMN", help="text columns of settings that may be included"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.tar.gz", help="an archive, or a folder (default: named by board and workload)"
    )
    options = parser.parse_args()
    path, notes = contribute(
        options.study, options.output, options.latency, options.facts, options.credit, options.salt, options.settings
    )
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{path}: {LICENCE}, anonymised; look into it, then send it as docs/tables.md says", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
