"""A study by clock: what it asks for and in which order, how it goes on, ends and is answered, and what it shows."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from made_board import LAUNCHES, NAMES, OPTIONS, PAIRS, SPACE, Rig, change, studied, truth

from kernel_dvfs.search import by_clock, gain, outlook, walk
from kernel_dvfs.search.board_pairs import pairs_of, probes
from kernel_dvfs.search.by_clock import study
from kernel_dvfs.search.knowledge import Knowledge, Observation
from kernel_dvfs.search.outcome import shown_of
from kernel_dvfs.search.parts import KERNEL, PASS, alike, levels_of, parts_of
from kernel_dvfs.search.visiting import is_above
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair, sweep_pairs
from kernel_dvfs_clocks.errors import InputError

GEMM = ("gemm_a", "gemm_b")


@pytest.fixture(scope="module")
def rig():
    return Rig()


@pytest.fixture(scope="module")
def result(rig):
    return studied(rig)


def sessions_of(rig):
    return [list(own) for _, own in itertools.groupby(rig.asked, key=lambda visit: visit.session)]


def test_pairs_are_locked_core_clocks_near_the_top_at_memory_clocks_near_the_top():
    clocks = {"core_mhz": {"lowest": 210, "highest": 2100, "step": 15}, "mem_mhz": [405, 5001, 9251]}
    clocks |= {"auto_mem_mhz": 9251}
    grid, _ = sweep_pairs(clocks, {"core_mhz": [1500], "mem_mhz": "all", "auto": True})
    found = pairs_of(clocks, grid)
    cores = list(range(2100, 944, -30))
    assert found == (BASELINE, *(Pair(core, mem) for mem in (9251, 5001) for core in cores))
    # a board of wide steps keeps its own, one of rounded steps of 7.5 MHz every fourth, and one memory clock is auto's
    clocks["core_mhz"]["step"] = 105
    assert pairs_of(clocks, [BASELINE, Pair(1500, AUTO)])[1:3] == (Pair(2100, AUTO), Pair(1995, AUTO))
    listed = {"core_mhz": {"listed": {"5001": [990, 998, 1005, 1012, 1020, 1027]}}, "mem_mhz": [5001]}
    assert pairs_of(listed, [BASELINE, Pair(990, 5001)]) == (BASELINE, Pair(1027, 5001), Pair(998, 5001))


def test_probes_spread_over_the_clocks_slowest_first():
    assert [PAIRS[place] for place in probes(PAIRS)] == [
        Pair(1000, 3000),
        Pair(1700, 3000),
        Pair(1400, 3000),
        Pair(1600, 2000),
        Pair(1300, 2000),
    ]
    alone = (BASELINE, *(Pair(core, AUTO) for core in (1410, 1200, 1000, 800)))
    assert [alone[place][0] for place in probes(alone)] == [800, 1410, 1200, 1000]


def test_parts_are_the_heavy_targets_and_light_ones_that_slow_down_alike():
    time, _ = truth()
    slow = [PAIRS.index(pair) for pair in (Pair(1000, 3000), Pair(1300, 2000))]
    found = parts_of(SPACE, time[:, 0], [time[:, place] for place in slow])
    # copies are one; by hand: gemm 48 %, gemm_c 17 %, gelu 12 %, norm 9 % and the rest below 3 %
    assert found[:4] == ((0, 1), (2,), (3,), (4,))
    assert sorted(found[4:]) == [(5,), (6,), (7,)]


def test_likes_are_halved_by_weight_where_they_differ_most():
    features = np.array([[0.0, 5.0], [0.1, 5.0], [3.0, 5.0], [3.1, 5.0], [3.0, 5.7], [3.1, 5.8]])
    weight = np.array([2.0, 1.0, 1.0, 1.0, 1.5, 0.4])
    assert sorted(map(sorted, alike(features, weight, 1))) == [[0, 1, 2, 3, 4, 5]]
    assert sorted(map(sorted, alike(features, weight, 2))) == [[0, 1], [2, 3, 4, 5]]
    assert sorted(map(sorted, alike(features, weight, 3))) == [[0, 1], [2, 3], [4, 5]]
    assert sorted(map(sorted, alike(features, weight, 9))) == [[0], [1], [2], [3], [4], [5]]
    assert len(alike(np.zeros((4, 2)), np.ones(4), 3)) == 3


def test_a_light_kernel_shares_its_window_with_others(monkeypatch):
    monkeypatch.setattr("kernel_dvfs.search.parts.MOST", 2)
    time, _ = truth()
    found = parts_of(SPACE, time[:, 0], [time[:, -1]])
    # the light ones hold 29 % of the time: one group for each 4 %, but no more than there are targets
    assert found[:2] == ((0, 1), (2,)) and len(found) == 2 + 5
    monkeypatch.setattr("kernel_dvfs.search.parts.GROUP_SHARE", 0.1)
    found = parts_of(SPACE, time[:, 0], [time[:, -1]])
    assert sorted(itertools.chain(*found)) == list(range(8))
    assert len(found) == 2 + 3


def test_levels_weigh_parts_by_their_share_of_a_pass():
    time, _ = truth()
    parts = ((0, 1), (2,), (3,), (4,), (5, 6, 7))
    kernels, passes = levels_of(SPACE, parts, time[:, 0])
    assert kernels.name == KERNEL and passes.name == PASS
    assert kernels.targets[0] == GEMM and kernels.targets[4] == ("bias", "reduce", "embed")
    assert kernels.launches[0].tolist() == [24, 24, 0, 0, 0, 0, 0, 0] and (kernels.share == np.eye(5)).all()
    assert passes.targets == (("forward",), ("backward",)) and passes.launches[0, 4] == 8
    assert passes.share[:, 0] == pytest.approx([0.5, 0.5]) and passes.share[:, 3] == pytest.approx([1 / 3, 2 / 3])
    embed = time[7, 0] / (48 * time[5, 0] + 6 * time[6, 0] + time[7, 0])
    assert passes.share[:, 4] == pytest.approx([embed, 1 - embed])


def test_a_study_begins_with_auto_and_probes_in_one_session(rig, result):
    first = sessions_of(rig)[0]
    places = [PAIRS[place] for place in probes(PAIRS)]
    assert [visit.pair for visit in first] == 2 * [BASELINE, *places]
    assert [visit.place for visit in first] == list(range(12))
    # times alone, until it is known what is heavy
    assert [len(visit.metered) > 0 for visit in first] == [False] * 6 + [True] * 6
    assert first[6].metered[0] == GEMM
    assert sorted(itertools.chain(*first[6].metered)) == sorted(NAMES)
    # auto longer than a lock, whose clocks do not wander
    assert {(visit.pass_s, visit.window_s) for visit in first} == {(5.0, 0.0), (2.5, 0.0), (5.0, 1.0), (2.5, 0.5)}


def test_every_later_session_begins_at_auto(rig, result):
    for number, own in enumerate(sessions_of(rig)):
        assert [visit.session for visit in own] == [number] * len(own)
        assert [visit.place for visit in own] == list(range(len(own)))
        assert own[0].pair == BASELINE
        assert number == 0 or not own[0].metered


def test_a_search_opens_a_session_every_few_visits_and_visits_no_pair_twice(monkeypatch):
    monkeypatch.setattr(by_clock, "SEARCHED", 3)
    rig = Rig()
    studied(rig, options=OPTIONS._replace(minutes=40.0, worth_percent=0.0))
    first, *searched = sessions_of(rig)[:3]
    assert [len(own) for own in searched] == [1 + 3, 1 + 3]
    pairs = [visit.pair for visit in (*first[6:], *searched[0][1:], *searched[1][1:])]
    assert len(set(pairs)) == len(pairs) == 6 + 3 + 3
    assert all(visit.metered == first[6].metered for own in searched for visit in own[1:])


def test_a_walk_times_auto_the_paths_pairs_and_auto_again(rig, result):
    blocks = len(result.shown[KERNEL, 0.0].time_percent)
    assert blocks >= walk.LEAST_BLOCKS
    walked = sessions_of(rig)[-blocks:]
    for own in walked:
        assert not any(visit.metered for visit in own)
        assert own[0].pair == own[-1].pair == BASELINE
        assert sorted(visit.pair for visit in own[1:-1]) == sorted(visit.pair for visit in walked[0][1:-1])
    assert len({tuple(visit.pair for visit in own) for own in walked}) > 1
    assert {result.shown[key].pairs[name] for key in result.shown for name in result.shown[key].pairs} <= {
        BASELINE,
        *(visit.pair for visit in walked[0]),
    }


def test_what_is_shown_saves_energy_and_keeps_its_limit(rig, result):
    for limit in OPTIONS.limits_percent:
        shown = result.shown[KERNEL, limit]
        time, energy = change(shown.pairs)
        assert time <= limit and energy < -4
        assert shown.energy_percent == pytest.approx(energy, abs=1.0)
        assert np.mean(shown.time_percent) == pytest.approx(time, abs=0.3)
        # copies share their pair, and kernels never stay at auto
        assert shown.pairs["gemm_a"] == shown.pairs["gemm_b"]
        assert set(shown.pairs) == set(NAMES) and all(pair[0] != AUTO for pair in shown.pairs.values())
        assert 0 < shown.passed <= shown.schedules and shown.energy_se_percent > 0
        whole = result.shown[PASS, limit]
        assert set(whole.pairs) == {"forward", "backward"}
        assert energy <= change(by_pass(whole.pairs))[1] + 0.2


def by_pass(pairs):
    """The kernels' pairs of a choice for passes, where a kernel goes with the pass that launches it more."""
    forward = {"gemm_a", "gemm_c", "gelu", "embed"}
    return {name: pairs["forward" if name in forward else "backward"] for name in NAMES}


