"""One verdict on a time limit: what a walk has shown, and whether measuring it again contradicts that."""

import math

import pytest
from whole_schedule import whole_schedule, whole_walk

from kernel_dvfs import limit_verdict, student
from kernel_dvfs.limit_verdict import limit_in_words, of_repeats, verdict


def change(low, high):
    return student.Change((low + high) / 2, low, high, 0.1, 10, 10, [])


@pytest.mark.parametrize(
    ("low", "high", "limit", "walked", "alone"),
    [
        (0.61, 0.8, 0.6, "contradicts", "breaks its limit"),
        (0.6, 0.8, 0.6, "does not contradict", "not shown to keep its limit"),
        (-0.2, 0.05, 0.0, "does not contradict", "not shown to keep its limit"),
        (-0.2, 0.61, 0.6, "does not contradict", "not shown to keep its limit"),
        (-0.2, 0.6, 0.6, "does not contradict", "keeps its limit"),
        (-0.2, -0.1, 0.0, "does not contradict", "keeps its limit"),
        (-0.9, -0.8, -1.0, "contradicts", "breaks its limit"),
        # one repeat has no interval
        (math.nan, math.nan, 0.0, "does not contradict", "not shown to keep its limit"),
    ],
)
def test_only_an_interval_wholly_above_the_limit_is_a_contradiction(low, high, limit, walked, alone):
    assert (verdict(change(low, high), limit, True), verdict(change(low, high), limit)) == (walked, alone)


def test_repeats_give_the_verdict_of_their_95_percent_interval():
    """Mean 0.3, sd 0.1: three repeats reach from 0.052 on (t = 4.303), and up to 0.548."""
    times = [0.2, 0.3, 0.4]
    limits = (0.05, 0.06, 0.54, 0.55)
    alone = [of_repeats(whole_schedule(slack_percent=limit), times) for limit in limits]
    assert alone == ["breaks its limit", *["not shown to keep its limit"] * 2, "keeps its limit"]
    walked = [of_repeats(whole_schedule(slack_percent=limit, walk=whole_walk()), times) for limit in limits]
    assert walked == ["contradicts", *["does not contradict"] * 3]


def test_without_a_limit_or_with_one_repeat_there_is_no_verdict():
    assert of_repeats(whole_schedule(), [0.2]) is None
    assert of_repeats(whole_schedule(slack_percent=None), [0.2, 0.3]) is None


@pytest.mark.parametrize(
    ("walk", "found", "said"),
    [
        ({}, None, "it is at least 0.02 % faster, shown with 90 % confidence by data that did not choose it"),
        (
            {"time_bound_percent": 0.5949, "over_percent": 2.5},
            limit_verdict.AGREES,
            "it is at most 0.59 % slower, shown with 97.5 % confidence by data that did not choose it; "
            "measuring again does not contradict this",
        ),
        (
            {"time_bound_percent": -0.001},
            limit_verdict.CONTRADICTS,
            "it is at most 0.00 % slower, shown with 90 % confidence by data that did not choose it; "
            "measuring again contradicts this",
        ),
        ({"passed": 0}, limit_verdict.AGREES, "all stay at auto, since no other choice was shown to keep the limit"),
        (None, limit_verdict.BREAKS, "measured again, it breaks its limit"),
        (None, limit_verdict.KEEPS, "measured again, it keeps its limit"),
        (None, limit_verdict.NOT_SHOWN, "measured again, it is not shown to keep its limit"),
        (None, None, ""),
        (None, "", ""),
    ],
)
def test_what_is_known_is_one_sentence(walk, found, said):
    schedule = whole_schedule(walk=None if walk is None else whole_walk(**walk))
    assert limit_in_words(schedule, found) == said


def test_a_forecast_is_measured_again_in_simulation_only():
    forecast = whole_schedule(gpu={"kind": "simulated", "name": "G", "slug": "g", "forecast": True})
    assert limit_in_words(forecast, "keeps its limit") == "measured again in simulation, it keeps its limit"
    walked = limit_in_words(forecast | {"walk": whole_walk()}, "contradicts")
    assert walked.endswith("; measuring again in simulation contradicts this")
