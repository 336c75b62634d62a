"""Files that are whole or absent, and JSON that every reader understands alike.

A file is written beside its place, then renamed. What took a real GPU to find out is on the disk before that (durable),
so that it survives a loss of power too; what can be computed again need not wait for a disk. JSON with NaN, infinity, a
number too large for a float or a name that appears twice in one object is refused, written or read.

Content can carry the SHA-256 of itself, so that a changed number or name is found even where all else still fits. That
finds a disk's fault and an edit. It does not find a forgery: nothing here is secret, so whoever means to can compute
the checksum again.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import itertools
import json
import os
import re
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_INFINITY = float("inf")
_DIGITS = 308  # of a whole number: any of so many can be a float, too
_LARGEST = 10**_DIGITS
# of YAML: its aliases and merges make any number of a few lines, and PyYAML takes 8 us a character
_MOST_VALUES, _MOST_YAML = 100_000, 128 << 10
_MOST_JSON_BYTE = 1 << 30
_DEEPEST = 64  # of lists and mappings in each other: nothing that is written here or for here is as deep
CHECKSUM = "sha256"  # where content carries its own
MADE_OF = "made_of"  # and the digests of the files that it was made of
# The one rule for names that become parts of paths, wherever they come from: a file name everywhere, no option of a
# command, nothing that a shell or a terminal acts on.
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
PART = "letters, digits, dots, hyphens and underscores, at most 120, a letter or digit first"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def whole(path: str | os.PathLike[str], durable: bool = False) -> Iterator[str]:
    """Yield a temporary path beside `path`; rename it there on success, remove it on any failure.

    durable: on the disk when this is over, file and name. Where it cannot be written, the OSError names `path`.
    """
    folder, name = os.path.split(os.fspath(path))
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        # a device or a pipe, such as /dev/null: renamed over, it would be gone for everybody
        yield os.fspath(path)
        return
    os.makedirs(folder or ".", exist_ok=True)
    # the ending is kept: writers such as savefig read the format from it
    temporary = os.path.join(folder, f".{os.getpid()}-{name}")
    try:
        _make(temporary)
        yield temporary
        if durable:
            _sync(temporary)
        os.replace(temporary, path)
        if durable:
            _sync(folder or ".")
    except OSError as error:
        # the user knows the file, not what stands for it meanwhile; a write that finds no room names none
        if error.filename == temporary or (error.filename is None and error.errno in _NO_ROOM):
            error.filename = os.fspath(path)
        raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _make(path: str) -> None:
    """An empty file, new: whoever knows a name in advance may have put a link there, to a file of somebody else's."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o666)
    except FileExistsError:
        os.unlink(path)  # the link, or what a process of this number left when it was killed
        file = os.open(path, flags, 0o666)
    os.close(file)


def is_part(name: str) -> bool:
    """Return whether a name may be a part of a path."""
    return _PART.fullmatch(name) is not None


def inside(path: str) -> str:
    """Return a path of names, separated by slashes, that leads nowhere but into its folder. Raises InputError."""
    if wrong := next((part for part in path.split("/") if not is_part(part)), None):
        raise InputError(f"{wrong[:80]!r} cannot be a part of a path; expected {PART}")
    if not all(path.split("/")):
        raise InputError(f"{path[:80]!r} is no path within a folder; each part must be {PART}")
    return path


def usable_folder(path: str) -> None:
    """Make a folder, unless it is there. Raises InputError where it cannot be made or written into."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        what = "is a link to nowhere" if os.path.islink(path) else error.strerror
        raise InputError(f"{path}: {what}; make it a folder that can be written into") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot be written into; make it writable, or work in another folder")


def writable(path: str) -> None:
    """Raise InputError where a file could not be written to this path, once there is something to write."""
    usable_folder(os.path.dirname(path) or ".")
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; name a file")


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_text(path: str | os.PathLike[str], text: str, durable: bool = False) -> None:
    """Write `text` to `path` as UTF-8, whole or not at all. durable: see `whole`.

    Of a file's name that is no UTF-8, what cannot be written stands escaped, as in `\\udcff`.
    """
    with whole(path, durable) as temporary, open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write `content` as indented JSON, whole or not at all. Raises ValueError on NaN or infinity."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


_COMPACT = json.JSONEncoder(allow_nan=False)


def compact_json(content: Any) -> str:
    """Return `content` as one line of JSON. Raises ValueError on NaN or infinity."""
    return _COMPACT.encode(content)


def checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of content, in hexadecimal digits, without what it carries as its own. Raises ValueError as
    above."""
    return _sha256(compact_json({name: content[name] for name in content if name != CHECKSUM}))