def test_the_change_of_a_block_is_that_of_its_own_passes(rig, result):
    shown = result.shown[KERNEL, 1.5]
    blocks = len(shown.time_percent)
    for said, own in zip(shown.time_percent, sessions_of(rig)[-blocks:]):
        times = {}
        for visit in own:
            answer = rig.answers[rig.asked.index(visit)]
            times.setdefault(visit.pair, []).append(LAUNCHES * answer.time_s)
        auto = np.mean(times[BASELINE], axis=0)
        chosen = sum(times[shown.pairs[name]][0][row] for row, name in enumerate(NAMES))
        assert said == pytest.approx(100 * (chosen / auto.sum() - 1))


def test_the_table_pools_every_visit(rig, result):
    table = result.table
    assert [PAIRS[place] for place in table.pairs] == [pair for pair in PAIRS if pair in {v.pair for v in rig.asked}]
    for column, place in enumerate(table.pairs):
        own = [(visit, answer) for visit, answer in zip(rig.asked, rig.answers) if visit.pair == PAIRS[place]]
        times = np.log([answer.time_s for _, answer in own])
        assert table.time_s[:, column] == pytest.approx(np.exp(times.mean(0)))
        assert (table.sessions[:, column] == len({visit.session for visit, _ in own})).all()
        powers = [answer.power_w[visit.metered.index(GEMM)] for visit, answer in own if GEMM in visit.metered]
        expected = table.time_s[:2, column] * np.exp(np.log(powers).mean())
        assert table.energy_j[:2, column] == pytest.approx(expected)
    assert np.isfinite(table.energy_j).all() and (table.time_se_s > 0).all() and (table.energy_se_j > 0).all()


