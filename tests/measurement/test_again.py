"""Choices measured again: times and energies within the iteration, worked out by hand for odd numbers."""

from typing import ClassVar

import pytest

from kernel_dvfs.measurement import again, record
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.measurement.visit import asked, round_of
from kernel_dvfs.report.remeasured import means
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair

HIGH, LOW = Pair(1890, 9251), Pair(1485, 5001)
# of an iteration of 141.76 ms at auto x and y are the last 1.5 %
LAUNCHES = {"a": 24, "b": 13, "x": 3, "y": 7}
TIME_US = {
    BASELINE: {"a": 3001.5, "b": 5203.25, "x": 290.5, "y": 173.0},
    HIGH: {"a": 3107.0, "b": 5190.5, "x": 301.75, "y": 175.5},
    LOW: {"a": 3977.5, "b": 5411.0, "x": 377.0, "y": 201.25},
}
POWER_MW = {
    BASELINE: {"a": 331_000, "b": 287_500, "x": 199_000, "y": 174_250, "xy": 188_000, "yx": 188_000},
    HIGH: {"a": 301_500, "b": 270_250, "x": 187_000, "y": 169_500, "xy": 179_500},
    LOW: {"a": 219_750, "b": 213_000, "x": 141_500, "y": 133_250, "xy": 137_750},
}
WHOLE_MW = 317_250  # of an iteration at auto, whose kernels by themselves draw less
PASSES = {"forward": [["a", 11], ["x", 3], ["a", 13]], "backward": [["b", 13], ["y", 7]]}


class Visitor:
    """A board that takes 1 % more time for each visit to auto after the first, and keeps what it was asked."""

    device: ClassVar = {
        **{"kind": "simulated", "name": "made up", "uuid": "made-up-7", "driver": "1.5", "power_limit_mw": 350_000},
        **{"energy_scope": "board", "counter_period_ms": 20.0, "counter_read_ms": 0.5},
    }

    def __init__(self, verdicts=(), run_id="", slower=()):
        self.visited, self.verdicts, self.slower = [], dict(verdicts), dict(slower)
        self.run = {"run_id": run_id} if run_id else {}

    def window(self, visit, names, time_us):
        """Of kernels by themselves; where they are slower than among others is told by `slower`."""
        round_us = sum(count * time_us[name] for name, count in round_of(names, LAUNCHES).items())
        slower = self.slower.get((visit.pair, names[0]), 1)
        own = {"power_mw": POWER_MW[visit.pair]["".join(names)], "time_us": round_us * slower}
        core_mhz = 1930.0 if visit.pair == BASELINE else visit.pair[0]
        own |= {"core_mhz": core_mhz / slower, "is_capped": slower > 1}
        return {"kernels": list(names)} | own

    def visit(self, visit):
        self.visited.append(visit)
        pace = 1.01 if visit.pair == BASELINE and visit.place else 1.0
        core, mem = (1930.0, 9251.0) if visit.pair == BASELINE else map(float, visit.pair)
        more = {} if visit.pair == BASELINE else {"lock": "range", "core_range_mhz": [210, core], "through": "broker"}
        time_us = {name: pace * each for name, each in TIME_US[visit.pair].items()}
        verdict = self.verdicts.get(visit.place, "ok")
        return {
            "request": asked(visit) | more | {"policy": "auto" if visit.pair == BASELINE else "lock", "switch_s": 0.01},
            "passes": {
                **{"n": 9, "time_us": time_us, "iteration_us": in_iteration(time_us)},
                **{"power_mw": WHOLE_MW, "is_capped": False},
            },
            "powers": [self.window(visit, names, time_us) for names in visit.metered],
            "reached": {"core_mhz": core, "mem_mhz": mem},
            "verdict": verdict,
            "reasons": [] if verdict == "ok" else [f"visit {visit.place}"],
        }


@pytest.fixture
def setup(setup_of) -> Setup:
    made = setup_of()
    targets = {"kernel": {name: {"launches_per_iteration": count} for name, count in LAUNCHES.items()}, "pass": PASSES}
    return made._replace(targets=targets)


def kernels(**pairs):
    return {MeasurementTarget("kernel", name): pair for name, pair in pairs.items()}


def in_iteration(each):
    """A total over the launches of an iteration."""
    return sum(count * each[name] for name, count in LAUNCHES.items())


