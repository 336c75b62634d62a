"""Parts of the choice over a sequence, and its file, by hand or against one that leaves nothing out."""

import copy
import json
import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from small_iterations import every_choice, small

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.sequence import label_search, programme
from kernel_dvfs_deploy.sequence.chains import Jittering, Lagging, chain_of
from kernel_dvfs_deploy.sequence.changes import Changes, Timing
from kernel_dvfs_deploy.sequence.label_search import best_mixture, search, ways_to_the_end
from kernel_dvfs_deploy.sequence.launches import Read, Sequence
from kernel_dvfs_deploy.sequence.programme import Choice, _Known, _line_search, _mix, _search, _search_few
from kernel_dvfs_deploy.sequence.schedule import iteration_schedule, read_iteration


@pytest.mark.parametrize(
    ("pairs", "changes"),
    [
        ([2, 2, 0, 0, 2], Changes(2, (2, 4), (0, 2))),
        ([1, 1, 1], Changes(1, (), ())),
        # the iteration before ended at the last pair
        ([0, 1, 1, 2], Changes(2, (0, 1, 3), (0, 1, 2))),
        ([3], Changes(3, (), ())),
    ],
)
def test_changes_are_where_a_pair_differs_from_the_launch_before_and_say_the_pairs_again(pairs, changes):
    assert Changes.of_pairs(pairs) == changes and changes.pairs(len(pairs)) == pairs and len(changes) == len(changes.at)


def test_the_longest_time_of_a_change_its_spread_and_what_must_pass_before_it():
    for behaviour, settles_s in (("ahead", 0.02), ("lag", 0.0)):
        timing = Timing(behaviour, 0.02, 0.3, 1e-3, 2e-4)
        assert (timing.latest_s, timing.spread_s) == pytest.approx((0.026, 0.006))
        assert timing.settles_s == settles_s
    stalls = [timing.stall_s((1400, None), after) for after in ((1400, None), (900, None), (1400, 5), (900, 5))]
    assert stalls == pytest.approx([0, 1e-3, 2e-4, 1.2e-3])
    for jitter in (0, 1):
        assert Timing("lag", 0.0, jitter).jitter == jitter
    for wrong in ({"jitter": -1e-9}, {"jitter": 1.001}, {"core_stall_s": -1e-9}, {"mem_stall_s": math.inf}):
        with pytest.raises(InputError):
            Timing("lag", 1e-3, **wrong)


@pytest.mark.parametrize("stalls", [(0.0, 0.0), (5e-5, 1e-4)])
@pytest.mark.parametrize(("kind", "timing"), [(Lagging, ("lag", 3e-4, 0.5)), (Jittering, ("ahead", 8e-4, 0.4))])
def test_pairs_that_cannot_be_the_best_to_change_to_are_left_out_and_no_others(kind, timing, stalls):
    class Every(kind):
        def _likely(self, *_):
            return self._every

    fewer = 0
    for seed in range(40):
        sequence = small(seed, launches=9, pairs=5)
        ways = [own(sequence, Timing(*timing, *stalls)) for own in (kind, Every)]
        for price in (0.0, 120.0, 900.0):
            some, every = (own.starts(price) for own in ways)
            assert some == pytest.approx(every, rel=1e-12)
            assert ways[0].values(price, [2]) == pytest.approx(ways[1].values(price, [2]), rel=1e-12)
        move, seen = ways[0]._likely, []
        ways[0]._likely = lambda *args, move=move, seen=seen: seen.append(len(found := move(*args))) or found
        ways[0].starts(120.0)
        fewer += sum(count < 5 for count in seen)
    assert fewer > 50


