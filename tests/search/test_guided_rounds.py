"""The guided search as rounds of requests: what it asks for, in which order, and what its estimate says."""

import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO, BASELINE, Pair
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.profile.store import COLUMNS
from kernel_dvfs.search import guided
from kernel_dvfs.search.candidates import Context

OPTIONS = {
    "threshold_percent": 1.0,
    "budget_percent": 30,
    "auto_repeats": 2,
    "probes": None,
    "draws": 16,
    "passes": False,
}
PAIRS = [BASELINE] + [Pair(core, mem) for mem in (5001, 9251) for core in (630, 1050, 1470, 1680, 1890)]


@pytest.fixture(scope="module")
def setup(setup_of):
    return setup_of()


@pytest.fixture(scope="module")
def benches(setup):
    return {name: Bench(setup, Target("kernel", name)) for name in setup.targets["kernel"]}


def context(setup, **options):
    return Context(setup, PAIRS, 10, [0], "tied", None, OPTIONS | options)


def row(setup, benches, name, pair, repeats=(0,), verdict="ok"):
    points = [benches[name].point(pair, repeat=repeat) for repeat in repeats]
    about = setup.targets["kernel"][name]
    values = dict.fromkeys(COLUMNS) | {
        "study": "kernel",
        "target": name,
        "launches_per_iteration": about["launches_per_iteration"],
        "replicate_group": about["replicate_group"],
        "core_mhz": None if pair[0] == AUTO else float(pair[0]),
        "mem_mhz": None if pair[1] == AUTO else float(pair[1]),
        "reached_core_mhz": points[0]["reached"]["core_mhz"],
        "reached_mem_mhz": points[0]["reached"]["mem_mhz"],
        "time_s": sum(point["summary"]["time_us"] for point in points) / len(points) * 1e-6,
        "energy_j": sum(point["summary"]["energy_mj"] for point in points) / len(points) * 1e-3,
        "n": len(points),
        "verdict": verdict,
        "is_baseline": pair == BASELINE,
    }
    return values


def columns(rows):
    return {name: [each[name] for each in rows] for name in COLUMNS}


def played(setup, benches, **options):
    """(rows, requests of each round) of a search played to its end."""
    rows, rounds = [], []
    while True:
        asked = guided.propose(columns(rows), context(setup, **options), len(rounds) + 1)
        if not asked:
            return rows, rounds
        rounds.append(asked)
        rows += [row(setup, benches, each.target, Pair(*each[2:4]), each.repeats) for each in asked]


@pytest.fixture(scope="module")
def play(setup, benches):
    return played(setup, benches)


@pytest.mark.slow
def test_the_first_round_asks_for_auto_of_every_kernel(setup, play):
    first = play[1][0]
    assert {each.target for each in first} == set(setup.targets["kernel"])
    assert all(each[2:4] == BASELINE and each.repeats == (0, 1) for each in first)


def test_passes_are_measured_at_every_pair(setup):
    asked = guided.propose(columns([]), context(setup, passes=True), 1)
    passes = [each for each in asked if each.kind == "pass"]
    assert len(passes) == len(PAIRS) * len(setup.targets["pass"])
    assert {each.repeats for each in passes if each[2:4] == BASELINE} == {tuple(range(10))}


def test_no_point_is_asked_for_twice(play):
    asked = [(each.target, *each[2:4]) for asked in play[1] for each in asked]
    assert len(asked) == len(set(asked))


def groups_of(setup):
    groups = {}
    for name, about in setup.targets["kernel"].items():
        if about["replicate_group"]:
            groups.setdefault(about["replicate_group"], []).append(name)
    return list(groups.values())


def test_of_identical_launches_only_the_first_is_asked_for_beside_auto(setup, play):
    groups = groups_of(setup)
    assert any(len(names) > 1 for names in groups)
    later = {each.target for asked in play[1][1:] for each in asked}
    assert later and not later & {name for names in groups for name in names[1:]}


