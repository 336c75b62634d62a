"""Engine steps of the simulated instance: sums, the power cap, and closed forms that must equal step after step."""

import random
from types import SimpleNamespace

import pytest

from kernel_dvfs.gpu.governor import settle
from kernel_dvfs_clocks.clocks import AUTO, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.steps import KNOTS, ClockEngine, StepModel, StepTable
from kernel_dvfs_serving.system import MAX_TOKENS


def _load(model, knot):
    return [(kernel, count) for _, kernel, count in model.token_kernels[knot]]


@pytest.mark.parametrize("tokens_near,core_mhz", [(1, 1980), (64, 1200), (500, 1980), (8000, 1980), (8000, 1605)])
def test_a_step_is_what_the_simulated_gpu_does_with_its_kernels(instances, tokens_near, core_mhz):
    """Same time, power and capped clock as gpu.governor, which all other studies run on."""
    model = instances(4)
    knot = abs(KNOTS - tokens_near).argmin()
    state = settle(model.spec, _load(model, knot), Pair(core_mhz, AUTO), model.spec["thermal"]["reference_c"])
    time_s, energy_j = model.at(core_mhz).step(int(KNOTS[knot]), 0, 0)
    assert time_s == pytest.approx(state.time_s, rel=1e-9)
    assert energy_j / time_s == pytest.approx(4 * state.power_w, rel=1e-9)


def test_between_tabulated_numbers_of_tokens_a_line_is_close(instances):
    model = instances(4)
    for tokens in (9, 33, 150, 300, 700, 5000):
        direct = [model.launch(model.kernel(row), 1200)[0] * row.launches for row in model.rows(tokens)]
        below = max(knot for knot in KNOTS.tolist() if knot <= tokens)
        constant = sum(
            count * kernel.latency_s
            for name, kernel, count in model.token_kernels[KNOTS.tolist().index(below)]
            if name == "host"
        )
        reduces = 160 * model.all_reduce(tokens * 8192 * 2).latency_s
        assert model.at(1200).step(tokens, 0, 0)[0] == pytest.approx(sum(direct) + constant + reduces, rel=2e-3)


def test_a_run_is_the_sum_of_its_steps(instances):
    for engine in (instances(2).at(1200), instances(8).at(800)):
        batch, context, steps = 48, 30_000, 25
        line = engine.linear(batch, context)
        single = [
            (
                line.time_s + line.time_per_token_s * (context + batch * number),
                line.energy_j + line.energy_per_token_j * (context + batch * number),
            )
            for number in range(steps)
        ]
        time_s, energy_j = engine.run(batch, context, steps)
        assert time_s == pytest.approx(sum(each[0] for each in single), rel=1e-12)
        assert energy_j == pytest.approx(sum(each[1] for each in single), rel=1e-12)
    engine = instances(4).at(1200)
    assert engine.run(10, 5000, 1) == pytest.approx(engine.step(10, 0, 5000, 10), rel=1e-12)


def test_steps_within_a_time_invert_the_run(instances):
    draw = random.Random(1)
    for core_mhz in (800, 1980):
        engine = instances(2).at(core_mhz)
        for _ in range(300):
            batch, context, steps = draw.randint(1, 256), draw.randint(1, 48_000), draw.randint(1, 900)
            end_s = engine.run(batch, context, steps)[0]
            assert engine.steps_within(batch, context, end_s) == steps
            assert engine.steps_within(batch, context, end_s * (1 - 1e-9)) == steps - 1
        assert engine.steps_within(1, 10, 0.0) == 0


def test_no_step_draws_more_than_the_cap_and_a_capped_one_is_slower_than_its_clock(instances):
    for tp in (2, 4, 8):
        engine = instances(tp).at(1980)
        found = [engine.step(tokens, tokens**2 / 2, 20_000) for tokens in (16, 512, 2048, 8192)]
        assert all(energy_j <= 700 * tp * time_s * (1 + 1e-12) for time_s, energy_j in found)
        assert found[-1][0] > engine._table.step(8192, 8192**2 / 2, 20_000)[0]