@pytest.mark.parametrize(
    "timing",
    [("ahead", 6e-4, 0.0, 5e-5, 1e-4), ("lag", 4e-4, 0.0, 5e-5, 1e-4), ("lag", 8e-4, 0.6), ("ahead", 8e-4, 0.4)],
)
def test_the_programme_finds_the_least_of_all_choices_that_begin_with_a_pair_at_any_price(timing):
    """Near the end too, where a change lands in time from some pairs only."""
    for seed, pairs in product(range(5), (2, 3)):
        sequence = small(seed, launches=5, pairs=pairs)
        chain = chain_of(sequence, Timing(*timing))
        totals = [(changes.first, *chain.totals(changes)) for changes in every_choice(sequence)]
        for price in (0.0, 90.0, 700.0):
            for first in range(pairs):
                least = min(energy + price * time for own, time, energy in totals if own == first and time < np.inf)
                cost, changes = chain.closed(price, first)
                time_s, energy_j = chain.totals(changes)
                assert cost == pytest.approx(least, rel=1e-12) == pytest.approx(energy_j + price * time_s, rel=1e-12)


@pytest.mark.parametrize("timing", [("ahead", 6e-4, 0.0, 5e-5, 1e-4), ("lag", 8e-4, 0.6), ("ahead", 8e-4, 0.4)])
def test_several_ends_at_once_are_what_each_is_alone(timing):
    for seed in range(5):
        chain = chain_of(small(seed, launches=7, pairs=4), Timing(*timing))
        ways = ways_to_the_end(chain, 90.0, [3, 0, 2])
        assert list(ways) == [3, 0, 2]
        for first, both in ways.items():
            alone = ways_to_the_end(chain, 90.0, [first])[first]
            assert all(map(np.array_equal, both, alone))
            # of what ends at the pair that it begins with, the programme's own least
            assert both[0][0, first] == chain.closed(90.0, first)[0]


def two_that_mix():
    """(programme, two choices that lower one launch each, both together)."""
    sequence = small(4, launches=7, pairs=3)
    chain = chain_of(sequence, Timing("ahead", 0.0, 0.0, 1e-6, 2e-6))
    alone = [Changes(0, (n, n + 1), (pair, 0)) for n in (1, 2, 4, 5) for pair in (1, 2)]
    choices = sorted(alone, key=lambda changes: chain.totals(changes)[1])
    choices = [choices[0], next(each for each in choices if abs(each.at[0] - choices[0].at[0]) > 1)]
    one, other = sorted(choices)
    return chain, choices, Changes(0, one.at + other.at, one.to + other.to)


def test_a_mixture_takes_a_change_of_each_and_may_use_the_limit_up():
    """Two lowered launches, each in a choice of its own: together they save both, where both fit."""
    chain, choices, both = two_that_mix()
    time_s, energy_j = chain.totals(both)
    price = 40.0
    values = chain.values(price, [0])[0]
    bound_j = values[0, 0] - price * time_s
    assert energy_j < min(chain.totals(each)[1] for each in choices)
    assert max(chain.totals(each)[1] for each in choices) < chain.sequence.baseline_energy_j
    assert max(chain.totals(each)[0] for each in choices) < time_s
    hair = 1e-9
    found = best_mixture(chain, choices, price, values, time_s * (1 + hair), (energy_j - bound_j) * (1 + 1e-3))
    assert found == both
    # as much as it costs above the bound, less a hair: nothing is better
    assert best_mixture(chain, choices, price, values, time_s * (1 + hair), (energy_j - bound_j) * (1 - 1e-3)) is None
    fewer = best_mixture(chain, choices, price, values, time_s * (1 - 1e-6), 1e3)
    assert fewer == choices[0], "that of less energy"


@pytest.mark.parametrize("timing", [("ahead", 2e-4, 0.0, 1e-5, 2e-5), ("lag", 2e-4)])
def test_a_search_finds_the_best_within_the_limit_that_betters_what_is_known_and_nothing_else(timing):
    """Against every choice that begins with a pair, at limits that leave some out."""
    for seed in range(6):
        sequence = small(seed, launches=5, pairs=3)
        chain = chain_of(sequence, Timing(*timing))
        totals = [(changes, *chain.totals(changes)) for changes in every_choice(sequence) if changes.first == 0]
        for slack in (-0.03, 0.0, 0.08):
            limit_s = (1 + slack) * sequence.baseline_time_s
            fits = [energy_j for _, time_s, energy_j in totals if time_s <= limit_s]
            if not fits:
                continue
            ways = ways_to_the_end(chain, 150.0, [0])[0]
            found, whole, _ = search(chain, 150.0, 0, limit_s, 1.001 * min(fits), 10**4, 10**8, ways)
            assert whole and chain.totals(found)[0] <= limit_s
            assert chain.totals(found)[1] == pytest.approx(min(fits), rel=1e-12)
            assert search(chain, 150.0, 0, limit_s, min(fits) * (1 - 1e-9), 10**4, 10**8, ways)[:2] == (None, True)
            # both ways to the end, and the first state's way on to each pair
            effort = 2 * 5 * 3 + 3
            assert search(chain, 150.0, 0, limit_s, 1.001 * min(fits), 10**4, 1, ways) == (None, False, effort)


