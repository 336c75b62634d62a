"""The procedure of `kernel-dvfs tune`, without hardware: known answers, and trainings of which the truth is known."""

import math
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.searches.tuning import Load, Setting, Training, WithLimits, followed
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.passes import PassClocks
from kernel_dvfs_deploy.tune import Ended, Silent, Steps, StepsStopped, TuningSession
from kernel_dvfs_deploy.tuning import (
    Candidates,
    Gain,
    PassCandidates,
    Procedure,
    Round,
    TrialBlock,
    arguments,
    gain,
    in_words,
    least_share,
    scatter,
)

LOW, LOWER = Pair(1500, "auto"), Pair(1200, 2201)


def drifting(pairs, step_s, step_j, drift, steps=(7, 11, 13, 5, 9, 3)):
    """A round whose blocks have unequal numbers of steps, and whose steps become longer by a factor each block."""
    made = Round(pairs)
    for place, pair in enumerate(made.order):
        n, factor = steps[place], math.exp(drift * place)
        made.blocks.append(TrialBlock(n, n * factor * step_s[pair], n * factor**2 * step_j[pair]))
    return made


def test_a_steady_drift_cancels_in_a_round():
    made = drifting((LOW, LOWER), {BASELINE: 0.4, LOW: 0.5, LOWER: 0.7}, {BASELINE: 90, LOW: 80, LOWER: 75}, 0.03)
    assert made.change(LOW) == pytest.approx((math.log(0.5 / 0.4), math.log(80 / 90)))
    assert made.change(LOWER) == pytest.approx((math.log(0.7 / 0.4), math.log(75 / 90)))


def test_a_gain_is_the_mean_over_rounds_with_its_standard_error():
    rounds = [
        drifting((LOW,), {BASELINE: 1.0, LOW: math.exp(time)}, {BASELINE: 1.0, LOW: math.exp(energy)}, 0)
        for time, energy in ((0.01, -0.05), (0.04, -0.02), (0.02, -0.11))
    ]
    found = gain(rounds, LOW)
    # worked out apart: mean of 1, 4, 2 is 7/3, variance 7/3; of -5, -2, -11 it is -6, variance 21
    assert found.time == pytest.approx(0.07 / 3) and found.energy == pytest.approx(-0.06)
    assert found.time_se == pytest.approx(0.01 * math.sqrt(7 / 9)) and found.energy_se == pytest.approx(0.01 * 7**0.5)
    # Student's t of 2 degrees of freedom at 90 %: 1.885618
    assert found.high() == pytest.approx(
        (found.time + 1.885618 * found.time_se, found.energy + 1.885618 * found.energy_se)
    )
    with pytest.raises(InputError, match="no round has measured 1200-2201"):
        gain(rounds, LOWER)


def test_of_one_round_nothing_is_shown():
    assert Gain(0.0, math.inf, -0.1, math.inf, 1).high() == (math.inf, math.inf)


def test_scatter_pools_the_two_blocks_of_each_pair():
    made = Round(
        (LOW,),
        [TrialBlock(1, 1.0, 1.0), TrialBlock(1, 2.0, 1.0), TrialBlock(1, 2.0, 1.0), TrialBlock(1, math.exp(0.3), 1.0)],
    )
    # two differences, 0.3 and 0; the guess of 1 % counts for two: (4 0.01^2 + 0.09) / 8
    assert scatter([made])[0] == pytest.approx((0.0004 + 0.09) / 8)


def test_no_candidate_lies_above_what_auto_runs():
    spec = gpu_spec.resolve("h200_sxm")
    found = Candidates(spec["clocks"], spec, 1520.0)
    assert {pair.mem_mhz for pair in found.pairs} == {"auto", 2201}
    assert max(pair.core_mhz for pair in found.pairs) == 1515 and min(pair.core_mhz for pair in found.pairs) >= 760


def test_a_round_in_which_the_training_changed_is_dropped_whatever_the_pair_does():
    spec = gpu_spec.resolve("h200_sxm")
    procedure = Procedure(Candidates(spec["clocks"], spec, 1980.0), 3)
    for longer in ([1, 1, 1, 1], [1.001, 1, 1.002, 1], [1, 1.002, 1, 1], [1, 1, 1.5, 1.5], [1, 1, 1.001, 1]):
        for factor in longer:
            procedure.add(TrialBlock(5, 2.0 * factor, 900.0), 0.0)
    assert len(procedure.rounds) == 4