def whole(**power_mw):
    """The iteration's energy at auto over that of its kernels by themselves, at these powers."""
    alone = in_iteration(
        {
            name: TIME_US[BASELINE][name] * each
            for name, each in (POWER_MW[BASELINE] | power_mw).items()
            if name in LAUNCHES
        }
    )
    return WHOLE_MW * in_iteration(TIME_US[BASELINE]) / alone


def auto_us(name, visits=2):
    """Mean of the visits to auto."""
    return TIME_US[BASELINE][name] * (1 + 1.01 * (visits - 1)) / visits


def test_one_session_visits_auto_each_chosen_pair_once_and_auto_again(setup):
    visitor = Visitor()
    choices = [kernels(a=HIGH, b=LOW, x=HIGH, y=HIGH), kernels(a=HIGH, b=BASELINE, x=LOW, y=BASELINE)]
    again.compare_iteration(setup, visitor, choices, 6)
    assert [each.pair for each in visitor.visited] == [BASELINE, HIGH, LOW, BASELINE]
    assert {each.session for each in visitor.visited} == {again.FRESH + 6}
    assert [each.place for each in visitor.visited] == [0, 1, 2, 3]
    first, high, low, last = visitor.visited
    assert first.metered == () and first.window_s == 0
    assert high.metered == (("a",), ("x", "y")), "light ones share a window"
    assert low.metered == (("b",), ("x",)), "of all choices"
    assert sorted(name for group in last.metered for name in group) == ["a", "b", "x", "y"], "each once, at auto too"
    assert (first.pass_s, high.pass_s, last.pass_s) == (5.0, 2.5, 5.0) and high.window_s == last.window_s == 0.5


def test_a_kernel_that_moved_is_compared_with_the_mean_of_all_visits_to_auto(setup):
    [[a, b, x, y]] = again.compare_iteration(setup, Visitor(), [kernels(a=HIGH, b=LOW, x=HIGH, y=HIGH)], 0)
    factor = whole(x=188_000, y=188_000)
    assert 1.02 < factor < 1.04
    for found, name, pair, window in (
        (a, "a", HIGH, "a"),
        (b, "b", LOW, "b"),
        (x, "x", HIGH, "xy"),
        (y, "y", HIGH, "xy"),
    ):
        auto, chosen = (point["summary"] for point in found["points"])
        assert found["target"] == name and found["repeat"] == 0
        assert auto["time_us"] == pytest.approx(auto_us(name)) and auto["n"] == 2
        assert auto["energy_mj"] == pytest.approx(1e-6 * factor * auto_us(name) * POWER_MW[BASELINE][window])
        assert auto["power_mw"] == pytest.approx(factor * POWER_MW[BASELINE][window])
        assert chosen["time_us"] == TIME_US[pair][name] and chosen["n"] == 1
        assert chosen["energy_mj"] == pytest.approx(1e-6 * TIME_US[pair][name] * POWER_MW[pair][window])
        assert means(found["points"], "time_us") == (auto["time_us"], chosen["time_us"])


def test_a_kernel_that_stays_at_auto_is_measured_once_and_changes_nothing(setup):
    [[a, b, x, y]] = again.compare_iteration(setup, Visitor(), [kernels(a=BASELINE, b=LOW, x=BASELINE, y=BASELINE)], 1)
    assert b["points"][0] != b["points"][1]
    for found in (a, x, y):
        assert found["points"][0] == found["points"][1]
    factor = whole(x=188_000, y=188_000)
    assert a["points"][0]["summary"]["power_mw"] == pytest.approx(factor * 331_000)
    assert x["points"][0]["summary"]["power_mw"] == pytest.approx(factor * 188_000)


def test_a_pass_is_the_sum_of_its_kernels_with_launches_that_it_names_twice_added(setup):
    choice = {MeasurementTarget("pass", "forward"): LOW, MeasurementTarget("pass", "backward"): HIGH}
    visitor = Visitor()
    [[forward, backward]] = again.compare_iteration(setup, visitor, [choice], 2)
    assert [each.metered for each in visitor.visited[1:3]] == [(("a",), ("x",)), (("b",), ("y",))]
    auto, chosen = (point["summary"] for point in forward["points"])
    assert auto["time_us"] == pytest.approx(24 * auto_us("a") + 3 * auto_us("x"))
    assert chosen["time_us"] == pytest.approx(24 * 3977.5 + 3 * 377.0)
    assert chosen["energy_mj"] == pytest.approx(1e-6 * (24 * 3977.5 * 219_750 + 3 * 377.0 * 141_500))
    assert chosen["power_mw"] == pytest.approx(1e6 * chosen["energy_mj"] / chosen["time_us"])
    assert backward["points"][1]["summary"]["energy_mj"] == pytest.approx(
        1e-6 * (13 * 5190.5 * 270_250 + 7 * 175.5 * 169_500)
    )
    assert forward["points"][0]["summary"]["energy_mj"] == pytest.approx(
        1e-6 * whole() * (24 * auto_us("a") * 331_000 + 3 * auto_us("x") * 199_000)
    )