def test_a_search_among_few_pairs_betters_what_is_known_where_its_gap_is_wide():
    for seed in range(6):
        sequence = small(seed, launches=5, pairs=3)
        chain = chain_of(sequence, Timing("ahead", 2e-4, 0.0, 1e-5, 2e-5))
        limit_s = 1.03 * sequence.baseline_time_s
        totals = [chain.totals(changes) for changes in every_choice(sequence)]
        least_j = min(energy_j for time_s, energy_j in totals if time_s <= limit_s)
        for wide, searches in ((0.0, True), (1e9, False)):
            known = _Known(chain, limit_s)
            _search_few(chain, known, 0.0, 150.0, limit_s, wide)
            assert known.best is None, "there is nothing to better"
            alone = known.offer(Changes(0, (), ()))[1]
            # a saving of which the gap is a share
            known.best = (min(alone, sequence.baseline_energy_j * (1 - 1e-6)), *known.best[1:])
            before_j = known.best[0]
            _search_few(chain, known, 0.0, 150.0, limit_s, wide)
            assert known.best[0] == pytest.approx(min(least_j, before_j) if searches else before_j, rel=1e-12)


@pytest.mark.parametrize("scale", [1.0, 4096.0])
def test_the_exact_search_finds_the_best_of_all_choices_and_then_the_bound_is_its_energy(scale):
    """Of an iteration of milliseconds and of one of seconds, from one pair for all launches."""
    bettered = 0
    for seed in range(4):
        made = small(seed, launches=5, pairs=3)
        sequence = replace(made, time_s=scale * made.time_s, stall_w=made.stall_w / scale)
        chain = chain_of(sequence, Timing("ahead", scale * 2e-4, 0.0, scale * 1e-5, scale * 2e-5))
        limit_s, price = 1.03 * sequence.baseline_time_s, 150.0 / scale
        totals = [chain.totals(changes) for changes in every_choice(sequence)]
        least_j = min(energy_j for time_s, energy_j in totals if time_s <= limit_s)
        bound = float(chain.starts(price).min()) - price * limit_s

        def searched(effort, wide=0.0, chain=chain, bound=bound, limit_s=limit_s, price=price):
            known = _Known(chain, limit_s)
            known.offer(Changes(0, (), ()))
            return _search(chain, known, bound, price, limit_s, effort, wide), known.best[0]

        alone_j = sequence.baseline_energy_j
        assert searched(10**8) == (pytest.approx(least_j, rel=1e-12),) * 2
        assert searched(0) == searched(1) == (bound, alone_j)
        bettered += least_j < alone_j * (1 - 1e-6)
    assert bettered >= 2


def test_mixing_offers_what_the_known_choices_give_together_at_any_price_of_time():
    chain, choices, both = two_that_mix()
    limit_s = chain.totals(both)[0] * (1 + 1e-9)
    for price in (0.5, 40.0):
        known = _Known(chain, limit_s)
        for each in choices:
            known.offer(each)
        _mix(chain, known, chain.starts(price).min() - price * limit_s, price, limit_s)
        assert known.best[0] <= chain.totals(both)[1] and both in known.all
    for price, given in ((0.0, choices), (40.0, [])):
        known = _Known(chain, limit_s)
        for each in given:
            known.offer(each)
        _mix(chain, known, 0.0, price, limit_s)
        assert set(known.all) == set(given)


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "kept"), [(3, [2, 5, 9]), (4, [0, 5, 8, 9]), (1, [9]), (12, [0, 2, 5, 8, 9])])
def test_of_too_many_labels_the_cheapest_of_each_stretch_of_time_stays(most, kept):
    """Times 5 to 17, so that three stretches begin at 5, 9 and 13 s, four at 5, 8, 11 and 14, and the last one holds
    17; labels 1, 3 and 4 are not among those to be thinned."""
    time = np.array([5.0, 0.0, 8.5, 99.0, 1.0, 9.5, 12.0, 14.5, 13.5, 17.0])
    cost = np.array([4.0, 0.0, 3.0, 0.0, 0.0, 2.5, 2.6, 2.7, 2.8, 1.0])
    keep = np.array([0, 2, 5, 8, 9])
    assert label_search._thinned(keep, time, cost, most).tolist() == kept
    alike = np.array([3, 5, 6])
    assert label_search._thinned(alike, np.full(9, 7.0), np.array([0.0] * 3 + [5, 0, 2, 4, 0, 0]), 2).tolist() == [5]


