"""A measured profile drives a replay: its times are the instances' times, its power is their energy."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from synthetic_profile import QUICK

from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.machine import MeasuredMachine, SimulatedMachine, machine
from kernel_dvfs_serving.make_profile import PoissonArrivals, excess, measure
from kernel_dvfs_serving.measured import Fit, MeasuredEngine
from kernel_dvfs_serving.profile import COLUMNS, LATENCIES, ServingProfile, read_profile, write_profile
from kernel_dvfs_serving.replay import Replayer, outcome
from kernel_dvfs_serving.system import ClusterSettings
from kernel_dvfs_serving.trace import hours

LIMITS = {"max_batch": 256, "chunk_tokens": 512}
KV = {"kv_tokens": {2: 40_000, 4: 300_000, 8: 900_000}, "kv_byte_per_token": 327_680.0}


def of_power(profile, power=1.0, latency=1.0, degrees=(2, 4, 8)):
    curves = {
        key: replace(
            curve,
            power_w=power * curve.power_w,
            **{name: latency * getattr(curve, name) for name in LATENCIES},
        )
        for key, curve in profile.curves.items()
        if key[1] in degrees
    }
    return ServingProfile("mine", "my-gpu", curves, {"measured"}, "mine.csv", **KV)


@pytest.fixture(scope="module")
def measured(line):
    """`measured(power=2.0)`: a measured profile of twice the power, and its machine; each made once."""

    @cache
    def made(**factors):
        profile = of_power(line, **factors)
        return profile, machine(profile, "h100_sxm", "llama2-70b", **LIMITS)

    return made


def replayed(profile, own, trace, system="DynamoLLM"):
    return outcome(Replayer(own, profile).run(trace, system, ClusterSettings(**QUICK)))


@pytest.mark.nightly
@pytest.mark.slow
def test_doubling_the_power_of_a_measured_profile_doubles_the_energy_of_a_replay(measured, trace):
    once, twice = (replayed(*made, trace) for made in (measured(), measured(power=2.0)))
    assert twice["energy_kwh"] == pytest.approx(2 * once["energy_kwh"], rel=1e-6)
    assert twice["ttft_p99_s"] == pytest.approx(once["ttft_p99_s"], rel=1e-9)


@pytest.mark.slow
def test_slower_tokens_in_a_measured_profile_are_slower_in_a_replay(measured):
    load = hours(4.0, seed=3, span_s=60)
    # of all that runs at this degree
    made = [measured(latency=latency, degrees=(8,)) for latency in (1.0, 1.3)]
    once, slow = (replayed(profile, own, load, "SinglePool") for profile, own in made)
    assert slow["tbt_p50_s"] == pytest.approx(1.3 * once["tbt_p50_s"], rel=0.1)


@pytest.mark.slow
def test_an_instance_of_a_measured_profile_is_as_it_was_measured(measured):
    """Power, and latencies while promises hold: within 5 % in the median, a quarter at worst."""
    profile, own = measured()
    errors = {"power_w": [], "tbt_p50_s": [], "ttft_p50_s": []}
    # every other one: all classes, degrees and clocks are among them
    for (class_, tp, clock), curve in list(profile.curves.items())[::2]:
        load = PoissonArrivals.draw(class_, 80)
        for place in (1, len(curve.tps) // 2):
            point = measure(own.engine(tp, clock), own.kv_tokens(tp), load, curve.tps[place], **LIMITS)
            if excess(class_, point) < 1:
                for name, found in errors.items():
                    found.append(abs(getattr(point, name) / getattr(curve, name)[place] - 1))
    assert all(np.median(found) < 0.05 and np.quantile(found, 0.95) < 0.25 for found in errors.values()), {
        name: (np.median(found), np.quantile(found, 0.95)) for name, found in errors.items()
    }
    assert all(max(fit.tbt, fit.power) < 0.1 for fit in own.fits.values())
    assert own.note().startswith("mine.csv: engines fitted to it give back its power within ")


@pytest.mark.slow
def test_closed_forms_of_a_measured_engine_are_the_sum_of_its_steps(measured):
    _, own = measured()
    engine = own.engine(4, "1400")
    steps = [engine.step(20, 0, 9000 + 20 * number) for number in range(30)]
    assert engine.run(20, 9000, 30) == pytest.approx([sum(each) for each in zip(*steps)], rel=1e-9)
    assert engine.steps_within(20, 9000, engine.run(20, 9000, 30)[0]) == 30


@pytest.mark.parametrize(
    ("energy", "pair_s", "idle_w", "least_w"),
    [
        ((5, 50, 50, 100, 50), 0, 60, 55),
        ((5, 10, 50, 100, 50), 0, 60, 15),
        ((5, 50, 10, 100, 50), 0, 60, 15),
        ((5, 50, 50, 20, 50), 0, 60, 15),
        ((5, 50, 50, 100, 10), 0, 60, 15),
        ((5, 50, 50, 100, 50), 1, 60, 5),
        ((5, 50, 50, 100, 50), 0, 40, 40),
    ],
)
def test_the_least_that_a_measured_engine_draws_by_hand(energy, pair_s, idle_w, least_w):
    """Of the part of a step that draws least, or of none; a token above the ridge takes 2 s, the rest 1 s each."""
    engine = MeasuredEngine(np.array([1, 1, 1, 1, pair_s]), np.array(energy), idle_w, Fit(0, 0, 0))
    assert engine.least_w == least_w


def test_a_profile_of_an_unknown_model_has_to_say_its_cache(line):
    profile = of_power(line)
    with pytest.raises(InputError, match=r"mine.csv: model mine is unknown.*column kv_byte_per_token"):
        MeasuredMachine(replace(profile, kv_byte_per_token=None), **LIMITS)
    with pytest.raises(InputError, match="column kv_tokens"):
        MeasuredMachine(replace(profile, kv_tokens={}), **LIMITS)


def test_a_simulated_profile_of_another_gpu_is_refused(line):
    simulated = replace(line, gpu="h100_sxm", model="llama2-70b")
    assert isinstance(machine(simulated, "h100_sxm", "llama2-70b", **LIMITS), SimulatedMachine)
    with pytest.raises(InputError, match="simulated for llama2-70b on h100_sxm, but llama2-70b on h200_sxm"):
        machine(simulated, "h200_sxm", "llama2-70b", **LIMITS)
    with pytest.raises(InputError, match=r"chunk_tokens = 16385 is not possible; .* up to 16384"):
        machine(simulated, "h100_sxm", "llama2-70b", chunk_tokens=16_385)


def test_a_simulated_profile_of_another_engine_is_refused(tmp_path):
    """Else the controllers would plan for one engine, and another would run."""
    path = tmp_path / "profile.csv"
    engine = ["--host-s", "0.018", "--max-batch", "64"]
    words = ["--tp", "8", "--core-mhz", "1200", "--classes", "SS", "--requests", "60", *engine, "-o", str(path)]
    assert main(["serving", "profile", *words]) == 0
    profile = read_profile(path)
    asked = {"max_batch": 64, "chunk_tokens": 512}
    assert isinstance(machine(profile, "h100_sxm", "llama2-70b", 0.018, **asked), SimulatedMachine)
    with pytest.raises(InputError, match=r"profile.csv: simulated with host_s = 0.018, but 0.002 is to be replayed"):
        machine(profile, "h100_sxm", "llama2-70b", 0.002, **asked)
    with pytest.raises(InputError, match="simulated with max_batch = 64, but 256 is to be replayed"):
        machine(profile, "h100_sxm", "llama2-70b", 0.018, max_batch=256, chunk_tokens=512)
    path.write_text(path.read_text().replace("host_s: 0.018", "host_s: soon", 1))
    with pytest.raises(InputError, match="line 1: 'host_s: soon'; expected numbers for host_s, max_batch"):
        read_profile(path)


def test_rows_that_no_engine_shows_are_refused(line):
    """Power that falls and rises at random with load, by factors."""
    draw = np.random.default_rng(1)
    profile = of_power(line)
    curves = {
        key: replace(curve, power_w=curve.power_w * draw.choice([0.1, 10], len(curve.tps)))
        for key, curve in profile.curves.items()
    }
    with pytest.raises(InputError, match=r"mine.csv: tp \d, \d+ MHz: power of its rows is"):
        MeasuredMachine(replace(profile, curves=curves), **LIMITS)


# -- a file that was cut off -------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    rows = [
        dict(zip(COLUMNS, ("mine", "my-gpu", tp, mhz, name, tps, 500.0 + tps, 0.1, 0.2, 0.02, 0.03, "measured")))
        | {"input_tokens": 100, "output_tokens": 50.0, "kv_tokens": 1000 * tp, "kv_byte_per_token": 4096}
        for tp in (4, 8)
        for name in ("SS", "LL")
        for mhz in (1200, 1980)
        for tps in (0, 1000, 2000)
    ]
    write_profile(tmp_path / "mine.csv", rows)
    return tmp_path / "mine.csv"


def without_seal(text):
    """The text of a profile without its last column."""
    return re.sub(r"^([^#\n].*),[^,\n]*$", r"\1", text, flags=re.MULTILINE)


def test_what_a_profile_says_of_requests_and_caches_is_read(written):
    profile = read_profile(written)
    assert profile.tokens("SS") == (100, 50) and profile.kv_tokens == {4: 4000, 8: 8000}
    assert profile.kv_byte_per_token == 4096 and not profile.simulated
    edited = written.read_text().replace(",8000,", ",8001,", 1)
    written.write_text(edited)
    with pytest.raises(InputError, match=r"mine\.csv: was changed since it was written: .*column `seal`"):
        read_profile(written)
    written.write_text(without_seal(edited))
    with pytest.raises(InputError, match="column kv_tokens: 8000, but 8001 above for tp 8"):
        read_profile(written)


def test_a_truncated_profile_is_refused_wherever_it_was_cut(written):
    text = written.read_text()
    for end in range(1, len(text)):
        written.write_text(text[:end])
        with pytest.raises(InputError) as refused:
            read_profile(written)
        assert "mine.csv" in str(refused.value) and "\n" not in str(refused.value)


def test_without_the_count_of_rows_a_cut_between_clocks_still_shows(written):
    lines = without_seal(written.read_text()).splitlines(keepends=True)[1:]
    written.write_text("".join(lines))
    assert len(read_profile(written).curves) == 8
    written.write_text("".join(lines[:-3]))
    with pytest.raises(InputError, match=r"no rows for class LL, tp 8, 1980 MHz.*cut off"):
        read_profile(written)