def test_at_auto_all_targets_together_take_the_energy_of_the_iteration_not_of_its_kernels_alone(setup):
    choices = [
        kernels(a=HIGH, b=LOW, x=HIGH, y=BASELINE),
        {MeasurementTarget("pass", "forward"): LOW, MeasurementTarget("pass", "backward"): BASELINE},
    ]
    by_kernel, by_pass = again.compare_iteration(setup, Visitor(), choices, 3)
    auto_mj = [
        {each["target"]: each["points"][0]["summary"]["energy_mj"] for each in own} for own in (by_kernel, by_pass)
    ]
    expected_mj = 1e-6 * WHOLE_MW * in_iteration({name: auto_us(name) for name in LAUNCHES})
    assert in_iteration(auto_mj[0]) == pytest.approx(expected_mj)
    assert sum(auto_mj[1].values()) == pytest.approx(expected_mj)
    # also where a choice names some kernels only: all are metered at auto
    [[alone]] = again.compare_iteration(setup, Visitor(), [kernels(a=LOW)], 3)
    assert alone["points"][0]["summary"]["power_mw"] == pytest.approx(whole(x=188_000, y=188_000) * 331_000)


def test_kernels_that_the_cap_holds_alone_share_what_the_iteration_takes_beyond_the_others(setup):
    """At HIGH a, x and y are slower alone by an eighth; a second visit meters b, which tells what is left for them."""
    choice = kernels(a=HIGH, b=LOW, x=HIGH, y=HIGH)
    visitor = Visitor(slower={(HIGH, "a"): 1.125, (HIGH, "x"): 1.125})
    [[a, b, x, y]] = again.compare_iteration(setup, visitor, [choice], 0)
    assert [each.pair for each in visitor.visited] == [BASELINE, HIGH, HIGH, LOW, BASELINE]
    assert visitor.visited[2].metered == (("b",),) and visitor.visited[2].window_s == again.REST_WINDOW_S
    assert [each.place for each in visitor.visited] == [0, 1, 2, 3, 4]
    time_us = TIME_US[HIGH]
    left_mj = 1e-6 * (WHOLE_MW * in_iteration(time_us) - 13 * time_us["b"] * 270_250)
    alone_mj = 1e-6 * (24 * time_us["a"] * 301_500 + (3 * time_us["x"] + 7 * time_us["y"]) * 179_500)
    assert 1.2 < left_mj / alone_mj < 1.3
    for found, name, power_mw in ((a, "a", 301_500), (x, "x", 179_500), (y, "y", 179_500)):
        chosen = found["points"][1]["summary"]
        assert chosen["time_us"] == pytest.approx(time_us[name]) and chosen["n"] == 2
        assert chosen["energy_mj"] == pytest.approx(1e-6 * time_us[name] * power_mw * left_mj / alone_mj)
    assert b["points"][1]["summary"]["power_mw"] == pytest.approx(POWER_MW[LOW]["b"])
    # what is alone at auto tells how they share, not how much they take
    slow = Visitor(slower={(BASELINE, name): 1.25 for name in "abxy"})
    [[same, *_]] = again.compare_iteration(setup, slow, [choice], 0)
    assert same["points"][0]["summary"] == pytest.approx(a["points"][0]["summary"])


def test_where_all_kernels_were_metered_nothing_is_visited_again(setup):
    visitor = Visitor(slower={(HIGH, "a"): 1.125})
    again.compare_iteration(setup, visitor, [kernels(a=HIGH, b=HIGH, x=HIGH, y=HIGH)], 0)
    assert [each.pair for each in visitor.visited] == [BASELINE, HIGH, BASELINE]


