"""Options of a table: JSON, complete, known and of the right kind, or one line that says what is not."""

from importlib import import_module
from inspect import signature

import pytest

from kernel_dvfs.cli.table import KINDS
from kernel_dvfs.layout import TABLE_FORMATS


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("validation", "{", "not JSON"),
        ("validation", "[]", "expected a JSON object"),
        ("validation", "null", "expected a JSON object"),
        ("validation", "{}", "lacks repeats"),
        ("validation", '{"repeats": "x"}', 'repeats is "x", expected a whole number >= 1'),
        ("validation", '{"repeats": true}', "repeats is true"),
        ("validation", '{"repeats": 2, "repeat": 2}', "unknown repeat; it takes repeats"),
        ("omitted_pairs", '{"repeats": 2}', "unknown repeats; it takes omitted"),
        ("relaxed", '{"ties": "knotted"}', "ties is"),
        ("relaxed", '{"ties": "tied", "weights": []}', "weights is"),
        ("omitted_pairs", '{"omitted": [[1, 2]]}', "omitted is"),
        ("tensor_energy", '{"values": [0], "default": 1, "repeats": 2}', "values is"),
    ],
)
def test_options_are_refused_with_a_reason(refused, tmp_path, name, text, named):
    said = refused("table", name, tmp_path, "--options", text)
    assert f"table {name}: --options" in said and named in said


@pytest.mark.parametrize("name", TABLE_FORMATS)
def test_every_option_of_every_table_has_a_kind(name):
    module = "claims.table" if name == "claims" else f"tables.{name}"
    make = import_module(f"kernel_dvfs.report.{module}").make
    assert set(list(signature(make).parameters)[1:]) <= set(KINDS)
