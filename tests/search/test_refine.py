"""A round asks for winner, runner-up and auto again, ends when the choice stays, and is the same whoever asks."""

from functools import partial
from pathlib import Path

import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO, BASELINE, Pair, label
from kernel_dvfs.measurement import campaign, record, request, round_file
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.profile.aggregate import columns_of_records
from kernel_dvfs.search.next_round import write_next
from kernel_dvfs.search.refine import settled

PAIRS = [BASELINE, Pair(1470, 5001), Pair(1470, 9251), Pair(1050, 9251), Pair(2100, AUTO)]
OPTIONS = {
    "search": "exhaustive",
    "pairs": ",".join(map(label, PAIRS)),
    "auto_repeats": 3,
    "slacks_percent": [0],
    "ties": "tied",
    "refine": {"rounds": 4, "repeats": 2, "margin_z": 1.645},
}


@pytest.fixture(scope="module")
def setup(setup_of):
    setup = setup_of()
    names = ("forward_gelu", "forward_fc_gemm", "backward_fcproj_bias_reduce")
    targets = {"kernel": {name: setup.targets["kernel"][name] for name in names}, "pass": {}}
    return Setup(setup.digest, setup.gpu, setup.workload, targets, setup.measurement)


@pytest.fixture
def bench_of(tmp_path):
    """bench_of(setup)(requests) measures them into records, as jobs would."""

    def measure(setup, requests):
        for each in requests:
            own = Bench(setup, Target(each.kind, each.target))
            for repeat in each.repeats:
                name = campaign.of_repeat(Pair(*each[2:4]), repeat, 3)
                point = own.point(Pair(*each[2:4]), name, repeat)
                path = tmp_path / "measurements" / request.path(each, repeat)
                record.write_point(str(path), setup, own, own.target, name, repeat, point)

    return lambda setup: partial(measure, setup)


@pytest.fixture
def bench(setup, bench_of):
    return bench_of(setup)


def plan(setup, tmp_path, earlier, number, options=OPTIONS):
    path = str(tmp_path / f"rounds/{number}.json")
    write_next(setup, str(tmp_path / "measurements"), earlier, options, path)
    return path, round_file.read(path)


def test_rounds_go_on_from_the_sweep_and_end_with_an_empty_plan(setup, bench, tmp_path):
    sweep = request.sweep(setup, PAIRS, 3)
    bench(sweep)
    earlier, asked = [], list(sweep)
    for number in range(1, 7):
        path, found = plan(setup, tmp_path, earlier, number)
        if not found["requests"]:
            break
        # auto of every kernel is measured again beside what might be chosen
        assert {each.target for each in found["requests"] if each[2:4] == (AUTO, AUTO)} == set(setup.targets["kernel"])
        known = request.merged(asked)
        for each in found["requests"]:
            last = known["kernel", each.target][Pair(*each[2:4])][-1]
            assert each.repeats == (last + 1, last + 2), "numbers go on, so nothing is measured twice"
        bench(found["requests"])
        asked += found["requests"]
        earlier.append(path)
    assert 2 <= number <= 5 and not found["requests"]
    plans = round_file.finished(str(tmp_path / "rounds"), setup.digest, OPTIONS)
    assert [each["round"] for each in plans] == list(range(1, number + 1))
    assert round_file.finished(str(tmp_path / "rounds"), setup.digest, OPTIONS | {"ties": "untied"}) is None


def test_copies_that_a_guided_search_left_out_are_measured_when_they_might_be_chosen(setup_of, bench_of, tmp_path):
    every = setup_of()
    kernels = every.targets["kernel"]
    group = kernels["backward_datt_gemm"]["replicate_group"]
    copies = [name for name in kernels if kernels[name]["replicate_group"] == group]
    names = [*copies, "forward_gelu", "forward_fc_gemm"]
    own = Setup(
        every.digest,
        every.gpu,
        every.workload,
        {"kernel": {name: kernels[name] for name in names}, "pass": {}},
        every.measurement,
    )
    guided = {"threshold_percent": 0.1, "budget_percent": 90, "auto_repeats": 2, "probes": None, "draws": 8}
    options = OPTIONS | {"search": "guided", "guided": guided | {"passes": False}}
    earlier, asked = [], []
    for number in range(1, 12):
        path, found = plan(own, tmp_path, earlier, number, options)
        if found["stage"] == "refine":
            break
        bench_of(own)(found["requests"])
        earlier, asked = [*earlier, path], asked + found["requests"]
    known = request.merged(asked)
    assert found["stage"] == "refine" and len(copies) > 1
    pairs = {name: {each[2:4] for each in found["requests"] if each.target == name} for name in copies}
    assert len(set(map(frozenset, pairs.values()))) == 1, "all copies at the same pairs"
    later = [each for each in found["requests"] if each.target == copies[1] and each[2:4] != (AUTO, AUTO)]
    assert later and all(Pair(*each[2:4]) not in known["kernel", copies[1]] for each in later)
    assert {each.repeats for each in later} == {(0, 1)}, "nothing was measured of it before"


def test_a_plan_is_the_same_each_time_and_a_pooled_mean_is_that_of_all_windows(setup, bench, tmp_path):
    sweep = request.sweep(setup, PAIRS, 3)
    bench(sweep)
    path, found = plan(setup, tmp_path, [], 1)
    text = Path(path).read_text()
    plan(setup, tmp_path, [], 1)
    assert Path(path).read_text() == text
    bench(found["requests"])
    rows = columns_of_records(setup, str(tmp_path / "measurements"), sweep + found["requests"], 3)
    row = next(i for i, name in enumerate(rows["target"]) if name == "forward_gelu" and rows["is_baseline"][i])
    windows = [
        window["time_us"]
        for k in range(5)
        for window in record.read_point(
            str(tmp_path / f"measurements/kernel/forward_gelu/auto-auto/r{k}.json"),
            setup,
            Target("kernel", "forward_gelu"),
            BASELINE,
        )["windows"]
    ]
    assert rows["n"][row] == 5 and len(windows) == 15
    assert rows["time_s"][row] == pytest.approx(1e-6 * sum(windows) / 15)


def test_the_campaign_of_a_record_follows_from_its_number():
    assert campaign.of_repeat(BASELINE, 9, 10) == "sweep" and campaign.of_repeat(BASELINE, 10, 10) == "remeasure-1"
    assert campaign.of_repeat(Pair(1470, AUTO), 0, 10) == "sweep"
    assert campaign.of_repeat(Pair(1470, AUTO), 2, 10) == "remeasure-2"


def test_a_choice_has_settled_when_it_stayed_for_two_rounds():
    assert not settled([1, 1]) and settled([2, 1, 1, 1]) and not settled([1, 1, 2, 1])


def test_a_truncated_plan_is_named(tmp_path):
    path = tmp_path / "1.json"
    path.write_text('{"schema": "kernel-dvfs/round/1", "requests": [["ker')
    with pytest.raises(InputError, match=r"1\.json: truncated.*delete it"):
        round_file.read(str(path))
