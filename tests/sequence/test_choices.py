"""The choice over a sequence: no worse than any other, and never better than its own bound."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from small_iterations import every_choice, played, small

from kernel_dvfs.choice.global_waste import least_energy
from kernel_dvfs.choice.problem import TOLERANCE, Problem
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.sequence import baselines
from kernel_dvfs_deploy.sequence.chains import chain_of
from kernel_dvfs_deploy.sequence.changes import BEHAVIOURS, Changes, Timing
from kernel_dvfs_deploy.sequence.programme import choose_changes
from kernel_dvfs_deploy.sequence.progress import Progress
from kernel_dvfs_deploy.sequence.replay import expected, replay

# behaviour, latency s, jitter, stall of the core clock's changes s, of the memory clock's
CASES = [
    ("ahead", 0.0, 0),
    ("ahead", 0.0, 0, 1e-5, 2e-4),
    ("lag", 0.0, 0, 1e-4, 0.0),
    ("lag", 2e-4, 0),
    ("lag", 2e-4, 0, 5e-5, 1e-4),
    ("ahead", 0.0, 0, 1e-4, 0.0),
    ("ahead", 1e-3, 0),
    ("ahead", 1e-3, 0, 1e-4, 2e-5),
]
JITTERED = [("lag", 1e-3, 0.3), ("lag", 1e-3, 0.3, 1e-5, 1e-4), ("ahead", 2e-3, 0.2), ("ahead", 2e-3, 0.2, 3e-5, 1e-5)]
# each case by day with one of these, in turn, by night with all
SEEDS = ((0, 0.0), (1, 0.1), (2, 0.05))
LATENCIES_S = (1e-6, 1e-3, 1e-2, 100)


def with_seeds(cases):
    """(case, seed, slack) of a test that plays every choice."""
    return [
        pytest.param(case, *seed, marks=() if (number + turn) % len(SEEDS) == 0 else pytest.mark.nightly)
        for number, case in enumerate(cases)
        for turn, seed in enumerate(SEEDS)
    ]


@pytest.mark.parametrize(("case", "seed", "slack"), with_seeds(CASES))
def test_the_choice_is_the_best_of_all_that_can_be_played(case, seed, slack):
    """Every choice is played event by event; none within the limit is better than what the programme finds."""
    sequence, timing = small(seed, launches=5, pairs=4), Timing(*case)
    chain = chain_of(sequence, timing)
    limit = (1 + slack) * sequence.baseline_time_s * (1 + 1e-9)
    best = np.inf
    for changes in every_choice(sequence):
        by_playing, by_programme = played(sequence, timing, changes), chain.totals(changes)
        if by_playing is None:
            assert by_programme == (np.inf, np.inf), "both forbid it"
            continue
        assert by_programme == pytest.approx(by_playing, rel=1e-9)
        if by_playing[0] <= limit:
            best = min(best, by_playing[1])
    found = choose_changes(sequence, timing, slack, wide=0)
    assert found.time_s <= limit
    assert found.bound_j <= best * (1 + 1e-12)
    assert found.energy_j == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(("case", "seed", "slack"), with_seeds(JITTERED))
def test_with_jitter_no_choice_within_the_limit_is_better_by_what_is_expected(case, seed, slack):
    sequence, timing = small(seed, launches=5), Timing(*case)
    chain = chain_of(sequence, timing)
    totals = [chain.totals(changes) for changes in every_choice(sequence)]
    limit = (1 + slack) * sequence.baseline_time_s * (1 + 1e-9)
    best = min(energy for time, energy in totals if time <= limit)
    found = choose_changes(sequence, timing, slack, wide=0)
    assert found.bound_j <= best * (1 + 1e-12) and found.time_s <= limit
    assert found.energy_j == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("case", [*CASES, *JITTERED])
def test_a_bound_at_a_price_holds_for_every_closed_choice(case):
    """With many more first pairs than launches, so that what is gained by ending elsewhere would show."""
    sequence, timing = small(3, launches=4, pairs=5), Timing(*case)
    chain = chain_of(sequence, timing)
    totals = np.array([chain.totals(changes) for changes in every_choice(sequence)])
    playable = totals[np.isfinite(totals[:, 0])]
    for price in (0.0, 50.0, 300.0, 1e5):
        bound, cost, changes = chain.best(price)
        time, energy = chain.totals(changes)
        assert cost == pytest.approx(energy + price * time, rel=1e-9)
        least = (playable[:, 1] + price * playable[:, 0]).min()
        assert bound <= least * (1 + 1e-12)


@pytest.mark.slow
def test_no_change_is_asked_for_before_the_iteration_begins(iteration):
    for timing in (Timing("ahead", 0.01, 0.0, 1e-4, 1e-4), Timing("ahead", 0.05, 0.3)):
        chain = chain_of(iteration, timing)
        for changes in (choose_changes(iteration, timing, chain=chain).changes, baselines.per_pass(iteration, timing)):
            assert iteration.until_s[changes.at[0], changes.first] >= timing.latency_s
    early = Changes(0, (1, 5), (1, 0))
    assert chain.totals(early) == (np.inf, np.inf), "whatever it would save"
    asked_late = replay(iteration, Timing("ahead", 0.05), Changes(3, (0,), (7,)))
    wanted = replay(iteration, Timing("ahead", 0.0), Changes(3, (0,), (7,)))
    assert asked_late.time_s != wanted.time_s, "it lands a latency after the begin"


def test_the_programme_of_stalls_agrees_with_cp_sat():
    """An independent model of the same problem: one Boolean a launch and pair, one a changed clock of a pair left."""
    from ortools.sat.python import cp_model

    sequence, timing = small(11, launches=14, pairs=4), Timing("ahead", 0.0, 0.0, 5e-5, 2e-5)
    limit = 1.05 * sequence.baseline_time_s
    count, size, unit = len(sequence), len(sequence.pairs), 1e9
    model = cp_model.CpModel()
    at = [[model.new_bool_var("") for _ in range(size)] for _ in range(count)]
    time, energy = [], []
    for launch in range(count):
        model.add_exactly_one(at[launch])
        before = at[launch - 1]  # the iteration before ended as this one does
        for pair in range(size):
            time.append((at[launch][pair], sequence.launch_time_s[launch, pair]))
            energy.append((at[launch][pair], sequence.launch_energy_j[launch, pair]))
            for clock, stall_s in enumerate((timing.core_stall_s, timing.mem_stall_s)):
                same = [other for other in range(size) if sequence.pairs[other][clock] == sequence.pairs[pair][clock]]
                left = model.new_bool_var("")
                model.add(left >= before[pair] - sum(at[launch][other] for other in same))
                time.append((left, stall_s))
                energy.append((left, stall_s * sequence.stall_w[pair]))
    model.add(sum(var * round(unit * cost) for var, cost in time) <= int(unit * limit))
    model.minimize(sum(var * round(unit * cost) for var, cost in energy))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.cp_model_presolve = False  # see choice/certificate.py
    assert solver.solve(model) == cp_model.OPTIMAL
    found = choose_changes(sequence, timing, 0.05)
    assert found.energy_j == pytest.approx(solver.objective_value / unit, rel=1e-6)


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=pytest.mark.nightly) for each in CASES[:5]] + [*CASES[5:], *JITTERED[1::2]]
)
def test_in_other_units_the_choice_is_the_same_to_the_last_digit(case):
    """Times in units 4096 times smaller, energies in ones a million times smaller: powers of two, so that each float
    keeps its digits."""
    time, energy = 2.0**12, 2.0**20
    behaviour, latency_s, jitter, *stalls = case
    timings = [
        Timing(behaviour, scale * latency_s, jitter, *(scale * each for each in stalls)) for scale in (1.0, time)
    ]
    for seed, slack in ((0, 0.05), (1, 0.0)):
        made = replace(small(seed, launches=8, pairs=4), passes=(("forward", 0), ("backward", 4)))
        more = {"time_s": time * made.time_s, "energy_j": energy * made.energy_j}
        scaled = replace(made, **more, stall_w=energy / time * made.stall_w)
        both = list(zip((made, scaled), timings))
        for more in ({"wide": 0}, {"effort": 500, "wide": 0}):
            one, other = (choose_changes(*each, slack, **more) for each in both)
            assert other.changes == one.changes
            assert other.time_s == time * one.time_s
            assert (other.energy_j, other.bound_j) == (energy * one.energy_j, energy * one.bound_j)
        one, other = (baselines.per_pass(*each, slack) for each in both)
        assert one == other and (slack == 0.0 or one is not None)
        for way in (baselines.single, baselines.latency_free):
            assert way(made, slack) == way(scaled, slack)


def test_a_choice_that_takes_as_long_as_the_limit_allows_keeps_it():
    """1.3 times the baseline's time at another pair, and so is the limit; or a hair less."""
    base_s = 1.7e-3
    for limit_s, pair in ((1.3 * base_s * (1 + TOLERANCE), 1), (1.3 * base_s * (1 + TOLERANCE) * (1 + 1e-15), 0)):
        made = replace(small(1, launches=1, pairs=2), kernel=np.zeros(1, dtype=np.intp))
        made = replace(made, time_s=np.array([[base_s, limit_s]]), energy_j=np.array([[0.9, 0.4]]))
        assert baselines.single(made, 1.3 - 1) == Changes(pair, (), ())