def test_labels_of_a_pair_that_another_one_matches_are_dropped_and_cut_where_too_many_are_left():
    """(pair, s, J, number): of pair 2 the second is slower and dearer than the first; the last two are alike but for
    the number of their changes' trail."""
    labels = [
        (2, 1.0, 7.0, 4),
        (2, 1.5, 7.5, 5),
        (1, 1.0, 9.0, 6),
        (1, 2.0, 6.0, 7),
        (1, 3.0, 5.5, 3),
        (1, 3.0, 5.5, 2),
    ]
    columns = [np.array(each) for each in zip(*labels)]
    *kept, cut = label_search._undominated(*columns, 2.0, 3)
    assert list(zip(*(each.tolist() for each in kept))) == [labels[place] for place in (2, 3, 5, 0)] and not cut
    # at 2 W the second costs 10 J and the third 11.5, both in the second half of the time
    *kept, cut = label_search._undominated(*columns, 2.0, 2)
    assert kept[3].tolist() == [6, 7, 4] and cut


def test_the_least_time_from_a_node_is_that_of_the_quickest_way_on_to_the_end():
    """2 + 4 s by way of one node, 1 + 3.5 s by way of another, from which 0.7 s lead on to the first."""
    begin, one, other, end = (0, 0), (2, 0), (1, 1), (3, 0)
    steps = {(begin, one): 2.0, (one, end): 4.0, (begin, other): 1.0, (other, end): 3.5, (other, one): 0.7}
    edges = {edge: (time_s, 9.0) for edge, time_s in steps.items()}
    found = label_search._least_time(edges, sorted((begin, one, other, end)))
    assert found == {begin: 4.5, one: 4.0, other: 3.5, end: 0.0}


def test_as_many_labels_as_may_be_kept_are_kept(monkeypatch):
    """Four launches of which each may run at one of two other pairs: seven ways to the end are worth keeping, eight
    where a processor's rounding tells apart two that are equal."""
    chain = two_that_mix()[0]
    alone = [Changes(0, (n, n + 1), (pair, 0)) for n in (1, 2, 4, 5) for pair in (1, 2)]
    thinned, values = [], chain.values(40.0, [0])[0]
    monkeypatch.setattr(label_search, "_thinned", lambda keep, *_: thinned.append(len(keep)) or keep)
    free = best_mixture(chain, alone, 40.0, values, 1.0, 1e3)
    assert free == Changes(0, (1, 2, 4, 5), (1, 0, 1, 0)) and not thinned
    monkeypatch.setattr(label_search, "_LABELS", 0)
    assert best_mixture(chain, alone, 40.0, values, 1.0, 1e3) == free
    worth = [*thinned]
    assert max(worth) in (7, 8) and sum(each > 3 for each in worth) == 2
    for most in (max(worth), max(worth) - 1, 3, 2):
        monkeypatch.setattr(label_search, "_LABELS", most)
        thinned.clear()
        assert best_mixture(chain, alone, 40.0, values, 1.0, 1e3) == free
        assert thinned == [each for each in worth if each > most]


