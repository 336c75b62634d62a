"""Divisions and servers of pools equal brute force; pools, columns, layouts."""

from itertools import product

import numpy as np
import pytest
import yaml

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving import pools as sizing
from kernel_dvfs_serving.columns import Columns
from kernel_dvfs_serving.pool_manager import divide, priced
from kernel_dvfs_serving.pools import COUNTS, carry_target, home, larger, pool_kinds
from kernel_dvfs_serving.profile import ServingProfile
from kernel_dvfs_serving.requests import CLASSES, dominates, index
from kernel_dvfs_serving.resharding import LAYOUTS, UNITS, assign, layouts_for, units
from kernel_dvfs_serving.system import LIMITS, settings

PARKED_W = 50.0


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_pool_is_divided_for_least_power_at_its_peak(replayer, share):
    offer, servers = replayer.columns.pool(index("LL")), 2
    peak_tps = share * servers * offer.largest(8)
    found = divide(offer, peak_tps, servers, (2, 4, 8), PARKED_W)
    assert found.carries
    for eights, fours, twos in product(range(3), range(5), range(9)):
        counts = {tp: count for tp, count in ((8, eights), (4, fours), (2, twos)) if count}
        if counts and 8 * eights + 4 * fours + 2 * twos <= 8 * servers:
            other = priced(offer, peak_tps, servers, counts, PARKED_W)
            assert not other.carries or other.power_w >= found.power_w * (1 - 1e-9)
    # by hand: each instance at its share of the load, at the highest clock
    able = sum(count * offer.largest(tp) for tp, count in found.counts.items())
    by_hand = sum(
        count * offer.power_w(tp, "1980", peak_tps * offer.largest(tp) / able) for tp, count in found.counts.items()
    )
    by_hand += PARKED_W * (8 * servers - sum(tp * count for tp, count in found.counts.items()))
    assert found.power_w == pytest.approx(by_hand, rel=2e-3)


