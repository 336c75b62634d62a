"""Headings say what a column is: its unit, and whether it was claimed or measured again where a table has both."""

import pandas as pd
import pytest

from kernel_dvfs.registry import outputs
from kernel_dvfs.report.headings import headings
from kernel_dvfs.report.write import write_table


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["time_change_percent"], ["time, %"]),
        (["time_change_percent", "fresh_time_change_percent"], ["claimed time, %", "measured again: time, %"]),
        (["claimed_time_change_percent", "time_change_percent"], ["claimed time, %", "measured again: time, %"]),
        (
            ["reoptimised_claimed_energy_change_percent", "reoptimised_energy_change_percent", "time_change_percent"],
            ["chosen there: claimed energy, %", "chosen there, measured again: energy, %", "time, %"],
        ),
        (
            ["claimed_change_percent", "fresh_change_percent", "optimism_pp"],
            ["claimed, %", "measured again, %", "measured again less claimed, points"],
        ),
        (["power_w", "gap_points", "pass"], ["power, W", "gap, points", "pass"]),
        (
            ["claimed_time_change_percent", "time_change_percent", "time_low_percent", "reoptimised_time_high_percent"],
            ["claimed time, %", "measured again: time, %", "measured again: time low, %", "chosen there: time high, %"],
        ),
        (
            [
                "reoptimised_claimed_time_change_percent",
                "reoptimised_time_change_percent",
                "reoptimised_time_low_percent",
            ],
            [
                "chosen there: claimed time, %",
                "chosen there, measured again: time, %",
                "chosen there, measured again: time low, %",
            ],
        ),
        (
            ["fresh_time_low_percent", "kernel_fresh_time_low_percent", "energy_high_percent"],
            ["measured again: time low, %", "measured again: time low, %", "energy high, %"],
        ),
        (
            ["low_energy_change_percent", "high_energy_change_percent", "points"],
            ["energy, lowest, %", "energy, highest, %", "cases"],
        ),
    ],
)
def test_a_change_says_which_of_the_two_it_is_where_a_table_has_both(columns, expected):
    assert list(headings(columns).values()) == expected


def test_a_heading_names_what_changes_are_against_where_that_is_not_auto():
    columns = ["baseline_time_s", "auto_energy_j"]
    assert list(headings(columns).values()) == ["time at auto, s", "energy at auto, J"]
    assert list(headings(columns, "the reference 1410,auto").values()) == [
        "time at the reference 1410,auto, s",
        "energy at auto, J",
    ]


def test_tables_for_people_have_those_headings_and_the_csv_its_columns(tmp_path):
    columns = ["id", "energy_change_percent", "fresh_energy_change_percent"]
    write_table(pd.DataFrame([["a", -1.5, -1.4]], columns=columns), tmp_path, "t", "about", "Toy")
    for form, between in (("md", "|"), ("tex", "&")):
        text = (tmp_path / f"tables/t.{form}").read_text().replace("\\%", "%")
        heads = next(line for line in text.splitlines() if "id in schedules" in line)
        assert [head.strip(" \\") for head in heads.strip("|").split(between)] == [
            "id in schedules",
            "claimed energy, %",
            "measured again: energy, %",
        ]
    assert (tmp_path / "tables/t.csv").read_text().startswith(",".join([*columns, "gpu"]))


def test_the_headline_says_what_a_walk_has_shown_and_calls_no_such_choice_optimal():
    from kernel_dvfs.report.tables import status
    from kernel_dvfs.report.words import time_bound_percent

    held = {"status": "optimal", "walk": {"time_bound_percent": -0.09}}
    free, none = {"status": "optimal", "walk": None}, {"status": "infeasible", "walk": None}
    assert [status(each) for each in (held, free, none)] == ["shown by a walk", "optimal", "infeasible"]
    assert [time_bound_percent(each) for each in (held, free, none)] == [-0.09, None, None]
    assert headings(["time_bound_percent"])["time_bound_percent"] == "time at most, as shown, %"


def test_no_text_of_a_table_or_figure_calls_the_same_thing_by_two_names():
    for (_, name), output in outputs("gpu").items():
        told = f"{output.caption} {output.title} {output.text}".lower()
        assert not any(word in told for word in ("fresh", "validat", "remeasur", "re-measur")), name


def test_the_tutorial_shows_the_headings_that_the_file_has(root):
    columns = ["row", "section", "name", "id", "mem_mhz", "core_mhz"]
    columns += [f"{fresh}{what}_change_percent" for fresh in ("", "fresh_") for what in ("time", "energy")]
    expected = headings(columns)
    lines = (root / "docs/tutorial.md").read_text("utf-8").splitlines()
    heads = next(line for line in lines if line.startswith("| row |")).strip("|").split("|")
    shown = ("row", "id", "mem_mhz", "core_mhz", "time_change_percent", "energy_change_percent")
    assert [head.strip() for head in heads] == [expected[column] for column in shown]