def test_the_time_is_what_visits_and_sessions_took(rig, result):
    spent_s = sum(answer.spent_s for answer in rig.answers) + result.sessions * OPTIONS.opening_s
    assert result.spent_s == pytest.approx(spent_s)
    assert result.visits == len(rig.asked) and result.sessions == len(sessions_of(rig))
    assert result.spent_s <= 60 * OPTIONS.minutes


def test_the_same_answers_lead_to_the_same_visits(rig, result):
    made = study(SPACE, OPTIONS)
    visit = next(made)
    with pytest.raises(StopIteration) as ended:
        for asked, answer in zip(rig.asked, rig.answers):
            assert visit == asked
            visit = made.send(answer)
    assert ended.value.value.shown == result.shown


def test_a_study_of_little_time_still_walks():
    rig = Rig()
    found = studied(rig, options=OPTIONS._replace(minutes=1.0))
    assert len(found.shown[KERNEL, 0.0].time_percent) == walk.LEAST_BLOCKS
    searched = [visit for visit in rig.asked if visit.metered and visit.session]
    assert all(len(visit.metered) < len(rig.asked[6].metered) or visit.session < 3 for visit in searched)
    assert len(found.table.pairs) == 6


def test_more_is_asked_for_where_a_minute_must_be_worth_less():
    spent = [studied(Rig(), options=OPTIONS._replace(worth_percent=worth, minutes=60)).spent_s for worth in (3.0, 0.02)]
    assert spent[0] < spent[1]