def test_a_pool_that_carries_too_little_is_divided_to_carry_most(replayer):
    offer = replayer.columns.pool(index("LL"))
    found = divide(offer, 1e9, 2, (2, 4, 8), PARKED_W)
    most = sum(count * offer.largest(tp) for tp, count in found.counts.items())
    whole = [16 // tp * offer.largest(tp) for tp in (2, 4, 8)]
    assert not found.carries and most >= max(whole) * (1 - 1e-9)


def test_a_class_that_is_feasible_nowhere_is_one_line(replayer):
    strict = Columns(replayer.columns.profile, slo_scale=0.001)
    with pytest.raises(InputError, match=r"class SS keeps its promises .* at no degree"):
        strict.require([0])


@pytest.mark.parametrize("degrees", [(2, 4), (1, 8)])
def test_degrees_that_servers_cannot_be_divided_by_are_one_line(replayer, degrees):
    profile = replayer.columns.profile
    curves = {(name, tp, clock): own for (name, _, clock), own in profile.curves.items() for tp in degrees}
    with pytest.raises(InputError, match=r"line profile: degrees = .* allowed: 2, 4, 8, among them 8"):
        Columns(ServingProfile("line", "line", curves, {"simulated"}, profile.name)).require([0])


def test_what_is_priced_is_within_the_profile_and_beyond_it_refused(replayer):
    curve = replayer.columns.profile.curve("LL", 8, "1980")
    for (tp, clock), most in replayer.columns.pool(index("LL")).capacity.items():
        assert 0 < most <= replayer.columns.profile.curve("LL", tp, clock).tps[-1]
    with pytest.raises(InputError, match="not extrapolated"):
        curve.power(2 * curve.tps[-1])


def test_an_instance_for_several_classes_carries_no_more_than_of_the_most_demanding_alone(replayer):
    columns = replayer.columns
    several = columns.pool(index("LL"), {index("LS"), index("ML")})
    for tp in (4, 8):
        alone = [columns.pool(index(name)).largest(tp) for name in ("LL", "LS", "ML")]
        assert several.largest(tp) <= min(alone)


def test_a_pool_that_also_serves_short_prompts_promises_their_first_tokens(replayer):
    columns = replayer.columns
    alone, mixed = columns.pool(index("LL")), columns.pool(index("LL"), range(9))
    assert 0 < mixed.largest(8) < alone.largest(8)


def test_the_clock_is_the_cheapest_that_keeps_the_promises(replayer):
    offer = replayer.columns.pool(index("LL"))
    for tps in np.linspace(1, offer.largest(8), 7):
        clock = offer.least_power_clock(8, tps)
        able = [each for each in offer.owner.clocks[8] if offer.capacity.get((8, each), 0) >= tps]
        least_w = min(offer.power_w(8, each, tps) for each in able)
        # looked up in 64 steps of load
        assert clock in able and offer.power_w(8, clock, tps) <= least_w * 1.02
    assert offer.least_power_clock(8, 1e9) == "1980"


@pytest.mark.parametrize("count", COUNTS)
def test_every_class_has_a_home_and_overflow_only_goes_to_larger_pools(count):
    pools = pool_kinds(count)
    assert sorted(kind for pool in pools for kind in pool.members) == list(range(9))
    for kind in range(9):
        assert dominates(pools[home(pools, kind)].kind, kind)
    for place, pool in enumerate(pools):
        assert all(dominates(pools[other].kind, pool.kind) for other in larger(pools, place))
        following = carry_target(pools, place)
        assert (following is None) == (pool.kind == 8) and (following is None or following > place)


def test_servers_are_sized_by_full_instances_with_remainders_carried_up(replayer):
    columns, pools = replayer.columns, pool_kinds(9)
    able = [columns.pool(kind).largest(8) for kind in range(9)]
    loads = np.zeros(9)
    loads[index("LS")], loads[index("LL")] = 2.5 * able[index("LS")], 0.2 * able[index("LL")]
    plan = sizing.size(pools, columns, loads[None], 20)
    assert plan.servers[index("LS")] == 2
    # half a server's worth goes from LS to LM, and from there to LL, which rounds up
    assert plan.loads[index("LM")].max() == 0 and plan.servers[index("LL")] >= 1
    assert sum(each[0] for each in plan.loads) == pytest.approx(loads.sum()) and plan.short_tps == 0
    assert plan.shares[index("LS")] == pytest.approx(2 / 2.5)
    assert plan.offers[index("LL")].served == {index("LS"), index("LL")}
    assert sizing.size(pools, columns, loads[None], 1).short_tps > 0
    with pytest.raises(InputError, match="3 servers are too few for 4 pools"):
        sizing.static(pool_kinds(4), columns, loads[None], 3)


def test_resharding_costs_are_those_of_the_published_rule():
    assert len(UNITS) == len(LAYOUTS) == 9 and all(len(row) == 9 for row in UNITS)
    assert all(UNITS[place][place] == 0 for place in range(9))
    assert units((8,), (4, 4)) == 1 and units((8,), (2,)) == 3 and units((2,), (2, 2, 2, 2)) == 12
    assert units((), (8,)) is None
    # four pairs hold every shard eightfold: nothing ever has to move
    assert set(UNITS[LAYOUTS.index((2, 2, 2, 2))]) == {0}


def test_layouts_are_packed_and_given_to_the_servers_that_need_least_change():
    assert layouts_for({8: 1, 4: 1, 2: 3}, 3) == [(8,), (4, 2, 2), (2,)]
    with pytest.raises(InputError, match="do not fit"):
        layouts_for({8: 2}, 1)
    assert [[(8,), (4, 4)][place] for place in assign([(4, 4), (8,)], [(8,), (4, 4)])] == [(4, 4), (8,)]


def test_the_nine_classes_are_ordered_by_demand():
    assert dominates(index("LL"), index("SS")) and not dominates(index("LM"), index("ML")) and len(CLASSES) == 9


def test_as_many_servers_as_are_allowed_can_be_divided(root):
    """The ways to divide a pool grow with the cube of its servers; schema, settings and command allow the same."""
    schema = yaml.safe_load((root / "workflow/schemas/config.schema.yaml").read_text())
    most = LIMITS["servers"][1]
    assert schema["properties"]["serving"]["properties"]["servers"]["maximum"] == most
    with pytest.raises(InputError, match=f"a whole number from 1 to {most:g}"):
        settings("given", {"servers": most + 1})
    # an int64 for each degree and mesh point, and a few more while they are sifted
    mesh = np.prod([8 * most // tp + 1 for tp in (2, 4, 8)])
    assert 8 * 3 * mesh < 0.5e9