def test_where_the_first_copy_was_disturbed_the_next_is_asked_for(setup, play):
    rows, rounds = play
    copies = {name: names for names in groups_of(setup) if len(names) > 1 for name in names}
    seen = [dict(each) for each in rows[: len(rounds[0] + rounds[1])]]
    bad = next(each for each in seen[len(rounds[0]) :] if each["target"] in copies)
    bad["verdict"] = "disturbed"
    asked = guided.propose(columns(seen), context(setup), 3)
    clocks = tuple(int(bad[name]) for name in ("core_mhz", "mem_mhz"))
    assert [each.target for each in asked if each[2:4] == clocks] == [copies[bad["target"]][1]]


def test_copies_that_are_seen_to_differ_are_searched_each_by_itself(setup, benches):
    first, second = next(names for names in groups_of(setup) if len(names) == 2)
    rows = [row(setup, benches, name, BASELINE, (0, 1)) for name in setup.targets["kernel"]]
    rows += [row(setup, benches, first, pair) for pair in PAIRS[1:6]]
    same = [row(setup, benches, second, pair) for pair in PAIRS[1:4]]
    apart = [each | {"time_s": 1.3 * each["time_s"]} if each["target"] == second else each for each in rows + same]

    def probed(own):
        return {each.target for each in guided.propose(columns(own), context(setup, probes=4), 2)}

    assert second not in probed(rows + same)  # the first one's points count for it
    assert second in probed(apart)


def test_the_estimate_says_what_is_left_and_what_it_took(setup, play):
    rows, _ = play
    about = guided.estimate(columns(rows), context(setup))
    assert about["finished"] and about["measured"] == sum(each["n"] for each in rows)
    assert about["share_percent"] <= 30 and 0 <= about["left_percent"] <= about["left_high_percent"] + 1e-9
    early = guided.estimate(columns(rows[: len(setup.targets["kernel"])]), context(setup))
    assert not early["finished"] and early["left_percent"] is None


def test_a_point_is_what_a_kernel_took_at_a_pair_of_the_grid_and_the_clocks_that_it_came_to(setup, play):
    """Without those where a profile has none; None of what is unusable."""
    rows = [dict(each) for each in play[0]]
    rows[-1]["verdict"] = "disturbed"
    beside = (
        rows[0] | {"study": "pass", "target": "forward"},
        rows[0] | {"target": "other"},
        rows[0] | {"core_mhz": 1.0},
    )
    told, reached = columns([*rows, *beside]), ("reached_core_mhz", "reached_mem_mhz")
    place = [PAIRS.index((row["core_mhz"] or AUTO, row["mem_mhz"] or AUTO)) for row in rows]

    def points(*clocks):
        values = [(row["n"], row["time_s"], row["energy_j"], *map(row.get, clocks)) for row in rows[:-1]]
        return {(row["target"], pair): value for row, pair, value in zip(rows, place, [*values, None], strict=True)}

    assert guided._points(told, context(setup)) == points(*reached)
    without = {name: values for name, values in told.items() if name not in reached}
    assert guided._points(without, context(setup)) == points("none", "none")


def test_the_spec_of_the_gpu_is_not_read(setup, play):
    rows, rounds = play
    blind = Setup(setup.digest, None, setup.workload, setup.targets, setup.measurement)
    seen = len(rounds[0]) + len(rounds[1])
    assert guided.propose(columns(rows[:seen]), context(blind), 3) == rounds[2]


def test_a_point_that_was_disturbed_is_left_out_and_not_asked_for_again(setup, benches, play):
    rows, rounds = play
    seen = len(rounds[0]) + len(rounds[1])
    spoilt = [dict(each) for each in rows[:seen]]
    bad = spoilt[len(rounds[0])]
    bad["verdict"] = "disturbed"
    asked = guided.propose(columns(spoilt), context(setup), 3)
    assert (bad["target"], bad["core_mhz"], bad["mem_mhz"]) not in {(each.target, *each[2:4]) for each in asked}


def test_a_kernel_without_a_usable_baseline_is_one_clear_line(setup, play):
    rows = [dict(each) for each in play[0]]
    rows[0]["verdict"] = "counter"
    with pytest.raises(InputError, match=r"kernel \w+ has no usable measurement at auto clocks"):
        guided.propose(columns(rows), context(setup), 2)
