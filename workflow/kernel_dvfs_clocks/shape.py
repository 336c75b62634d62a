"""What a JSON file must hold, said once by a type, and its one reader: what does not fit is told by the field's name.

    class Summary(TypedDict):
        n: AtLeastOne
        time_us: Positive
        note: NotRequired[str]

    read("record.json", Summary, "kernel-dvfs/summary/1", "measure it again")

returns the content as a Summary, or raises InputError: `record.json: time_us is -3, expected a positive number; measure
it again`. A kind is a TypedDict (marked `@final` where other fields are refused), a frozen dataclass or a NamedTuple
(which `made` makes of what the file holds), a list, a tuple, a dict by names, a Literal, a union of these, or a plain
value, with what else must hold of it (`Is`) in `Annotated`. What one field says of another is not a kind's business.

Measurement jobs import it, so it needs the standard library only.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeVar

from kernel_dvfs_clocks.errors import InputError, Missing, unread
from kernel_dvfs_clocks.files import PART, change_of, is_part, parse_json, read_json

if typing.TYPE_CHECKING:
    from os import PathLike

Kind = TypeVar("Kind")


class Is:
    """A condition on a value whose type fits already. words: what is expected, as a message has it."""

    def __init__(self, words: str, holds: Callable[[Any], object]) -> None:
        self.words, self.holds = words, holds


Count: TypeAlias = Annotated[int, Is("a whole number >= 0", lambda value: value >= 0)]
AtLeastOne: TypeAlias = Annotated[int, Is("a whole number >= 1", lambda value: value >= 1)]
Positive: TypeAlias = Annotated[float, Is("a positive number", lambda value: value > 0)]
NotNegative: TypeAlias = Annotated[float, Is("a number >= 0", lambda value: value >= 0)]
Text: TypeAlias = Annotated[str, Is("a text that is not empty", bool)]
# a name that becomes a part of a path (files.inside)
Part: TypeAlias = Annotated[str, Is(PART, is_part)]
FILLED = Is("a list of at least one", bool)


def read(
    path: str | PathLike[str],
    kind: type[Kind],
    schema: str,
    remedy: str,
    what: str = "",
    missing: str = "",
    held: bytes | None = None,
    is_sealed: bool = False,
    inputs: Mapping[str, str | PathLike[str]] | None = None,
) -> Kind:
    """Return the content of a JSON file with this `schema` ("": it names none). Raises InputError, one line: the file,
    its field, what is expected there, and the remedy.

    what: kind of file, before its path in messages. missing: the remedy where there is no file, if another one. held:
    what the file holds, where it has been read already. is_sealed: it may carry its own checksum (files.write_sealed),
    which must be that of its content; what somebody wrote by hand carries none. inputs: {name: path} of files that it
    is read together with: under seal, it must have been made of these.
    """
    where = f"{what} {path}".lstrip()
    try:
        content = read_json(path) if held is None else parse_json(held.decode())
    except FileNotFoundError:
        raise Missing(f"{where}: missing; {missing or remedy}") from None
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}; {remedy}") from None
    except ValueError as error:
        raise InputError(f"{where}: truncated or not JSON ({error}); {remedy}") from None
    if is_sealed and (what := change_of(content, inputs)):
        raise InputError(f"{where}: {what}; {remedy}")
    return checked(content, kind, where, remedy, schema)


def checked(content: Any, kind: type[Kind], where: str, remedy: str, schema: str = "") -> Kind:
    """Return parsed JSON as what it must be. where: what the message begins with. Raises InputError as `read`."""
    if schema and (type(content) is not dict or content.get("schema") != schema):
        raise InputError(f"{where}: {unread(content, schema)}; {remedy}")
    if wrong := fault(content, kind):
        raise InputError(f"{where}: {wrong}; {remedy}")
    return content


def fault(value: Any, kind: Any, where: str = "") -> str:
    """Return what is wrong with a value of JSON, parsed or to be written; "" where it is of this kind. where: its
    field."""
    if (problem := _test(kind)(value)) is None:
        return ""
    return f"{_join(where, problem[0]) or 'it'} {problem[1]}"


def made(value: Any, kind: type[Kind]) -> Kind:
    """Return a value without fault as its kind: dataclasses and named tuples of groups, tuples of lists, within lists
    and dicts too."""
    make: Callable[[Any], Kind] = _maker(typing.cast("Any", kind))
    return make(value)


def fields(kind: Any) -> dict[str, Any]:
    """Return {name: kind} of a TypedDict, dataclass or NamedTuple."""
    return typing.get_type_hints(kind, include_extras=True)


def words(kind: Any) -> str:
    """Return a kind as messages have it: `a positive number or null`."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return inner[-1].words
    if origin is Literal:
        return ("one of " if len(inner) > 1 else "") + ", ".join(map(_plainly, inner))
    if origin in _UNIONS:
        return " or ".join(map(words, inner))
    if origin in (list, dict):
        of = inner[-1]  # what it holds: said where that is in a word
        return _WORDS[origin] + ("" if of is Any or _has_parts(of) else f", each {words(of)}")
    if origin is tuple:
        return _WORDS[list] + ("" if ... in inner else f" of {len(inner)}")
    return _WORDS.get(kind, _WORDS[dict])