@pytest.mark.parametrize("minutes", [8.0, 11.0, 14.5])
def test_the_time_that_is_given_is_used_and_kept(minutes):
    rig = Rig()
    found = studied(rig, options=OPTIONS._replace(minutes=minutes, worth_percent=0.0))
    blocks = len(found.shown[KERNEL, 0.0].time_percent)
    last = [answer.spent_s for visit, answer in zip(rig.asked, rig.answers) if visit.session == rig.asked[-1].session]
    assert blocks >= walk.LEAST_BLOCKS
    assert 60 * minutes - sum(last) - OPTIONS.opening_s < found.spent_s <= 60 * minutes


def test_no_limit_is_left_where_a_minute_is_worth_more():
    found = studied(Rig(time_sd=0.01), options=OPTIONS._replace(minutes=60.0, worth_percent=0.006))
    assert walk.LEAST_BLOCKS < len(found.shown[KERNEL, 0.0].time_percent) < walk.MOST_BLOCKS
    worths = [shown.worth_percent for shown in found.shown.values()]
    assert 0 < max(worths) < 0.006 and min(worths) < max(worths)


def test_where_locked_clocks_save_nothing_all_stay_at_auto():
    found = studied(Rig(locked_power=1.5))
    for shown in found.shown.values():
        assert shown.passed == 0 and set(shown.pairs.values()) == {BASELINE} and shown.energy_percent == 0


def test_what_is_believed_follows_every_visit():
    time, energy = truth()
    known = Knowledge(SPACE, 3)
    known.divide([tuple(range(len(NAMES)))])
    watts = energy.sum(0) / time.sum(0)
    for session, pair in enumerate((0, 3, 9, 12)):
        known.add(Observation(session, pair, time[:, pair], {0: watts[pair]}))
        before = known.believed()[1].mean[0, 9]
    assert before == pytest.approx(np.log(watts[9]), abs=0.02)
    for session in range(9):
        known.add(Observation(9 + session, 9, time[:, 9], {0: 1.1 * watts[9]}))
    assert known.believed()[1].mean[0, 9] > before + 0.04


def test_times_are_settled_where_small_errors_of_them_cost_much():
    """A board of noisy times and a steep limit: the few pairs are timed again in sessions of their own, auto around."""
    rig = Rig(time_sd=0.02)
    found = studied(rig, options=OPTIONS._replace(limits_percent=(0.0,), minutes=60.0, worth_percent=0.001))
    walked = len(found.shown[KERNEL, 0.0].time_percent)
    timed = [own for own in sessions_of(rig)[:-walked] if not any(visit.metered for visit in own)]
    assert timed and all(own[0].pair == own[-1].pair == BASELINE for own in timed)
    quiet = Rig(time_sd=0.0001, session_sd=0.0)
    found = studied(quiet, options=OPTIONS._replace(limits_percent=(0.0,), minutes=60.0))
    walked = len(found.shown[KERNEL, 0.0].time_percent)
    assert all(any(visit.metered for visit in own) for own in sessions_of(quiet)[:-walked])


@pytest.mark.parametrize("visits", [1, 4])
def test_timing_once_more_gains_what_is_unknown_of_times_over_the_visits(visits):
    time, energy = truth()
    known = Knowledge(SPACE, 3)
    parts = ((0, 1), (2, 3, 4, 5, 6, 7))
    known.divide(parts)
    draw = np.random.default_rng(2)
    for session in range(visits):
        for pair in (0, 1, 3, 5, 7):
            noisy = time[:, pair] * np.exp(0.01 * draw.standard_normal(len(NAMES)))
            sums = [[table[list(own), pair].sum() for own in parts] for table in (energy, time)]
            known.add(
                Observation(session, pair, noisy, {place: one / other for place, (one, other) in enumerate(zip(*sums))})
            )
    (level, _), few = levels_of(SPACE, parts, time[:, 0]), [1, 3, 5]
    found = outlook.gain_of_timing(known, level, (0.3,), few)
    mean_t, mean_e, (times, _) = known.of_level(level, 24)
    usable = np.isin(np.arange(len(PAIRS)), few)
    cost = gain.price(mean_t, mean_e, usable, 100.3)
    lost = 0.0
    for part in range(2):
        of_time = {pair: mean_e[part, pair] / mean_t[part, pair] + cost for pair in few}
        chosen = min(few, key=lambda pair, part=part, of_time=of_time: of_time[pair] * mean_t[part, pair])
        for table in times:
            lost += of_time[chosen] * table[part, chosen] - min(of_time[pair] * table[part, pair] for pair in few)
    assert lost > 0 and found == pytest.approx(lost / 24 / (visits + 1))