@pytest.mark.parametrize(("cap_w", "least_j"), [(1000, (50, 16, 4)), (100, (40, 6, 4)), (50, (20 / 3, 1, 2))])
def test_what_a_step_takes_at_least_beyond_40_w_by_hand(cap_w, least_j):
    """Of 1, 2 and 3 tokens; the cap is above all, above the context alone, and below all."""
    table = StepTable([0, 1, 1.5, 2, 9], [0, 90, 180, 300, 0], (7, 7), (7, 7), 0.1, 20, 0.2, 12, 0.3, 5)
    model = SimpleNamespace(idle_w=lambda _: 40, cap_w=cap_w, held_factor=1.07, clocks=[1200], table=lambda _: table)
    assert ClockEngine(model, 1200).least_j(40, 3) == pytest.approx(least_j)


def test_no_step_has_more_tokens_than_are_tabulated(instances):
    engine = instances(8).at(1200)
    assert engine.least_j(0.0, MAX_TOKENS + 1) == engine.least_j(0.0, MAX_TOKENS)


def test_a_capped_step_does_not_depend_on_the_steps_before_it(instances):
    unused = StepModel("h100_sxm", "llama2-70b", 4).at(1980).step(700, 1000, 0)
    used = instances(4).at(1980)
    for tokens in (16384, 1, 4096, 300):
        used.step(tokens, 100, 0)
    assert used.step(700, 1000, 0) == unused


@pytest.mark.parametrize("tokens", [50_000, 250_000])
def test_the_line_of_a_capped_decode_step_is_the_step_where_it_is_drawn(instances, tokens):
    engine = instances(2).at(1980)
    time_s, energy_j = engine.step(512, 0, tokens, 512)
    line = engine.linear(512, tokens)
    assert energy_j / time_s == pytest.approx(engine.cap_w, rel=1e-9), "at the cap"
    assert line.time_s + line.time_per_token_s * tokens == pytest.approx(time_s, rel=1e-9)
    assert line.energy_j + line.energy_per_token_j * tokens == pytest.approx(energy_j, rel=1e-9)


def test_more_gpus_and_higher_clocks_are_never_slower(instances):
    for asked in ((1, 0, 600), (64, 0, 40_000), (512, 131_328, 0)):
        for tp in (2, 4):
            assert instances(2 * tp).at(1200).step(*asked)[0] < instances(tp).at(1200).step(*asked)[0]
        times = [instances(4).at(core_mhz).step(*asked)[0] for core_mhz in (800, 1200, 1600, 1980)]
        assert times == sorted(times, reverse=True)


def test_idle_power_is_memory_and_clock_tree(instances):
    assert instances(8).idle_w(1980) == pytest.approx(4 * instances(2).idle_w(1980))
    # the EnergAIzer artifact has an idle H100 at 72 to 75 W up to 1110 MHz and 120 W at 1890
    assert 8 * 75 < instances(8).idle_w(800) < 8 * 95 and 8 * 115 < instances(8).idle_w(1980) < 8 * 140
    step = instances(8).decode(1, 10, 800)
    assert step.power_w > instances(8).idle_w(800)


def test_a_clock_off_the_grid_is_taken_down_and_one_outside_refused(instances):
    assert instances(4).at(1000) is instances(4).at(990)
    for core_mhz in (100, 2000):
        with pytest.raises(InputError, match="345 to 1980"):
            instances(4).at(core_mhz)


def test_the_cache_is_what_the_weights_leave(instances):
    assert instances(2).kv_tokens < 60_000 < instances(4).kv_tokens
    with pytest.raises(InputError, match="does not fit on 1 x h100_sxm"):
        StepModel("h100_sxm", "llama2-70b", 1)
    with pytest.raises(InputError, match="interconnect"):
        StepModel("rtx_3080_ti", "llama2-13b", 2)
