"""Latencies of clock changes: distributions, what is used of them, and the file, by numbers worked out apart."""

import json
import math

import numpy as np
import pytest

from kernel_dvfs.measurement.latency_file import QUANTITIES, as_csv, checked, content, statistics
from kernel_dvfs_clocks.errors import InputError

ABOUT = {"gpu": {"name": "G, 80 GB", "uuid": "GPU-0123456789abcdef", "driver": "580.1"}}
ABOUT |= {"started_utc": "2026-11-22T10:00:00Z"}


def test_statistics_are_those_of_the_values():
    values = [float(each) for each in range(101)]
    found = {"n": 101, "mean": 50, "median": 50, "p5": 5, "p95": 95, "max": 100}
    assert statistics(values[::-1]) == found and statistics([]) is None


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
def test_quantiles_of_few_unequal_values_are_numpys(count):
    values = np.random.default_rng(count).lognormal(-3, 1, count)
    p5, median, p95 = np.quantile(values, [0.05, 0.5, 0.95])
    expected = {"n": count, "mean": values.mean(), "median": median, "p5": p5, "p95": p95, "max": values.max()}
    assert statistics(values.tolist()) == pytest.approx(expected, rel=1e-12)


def trial(domain, settled_s, stall_s=0.0, verdict="ok", to_mhz=2, **more):
    own = {"domain": domain, "from_mhz": 1, "to_mhz": to_mhz, "verdict": verdict, "call_s": 0.001}
    return own | {"first_effect_s": settled_s / 3, "settled_s": settled_s, "nvml_s": None, "stall_s": stall_s} | more


TRIALS = [
    *(trial("core", s, 1e-4 * n) for n, s in enumerate((0.004, 0.011, 0.006))),
    *(trial("mem", s, stall) for s, stall in ((0.009, 7e-4), (0.013, 2e-4), (0.010, 4e-4))),
    trial("mem", 9.0, 9.0, verdict="lost"),
    trial("mem", 0.0101, 1e-4, to_mhz=3),
]


def found():
    """The file's content, as it is read again."""
    return json.loads(json.dumps(content(ABOUT, TRIALS)))


def test_what_is_used_is_of_the_domain_that_takes_longer_and_of_changes_that_came():
    latency = checked("x.json", found())
    settled = [0.009, 0.013, 0.010, 0.0101]
    p5, median, p95 = np.quantile(settled, [0.05, 0.5, 0.95])
    assert latency.latencies_s == pytest.approx([median, p95], abs=5e-7)
    assert latency.latency_s == pytest.approx((p5 + p95) / 2)
    assert latency.jitter * latency.latency_s == pytest.approx((p95 - p5) / 2)
    assert latency.stall_s("mem") == pytest.approx((7e-4 + 2e-4 + 4e-4 + 1e-4) / 4), "the mean, which adds up"
    assert latency.stall_s("core") == pytest.approx(1e-4) and latency.stall_s("fan") is None
    assert (latency.domains["mem"].n, latency.domains["mem"].missed) == (4, 1)
    assert (latency.domains["core"].n, latency.domains["core"].missed) == (3, 0)
    assert latency.about == "measured on G, 80 GB (GPU-01234567, driver 580.1, 2026-11-22)"


def test_latencies_are_told_to_a_microsecond_and_one_at_least():
    quick = content(ABOUT, [trial("core", s) for s in (1e-8, 2e-8)])
    assert checked("x.json", quick).latencies_s == [1e-6]
    fine = content(ABOUT, [trial("core", 0.0123456789)])
    assert checked("x.json", fine).latencies_s == [0.012346]


def test_each_transition_has_a_line_in_ms_with_blanks_for_what_nobody_saw():
    head, *lines = (line.split(",") for line in as_csv(found()).splitlines())
    assert len(lines) == 3 and {len(line) for line in lines} == {len(head)} == {8 + 5 * len(QUANTITIES)}
    core, mem, other = (dict(zip(head, line)) for line in lines)
    assert (core["gpu"], core["date"]) == ("G  80 GB", "2026-11-22"), "no comma of its own, and no time of day"
    assert (mem["domain"], mem["n"], mem["missed"], other["to_mhz"], other["n"]) == ("mem", "3", "1", "3", "1")
    assert [float(mem[f"settled_{each}_ms"]) for each in ("mean", "median", "max")] == pytest.approx(
        [32 / 3, 10, 13], rel=1e-5
    )
    assert float(core["stall_mean_ms"]) == pytest.approx(0.1) and core["nvml_mean_ms"] == ""


@pytest.mark.parametrize(
    ("value", "is_one"), [(0, True), (999_999.9, False), (1e6, False), (-1e-9, False), (True, False), ("1", False)]
)
def test_a_statistic_is_a_number_of_seconds(value, is_one):
    """As the least of its distribution: larger ones break the order of the quantiles."""
    given = found()
    given["domains"]["core"]["stall_s"]["p5"] = value
    if is_one:
        assert checked("x.json", given).domains["core"].stall_s["p5"] == value
    else:
        with pytest.raises(InputError, match=r"x\.json: domains\.core\.stall_s"):
            checked("x.json", given)


@pytest.mark.parametrize(("one", "other"), [("p5", "median"), ("median", "p95"), ("p95", "max")])
def test_quantiles_ascend(one, other):
    given = found()
    settled = given["domains"]["core"]["settled_s"]
    settled[one] = settled[other]
    assert checked("x.json", given)
    settled[one] = math.nextafter(settled[other], 1)
    with pytest.raises(InputError, match="its quantiles do not ascend"):
        checked("x.json", given)