def dyadic():
    """A programme of three launches whose times and energies are exact in binary; the first of the two pairs is the
    fastest and uses most."""
    time_s, energy_j = np.array([[4.0, 5.0], [2.0, 4.0]]) / 1024, np.array([[3.0, 2.5], [2.0, 1.75]])
    about = {"names": ("a", "b", "a"), "kernel": np.array([0, 1, 0]), "pairs": ((1400.0, None), (900.0, None))}
    sequence = Sequence(**about, time_s=time_s, energy_j=energy_j, baseline=0, stall_w=np.array([64.0, 32.0]))
    return chain_of(sequence, Timing("ahead", 0.0))


@pytest.mark.parametrize(
    ("limit", "changes", "energy_j"),
    [
        # 4 + 2 + 4 units of time at auto; a unit more for each of the launches of a, two more for b's
        (10, Changes(0, (), ()), 8.0),
        (11, Changes(0, (0, 1), (1, 0)), 7.5),
        (12, Changes(1, (1, 2), (0, 1)), 7.0),
        (14, Changes(1, (), ()), 6.75),
    ],
)
def test_a_choice_that_takes_just_the_limit_is_found_by_search_and_mixture_and_offered(limit, changes, energy_j):
    chain, unit_s, hair_s, first = dyadic(), 1 / 1024, 2.0**-30, changes.first
    for price in (16.0, 300.0):
        ways = ways_to_the_end(chain, price, [first])[first]
        found, whole, _ = search(chain, price, first, limit * unit_s, energy_j + 0.25, 10, 10**6, ways)
        assert chain.totals(found) == (limit * unit_s, energy_j) and whole
        # nothing is better than what is known
        assert search(chain, price, first, limit * unit_s, energy_j, 10, 10**6, ways)[:2] == (None, True)
        few = [changes, Changes(first, (), ())]
        mixed = best_mixture(chain, few, price, ways[0], limit * unit_s, 1e3)
        assert chain.totals(mixed) == (limit * unit_s, energy_j)
        less = best_mixture(chain, few, price, ways[0], limit * unit_s - hair_s, 1e3)
        assert less is None or chain.totals(less)[0] < limit * unit_s
    known = _Known(chain, limit * unit_s)
    known.offer(changes)
    assert known.best == (energy_j, limit * unit_s, changes)


def test_what_would_end_too_late_is_not_looked_at_further():
    """Only all of auto takes 10 units: both ways to the end, and from each of three boundaries both pairs."""
    chain = dyadic()
    found, whole, effort = search(chain, 16.0, 0, 10 / 1024, 1e3, 10, 10**6, ways_to_the_end(chain, 16.0, [0])[0])
    assert (found, whole, effort) == (Changes(0, (), ()), True, 2 * 3 * 2 + 3 * 2)


def test_with_jitter_the_next_change_is_asked_for_when_the_last_one_must_have_landed():
    """Launches of 1, 10 and 1 ms. A change may land 0.2 ms late, and the next one takes 0.5 ms: 0.7 ms after each
    boundary, which is within the launch that begins there, the last one too."""
    about = {"names": ("a", "b", "a"), "kernel": np.array([0, 1, 0]), "pairs": ((1400.0, None), (900.0, None))}
    time_s = 1e-3 * np.array([[1.0, 1.0], [10.0, 10.0]])
    made = Sequence(**about, time_s=time_s, energy_j=300 * time_s, baseline=0, stall_w=np.array([64.0, 32.0]))
    chain = chain_of(made, Timing("ahead", 5e-4, 0.4))
    assert chain.kinds[0][1][:, 0, :].tolist() == [[1, 1], [2, 2], [3, 3]]


# --- prices -----------------------------------------------------------------------------------------------------------


class Stepping:
    """A programme that tells how many launches were at the lower of two prices."""

    count = 11

    def __init__(self):
        self.prices = []

    def closed(self, price, first):
        self.prices.append(price)
        return 0.0, (first, int((np.asarray(price) < 100.0).sum()))


def test_a_price_steps_where_the_limit_is_met_which_is_sought_by_halving():
    """Of eleven launches up to seven may be at the lower price: 5 may, 8 not, 6 and 7 may."""
    chain = Stepping()
    known = SimpleNamespace(fits=lambda own: own[1] <= 7)
    assert programme._stepped(0.25)(chain, known, 100.0, 2) == [(2, 5), (2, 8), (2, 6), (2, 7)]
    for middle, prices in zip((5, 8, 6, 7), chain.prices):
        assert prices.tolist() == [75.0] * middle + [125.0] * (11 - middle)