def sealed_json(content: Mapping[str, Any]) -> str:
    """Return content, not empty and without a checksum, as one line of JSON that carries it last. Raises ValueError as
    above."""
    text = compact_json(content)
    return f'{text[:-1]}, "{CHECKSUM}": "{_sha256(text)}"}}'


def digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sealed(
    path: str | os.PathLike[str],
    content: Mapping[str, Any],
    made_of: Mapping[str, str | os.PathLike[str]] | None = None,
) -> None:
    """Write `content` as indented JSON that carries, last, the digests of the files that it was made of and its own
    checksum, so that `shape.read` finds a change of it, or of them. Raises ValueError as above."""
    sealed = dict(content)
    if made_of:
        sealed[MADE_OF] = digests(made_of)
    write_json(path, sealed | {CHECKSUM: checksum(sealed)})


def digests(made_of: Mapping[str, str | os.PathLike[str]]) -> dict[str, str]:
    """Return {name: SHA-256} of the files that something is made of. Raises OSError."""
    return {name: digest(path) for name, path in made_of.items()}


def change_of(content: Any, inputs: Mapping[str, str | os.PathLike[str]] | None = None) -> str:
    """Return what to say of content that is not as it was written, by the checksum that it carries, or that was made of
    other files than these; "" where it carries no checksum, or nothing is wrong. inputs: {name among what it was made
    of: path}, of files that are there or not."""
    if not isinstance(content, dict) or CHECKSUM not in content:
        return ""
    if content[CHECKSUM] != checksum(content):
        return _CHANGED
    of = content.get(MADE_OF)
    return _other_input(of if isinstance(of, dict) else {}, inputs or {})


class Changed(ValueError):
    """Content under seal that is not as it was written."""


_CHANGED = f"was changed since it was written: its {CHECKSUM} is another's"


def _other_input(made_of: Mapping[str, Any], inputs: Mapping[str, str | os.PathLike[str]]) -> str:
    for name, path in inputs.items():
        if name in made_of and os.path.isfile(path) and made_of[name] != digest(path):
            return f"was made of another {name} than {os.fspath(path)} is now"
    return ""


_SEAL = "seal"  # the last column of a table that carries one, in its first row
_MARK = re.compile(r",[0-9a-f]{64}( \S+:[0-9a-f]{64})*$")


def sealed_csv(
    rows: Sequence[Sequence[str]], made_of: Mapping[str, str | os.PathLike[str]] | None = None, head: str = ""
) -> str:
    """Return the text of a table, its header first and at least one row, with a last column `seal`, which every program
    can pass over: in the first row the checksum of all that, and the digests of the files that it was made of. head:
    lines of comment before it. Raises OSError."""
    of = [f"{name}:{sha256}" for name, sha256 in digests(made_of or {}).items()]
    marks = [_SEAL, " ".join([_of_rows(head, rows, of), *of])] + [""] * len(rows)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([*row, mark] for row, mark in zip(rows, marks))
    return head + text.getvalue()


def unsealed(text: str, inputs: Mapping[str, str | os.PathLike[str]] | None = None) -> list[list[str]]:
    """Return the rows that `sealed_csv` was given. inputs: see `change_of`. Raises ValueError where there is no
    checksum, or what `change_of` says of it."""
    rows, made_of, _ = _opened(text)
    if what := _other_input(made_of, inputs or {}):
        raise ValueError(what)
    return rows


def is_sealed(text: str) -> bool:
    """Return whether a table's text is as `sealed_csv` makes it."""
    lines = (line.rstrip() for line in io.StringIO(text) if not line.startswith("#"))
    return next(lines, "").endswith(f",{_SEAL}") and _MARK.search(next(lines, "")) is not None


def seal_of(path: str | os.PathLike[str]) -> tuple[str, dict[str, str]]:
    """Return (the checksum that a JSON file or a table carries, {name: SHA-256} of what it was made of); "" where it
    carries none. Raises OSError, ValueError where it cannot be read, and Changed."""
    if os.fspath(path).endswith(".json"):
        content = read_json(path)
        if what := change_of(content):
            raise Changed(what)
        if not isinstance(content, dict) or CHECKSUM not in content:
            return "", {}
        of = content.get(MADE_OF)
        return content[CHECKSUM], of if isinstance(of, dict) else {}
    with open(path, "rb") as file:
        text = file.read().decode()
    if not is_sealed(text):
        return "", {}
    _, made_of, seal = _opened(text)
    return seal, made_of