# (the field within a value, "" for itself; what is wrong with it)
_Fault: TypeAlias = tuple[str, str]
# what is wrong with a value, None where nothing is: hardly ever more, so a field is named when one is found to be wrong
_Test: TypeAlias = Callable[[Any], _Fault | None]
_INFINITY = float("inf")
_UNIONS = (typing.Union, types.UnionType)
_LISTS = (list, tuple)  # a tuple is what JSON writes as a list: so what is still to be written can be looked at
# the kinds that have no parts
_WORDS = {float: "a number", int: "a whole number", str: "a text", bool: "true or false", types.NoneType: "null"}
_WORDS |= {list: "a list", dict: "a group of fields", Any: "anything", object: "anything"}


def _plainly(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@cache
def _test(kind: Any) -> _Test:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if _is_group(kind):
        return _group(kind)
    if origin is NotRequired:
        return _test(inner[0])
    if origin is Annotated:
        return _conditioned(kind, inner[0], inner[1:])
    if origin in _UNIONS:
        return _union(kind, inner)
    if origin is list or (origin is tuple and inner[1:] == (...,)):
        return _listed(kind, _test(inner[0]))
    if origin is tuple:
        return _row(kind, [_test(part) for part in inner])
    if origin in (dict, Mapping):
        return _named(kind, _test(inner[1]))
    return _plain(kind, _fits(kind, inner))


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and kind not in _WORDS and typing.get_origin(kind) is None


def _fits(kind: Any, inner: Sequence[Any]) -> Callable[[Any], bool]:
    if inner:  # a Literal's; 1 is no true
        return lambda value: any(type(value) is type(allowed) and value == allowed for allowed in inner)
    if kind is float:
        return lambda value: type(value) in (int, float) and -_INFINITY < value < _INFINITY
    if kind in (Any, object):
        return lambda value: True
    return lambda value: type(value) is kind


def _wrong(value: Any, expected: str) -> _Fault:
    return "", f"is {repr(value)[:40]}, expected {expected}"


def _within(name: str, problem: _Fault) -> _Fault:
    return _join(name, problem[0]), problem[1]


def _plain(kind: Any, fits: Callable[[Any], bool]) -> _Test:
    return lambda value: None if fits(value) else _wrong(value, words(kind))


def _has_parts(kind: Any) -> bool:
    return words(kind).startswith((_WORDS[list], _WORDS[dict]))


def _conditioned(kind: Any, base: Any, conditions: Sequence[Is]) -> _Test:
    test_base, of_parts = _test(base), _has_parts(base)

    def test(value: Any) -> _Fault | None:
        if problem := test_base(value):
            # of a list or a group, the part that is wrong
            return problem if of_parts and type(value) in (*_LISTS, dict) else _wrong(value, words(kind))
        for condition in conditions:
            if not condition.holds(value):
                return _wrong(value, condition.words)
        return None

    return test


def _union(kind: Any, members: Sequence[Any]) -> _Test:
    tests = [_test(member) for member in members]
    parts = [test for test, member in zip(tests, members) if _has_parts(member)]

    def test(value: Any) -> _Fault | None:
        for member_test in tests:
            if member_test(value) is None:
                return None
        return parts[0](value) if parts and type(value) in (*_LISTS, dict) else _wrong(value, words(kind))

    return test


def _listed(kind: Any, test_item: _Test) -> _Test:
    def test(value: Any) -> _Fault | None:
        if type(value) not in _LISTS:
            return _wrong(value, words(kind))
        for place, item in enumerate(value):
            if problem := test_item(item):
                return _within(f"[{place}]", problem)
        return None

    return test


def _row(kind: Any, tests: Sequence[_Test]) -> _Test:
    def test(value: Any) -> _Fault | None:
        if type(value) not in _LISTS or len(value) != len(tests):
            return _wrong(value, words(kind))
        for place, (test_item, item) in enumerate(zip(tests, value)):
            if problem := test_item(item):
                return _within(f"[{place}]", problem)
        return None

    return test


def _named(kind: Any, test_item: _Test) -> _Test:
    def test(value: Any) -> _Fault | None:
        if type(value) is not dict:
            return _wrong(value, words(kind))
        for name, item in value.items():
            if problem := test_item(item):
                return _within(name, problem)
        return None

    return test


def _group(kind: Any) -> _Test:
    tests = {name: _test(field) for name, field in fields(kind).items()}
    required = [name for name, field in fields(kind).items() if typing.get_origin(field) is not NotRequired]
    required = [name for name in required if name not in _defaults(kind)]
    closed = not typing.is_typeddict(kind) or getattr(kind, "__final__", False)

    def test(value: Any) -> _Fault | None:
        if type(value) is not dict:
            return _wrong(value, words(kind))
        for name in required:
            if name not in value:
                return name, "is missing"
        for name, item in value.items():
            if name in tests:
                if problem := tests[name](item):
                    return _within(name, problem)
            elif closed:
                return name[:40], f"is no field of it; expected {', '.join(tests)}"
        return None

    return test


def _defaults(kind: Any) -> Sequence[str]:
    """Return the names of the fields that may be missing: those with a default."""
    if typing.is_typeddict(kind):
        return ()
    if issubclass(kind, tuple):
        return tuple(kind._field_defaults)
    import dataclasses  # a measurement job reads none

    members = dataclasses.fields(kind)
    # both are MISSING where there is none
    return [field.name for field in members if field.default is not field.default_factory]


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where and name and name[0] != "[" else where + name


@cache
def _maker(kind: Any) -> Callable[[Any], Any]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if _is_group(kind):
        makers = {name: _maker(field) for name, field in fields(kind).items()}
        return lambda value: kind(**{name: makers[name](item) for name, item in value.items() if name in makers})
    if origin in (Annotated, NotRequired):
        return _maker(inner[0])
    if origin in _UNIONS:
        members = [(_test(member), _maker(member)) for member in inner]
        return lambda value: next(make(value) for test, make in members if test(value) is None)
    if origin is list or (origin is tuple and inner[1:] == (...,)):
        make_item = _maker(inner[0])
        return lambda value: origin(map(make_item, value))
    if origin in (dict, Mapping):
        make_item = _maker(inner[1])
        return lambda value: {name: make_item(item) for name, item in value.items()}
    if origin is tuple:
        part_makers = [_maker(part) for part in inner]
        return lambda value: tuple(make(item) for make, item in zip(part_makers, value))
    return lambda value: value