def test_neighbouring_prices_are_multiples_of_the_price():
    chain = Stepping()
    assert programme._neighbouring((0.75, 1.5))(chain, None, 100.0, 1) == [(1, 1), (1, 0)]
    assert chain.prices == [75.0, 150.0]


class Hull:
    """A programme that knows a few choices by (time s, energy J); its bound at a price of 2 W is a loose one."""

    sequence = SimpleNamespace(baseline_energy_j=0.75, baseline_time_s=6.0)

    def __init__(self, *spent):
        self.spent = {Changes(number, (), ()): own for number, own in enumerate(spent)}
        self.prices = []

    def totals(self, changes):
        return self.spent[changes]

    def best(self, price):
        self.prices.append(price)
        cost, found = min((energy + price * time, own) for own, (time, energy) in self.spent.items())
        return cost - (1.5 if price == pytest.approx(2) else 0.0), cost, found


def test_the_bound_is_the_best_one_of_all_prices_not_that_of_the_last():
    """Within 6.9 s. The price rises from an eighth of a watt, that of the baseline, to where a choice fits. The lines
    through the choices that bound the limit then have the prices 1.6, 3 and 2 W, with 14.2, 23.5 and 17 J, the last
    one known to 1.5 J: 3.16, 2.8 and 1.7 J within the limit."""
    chain, slow = Hull((5.0, 9.0), (7.0, 3.0), (6.5, 4.0), (10.0, 1.0)), Changes(3, (), ())
    known = _Known(chain, 6.9)
    assert _line_search(chain, known, slow, 6.9) == pytest.approx((3.16, 1.6))
    assert chain.prices == pytest.approx([0.125, 12.5, 1.6, 3.0, 2.0])
    assert known.best == (4.0, 6.5, Changes(2, (), ()))
    # where nothing fits but at the highest price
    chain, slow = Hull((6.9, 2e5), (10.0, 1.0)), Changes(1, (), ())
    assert _line_search(chain, _Known(chain, 6.9), slow, 6.9)[0] == pytest.approx(2e5)
    assert chain.prices[:4] == pytest.approx([0.125, 12.5, 1250.0, 1.25e6])


def test_a_search_among_few_pairs_ends_where_what_it_found_will_do(monkeypatch):
    """Of three first pairs none is tried once the gap is narrow."""
    sequence = small(3, launches=5, pairs=3)
    chain = chain_of(sequence, Timing("ahead", 0.0))
    known = _Known(chain, 1.2 * sequence.baseline_time_s)
    known.offer(Changes(0, (), ()))
    tried = []
    monkeypatch.setattr(programme, "search", lambda few, price, first, *_: tried.append(first) or (None, True, 1))
    monkeypatch.setattr(_Known, "is_within", lambda self, *_: len(tried) > 1)
    low = chain.starts(150.0)
    _search_few(chain, known, 0.0, 150.0, known.limit, 0.1)
    assert tried == np.argsort(low).tolist()[:2]


def test_a_gap_is_within_a_share_of_the_saving_and_a_choice_at_the_limit_fits():
    sequence = small(1)
    first = Changes(1, (), ())
    chain = chain_of(sequence, Timing("lag", 0.0))
    time_s, energy_j = chain.totals(first)
    known = _Known(chain, time_s)
    assert known.fits(first) and not _Known(chain, math.nextafter(time_s, 0)).fits(first)
    assert known.offer(first) == (time_s, energy_j) and known.best == (energy_j, time_s, first)
    saving_j = sequence.baseline_energy_j - energy_j
    for share in (0.2, 0.01):
        allowed = share * max(saving_j, 0.0)
        assert known.is_within(share, energy_j - 0.999 * allowed) and (
            not allowed or not known.is_within(share, energy_j - 1.001 * allowed)
        )
    dear = (sequence.baseline_energy_j + 1.0, time_s, first)
    known.best = dear
    assert known.is_within(0.5, dear[0]) and not known.is_within(0.5, dear[0] - 1e-6), "it saves nothing"


