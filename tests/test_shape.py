"""A kind says what a file must hold, and the message names the field that does not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, final

import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import (
    FILLED,
    AtLeastOne,
    Count,
    Is,
    NotNegative,
    Positive,
    Text,
    fault,
    made,
    read,
    words,
)


class Inner(TypedDict):
    time_us: Positive
    sd_us: NotNegative | None


class Whole(TypedDict):
    schema: str
    n: AtLeastOne
    clock: Literal["auto"] | Annotated[float, Is("a number of MHz", lambda value: value >= 30)]
    inner: Inner
    rows: Annotated[list[tuple[Count, Text]], FILLED]
    by_name: dict[str, list[Inner]]
    maybe: Inner | None
    any_order: Any
    verdict: Literal["ok", "bad"]
    note: NotRequired[str]


@final
class Closed(TypedDict):
    own: bool


class Point(NamedTuple):
    x: Count
    y: Count = 0


@dataclass(frozen=True, slots=True)
class Path:
    name: Text
    points: tuple[Point, ...]
    size: tuple[int, int]
    about: dict[str, str]
    by_name: dict[str, tuple[Point, ...]] = field(default_factory=dict)
    end: Point | None = None


GOOD = {
    **{"schema": "kernel-dvfs/whole/1", "n": 3, "clock": "auto", "inner": {"time_us": 2, "sd_us": None}},
    **{"rows": [[0, "a"]], "by_name": {"k": [{"time_us": 0.5, "sd_us": 0}]}, "maybe": None, "any_order": [1, {}]},
    **{"verdict": "ok"},
}
GROUP, LIST = "a group of fields", "a list"
WRONG = [
    ({"n": 0}, "n is 0, expected a whole number >= 1"),
    ({"n": 3.0}, "n is 3.0, expected a whole number >= 1"),
    ({"n": True}, "n is True, expected a whole number >= 1"),
    ({"n": None}, "n is None, expected a whole number >= 1"),
    ({"clock": 7}, "clock is 7, expected auto or a number of MHz"),
    ({"clock": "fast"}, "clock is 'fast', expected auto or a number of MHz"),
    ({"inner": {"time_us": "1", "sd_us": 1}}, "inner.time_us is '1', expected a positive number"),
    ({"inner": {"time_us": -0.0, "sd_us": 1}}, "inner.time_us is -0.0, expected a positive number"),
    ({"inner": {"time_us": float("inf"), "sd_us": 1}}, "inner.time_us is inf, expected a positive number"),
    ({"inner": {"time_us": 1, "sd_us": -1}}, "inner.sd_us is -1, expected a number >= 0 or null"),
    ({"inner": {"time_us": 1}}, "inner.sd_us is missing"),
    ({"inner": [1]}, f"inner is [1], expected {GROUP}"),
    ({"rows": []}, "rows is [], expected a list of at least one"),
    ({"rows": "ab"}, "rows is 'ab', expected a list of at least one"),
    ({"rows": [[0, "a"], [1]]}, "rows[1] is [1], expected a list of 2"),
    ({"rows": [[0, "a"], [1, ""]]}, "rows[1][1] is '', expected a text that is not empty"),
    ({"by_name": []}, f"by_name is [], expected {GROUP}"),
    ({"by_name": {"k": [None]}}, f"by_name.k[0] is None, expected {GROUP}"),
    ({"maybe": {"time_us": 1, "sd_us": "x"}}, "maybe.sd_us is 'x', expected a number >= 0 or null"),
    ({"maybe": 4}, f"maybe is 4, expected {GROUP} or null"),
    ({"verdict": "fine"}, "verdict is 'fine', expected one of ok, bad"),
    ({"verdict": ["ok"]}, "verdict is ['ok'], expected one of ok, bad"),
    ({"note": 1}, "note is 1, expected a text"),
]


def test_what_fits_has_no_fault_and_may_hold_more():
    assert fault(GOOD, Whole) == fault(GOOD | {"note": "n", "clock": 1470.5, "more": 1}, Whole) == ""
    assert fault({"own": True}, Closed) == "" and fault([], Whole) == f"it is [], expected {GROUP}"
    assert fault([1], tuple[int, int]) == "it is [1], expected a list of 2"


@pytest.mark.parametrize(("changed", "told"), WRONG, ids=[told[:30] for _, told in WRONG])
def test_what_does_not_fit_is_told_by_its_field(changed, told):
    assert fault(GOOD | changed, Whole) == told


@pytest.mark.parametrize("name", list(GOOD))
def test_a_field_that_is_missing_is_named(name):
    assert fault({key: value for key, value in GOOD.items() if key != name}, Whole) == f"{name} is missing"


def test_a_closed_group_refuses_other_fields():
    assert fault({"own": True, "other": 1}, Closed) == "other is no field of it; expected own"
    assert fault({"x": 1, "z": 1}, Point, "points[2]") == "points[2].z is no field of it; expected x, y"


def test_one_is_no_truth_and_a_truth_no_number():
    assert fault(1, Literal[True], "flag") == "flag is 1, expected true"
    assert fault(True, Literal[1], "flag") == "flag is True, expected 1" and fault(1, Literal[1]) == ""


def test_dataclasses_and_named_tuples_are_made_of_what_fits():
    content = {"name": "p", "points": [{"x": 1}, {"x": 2, "y": 3}], "size": [4, 5], "about": {"k": "v"}}
    assert fault(content, Path) == ""
    assert made(content, Path) == Path("p", (Point(1), Point(2, 3)), (4, 5), {"k": "v"})
    assert made(content | {"end": {"x": 9}}, Path).end == Point(9) and made(content | {"end": None}, Path).end is None
    assert made(content | {"by_name": {"a": [{"x": 1}]}}, Path).by_name == {"a": (Point(1),)}
    assert fault(content | {"size": [1]}, Path) == "size is [1], expected a list of 2"
    assert fault(content | {"points": [{"y": 1}]}, Path) == "points[0].x is missing"


def test_a_kind_in_words():
    assert words(Positive | None) == "a positive number or null" and words(list[Inner]) == LIST
    assert words(Literal["a", "b"]) == "one of a, b" and words(Inner) == words(dict[str, Inner]) == GROUP
    assert words(tuple[int, str]) == "a list of 2" and words(tuple[int, ...]) == LIST
    assert words(list[str]) == "a list, each a text" and words(dict[str, float]) == f"{GROUP}, each a number"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "missing; make it"),
        ("{", "truncated or not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); "),
        ('{"n": NaN}', "truncated or not JSON (NaN is no number); "),
        ("[]", "not a kernel-dvfs/whole/1 file; "),
        ('{"schema": "kernel-dvfs/whole/2"}', "of another version of kernel-dvfs (schema kernel-dvfs/whole/2, "),
        (json.dumps(GOOD | {"n": 0}), "n is 0, expected a whole number >= 1; "),
    ],
)
def test_a_file_is_refused_in_one_line_with_its_remedy(tmp_path, text, told):
    path = tmp_path / "w.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as refused:
        read(path, Whole, "kernel-dvfs/whole/1", "delete it", "thing", "make it")
    assert str(refused.value).startswith(f"thing {path}: {told}")
    assert str(refused.value).endswith("make it" if text is None else "; delete it")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match=r": Is a directory; delete it$"):
        read(tmp_path, Whole, "kernel-dvfs/whole/1", "delete it")


def test_a_file_that_fits_is_what_it_holds(tmp_path):
    (tmp_path / "w.json").write_text(json.dumps(GOOD))
    assert read(tmp_path / "w.json", Whole, "kernel-dvfs/whole/1", "delete it") == GOOD
    assert read(tmp_path / "w.json", Whole, "", "delete it") == GOOD
