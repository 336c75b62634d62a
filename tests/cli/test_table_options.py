"""Options of a table: JSON, complete, known and of the right kind, or one line that says what is not."""

import pytest

from kernel_dvfs.cli.output import OPTIONS, annotation_of, options_of
from kernel_dvfs.registry import outputs


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
        ("relaxed", '{"ties": "tied"}', "unknown ties; it takes none"),
        ("locking", '{"targets": "a", "ways": ["core"], "sessions": 1}', 'targets is "a", expected a list of names'),
        ("strategies", '{"schedules": [], "validated": [1]}', "validated is [1], expected a list of names"),
        (
            "data_parallelism",
            '{"values": [1], "repeats": 2, "reoptimised": 1, "setups": {}, "sessions": 1}',
            "reoptimised is 1, expected true or false",
        ),
        (
            "data_parallelism",
            '{"values": [1], "repeats": 2, "reoptimised": true, "setups": {"1": 2}, "sessions": 1}',
            "setups is",
        ),
        ("omitted_pairs", '{"omitted": [[1, 2]]}', "omitted is"),
        ("tensor_energy", '{"values": [0], "default": 1, "repeats": 2}', "values is"),
    ],
)
def test_options_are_refused_with_a_reason(refused, tmp_path, name, text, named):
    (tmp_path / "measurements").mkdir()
    said = refused("output", tmp_path, name, "--options", text)
    assert "--options" in said and named in said


@pytest.mark.parametrize("output", outputs("gpu").of("table").values(), ids=lambda output: output.name)
def test_every_option_of_every_table_has_a_kind(output):
    assert {annotation_of(option) for option in options_of(output).values()} <= set(OPTIONS)


def test_a_name_that_is_none_is_told_with_what_was_meant(refused, tmp_path):
    (tmp_path / "measurements").mkdir()
    assert "no table or figure 'relaxd' (did you mean 'relaxed'?); it has baseline," in refused(
        "output", tmp_path, "relaxd"
    )
    assert "neither a profile nor records nor a study.json" in refused("output", tmp_path / "measurements", "relaxed")
