"""Traces: those of Azure are read as published, bad ones refused in one line, made-up ones called synthetic."""

import numpy as np
import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs_serving.requests import CLASSES, classify, draw_lengths, seen_lengths
from kernel_dvfs_serving.trace import (
    SYNTHETIC_HOUR,
    WEEKS,
    hours,
    multiplied,
    poisson,
    read_trace,
    summary,
    week,
    week_rate,
    write_trace,
)

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def written(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_the_conversation_trace_of_2023_has_its_published_figures(shared):
    trace = read_trace(shared("traces/AzureLLMInferenceTrace_conv.csv"))
    found = summary(trace)
    assert found["requests"] == 19_366 and found["span_s"] == pytest.approx(3501.7, abs=0.1)
    assert trace.input_tokens.mean() == pytest.approx(1154.7, abs=0.05)
    assert trace.output_tokens.mean() == pytest.approx(211.1, abs=0.05)
    published = [3.58, 9.80, 0.05, 19.00, 10.41, 7.74, 15.09, 8.77, 25.56]
    assert [found[f"{name}_percent"] for name in CLASSES] == pytest.approx(published, abs=0.006)
    assert trace.subject == "Azure LLM inference trace 2023, conversation"  # known by its digest


@pytest.mark.parametrize(
    "text, said",
    [
        ("TIMESTAMP,ContextTokens\n1,2\n", "no column GeneratedTokens"),
        (HEAD, "no request"),
        ("", "no CSV"),
        (HEAD + "2,5,5\n1,5,5\n", "line 3: TIMESTAMP is earlier"),
        (HEAD + "-1,5,5\n", "line 2: TIMESTAMP -1 is negative"),
        (HEAD + "0,5,5\n1,0,5\n", "line 3: ContextTokens is '0'"),
        (HEAD + "0,5,\n", "line 2: GeneratedTokens is ''"),
        (HEAD + "0,5.5,5\n", "line 2: ContextTokens is '5.5'"),
        (HEAD + "0,5,5]1,5,5\n3,5,5\n", "line 2: more fields than the heading has columns"),
        (HEAD + "0,5,5,\n3,5,5,\n", "line 2: more fields than the heading has columns"),
        (HEAD + "0,5,5\nnoon,5,5\n", "line 3: TIMESTAMP 'noon'"),
        (HEAD + "0,5,5\n1,5,5\n1e15,5,5\n", "line 4: TIMESTAMP '1e15' is 11574074074 days after the first"),
        (HEAD + "2023-11-16 18:15:46.6805900,5,5\n2023-11-16 18:15:45,5,5\n", "line 3: TIMESTAMP is earlier"),
    ],
)
def test_a_bad_trace_is_refused_in_one_line(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as refused:
        read_trace(path)
    assert said in str(refused.value) and str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_of_another_content_than_expected_is_refused(tmp_path):
    path = written(tmp_path, HEAD + "0,5,5\n")
    with pytest.raises(InputError, match="SHA-256"):
        read_trace(path, "0" * 64)
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "none.csv")


def test_dates_keep_their_hundred_nanoseconds(tmp_path):
    path = written(tmp_path, HEAD + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:46.6805901,396,109\n")
    assert read_trace(path).arrival_s.tolist() == pytest.approx([0, 1e-7], abs=1e-12)


def test_the_shipped_hour_is_what_its_seed_makes_and_is_called_synthetic(tmp_path):
    write_trace(tmp_path / "again.csv", hours(3.0, seed=1))
    assert (tmp_path / "again.csv").read_bytes() == SYNTHETIC_HOUR.read_bytes()
    assert read_trace(SYNTHETIC_HOUR).subject.startswith("synthetic trace")


@pytest.mark.parametrize("name", CLASSES)
def test_drawn_lengths_are_of_their_class(name):
    inputs, outputs = draw_lengths(name, 500, np.random.default_rng(2))
    assert {CLASSES[place] for place in classify(inputs, outputs)} == {name}


@pytest.mark.parametrize("service", WEEKS)
def test_a_week_has_the_published_least_mean_and_peak_rate(service):
    rate = week_rate(service)
    shape = WEEKS[service]
    assert (rate.min(), rate.mean(), rate.max()) == pytest.approx((shape.least, shape.mean, shape.peak), rel=1e-3)
    trace = week(service, 0.01, seed=1)
    assert len(trace.arrival_s) / 604_800 == pytest.approx(0.01 * shape.mean, rel=0.01)
    assert trace.subject.startswith("synthetic") and (np.diff(trace.arrival_s) >= 0).all()


def test_a_poisson_load_is_as_heavy_as_asked():
    trace = poisson(4000, span_s=3600, seed=1)
    assert (trace.input_tokens.sum() + trace.output_tokens.sum()) / 3600 == pytest.approx(4000, rel=0.05)


def test_bursts_are_whole_minutes_of_ten_times_the_rate():
    calm, bursty = (hours(2.0, seed=1, service="coding", swing=0.0, bursts=count) for count in (0, 4))
    minutes = [np.bincount((each.arrival_s // 60).astype(int), minlength=60) for each in (calm, bursty)]
    tall = np.flatnonzero(minutes[1] > 3 * minutes[0].mean())
    assert len(tall) == 4 and minutes[1][tall].mean() == pytest.approx(10 * minutes[0].mean(), rel=0.1)
    assert "synthetic" in bursty.subject and "4 minutes" in bursty.subject


def test_a_multiplied_trace_has_every_request_so_often_and_no_earlier():
    one = hours(2.0, seed=1, span_s=300)
    many = multiplied(one, 3, seed=1)
    assert len(many.arrival_s) == 3 * len(one.arrival_s) and many.output_tokens.sum() == 3 * one.output_tokens.sum()
    assert (np.diff(many.arrival_s) >= 0).all() and "3 copies" in many.subject
    assert many.arrival_s[-1] <= one.arrival_s[-1] + 10 and multiplied(one, 1, seed=1) is one
    with pytest.raises(InputError, match="at least 1"):
        multiplied(one, 0, seed=1)


def test_lengths_are_drawn_from_the_traces_own_requests_where_it_has_enough():
    rng = np.random.default_rng(1)
    inputs, outputs = np.full(200, 300), np.repeat([20, 60], 100)
    seen = seen_lengths(np.append(inputs, 5000), np.append(outputs, 400))
    assert set(seen) == {"MS"}
    drawn = draw_lengths("MS", 1000, rng, seen)
    assert set(drawn[0]) == {300} and set(drawn[1]) == {20, 60}
    assert (draw_lengths("LL", 50, rng, seen)[0] >= 1024).all()