def of_launches(sequence):
    """Every launch a target of its own: the choice where a change takes no time."""
    count, keys = len(sequence), list(range(len(sequence.pairs)))
    time_s, energy_j = list(sequence.launch_time_s), list(sequence.launch_energy_j)
    return Problem.of(time_s, energy_j, [sequence.baseline] * count, [keys] * count)


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_without_latency_the_choice_is_the_global_optimum_of_all_launches(whole_iteration, behaviour):
    found = choose_changes(whole_iteration, Timing(behaviour, 0.0))
    problem = of_launches(whole_iteration)
    optimum = least_energy(problem, whole_iteration.baseline_time_s, effort=0)
    best_j = float(problem.energy[optimum.option].sum())
    assert found.bound_j <= best_j * (1 + 1e-9)
    saving_j = whole_iteration.baseline_energy_j - best_j
    assert found.energy_j - best_j <= 0.002 * saving_j
    assert found.gap_j <= 0.005 * saving_j


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_where_a_change_outlasts_the_iteration_the_best_single_pair_is_best(iteration, behaviour):
    slack = 0.05  # at none it is auto
    found = choose_changes(iteration, Timing(behaviour, 100.0), slack)
    assert found.changes == baselines.single(iteration, slack) and len(found.changes) == 0
    assert iteration.pairs[found.changes.first] != iteration.pairs[iteration.baseline]


