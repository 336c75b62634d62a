"""Predictors: of an answer's class, and of the load to come."""

import numpy as np
import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.prediction import LoadForecast, by_token_count, confusion, predict
from kernel_dvfs_serving.trace import hours


def test_predictions_err_as_often_as_asked_and_never_about_the_prompt():
    kinds = np.random.default_rng(0).integers(0, 9, 30_000)
    predicted = predict(kinds, confusion(0.4), seed=5)
    assert (predicted // 3 == kinds // 3).all()
    assert (predicted != kinds).mean() == pytest.approx(0.4, abs=0.01)
    # either wrong letter as often as the other, whatever the truth
    counts = np.histogram2d(kinds % 3, predicted % 3, bins=3)[0]
    assert np.allclose(counts / counts.sum(1, keepdims=True), confusion(0.4), atol=0.02)
    assert (predict(kinds, confusion(0.0), seed=5) == kinds).all()


def test_a_share_of_wrong_predictions_beyond_all_is_refused():
    with pytest.raises(InputError, match="a share from 0 to 1"):
        confusion(1.2)


def test_prompt_lengths_alone_tell_more_than_the_commonest_letter():
    trace = hours(4.0, seed=2)
    letters = np.digitize(trace.output_tokens, (100, 350))
    own = by_token_count(trace.input_tokens, trace.output_tokens)
    commonest = np.bincount(letters).max() / len(letters)
    assert (own == letters).mean() > commonest + 0.05


def test_the_forecast_is_the_last_slots_on_the_first_day_then_the_day_before_then_the_median_of_weeks():
    slot_s, day, week = 21_600, 4, 28
    loads = np.arange(3 * week + 1, dtype=float)[:, None] * np.ones(9)
    forecast = LoadForecast(loads, slot_s, margin=2.0)
    assert forecast.expected[2, 0] == 2 and forecast.expected[day + 1, 0] == 1
    assert forecast.expected[3 * week, 0] == np.median([0, week, 2 * week])
    assert forecast.between(0, 3 * slot_s).max(0)[0] == 0  # of the first day only its beginning
    assert forecast.between(2 * slot_s, 4 * slot_s)[:, 0].tolist() == [2 * 1]
    oracle = LoadForecast(loads, slot_s, "oracle", margin=2.0)
    assert oracle.between(0, 3 * slot_s).max(0)[0] == 2 * 2
    assert LoadForecast(loads, slot_s, "oracle").expected[50, 0] == 50
    with pytest.raises(InputError, match="template, oracle"):
        LoadForecast(loads, slot_s, "tea leaves")