def tuned(slack, scatter_sd, seed, time_of):
    spec = gpu_spec.resolve("h200_sxm")
    procedure = Procedure(Candidates(spec["clocks"], spec, 1980.0), slack, seed)
    draw, now_s = random.Random(seed), 0.0
    while procedure.phase != "keep":
        pair = procedure.pair
        slower = time_of(pair) if pair != BASELINE else 1.0
        core = 1.0 if pair == BASELINE else pair.core_mhz / 1980
        steps = 12
        time_s = steps * 0.4 * slower * draw.gauss(1, scatter_sd / math.sqrt(steps))
        procedure.add(TrialBlock(steps, time_s, time_s * (0.4 + 0.6 * core**2)), now_s / 1800)
        now_s += time_s + 0.5
    return procedure


def test_what_is_kept_is_near_the_limit_and_seldom_over():
    """The step follows the core clock by half and the memory clock by much: the best pair at 3 % is 1875 MHz, 2.8 %."""

    def time_of(pair):
        return 0.5 + 0.5 * 1980 / pair.core_mhz + (0.4 if pair.mem_mhz != "auto" else 0)

    kept = [tuned(3, 0.01, seed, time_of) for seed in range(12)]
    slower = [100 * (time_of(each.kept) - 1) for each in kept if each.kept != BASELINE]
    assert sum(each > 3 for each in slower) <= 3  # of 12 at 10 %: more than three would be seen once in forty
    assert len(slower) >= 11 and sorted(slower)[len(slower) // 2] > 1.5


def test_what_more_rounds_may_bring_shrinks_with_what_is_known_and_grows_with_their_number():
    spec = gpu_spec.resolve("h200_sxm")
    begun = Procedure(Candidates(spec["clocks"], spec, 1980.0), 3)
    done = tuned(3, 0.01, 3, lambda pair: 0.5 + 0.5 * 1980 / pair.core_mhz + (0.4 if pair.mem_mhz != "auto" else 0))
    assert 0 <= done.more_percent(20) < begun.more_percent(20) / 3
    noisy = tuned(3, 0.1, 3, lambda pair: 0.5 + 0.5 * 1980 / pair.core_mhz)
    assert noisy.more_percent(0) < noisy.more_percent(200)


def test_where_every_clock_is_slower_auto_is_kept():
    kept = tuned(0, 0.01, 3, lambda pair: 1.02 * 1980 / pair.core_mhz)
    assert kept.kept == BASELINE and kept.gain is None


def test_a_pair_that_has_become_too_slow_is_given_up():
    kept = tuned(3, 0.01, 1, lambda pair: 0.5 + 0.5 * 1980 / pair.core_mhz)
    pair = kept.kept
    assert pair != BASELINE

    def fresh(slower):
        # six rounds that scatter by 1 %: a mean just within the limit is not shown to be over it, one of 4 % is
        times = [{BASELINE: 0.4, pair: 0.4 * slower * (1 + 0.01 * (-1) ** n)} for n in range(6)]
        return [drifting((pair,), own, {BASELINE: 90, pair: 80}, 0.001) for own in times]

    assert kept.check(fresh(1.029)) and kept.kept == pair
    assert not kept.check(fresh(1.04)) and kept.kept == BASELINE


# --- a pair for each pass ---------------------------------------------------------------------------------------------


class Board:
    """A control that notes what is asked; `refuses`: from then on."""

    def __init__(self):
        self.pair, self.asked, self.refuses = BASELINE, [], False

    def ask(self, pair):
        if self.refuses:
            self.pair = BASELINE
            raise InputError("the driver refuses")
        self.pair = pair
        self.asked.append(pair)

    def to_auto(self):
        self.pair = BASELINE
        self.asked.append(BASELINE)


def test_clocks_follow_the_marks_only_while_passes_have_pairs():
    board, steps = Board(), []
    clocks = PassClocks([board], lambda: 0.0, lambda: steps.append(1))
    clocks.mark("forward")
    clocks.mark("backward")
    assert not board.asked and not steps, "the first step has not ended yet"
    clocks.ask((("forward", LOW), ("backward", BASELINE)))
    for name in ("forward", "backward", "unknown", "forward"):
        clocks.mark(name)
    assert board.asked == [LOW, BASELINE, LOW] and len(steps) == 2
    clocks.ask(LOWER)
    clocks.mark("backward")
    assert board.pair == LOWER


def test_a_refusal_at_a_mark_is_told_at_the_next_request_and_nothing_more_is_asked():
    board = Board()
    clocks = PassClocks([board], lambda: 0.0)
    clocks.ask((("forward", LOW), ("backward", LOWER)))
    board.refuses = True
    clocks.mark("forward")
    board.refuses = False
    clocks.mark("backward")
    assert not board.asked
    with pytest.raises(InputError, match="refuses"):
        clocks.ask(BASELINE)
    assert board.pair == BASELINE


def test_a_pass_is_as_long_as_until_the_next_mark():
    now = SimpleNamespace(s=0.0)
    clocks = PassClocks([], lambda: now.s)
    for name, lasts_s in (("load", 9.0), ("forward", 1.0), ("backward", 2.5), ("forward", 1.5), ("backward", 3.0)):
        if name == "forward" and lasts_s == 1.0:
            clocks.forget()
        clocks.mark(name)
        now.s += lasts_s
    clocks.mark("forward")
    assert clocks.passes() == {"forward": pytest.approx((2.5 / 8, 1.25)), "backward": pytest.approx((5.5 / 8, 2.75))}


def test_what_is_expected_of_a_pair_for_each_pass_is_the_sum_by_shares():
    spec = gpu_spec.resolve("h200_sxm")
    whole = Candidates(spec["clocks"], spec, 1980.0)
    held = whole.pairs[7]
    found = PassCandidates(whole, {"forward": 0.3, "backward": 0.7}, held)
    other = next(pair for setting in found.pairs for _, pair in setting if pair not in (held, BASELINE))
    assert held in found.place and BASELINE not in found.place and 300 <= len(found.pairs) <= 400
    a = found.place[(("forward", held), ("backward", BASELINE))]
    b = found.place[(("forward", other), ("backward", held))]
    h, o = whole.place[held], whole.place[other]
    assert found.time_mean[a] == pytest.approx(0.3 * whole.time_mean[h])
    assert found.energy_mean[b] == pytest.approx(0.3 * whole.energy_mean[o] + 0.7 * whole.energy_mean[h])
    # passes are unknown for themselves: what is common is their common passes' alone
    assert found.time_cov[a, b] == pytest.approx(0.3**2 * whole.time_cov[h, o])
    assert found.energy_cov[b, b] == pytest.approx(0.09 * whole.energy_cov[o, o] + 0.49 * whole.energy_cov[h, h])
    assert np.linalg.eigvalsh(found.time_cov).min() > -1e-9


@pytest.mark.parametrize(("round_share", "walks"), [(0.05, True), (0.2, False)])
def test_by_passes_no_walk_is_begun_that_would_outlast_the_time(round_share, walks):
    spec = gpu_spec.resolve("h200_sxm")
    whole = Candidates(spec["clocks"], spec, 1980.0)
    held, random_s = whole.pairs[7], random.Random(1)
    board = PassCandidates(whole, {"forward": 0.3, "backward": 0.7}, held)
    made, done, walked = Procedure(board, 30, held=(held, None)), 0.0, False
    while made.phase != "keep" and done < 9:
        walked |= made.phase == "walk"
        done += round_share / 4
        j = 1.0 if made.pair == BASELINE else 0.9 if made.pair == held else 0.7
        made.add(TrialBlock(10, 10 * random_s.gauss(1, 0.001), 10 * j), done)
    assert walked == walks and done <= 1 + 1.5 * round_share, done
    assert (made.kept != held) == walks


def test_settings_are_said_as_apply_takes_them():
    by_pass = (("forward", LOW), ("backward", LOWER))
    assert in_words(LOW) == "1500-auto" and in_words(by_pass) == "forward 1500-auto, backward 1200-2201"
    assert arguments(LOW) == "--pair 1500,auto"
    assert arguments(by_pass) == "--pair forward=1500,auto --pair backward=1200,2201"


class TwoPasses(Training):
    """A step of two passes, marked; each is a load of its own."""

    def __init__(self, loads, minutes):
        super().__init__(loads["forward"], 0.003, minutes)
        self.loads, self.clocks, self.made = loads, None, None

    def control(self):
        self.made = super().control()
        return self.made

    def _train(self):
        time_s = energy_j = 0.0
        for name, load in self.loads.items():
            begun_s, self._now_s = self._now_s, self._times_s[-1] + time_s
            if self.clocks:
                self.clocks.mark(name)
            self._now_s = max(begun_s, self._now_s)
            own_s, own_w = load.truth(Setting(self.made.pair))
            own_s *= max(0.2, self._random.gauss(1, self._scatter))
            time_s, energy_j = time_s + own_s, energy_j + own_s * own_w
        self._done(time_s, energy_j)


def uncapped():
    """A board whose power limit never acts, so that auto runs its highest clock."""
    spec = gpu_spec.resolve("h200_sxm")
    return spec | {"governor": spec["governor"] | {"cap_w": 2000.0}}


def two_passes(latency_s, minutes=30):
    """(summary, lines) of a training whose one pass is bound by its cores and the other by its memory."""
    spec = uncapped()
    loads = {name: Load(spec, 1, share) for name, share in (("forward", 0.02), ("backward", 0.98))}
    training, lines = TwoPasses(loads, 2 * minutes), []
    session = TuningSession([training.control()], training, 1, minutes, lines.append, latency_s=latency_s)
    training.clocks = session.clocks
    session.run()
    return session.summary(), lines


def test_passes_that_want_other_clocks_save_more_with_a_pair_each():
    (whole, _), (each, lines) = two_passes(None), two_passes(0.02)
    says = re.compile(r"a pair for each pass: forward 0\.[34]\d* s, backward 0\.[34]\d* s")
    assert any(map(says.match, lines)), lines
    assert each["pair"].startswith("forward ") and ", backward " in each["pair"], (each, lines)
    assert each["arguments"].startswith("--pair forward=")
    assert each["energy_change_percent"] < whole["energy_change_percent"] - 0.5
    assert each["time_change_at_most_percent"] <= 1


def test_passes_too_short_for_a_change_of_clocks_have_one_pair():
    found, lines = two_passes(0.05)
    assert any(line.startswith("one pair for all passes: ") and "0.05 s" in line for line in lines)
    assert "forward" not in found["pair"]


# --- what is kept, over hours -----------------------------------------------------------------------------------------


class Hours(Training):
    """A training that goes on after tuning; from `turns_s` on its steps are bound by its cores."""

    def __init__(self, load, later, turns_s, hours):
        super().__init__(load, 0.01, 30)
        self._later, self._turns_s, self._end_s = later, turns_s, 3600 * hours
        self.settings = []

    def sleep(self, seconds):
        end_s = self._times_s[-1] + seconds
        while self._times_s[-1] < min(end_s, self._end_s):
            self._train()
        self.settings.append(self.setting.pair)
        self._now_s = self._times_s[-1]
        if self._now_s >= self._end_s:
            raise Ended

    def _train(self):
        if self._times_s[-1] > self._turns_s:
            self._load = self._later
        super()._train()


def test_a_kept_pair_is_looked_at_every_hour_and_given_back_where_steps_become_too_slow():
    spec = uncapped()
    light, bound = Load(spec, 1, 0.9), Load(spec, 1, 0.0)
    training, lines = Hours(light, bound, 3600 * 2, 5), []
    session = TuningSession([training.control()], training, 3, 30, lines.append)
    session.run()
    kept = training.settings[0]
    assert kept != BASELINE and training.settings == [kept, kept, BASELINE], training.settings
    assert "the steps have become slower than allowed: back to auto for good" in lines
    assert session.summary()["pair"] == "auto-auto"


@pytest.mark.slow
def test_pairs_of_passes_are_looked_at_every_hour_too():
    spec = uncapped()

    class Watched(TwoPasses):
        sleep, settings = Hours.sleep, ()

        def _train(self):
            if self._times_s[-1] > 2.5 * 3600:
                self.loads = dict.fromkeys(self.loads, Load(spec, 1, 0.0))
            super()._train()

    loads = {name: Load(spec, 1, share) for name, share in (("forward", 0.02), ("backward", 0.98))}
    training, lines = Watched(loads, 60), []
    training.settings, training._end_s = [], 3600 * 5
    session = TuningSession([training.control()], training, 1, 30, lines.append, latency_s=0.02)
    training.clocks = session.clocks
    session.run()
    kept = [line for line in lines if " kept: " in line]
    assert len(kept) == 2 and all(line.startswith("forward ") for line in kept), lines
    assert lines[-1] == "the steps have become slower than allowed: back to auto for good", lines
    assert session.summary()["pair"] == "auto-auto" and training.setting.pair == BASELINE


# --- steps that are told seldom, or are long --------------------------------------------------------------------------


def test_steps_that_are_told_a_hundred_at_a_time_are_tuned_and_their_scatter_is_a_steps():
    training, lines = Training(Load(gpu_spec.resolve("h200_sxm"), 104), 0.01, 30, every=100), []
    training._end_s = 3600
    session = TuningSession([training.control()], training, 3, 30, lines.append)
    session.run()
    found = session.summary()
    assert found["scatter_percent"] == pytest.approx(1, abs=0.7), "0.1 % is that of a hundred's mean"
    assert found["phase"] == "keep" and found["rounds_in_all"] >= 5
    time, _ = training._load.change(Setting(training.setting.pair))
    assert time <= 0.03


def test_a_pause_between_two_of_few_signs_is_in_no_step():
    class Slow(Compiles):
        pause_s, pause_at = 400.0, 150

    load = Load(gpu_spec.resolve("h200_sxm"), 1)
    training = Slow(load, 0.01, 30, every=100)
    session = TuningSession([training.control()], training, 3, 1, lambda line: None)
    session.run()
    assert session.summary()["auto_step_s"] == pytest.approx(load.truth(Setting(BASELINE))[0], rel=0.02)


def test_what_long_steps_take_until_a_pair_is_kept_is_said_at_once(monkeypatch):
    monkeypatch.setattr("experiments.searches.tuning._STEP_S", 60.0)
    training, lines = Training(Load(gpu_spec.resolve("h200_sxm"), 1), 0.01, 30), []
    training._end_s = 3600 * 5
    session = TuningSession([training.control()], training, 3, 30, lines.append)
    session.run()
    said = re.search(r"a block of 5 x 1 steps takes \d+ s, so a pair is kept after (\d+) minutes at the ear", lines[1])
    assert said and lines[0].startswith("a step takes "), lines
    found = session.summary()
    assert found["phase"] == "keep" and found["rounds_in_all"] == 5
    # the first 20 steps come before, and from the first quarter of an hour on steps are half as long again
    tuned_s = training._times_s[-1] - 20 * found["auto_step_s"]
    assert int(said[1]) < tuned_s / 60 < 1.5 * int(said[1])


def test_a_round_that_is_long_for_the_time_moves_when_a_pair_is_kept():
    assert least_share(0.01) == 1
    # a race of one round, and of two, and four of the walk
    assert least_share(0.3) == pytest.approx(1.5) and least_share(0.19) == pytest.approx(1.14)


def test_what_auto_would_have_taken_is_told_within_its_interval():
    """The truth is known: each step's energy at what it ran, over its energy at auto."""
    load, at_auto_j = Load(uncapped(), 1, 0.9), [0.0]

    class Watched(Hours):
        def _train(self):
            before_j, own_w = self._energies_j[-1], load.truth(self.setting)
            super()._train()
            step_j = self._energies_j[-1] - before_j
            (auto_s, auto_w), (own_s, own_w) = load.truth(Setting(BASELINE)), own_w
            at_auto_j.append(at_auto_j[-1] + step_j * auto_s * auto_w / (own_s * own_w))

    training = Watched(load, load, math.inf, 4)
    session = TuningSession([training.control()], training, 3, 30, lambda line: None)
    session.run()
    found = session.summary()
    low, likely, high = found["auto_would_have_taken_j"]
    assert found["energy_j"] == pytest.approx(training._energies_j[-1], rel=0.01)  # the look comes before
    saved_j = at_auto_j[-1] - training._energies_j[-1]
    assert likely - found["energy_j"] == pytest.approx(saved_j, rel=0.05) and saved_j > 0
    assert low < likely < high and high - low < 0.5 * saved_j


class Compiles(Training):
    """Before the step `pause_at` it does something else for so long."""

    pause_s, pause_at = 40.0, 4

    def _train(self):
        super()._train()
        if self._count == self.pause_at:
            self._times_s[-1] += self.pause_s
            if self._signs[-1][0] == self._count:
                self._signs[-1] = self._count, self._times_s[-1]


def test_a_pause_in_the_first_steps_ends_nothing_and_is_in_no_step():
    load = Load(gpu_spec.resolve("h200_sxm"), 1)
    training = Compiles(load, 0.01, 30)
    session = TuningSession([training.control()], training, 3, 1, lambda line: None)
    session.run()
    found = session.summary()
    assert not found["why"] and found["rounds_in_all"] >= 4
    assert found["auto_step_s"] == pytest.approx(load.truth(Setting(BASELINE))[0], rel=0.02)


def test_only_where_no_step_is_told_for_long_is_that_said_and_since_the_last():
    class Slept(Steps):
        at_s = 0.0

        def now_s(self):
            return self.at_s

    steps = Slept()
    for steps.at_s in (5.0, 1000.0):
        steps.step()
    steps.at_s = 2300.0
    with pytest.raises(StepsStopped) as quiet:
        steps.since(0.0, 5, 10.0, 1200.0)
    assert quiet.value.seconds == 1300

    class Checkpoints(Compiles):
        def since(self, *asked):
            if self.raises:
                raise self.raises.pop()
            return super().since(*asked)

    for raises, said in (([], []), ([StepsStopped(1300.0)], ["0 steps were told so far, and none for 1300 s; "])):
        training, lines = Checkpoints(Load(gpu_spec.resolve("h200_sxm"), 1), 0.01, 1), []
        training.pause_s, training.raises, training._end_s = 1500.0, raises, 1600.0
        TuningSession([training.control()], training, 3, 1, lines.append).run()
        told = [line.partition("if it")[0] for line in lines if "told so far" in line]
        assert told == said, "a long pause between two steps is none of that"


def test_where_no_step_is_told_tuning_ends_and_says_what_to_look_at():
    class Mute(Training):
        def since(self, *_):
            raise Silent

    training, lines = Mute(Load(gpu_spec.resolve("h200_sxm"), 1), 0.01, 1), []
    session = TuningSession([training.control()], training, 3, 1, lines.append)
    session.run()
    assert len(lines) == 1 and "no step was told for 1200 s; look at --progress" in lines[0]
    assert session.last_line() == "no steps were told: nothing was measured and nothing set"


def test_power_limits_stand_between_clocks_and_the_procedure_keeps_one_within_the_limit():
    spec = gpu_spec.resolve("h200_sxm")
    load = Load(spec, 101)
    board = WithLimits(spec, load)
    limits = [setting for setting in board.pairs if isinstance(setting, Setting)]
    assert limits and all(setting.cap_w < load.truth(Setting(BASELINE))[1] for setting in limits)
    assert sorted(setting.cap_w for setting in limits)[::-1] == [setting.cap_w for setting in limits]
    # a lower limit is expected to be slower, and to be about as slow as it is in truth
    expected = [board.time_mean[board.place[setting]] for setting in limits]
    assert expected == sorted(expected) and expected[0] > -0.005
    assert expected[-1] == pytest.approx(load.change(limits[-1])[0], rel=0.6)
    assert np.linalg.eigvalsh(board.time_cov).min() > -1e-9
    kept = followed(Training(load, 0.01, 30), board, 3, 1, 30)
    time, energy = load.change(kept)
    assert time <= 0.03 and energy < -0.01
