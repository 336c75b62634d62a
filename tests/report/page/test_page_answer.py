"""The answer of a page: its sentence, its plane and what speaks for it."""

import base64
import hashlib
import itertools
import re
from collections import Counter
from dataclasses import replace

import pytest

from kernel_dvfs.report.page.answer import Answer, Change, Plane, Tolerated, cautions, marks, plane, sentence, tolerated
from kernel_dvfs.report.page.provenance import Tally
from kernel_dvfs.report.page.render import render


def said(*rows):
    return "".join(words for words, _ in sentence(rows))


def row(limit="no longer", energy=-17.3, time=-0.02, note="", how="measured again"):
    return Tolerated(limit, note, energy, time, how)


MISSED = "(time limit missed)"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([row()], "Clocks per kernel save 17.3 % of the energy at no loss of time"),
        (
            [row(), row("0.6 % longer", -18.94, 0.57)],
            "Clocks per kernel save 17.3 % of the energy at no loss of time, and 18.9 % with 0.6 % more time",
        ),
        # a broken promise is no saving: neither in the first half nor in the second
        ([row(time=0.42, note=MISSED)], "Clocks per kernel save 17.3 % of the energy, but take 0.4 % more time"),
        (
            [row(), row("0.6 % longer", -18.94, 0.9, MISSED)],
            "Clocks per kernel save 17.3 % of the energy at no loss of time",
        ),
        ([row("2 % longer", how="forecast")], "Clocks per kernel would save 17.3 % of the energy with 2 % more time"),
        ([row(energy=-0.04)], "Clocks per kernel save nothing at no loss of time"),
        ([row(energy=1.26)], "Clocks per kernel take 1.3 % more energy at no loss of time"),
        (
            [row(energy=0.0), row("1 % longer", -3.14, 0.7)],
            "Clocks per kernel save nothing at no loss of time, and 3.1 % with 1 % more time",
        ),
    ],
)
def test_the_sentence_says_what_is_saved_and_what_it_costs(rows, told):
    assert said(*rows) == told


def test_only_a_saving_is_the_finding():
    assert [words for words, is_found in sentence([row()]) if is_found] == ["17.3 %"]
    assert not any(is_found for energy in (0.0, 2.0) for _, is_found in sentence([row(energy=energy)]))


@pytest.mark.parametrize(("energy", "time"), [(0.0, 0.0), (-4.2, 0.0), (0.0, 1.7), (-1e-9, 1e-9)])
def test_a_plane_has_room_where_nothing_changes(energy, time):
    made = plane([("no longer", Change(energy), Change(time))])
    assert len(made.x_ticks) >= 2 and len(made.y_ticks) >= 2
    assert len({place for place, _ in made.x_ticks}) == len(made.x_ticks)
    (point,) = made.points
    assert Plane.left <= point.x <= Plane.right and Plane.top <= point.y <= Plane.bottom


def test_a_point_without_room_for_its_label_has_none_and_is_still_told():
    crowd = [(f"a label that is long enough {n}", Change(-5.0), Change(1.0)) for n in range(60)]
    points = plane(crowd).points
    labels = [point.label for point in points if point.label]
    assert 5 < len(labels) < 60 and all(point.said.startswith("a label") for point in points)
    # those of one side that are shown do not lie on each other
    for side in ("start", "end"):
        rows = sorted(label.y for label in labels if label.anchor == side)
        assert all(lower - upper >= 14.9 for upper, lower in itertools.pairwise(rows))


NOTHING_ODD = Tally([], [], Counter(), {}, None, [])
SHOWN = (
    "it is at most −0.01 % slower, shown with 90 % confidence by data that did not choose it; measuring again does not "
    "contradict this"
)
CONTRADICTED = SHOWN.replace("does not contradict", "contradicts")


def an_answer(**other):
    made = Answer(
        Change(-17.5, -17.3, -17.4, -17.2),
        Change(0.0, -0.02, -0.07, 0.03),
        "does not contradict",
        SHOWN,
        "10",
        "over 10 sessions",
        0.0,
        None,
        False,
        "measured again",
    )
    return replace(made, **other)


def test_nothing_speaks_for_an_answer_that_missed_its_limit():
    kept = marks(an_answer(), [], None)
    assert [mark.text for mark in kept if not mark.where] == [
        "10 repeats over 10 sessions: time −0.07 to +0.03 %",
        SHOWN,
    ]
    late = an_answer(verdict="contradicts", limit=CONTRADICTED)
    warned = cautions({"kind": "nvml"}, late, NOTHING_ODD, None)
    assert [(each.grave, each.title) for each in warned] == [(True, "Time limit missed")]
    assert warned[0].text == (
        f"I{CONTRADICTED[1:]}. The time is −0.02 %, and its whole 95 % interval lies above the limit of 0.00 %."
    )
    told = marks(late, warned, None)
    assert not [mark for mark in told if not mark.where]
    assert [mark.text for mark in told if mark.where == "cautions"] == [CONTRADICTED], "once"


@pytest.mark.parametrize(
    ("verdict", "where", "title"),
    [
        ("keeps its limit", "", None),
        ("not shown to keep its limit", "cautions", "Time limit not shown to be kept"),
        ("breaks its limit", "cautions", "Time limit missed"),
    ],
)
def test_without_a_walk_the_limit_rests_on_measuring_again(verdict, where, title):
    made = an_answer(verdict=verdict, limit=f"measured again, it {verdict}", is_proven=True)
    warned = cautions({"kind": "nvml"}, made, NOTHING_ODD, None)
    assert [each.title for each in warned] == ([title] if title else [])
    told = {mark.text: mark.where for mark in marks(made, warned, None)}
    assert told[f"measured again, it {verdict}"] == where
    assert ("no other choice is better (proven)" in told) is (title != "Time limit missed")


@pytest.mark.parametrize("verdict", ["contradicts", "does not contradict", "breaks its limit", "keeps its limit"])
def test_a_row_whose_limit_is_missed_says_so(verdict):
    row = {"schedule": "kernel-global-waste-slack2", "slack_percent": "2", "verdict": verdict}
    row |= {"fresh_energy_change_percent": "-20", "fresh_time_change_percent": "2.5"}
    notes = [each.note for each in tolerated(an_answer(verdict=verdict), [row], None)]
    assert notes == [MISSED if verdict in ("contradicts", "breaks its limit") else ""] * 2


def test_repeats_of_a_simulation_are_called_simulated():
    texts = [mark.text for mark in marks(an_answer(how="forecast", interval=None), [], None)]
    assert texts[0] == "10 simulated repeats: time −0.07 to +0.03 %"


def test_a_page_lets_run_only_the_script_and_style_that_are_its_own():
    page = render("page.html.j2")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (own,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"\s(style|on\w+)=", page), "which no hash covers"
