"""The answer of a page: its sentence, its plane and what speaks for it."""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_dvfs.report.page.answer import Answer, cautions, marks, sentence, shown_of
from kernel_dvfs.report.page.fleet import FleetEstimate
from kernel_dvfs.report.page.frontier import ShownChange, Stop
from kernel_dvfs.report.page.provenance import CampaignRecords, Tally
from kernel_dvfs.report.page.render import render
from kernel_dvfs.report.page.tables import most


def said(*stops, today=None, per="kernel"):
    return "".join(words for words, _ in sentence(stops, today, per))


def row(limit=0, energy=-17.3, time=-0.02, note="", how="measured again"):
    return Stop(limit, ShownChange(-1.0, energy), ShownChange(1.0, time), how, "", "", note)


MISSED = "time limit missed"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([row()], "Clocks per kernel save 17.3 % of the energy at no loss of time"),
        (
            [row(), row(0.6, -18.94, 0.57)],
            "Clocks per kernel save 17.3 % of the energy at no loss of time, and 18.9 % within 0.6 % more time",
        ),
        # a broken promise is no saving: neither in the first half nor in the second
        ([row(time=0.42, note=MISSED)], "Clocks per kernel save 17.3 % of the energy, but take 0.4 % more time"),
        (
            [row(), row(0.6, -18.94, 0.9, MISSED)],
            "Clocks per kernel save 17.3 % of the energy at no loss of time",
        ),
        ([row(2, how="forecast")], "Clocks per kernel would save 17.3 % of the energy within 2 % more time"),
        ([row(energy=-0.04)], "Clocks per kernel save nothing at no loss of time"),
        ([row(energy=1.26)], "Clocks per kernel take 1.3 % more energy at no loss of time"),
        (
            [row(energy=0.0), row(1, -3.14, 0.7)],
            "Clocks per kernel save nothing at no loss of time, and 3.1 % within 1 % more time",
        ),
        # the limit is none of its time
        ([row(5, time=0.1)], "Clocks per kernel save 17.3 % of the energy within 5 % more time"),
        ([row(-0.5, time=-0.71)], "Clocks per kernel save 17.3 % of the energy with 0.5 % less time"),
        ([row(1.23456789)], "Clocks per kernel save 17.3 % of the energy within 1.235 % more time"),
    ],
)
def test_the_sentence_says_what_is_saved_and_what_it_costs(rows, told):
    assert said(*rows) == told


def test_only_a_saving_is_the_finding():
    assert [words for words, is_found in sentence([row()]) if is_found] == ["17.3 %"]
    more = sentence([row(), row(0.6, -18.94, 0.57)], ShownChange(-5.0, -4.56))
    assert [words for words, is_found in more if is_found] == ["17.3 %", "18.9 %", "4.6 %"]
    assert not any(is_found for energy in (0.0, 2.0) for _, is_found in sentence([row(energy=energy)]))


def test_what_can_be_set_today_and_clocks_by_pass_are_said():
    assert said(row(), today=ShownChange(-5.0, -4.56)).endswith("at no loss of time; 4.6 % can be set today")
    assert said(row(), today=ShownChange(-5.0)).endswith("; 5.0 % could be set today"), "which is only claimed"
    assert said(row(how="claimed"), today=ShownChange(0.7)).endswith("; 0.0 % could be set today"), (
        "what costs is not set"
    )
    assert said(row(None, time=1.26), per="pass") == "Clocks per pass save 17.3 % of the energy with +1.3 % time"


@pytest.mark.parametrize(
    ("stop", "told"),
    [
        (row(), "One pair for the run saves 17.3 % of the energy at no loss of time"),
        (row(how="claimed"), "One pair for the run would save 17.3 % of the energy at no loss of time"),
        (row(energy=1.26), "One pair for the run takes 1.3 % more energy at no loss of time"),
        (row(time=0.42, note=MISSED), "One pair for the run saves 17.3 % of the energy, but takes 0.4 % more time"),
    ],
)
def test_one_pair_that_all_share_is_called_so(stop, told):
    assert said(stop, per="run") == told


NOTHING_ODD = Tally([], [], Counter(), {}, None, [])
SHOWN = (
    "it is at least 0.01 % faster, shown with 90 % confidence by data that did not choose it; measuring again does not "
    "contradict this"
)
CONTRADICTED = SHOWN.replace("does not contradict", "contradicts")


def an_answer(**other):
    made = Answer(
        ShownChange(-17.5, -17.3, -17.4, -17.2),
        ShownChange(0.0, -0.02, -0.07, 0.03),
        "does not contradict",
        SHOWN,
        10,
        "over 10 sessions",
        0.0,
        None,
        False,
        "measured again",
    )
    return replace(made, **other)


