"""Files that are whole or absent, and JSON that every reader understands alike.

A file is written beside its place, then renamed. What took a real GPU to find out is on the disk before that (durable),
so that it survives a loss of power too; what can be computed again need not wait for a disk. JSON with NaN, infinity, a
number too large for a float or a name that appears twice in one object is refused, written or read.

Content can carry the SHA-256 of itself, so that a changed number or name is found even where all else still fits. That
finds a disk's fault and an edit. It does not find a forgery: nothing here is secret, so whoever means to can compute
the checksum again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_INFINITY = float("inf")
_DIGITS = 308  # of a whole number: any of so many can be a float, too
_LARGEST = 10**_DIGITS
_MOST_VALUES = 100_000  # of YAML: its aliases make any number of a few lines
CHECKSUM = "sha256"  # where content carries its own
# The one rule for names that become parts of paths, wherever they come from: a file name everywhere, no option of a
# command, nothing that a shell or a terminal acts on.
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
PART = "letters, digits, dots, hyphens and underscores, at most 120, a letter or digit first"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MOST_LINKS = 40  # on the way to a file, as the kernel has it (path_resolution(7))


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
    """Whether a name may be a part of a path."""
    return _PART.fullmatch(name) is not None


def inside(path: str) -> str:
    """A path of names, separated by slashes, that leads nowhere but into its folder. Raises InputError."""
    if wrong := next((each for each in path.split("/") if not is_part(each)), None):
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
    """`content` as one line of JSON. Raises ValueError on NaN or infinity."""
    return _COMPACT.encode(content)


def checksum(content: Mapping[str, Any]) -> str:
    """The SHA-256 of content, in hexadecimal digits, without what it carries as its own. Raises ValueError as above."""
    return _sha256(compact_json({name: content[name] for name in content if name != CHECKSUM}))


def sealed_json(content: Mapping[str, Any]) -> str:
    """Content, not empty and without a checksum, as one line of JSON that carries it last. Raises ValueError as
    above."""
    text = compact_json(content)
    return f'{text[:-1]}, "{CHECKSUM}": "{_sha256(text)}"}}'


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def parse_shipped_yaml(text: str) -> Any:
    """The YAML of a file of this package, by libyaml where PyYAML has it: ten times as fast. Raises yaml.YAMLError.

    A user's own is read by PyYAML itself, which shows the faulty line and bears any nesting.
    """
    import yaml

    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def parse_yaml(text: str) -> Any:
    """What a YAML text of a user's holds. Raises ValueError: not YAML, a name that appears twice, nested too deeply, or
    more than `check_size`."""
    import yaml

    class Loader(yaml.SafeLoader):
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
    check_size(content)
    return content


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


def read_json(path: str | os.PathLike[str]) -> Any:
    """The JSON in a file. Raises OSError, or ValueError where it is not one whole JSON value."""
    with open(path, encoding="utf-8") as file:
        return parse_json(file.read())


def parse_json(text: str) -> Any:
    """The one JSON value in a text. Raises ValueError, also on NaN, infinity, and a name that appears twice."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_finite,
            parse_int=_whole,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        twice = next(name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place]))
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


def is_roots_own(path: str) -> bool:
    """Whether nobody but root can change or replace a file or folder: it, and every folder and link on the way to it,
    are root's and writable by no others. A folder above it may be like /tmp, where nobody can replace what is root's.
    """
    at, links = "/", 0
    ahead = ["/", *_names(os.path.join(os.getcwd(), path))]
    try:
        while ahead:
            name = ahead.pop(0)
            if name == "..":
                at = os.path.dirname(at)  # no link by now
                continue
            step = os.path.join(at, name)
            about = os.lstat(step)
            if about.st_uid != 0:
                return False
            if stat.S_ISLNK(about.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    return False
                target = os.readlink(step)
                at = "/" if target.startswith("/") else at
                ahead = _names(target) + ahead
                continue
            at = step
            if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (ahead and about.st_mode & stat.S_ISVTX):
                return False
    except OSError:
        return False
    return True


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