def test_a_visit_that_cannot_be_used_is_made_again():
    rig = Rig(unusable={(0, 0), (0, 4), (0, 5)})
    found = studied(rig)
    assert [visit.pair for visit in rig.asked[:2]] == [BASELINE, BASELINE]
    assert rig.asked[4].pair == rig.asked[5].pair == rig.asked[6].pair
    # what could not be used is in no mean
    used = [(v, a) for v, a in zip(rig.asked, rig.answers) if v.pair == rig.asked[4].pair and a.is_usable]
    column = found.table.pairs.index(PAIRS.index(rig.asked[4].pair))
    assert found.table.time_s[:, column] == pytest.approx(np.exp(np.log([a.time_s for _, a in used]).mean(0)))
    assert found.visits == len(rig.asked) - 3


def test_a_pair_that_cannot_be_used_three_times_is_left_out():
    rig = Rig(unusable={(0, 4), (0, 5), (0, 6)})
    found = studied(rig)
    pair = rig.asked[4].pair
    assert [visit.pair for visit in rig.asked].count(pair) == 3
    assert PAIRS.index(pair) not in found.table.pairs
    assert found.shown[KERNEL, 0.0].passed


@pytest.mark.parametrize(
    ("pair", "other", "above"),
    [
        (Pair(1500, 3000), Pair(1500, 3000), True),
        (Pair(1515, 3000), Pair(1500, 3000), True),
        (Pair(1500, 3000), Pair(1500, 2000), True),
        (Pair(1515, 2000), Pair(1500, 3000), False),
        (Pair(1485, 3000), Pair(1500, 2000), False),
        (Pair(1515, AUTO), Pair(1500, AUTO), True),
        (Pair(1485, AUTO), Pair(1500, AUTO), False),
        (Pair(1515, AUTO), Pair(1500, 3000), False),
        (Pair(1515, 3000), Pair(1500, AUTO), False),
        (BASELINE, Pair(1500, 3000), False),
        (BASELINE, BASELINE, False),
    ],
)
def test_a_pair_is_above_another_where_one_clock_is_higher_and_none_lower(pair, other, above):
    assert is_above(pair, other) is above


@pytest.mark.parametrize("capped_mhz", [1700, 1350])
def test_a_lock_that_the_cap_takes_away_is_left_out_and_so_is_all_above_it(result, capped_mhz):
    """Without a cap higher clocks are chosen."""
    used = {pair for shown in result.shown.values() for pair in shown.pairs.values()}
    assert any(pair[0] >= 1700 for pair in used - {BASELINE})
    rig = Rig(capped_mhz=capped_mhz)
    found = studied(rig, options=OPTIONS._replace(limits_percent=(0.0, 40.0)))
    chosen = {pair for shown in found.shown.values() for pair in shown.pairs.values()} - {BASELINE}
    assert chosen and all(pair[0] < capped_mhz for pair in chosen)
    # once the cap was seen at a pair, the search asks for none above it; probes are asked for whatever they show
    seen = []
    for visit, answer in zip(rig.asked, rig.answers):
        if visit.session and visit.pair != BASELINE:
            assert not any(is_above(visit.pair, other) for other in seen)
        if answer.is_capped:
            seen.append(visit.pair)
    assert seen


def test_a_window_that_tells_nothing_counts_for_nothing():
    """Of a kernel that the cap holds alone, while others were not metered."""
    rig = Rig()
    told = rig.answer

    def answer(visit):
        found = told(visit)
        if visit == next((each for each in rig.asked if each.metered and each.pair != BASELINE), None):
            found.power_w[0] = np.nan
        return found

    rig.answer = answer
    found = studied(rig)
    told_nothing = next(each for each in rig.asked if each.metered and each.pair != BASELINE)
    column = found.table.pairs.index(PAIRS.index(told_nothing.pair))
    assert found.shown[KERNEL, 0.0].passed and np.isfinite(found.table.time_s).all()
    assert np.isfinite(found.table.energy_j[2:, column]).all()