def test_nothing_speaks_for_an_answer_that_missed_its_limit():
    kept = marks(an_answer(), [])
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
    told = marks(late, warned)
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
    told = {mark.text: mark.where for mark in marks(made, warned)}
    assert told[f"measured again, it {verdict}"] == where
    assert ("no other choice is better (proven)" in told) is (title != "Time limit missed")


@pytest.mark.parametrize("verdict", ["contradicts", "does not contradict", "breaks its limit", "keeps its limit"])
def test_a_choice_whose_limit_is_missed_says_so(verdict):
    made = {f"fresh_{name}_{end}_percent": 0.5 for name in ("time", "energy") for end in ("change", "low", "high")}
    schedule = {"time_change_percent": 0.25, "energy_change_percent": -4.0}
    shown = shown_of(schedule, made | {"verdict": verdict})
    assert shown.note == (MISSED if verdict in ("contradicts", "breaks its limit") else "")
    assert shown.energy == ShownChange(-4.0, 0.5, 0.5, 0.5) and shown_of(schedule, None).time == ShownChange(0.25)


def test_repeats_of_a_simulation_are_called_simulated():
    texts = [mark.text for mark in marks(an_answer(how="forecast", interval=None), [])]
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


def test_a_day_of_a_fleet_is_its_power_its_hours_and_its_change():
    day = FleetEstimate(340.0, -7.25, "measured again", True, 0.125, 200.0, gpus=16, hours=12.0)
    # 16 x 340 W x 12 h = 65.28 kWh
    assert day.change_kwh == pytest.approx(-4.7328)
    assert (day.change_usd, day.change_co2_kg) == pytest.approx((-0.5916, -0.94656))


def test_most_of_a_saving_is_four_fifths_of_it():
    assert most([("a", -5.0), ("b", -2.9), ("c", -1.1), ("d", -1.0)]) == "3 of 4 make 80 % of it: a, b, c."
    assert most([("a", 0.5), ("b", -0.25)]) == most([("a", 0.0)]) == "Nothing is saved."
    assert most([(name, -1.0) for name in "abcdefgh"]) == "7 of 8 make 80 % of it: a, b, c, d, e, f and 1 more."


def test_a_lock_that_changes_something_is_named_by_its_largest_difference_a_way():
    rows = [
        {"way": way, "id": name, "verdict": verdict, "time_change_percent": time, "energy_change_percent": energy}
        for way, name, verdict, time, energy in (
            ("core", "gemm", "differs", 0.75, -1.5),
            ("core", "gelu", "differs", -0.6, 0.5),
            ("memory", "gelu", "differs", 2.25, None),
            ("both", "gemm", "as auto", 9.0, 9.0),
        )
    ]
    (caution,) = cautions({"kind": "nvml"}, None, NOTHING_ODD, None, rows)
    assert "as at auto: core −1.50 % energy (gemm); memory +2.25 % time (gelu). Every" in caution.text


def test_what_bars_records_from_choosing_is_told_before_what_only_scatters():
    sweep = CampaignRecords("sweep", 5, 8, Counter(ok=4, throttled=2, unstable=1, disturbed=1))
    again = CampaignRecords("again", 1, 4, Counter(ok=3, throttled=1))
    broken = [Path(f"r{number}.json") for number in range(4)]
    tally = Tally([sweep, again], broken, Counter(a=1, b=1), {}, None, [])
    found = cautions({"kind": "nvml"}, None, tally, None)
    assert [(each.grave, each.title) for each in found] == [
        *((True, title) for title in ("Disturbed", "Broken records", "Mixed settings")),
        *((False, title) for title in ("Unstable", "Throttled")),
    ]
    told = {each.title: each.text for each in found}
    assert told["Throttled"].startswith("3 of 12 measurements") and "r2.json ...)" in told["Broken records"]
    few = cautions({"kind": "nvml"}, None, replace(tally, broken=broken[:3], setups=Counter(a=2)), None)
    assert [each.title for each in few] == ["Disturbed", "Broken records", "Unstable", "Throttled"]
    assert "r2.json)" in few[1].text


def test_a_model_a_claim_and_an_interval_of_one_session_are_cautions():
    def titles(gpu=None, **other):
        return [
            (each.grave, each.title)
            for each in cautions(gpu or {"kind": "nvml"}, an_answer(**other), NOTHING_ODD, None)
        ]

    assert titles() == [] and titles(interval="within one session") == [(False, "Intervals within one session")]
    assert titles({"kind": "simulated", "name": "Toy"}) == [(True, "Simulated GPU")]
    assert titles({"kind": "simulated", "forecast": True}) == [(True, "Forecast")]
    assert titles(energy=ShownChange(-5.0)) == titles(time=ShownChange(0.0)) == [(True, "Claimed only")]