def test_the_saving_falls_as_the_latency_grows(iteration):
    """Whatever can be played at a latency can be played at a smaller one, and costs no more there."""
    found = [choose_changes(iteration, Timing("ahead", latency_s)) for latency_s in LATENCIES_S]
    for faster, slower in itertools.pairwise(found):
        assert faster.bound_j <= slower.energy_j * (1 + 1e-9)
        assert faster.energy_j <= slower.energy_j + faster.gap_j + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        ("ahead", 0.0, 0, 1e-5, 2e-5),
        ("lag", 1e-2, 0, 1e-4, 1e-4),
        ("lag", 1e-3, 0.3),
        ("ahead", 1e-2, 0),
        ("ahead", 1e-2, 0, 1e-4, 1e-3),
        ("ahead", 2e-2, 0.3),
        ("ahead", 2e-2, 0.3, 1e-4, 1e-4),
    ],
)
def test_what_the_programme_promises_is_what_runs(iteration, case):
    timing = Timing(*case)
    found = choose_changes(iteration, timing)
    played = expected(iteration, timing, found.changes, seeds=120)
    # what is left is the scatter of the iterations
    close = 1e-9 if not timing.jitter else 2e-4
    assert played.time_s == pytest.approx(found.time_s, rel=close)
    assert played.energy_j == pytest.approx(found.energy_j, rel=close)
    assert found.time_s <= iteration.baseline_time_s * (1 + 1e-8)


