"""The answer of a page: its sentence, its plane and what speaks for it."""

import base64
import hashlib
import itertools
import re
from dataclasses import replace

import pytest

from kernel_dvfs.report.page.answer import Answer, Change, Plane, Tolerated, marks, plane, sentence
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


def an_answer(**other):
    made = Answer(
        Change(-17.5, -17.3, -17.4, -17.2),
        Change(0.0, -0.02, -0.07, 0.03),
        "within",
        "10",
        "over 10 sessions",
        None,
        0.0,
        None,
        "shown by a walk",
        "measured again",
    )
    return replace(made, **other)


def test_nothing_speaks_for_an_answer_that_missed_its_limit():
    kept = marks(an_answer(), [], None)
    assert [mark.text for mark in kept if not mark.where] == [
        "10 repeats over 10 sessions: time −0.07 to +0.03 %",
        "limit shown to be kept, by data of its own",
    ]
    assert not [mark for mark in marks(an_answer(verdict="over"), [], None) if not mark.where]


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