def test_without_auto_or_any_locked_pair_a_study_says_so():
    with pytest.raises(InputError, match="auto could not be measured in 3 tries"):
        studied(Rig(unusable={(0, place) for place in range(3)}))
    with pytest.raises(InputError, match="no pair of locked clocks could be measured"):
        studied(Rig(unusable={(0, place) for place in range(1, 40)}))


def test_blocks_that_cannot_be_used_are_walked_again_and_then_no_more(result):
    first = result.sessions - len(result.shown[KERNEL, 0.0].time_percent)
    rig = Rig(unusable={(first, place) for place in range(1, 4)})
    found = studied(rig)
    assert len(found.shown[KERNEL, 0.0].time_percent) >= walk.LEAST_BLOCKS
    always = Rig(unusable={(session, place) for session in range(first, first + 9) for place in range(1, 4)})
    found = studied(always)
    assert found.shown[KERNEL, 0.0].passed == 0 and found.sessions == first + by_clock.DROPPED
    assert set(found.shown[KERNEL, 0.0].pairs.values()) == {BASELINE}


def test_where_nothing_keeps_the_limit_all_stay_at_auto():
    found = studied(Rig(), options=OPTIONS._replace(limits_percent=(-30.0, 1.5)))
    shown = found.shown[KERNEL, -30.0]
    assert shown.passed == 0 and set(shown.pairs.values()) == {BASELINE}
    assert shown.energy_percent == shown.energy_se_percent == 0 and set(shown.time_percent) == {0}
    assert found.shown[KERNEL, 1.5].passed


def test_copies_that_are_not_tied_choose_by_themselves():
    rig = Rig()
    found = studied(rig, options=OPTIONS._replace(ties="untied"))
    assert ("gemm_a",) in rig.asked[6].metered and ("gemm_b",) in rig.asked[6].metered
    assert found.shown[KERNEL, 0.0].passed


def test_without_passes_only_kernels_are_chosen_for():
    found = studied(Rig(), space=SPACE._replace(passes={}))
    assert {level for level, _ in found.shown} == {KERNEL}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pairs": PAIRS[1:]}, "auto,auto first"),
        ({"pairs": PAIRS[:1]}, "at least one pair with a locked core clock"),
        ({"pairs": (*PAIRS, Pair(AUTO, 3000))}, "locked core clock"),
        ({"launches": LAUNCHES[:-1]}, "8 kernels with 7 counts of launches"),
        ({"passes": {"forward": {"gemm_z": 1.0}}}, "launch gemm_z, which is no kernel"),
    ],
)
def test_a_space_that_cannot_be_studied_is_refused(changed, message):
    with pytest.raises(InputError, match=message):
        next(study(SPACE._replace(**changed), OPTIONS))


@pytest.mark.parametrize(("second", "passed", "clocks"), [(-0.4, 1, Pair(1700, 2000)), (0.3, 0, BASELINE)])
def test_a_schedule_that_was_passed_and_saves_nothing_is_no_choice(second, passed, clocks):
    """Two targets at one pair: by hand +0.1 and `second` points of energy against auto."""
    energy = np.array([[60.0, 60.1], [40.0, 40.0 + second]])
    drawn = energy + np.array([[[0.0, 0.2]], [[0.0, -0.1]], [[0.0, 0.5]]])
    known = SimpleNamespace(of_level=lambda level: (energy, energy, (drawn, drawn)))
    space, level = SimpleNamespace(pairs=(BASELINE, Pair(1700, 2000))), SimpleNamespace(targets=(("a",), ("b", "c")))
    changes = np.array([[-0.2], [-0.1], [-0.3], [-0.2]])
    shown = shown_of(space, known, level, np.array([[1, 1]]), changes, 0.0, 10.0, 0.02)
    assert (shown.passed, shown.schedules) == (passed, 1) and shown.pairs == dict.fromkeys("abc", clocks)
    assert shown.energy_percent == pytest.approx(0.1 + second if passed else 0)
    # the draws differ by twice 0.2, -0.1 and 0.5 points
    assert shown.energy_se_percent == pytest.approx(0.6 if passed else 0)
    assert shown.time_percent == (tuple(changes[:, 0]) if passed else (0.0,) * 4)