def test_a_latency_free_schedule_replayed_with_a_latency_breaks_its_limit(iteration):
    naive = baselines.latency_free(iteration)
    at_once = replay(iteration, Timing("ahead", 0.0), naive)
    assert at_once.time_s <= iteration.baseline_time_s * (1 + 1e-9)
    for behaviour in BEHAVIOURS:
        assert replay(iteration, Timing(behaviour, 0.01), naive).time_s > 1.02 * iteration.baseline_time_s


def test_a_newer_request_replaces_the_one_under_way(iteration):
    naive = baselines.latency_free(iteration)
    played = replay(iteration, Timing("lag", 0.05), naive)
    assert played.asked == len(naive) and played.landed < 0.2 * played.asked


def test_jitter_that_is_drawn_is_drawn_again_alike(iteration):
    timing = Timing("ahead", 0.01, 0.3)
    changes = choose_changes(iteration, timing).changes
    once, twice, other = (replay(iteration, timing, changes, seed) for seed in (1, 1, 2))
    assert once == twice and once != other


def test_one_pair_a_pass_pays_for_both_its_changes(whole_iteration):
    at_once = baselines.per_pass(whole_iteration, Timing("ahead", 0.0))
    assert len(at_once) == 2 and at_once.at == (0, 291)
    chain = chain_of(whole_iteration, Timing("ahead", 0.0, 0.0, 1e-3, 1e-3))
    time_s, _ = chain.totals(at_once)
    before, after = (whole_iteration.pairs[pair] for pair in (at_once.first, at_once.to[0]))
    clocks = sum(old != new for old, new in zip(before, after))
    assert time_s == pytest.approx(replay(whole_iteration, Timing("ahead", 0.0), at_once).time_s + 2 * clocks * 1e-3)
    late = baselines.per_pass(whole_iteration, Timing("ahead", 0.0, 0.0, 1.0, 1.0))
    assert len(late) == 0, "a second's stall pays for nothing"


@pytest.mark.parametrize(
    ("timing", "named"),
    [
        (("ahead", -0.01), "switch latency -0.01 s"),
        (("ahead", float("nan")), "switch latency nan s"),
        (("soon", 0.01), "switch behaviour 'soon'"),
        (("lag", 0.01, 1.5), "switch jitter 1.5"),
    ],
)
def test_impossible_timings_are_refused(timing, named):
    with pytest.raises(InputError, match=named):
        Timing(*timing)


def test_a_slack_that_no_choice_can_meet_is_refused_and_says_what_can(iteration):
    with pytest.raises(InputError, match=r"no choice keeps -50 % slowdown: the fastest found takes"):
        choose_changes(iteration, Timing("ahead", 0.01), -0.5)


def test_sums_up_to_boundaries_leave_out_those_where_a_change_is_under_way(iteration):
    timing = Timing("ahead", 0.01)
    chain = chain_of(iteration, timing)
    changes = choose_changes(iteration, timing, chain=chain).changes
    sums, states = chain.until(changes), chain.states(changes)
    assert np.array_equal(np.isnan(sums[:, 0]), states < 0)
    assert tuple(sums[-1]) == chain.totals(changes)


def test_expected_shares_are_the_mean_of_landings_all_over_their_range():
    """The exact integral against many single landings, early and late."""
    sequence, place = small(5, launches=12, pairs=5), 6
    expected_s, spread_s = 0.0005, 0.002
    exact = Progress(sequence, [(expected_s - spread_s, expected_s + spread_s)])
    moments = expected_s + spread_s * (2 * (np.arange(1000) + 0.5) / 1000 - 1)

    def done(progress):
        """(P, N) of each launch."""
        found = np.zeros((len(sequence.pairs), len(sequence)))
        found[:, progress.window(place)] = progress.shares(place)
        return found

    single = np.mean([done(Progress(sequence, [(moment_s, moment_s)])) for moment_s in moments], axis=0)
    assert np.abs(single).max() > 0.3 and np.abs(done(exact) - single).max() < 0.002
    own_s = (done(exact) * sequence.launch_time_s.T).sum(axis=1)
    assert own_s == pytest.approx(np.full(len(own_s), expected_s)), "its own pair's time is the time itself"
