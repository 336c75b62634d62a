"""Traces: those of Azure are read as published, bad ones refused in one line, made-up ones called synthetic."""

import numpy as np
import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.requests import CLASSES, classify, draw_lengths, seen_lengths
from kernel_dvfs_serving.system import SYNTHETIC_HOUR
from kernel_dvfs_serving.trace import (
    WEEKS,
    held,
    held_by_model,
    hours,
    make_trace,
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
        ("TIMESTAMP,ContextTokens\n1,2\n", "no column GeneratedTokens; a trace has"),
        (HEAD, "the table has a header but no rows"),
        ("", "the file is empty"),
        (HEAD + "2,5,5\n1,5,5\n", "line 3, column TIMESTAMP: earlier"),
        (HEAD + "-1,5,5\n", "line 2, column TIMESTAMP: '-1' is negative"),
        (HEAD + "0,0,5\n1,5,0\n", "line 2: no request has both a prompt and an answer"),
        (HEAD + "0,5,5\n1,-1,5\n", "line 3, column ContextTokens: '-1'"),
        (HEAD + "0,5,\n", "line 2, column GeneratedTokens: ''"),
        (HEAD + "0,5.5,5\n", "line 2, column ContextTokens: '5.5'"),
        (HEAD + "0,5,5]1,5,5\n3,5,5\n", "line 2: 5 cells where the header names 3"),
        (HEAD + "0,5,5,\n3,5,5,\n", "line 2: 4 cells where the header names 3"),
        (HEAD + "0,5,5\nnoon,5,5\n", "line 3, column TIMESTAMP: 'noon'"),
        (HEAD + "0,5,5\n1,5,5\n1e15,5,5\n", "line 4, column TIMESTAMP: '1e15' is 11574074074 days after the first"),
        (HEAD + "2023-11-16 18:15:46.6805900,5,5\n2023-11-16 18:15:45,5,5\n", "line 3, column TIMESTAMP: earlier"),
    ],
)
def test_a_bad_trace_is_refused_in_one_line(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as refused:
        read_trace(path)
    assert said in str(refused.value) and str(path) in str(refused.value) and "\n" not in str(refused.value)


# two requests, 1.5 s apart, of 310 and 57 tokens of prompt, 21 and 93 of answer; in one a third, which failed
PUBLISHED = {
    "Azure 2023": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.5000000,310,21\n2023-11-16 18:15:48.0000000,57,93\n",
    "Azure 2024": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,310,21\n2024-05-10 00:00:01.509930+00:00,57,93\n",
    "BurstGPT": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,310,21,331,Conversation log\n6,ChatGPT,44,0,44,Conversation log\n6.5,GPT-4,57,93,150,API log\n",
    "splitwise-sim": "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    "0,2,0,0.25,1,310,21\n1,2,0,1.75,1,57,93\n",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,310,21\n1.75,57,93\n",
    "Mooncake": '{"timestamp": 3000, "input_length": 310, "output_length": 21, "hash_ids": [0, 1]}\n'
    '{"timestamp": 4500, "input_length": 57, "output_length": 93, "hash_ids": [0]}\n',
    "Unix time in ms": HEAD + "1772620800250,310,21\n1772620801750,57,93\n",
    "Unix time in ns": HEAD + "1772620800250000000,310,21\n1772620801750000000,57,93\n",
    "a heading of ms": "arrival_ms;Prompt tokens;Output tokens\n250;310;21\n1750;57;93\n",
    "decimal commas": "Timestamp;Prompt tokens;Output tokens\n0,25;310;21\n1,75;57;93\n",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_trace_is_read_as_it_is_published(tmp_path, name):
    trace = read_trace(written(tmp_path, PUBLISHED[name]))
    assert trace.arrival_s == pytest.approx([0, 1.5], abs=1e-6) and trace.span_s == pytest.approx(1.5)
    assert trace.input_tokens.tolist() == [310, 57] and trace.output_tokens.tolist() == [21, 93]
    told = " ".join(trace.notices)
    assert ("1 row of 3 left out: a request without a prompt or an answer" in told) == (name == "BurstGPT")
    in_ms = {"Mooncake": "in ms, as in traces of Mooncake", "Unix time in ms": "in ms, as Unix time"}
    in_ms |= {"Unix time in ns": "in ns, as Unix time", "a heading of ms": "in ms, as its heading says"}
    assert in_ms.get(name, "") in told and ("taken to be" in told) == (name in in_ms)


def test_what_no_heading_says_is_named(tmp_path):
    path = written(tmp_path, "sent,in,out\n0,310,21\n2,57,93\n")
    with pytest.raises(InputError, match="it has sent, in, out: name them, --columns TIMESTAMP=HEADING"):
        read_trace(path)
    columns = {"TIMESTAMP": "sent", "ContextTokens": "in", "GeneratedTokens": "out"}
    assert read_trace(path, columns=columns).arrival_s.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "line 2: no TIMESTAMP, ContextTokens"),
        ('{"timestamp": 1', "line 2: not JSON"),
        ("{}", "line 2: no TIMES"),
    ],
)
def test_a_bad_line_of_json_is_named(tmp_path, line, said):
    with pytest.raises(InputError, match=said):
        read_trace(written(tmp_path, PUBLISHED["Mooncake"].splitlines()[0] + "\n" + line + "\n"))


def test_requests_longer_than_the_context_are_counted_and_left_out_or_refused_by_choice():
    trace = make_trace(np.arange(4.0), [300, 4000, 9000, 20], [10, 200, 96, 5], "mine")
    kept = held_by_model(trace, "llama2-70b")
    said = "mine: 2 of 4 requests (50 %) have more tokens than the context of llama2-70b (4096), the longest 9096"
    assert len(kept.arrival_s) == 4 and kept.notices[0].startswith(said)
    left = held_by_model(trace, "llama2-70b", "leave-out")
    assert left.input_tokens.tolist() == [300, 20] and left.arrival_s.tolist() == [0, 3] and left.span_s == 3
    assert left.notices == (f"{said}; left out",) and left.subject == "mine without 2 long requests"
    with pytest.raises(InputError, match="2 of 4 requests"):
        held_by_model(trace, "llama2-70b", "refuse")
    with pytest.raises(InputError, match="4 of 4 requests"):
        held(trace, 10, "a small cache", "leave-out")
    assert held_by_model(trace, "llama3-70b") is trace and held_by_model(trace, "mine") is trace


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