def _opened(text: str) -> tuple[list[list[str]], dict[str, str], str]:
    """Return (rows, {name: SHA-256} of what they were made of, their own)."""
    head = "".join(itertools.takewhile(lambda line: line.startswith("#"), io.StringIO(text)))
    try:
        rows = list(csv.reader(io.StringIO(text[len(head) :], newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if len(rows) < 2 or len({len(row) for row in rows}) > 1 or rows[0][-1:] != [_SEAL]:
        raise ValueError(f"no column {_SEAL}: cut off, or of another program")
    seal, *of = rows[1][-1].split(" ")
    rows = [row[:-1] for row in rows]
    if seal != _of_rows(head, rows, of):
        raise Changed(_CHANGED)
    return rows, dict(entry.split(":", 1) for entry in of), seal


def _of_rows(head: str, rows: Sequence[Sequence[str]], made_of: Sequence[str]) -> str:
    return _sha256(compact_json([head, [*map(list, rows)], [*made_of]]))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def parse_shipped_yaml(text: str) -> Any:
    """Return what the YAML text of a file of this package holds, by libyaml where PyYAML has it: ten times as fast.
    Raises yaml.YAMLError.

    A user's own is read by PyYAML itself, which shows the faulty line and bears any nesting.
    """
    import yaml

    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def parse_yaml(text: str) -> Any:
    """Return what a YAML text of a user's holds. Raises ValueError: not YAML, too long, a name that appears twice,
    nested too deeply, or more than `check_size`."""
    import yaml

    if len(text) > _MOST_YAML:
        raise ValueError(f"{len(text)} characters of YAML; at most {_MOST_YAML} are read")

    class Loader(yaml.SafeLoader):
        merged = 0

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            super().flatten_mapping(node)
            self.merged += len(node.value)  # merges of merges grow tenfold a line
            if self.merged > _MOST_VALUES:
                raise yaml.YAMLError(f"merges make more than {_MOST_VALUES} values; write each out")

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if len(set(names)) != len(names):
                twice = next(name for name, count in Counter(names).items() if count > 1)
                raise yaml.MarkedYAMLError(problem=f"{twice[1]!r} appears twice", problem_mark=node.start_mark)
            return super().construct_mapping(node, deep)

    try:
        content = yaml.load(text, Loader)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # of PyYAML's own, where what a tag such as !!timestamp stands before does not fit it
        raise ValueError(f"a tag does not fit what it stands before ({type(error).__name__}: {error})") from None
    check_size(content)
    check_depth(content)
    return content


def check_depth(content: Any) -> None:
    """Raise ValueError for lists and mappings that are nested too deeply for those who go through them."""
    level = [content] if isinstance(content, _HOLDERS) else []
    for _ in range(_DEEPEST + 1):
        if not level:
            return
        level = [
            held
            for value in level
            for held in (value.values() if isinstance(value, dict) else value)
            if isinstance(held, _HOLDERS)
        ]
    raise ValueError("nested too deeply")


_HOLDERS = (dict, list, tuple, set)


def check_size(content: Any) -> None:
    """Raise ValueError for what holds itself, or so much by aliases that nobody could go through it."""
    ahead, seen = [content], 0
    while ahead:
        value = ahead.pop()
        if isinstance(value, int) and abs(value) >= _LARGEST:
            raise ValueError("holds a number that is too large")
        # YAML's !!pairs and !!omap hold tuples
        held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
        # before they are laid out: a list that holds itself many times over grows faster than it is counted
        seen += len(held)
        if seen > _MOST_VALUES:
            raise ValueError(f"holds itself, or more than {_MOST_VALUES} values; write each out")
        ahead += held


def read_limited(path: str | os.PathLike[str], file: BinaryIO, most_byte: int) -> bytes:
    """Return the whole of an open file. Raises InputError where it is larger."""
    content = file.read(most_byte + 1)
    if len(content) > most_byte:
        raise InputError(f"{path}: larger than {most_byte:,} bytes, which no such file is; is it the right one?")
    return content


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the JSON in a file. Raises OSError, or ValueError where it is not one whole JSON value."""
    with open(path, "rb") as file:
        return parse_json(read_limited(path, file, _MOST_JSON_BYTE).decode("utf-8"))


def parse_json(text: str) -> Any:
    """Return the one JSON value in a text. Raises ValueError, also on NaN, infinity, and a name that appears twice."""
    try:
        content = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_finite,
            parse_int=_whole,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    check_depth(content)
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice!r} appears twice")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if value in (_INFINITY, -_INFINITY):
        raise ValueError(f"{text} is too large a number")
    return value


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"{text[:20]}... is too large a number")
    return int(text)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no number")