# --- the file ---------------------------------------------------------------------------------------------------------

SEQUENCE = small(2, launches=6, pairs=4)
CHANGES = Changes(2, (1, 3, 5), (0, 3, 2))
TIMING = Timing("ahead", 1e-4, 0.0, 3e-5, 7e-5)


def schedule():
    read = Read(SEQUENCE, {"kind": "simulated", "name": "G", "slug": "g"}, {"name": "w", "kernels": {}}, "raw", [])
    choice = Choice(
        CHANGES, 0.9 * SEQUENCE.baseline_time_s, 0.7 * SEQUENCE.baseline_energy_j, 0.65 * SEQUENCE.baseline_energy_j
    )
    return iteration_schedule(read, TIMING, choice, 1.5, "least", {"latency": "assumed", "stalls": "assumed"})


def test_a_schedule_says_its_changes_against_auto_and_lists_only_what_it_uses():
    found = schedule()
    assert (found["time_change_percent"], found["energy_change_percent"]) == pytest.approx((-10, -30))
    assert found["gap_points"] == pytest.approx(5) and found["change_count"] == 3
    assert found["baseline_time_s"] == pytest.approx(SEQUENCE.baseline_time_s)
    # pairs 0, 2 and 3 of four, each by its place in the list; None is auto
    listed = [{"core_mhz": 1400, "mem_mhz": "auto"}, {"core_mhz": 1000, "mem_mhz": "auto"}]
    assert found["pairs"] == [*listed, {"core_mhz": 1400, "mem_mhz": 500}]
    assert found["first"] == 1 and found["changes"] == [[1, 0], [3, 2], [5, 1]]
    wanted = [2, 0, 0, 3, 3, 2]
    for launch, (kernel, pair, time_s) in enumerate(found["launches"]):
        assert found["kernels"][kernel] == SEQUENCE.names[launch] and [0, 2, 3][pair] == wanted[launch]
        assert time_s == SEQUENCE.launch_time_s[launch, wanted[launch]]
    assert "kernels" not in found["workload"]


def test_a_schedule_is_read_as_it_was_written_and_counts_its_stalls(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(schedule()))
    found = read_iteration(path)
    assert (found.timing, found.first, found.names) == (TIMING, 1, list(SEQUENCE.names))
    assert found.changes == [(1, 0), (3, 2), (5, 1)] and found.wanted == [1, 0, 0, 2, 2, 1]
    # the core clock to 1.4 GHz, the memory clock, then both back
    stalls = [0, 3e-5, 0, 7e-5, 0, 1e-4]
    assert found.until_s() == pytest.approx([0, *np.cumsum(np.array(found.time_s) + stalls)])
    assert found.totals["gap_points"] == pytest.approx(5) and "launches" not in found.totals


def spoilt(**changes):
    return copy.deepcopy(schedule()) | changes


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (spoilt(first=3), "first is 3, which is not among the 3 pairs listed"),
        (spoilt(changes=[[1, 0], [1, 1]]), r"changes\[1\]"),
        (spoilt(changes=[[1, 1], [3, 1]]), r"changes\[0\]"),
        (spoilt(changes=[[1, 0], [6, 1]]), r"changes\[1\]: launches ascend below 6, each to another of the 3 pairs"),
        (spoilt(changes=[[1, 0], [5, 3]]), r"changes\[1\]"),
        (spoilt(changes=[[1, 0], [3, 2]]), "an iteration ends at the pair that it begins with"),
        (spoilt(launches=[[9, 0, 1.0]] * 6), r"launches\[0\] names a kernel or pair that is not listed"),
        (spoilt(launches=[[0, 0, 1.0], [0, 3, 1.0]]), r"launches\[1\] names a kernel or pair that is not listed"),
    ],
)
def test_a_schedule_that_cannot_be_played_is_refused_by_its_field(tmp_path, content, said):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=said):
        read_iteration(path)


def test_a_change_at_the_first_launch_and_at_the_last_are_changes(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(spoilt(changes=[[0, 2], [5, 1]])))
    assert read_iteration(path).changes == [(0, 2), (5, 1)]
    path.write_text(json.dumps(spoilt(changes=[])))
    assert read_iteration(path).changes == []