def test_several_choices_share_a_session_and_each_has_comparisons_of_its_own(setup):
    choices = [
        kernels(a=HIGH, b=HIGH, x=HIGH, y=HIGH),
        {MeasurementTarget("pass", "forward"): HIGH, MeasurementTarget("pass", "backward"): BASELINE},
        kernels(a=LOW, b=HIGH, x=HIGH, y=HIGH),
    ]
    visitor = Visitor(run_id="boot-3")
    kernel, passes, other = again.compare_iteration(setup, visitor, choices, 4)
    assert len(visitor.visited) == 4
    assert [each["target"] for each in passes] == ["forward", "backward"]
    assert kernel[1] == other[1] and kernel[0] != other[0]
    chosen = kernel[0]["points"][1]["summary"]["time_us"] * 24 + kernel[2]["points"][1]["summary"]["time_us"] * 3
    assert passes[0]["points"][1]["summary"]["time_us"] == pytest.approx(chosen)
    assert {each["session"] for own in (kernel, passes, other) for each in own} == {"boot-3"}


def test_only_what_makes_up_the_last_three_percent_shares_a_window(setup):
    """Of 141.76 ms 4.25 ms are light at most: x and y take 0.87 and 1.21 ms, and b, the next, 67.6 ms."""
    visitor = Visitor()
    again.compare_iteration(setup, visitor, [kernels(a=LOW, b=LOW, x=LOW, y=LOW)], 0)
    assert visitor.visited[1].metered == (("a",), ("b",), ("x", "y"))


@pytest.mark.parametrize(("left", "verdict"), [(1, "ok"), (2, "disturbed")])
def test_a_visit_that_cannot_be_used_is_made_once_more_and_the_last_one_counts(setup, left, verdict):
    class Disturbed(Visitor):
        def visit(self, visit):
            tries = sum(each == visit for each in self.visited)
            self.verdicts = {1: "disturbed"} if tries < left else {}
            return super().visit(visit)

    visitor = Disturbed()
    [[a, b]] = again.compare_iteration(setup, visitor, [kernels(a=HIGH, b=LOW)], 0)
    assert [each.place for each in visitor.visited] == [0, 1, 1, 2, 3]
    assert a["points"][1]["verdict"] == verdict and b["points"][1]["verdict"] == "ok"


def test_a_choice_that_leaves_all_at_auto_visits_nothing_else(setup):
    visitor = Visitor()
    [found] = again.compare_iteration(setup, visitor, [kernels(a=BASELINE, b=BASELINE, x=BASELINE, y=BASELINE)], 0)
    assert [each.pair for each in visitor.visited] == [BASELINE] * 2
    assert all(each["points"][0] == each["points"][1] for each in found)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ({}, ["ok", "ok"]),
        ({1: "throttled"}, ["ok", "throttled"]),
        ({0: "throttled"}, ["throttled", "ok"]),
        ({0: "throttled", 3: "disturbed"}, ["disturbed", "ok"]),
        ({2: "disturbed"}, ["ok", "ok"]),
    ],
    ids=str,
)
def test_a_point_has_the_worst_verdict_of_its_own_visits_and_its_reasons(setup, verdicts, expected):
    [[a, b]] = again.compare_iteration(setup, Visitor(verdicts), [kernels(a=HIGH, b=LOW)], 0)
    assert [point["verdict"] for point in a["points"]] == expected
    for point in a["points"]:
        places = [place for place, verdict in verdicts.items() if verdict == point["verdict"]]
        assert point["reasons"] == [f"visit {place}" for place in places]
    assert b["points"][1]["verdict"] == verdicts.get(2, "ok")


def test_a_comparison_is_a_record_that_reads_back(setup, tmp_path):
    visitor, path = Visitor(), str(tmp_path / "repeat-5.json")
    [found] = again.compare_iteration(setup, visitor, [kernels(a=HIGH, b=BASELINE, x=LOW, y=HIGH)], 5)
    assert {each["session"] for each in found} == {"fresh-5"}
    record.write_comparison(path, setup, visitor.device, "schedules/kernel.json", found)
    digest, comparisons = record.read_comparison(path)
    assert digest == setup.digest and comparisons == found
    auto, chosen = found[0]["points"]
    assert auto["request"] == {"policy": "auto", "core_mhz": AUTO, "mem_mhz": AUTO, "switch_s": 0.01}
    assert chosen["request"] == {
        **{"policy": "lock", "core_mhz": 1890, "mem_mhz": 9251, "switch_s": 0.01},
        **{"lock": "range", "core_range_mhz": [210, 1890.0], "through": "broker"},
    }
    assert chosen["reached"] == {"core_mhz": 1890.0, "mem_mhz": 9251.0, "alias_of": None}
