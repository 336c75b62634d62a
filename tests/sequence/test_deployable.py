"""What a study can deploy: each way as it plays, walked and measured again, and files that can be played."""

import json
import math
from dataclasses import replace
from statistics import mean, median

import numpy as np
import pytest
from whole_schedule import whole_schedule, whole_walk

from kernel_dvfs.cli.main import main
from kernel_dvfs.layout import FREE, LAUNCH, PASS, RUN, iteration_name
from kernel_dvfs.measurement.latency_file import ASSUMED_LATENCIES, Spread, content, latencies
from kernel_dvfs.measurement.setup import store
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.sequence import played
from kernel_dvfs_deploy.sequence.chains import chain_of
from kernel_dvfs_deploy.sequence.changes import CORE, MEM, Changes, Timing
from kernel_dvfs_deploy.sequence.costs import read_latency
from kernel_dvfs_deploy.sequence.deployable import ValidationProcedure, deploy, offered_pairs
from kernel_dvfs_deploy.sequence.played import BlockChange, SimulatedPlayer
from kernel_dvfs_deploy.sequence.replay import replay
from kernel_dvfs_deploy.sequence.schedule import read_iteration

pytestmark = pytest.mark.slow

TIMING = Timing.spread(Spread(0.004, 0.011), Spread(0.009, 0.03), 1e-4, 3e-4)
SLACK = 0.08  # within less no pair keeps, of those that these few clocks have


@pytest.fixture(scope="module")
def held(iteration, iteration_profile):
    offered, alone = offered_pairs(iteration, read_profile(iteration_profile))
    return offered.only(np.arange(len(offered.pairs) - alone))


@pytest.fixture(scope="module")
def claimed(held):
    return {each.way: each for each in deploy(held, TIMING, SLACK)}


class Rig:
    """A board that adds to the claimed time of a choice by its number of changes, and halves what it saves."""

    def __init__(self, sequence, late_percent):
        self.sequence, self.chain, self.late_percent = sequence, chain_of(sequence, TIMING), late_percent
        self.played = {}

    def block(self, session, choices):
        found = []
        for changes in choices:
            self.played.setdefault(session, []).append(changes)
            time_s, energy_j = self.chain.totals(changes)
            late = self.late_percent * len(changes) + 0.01 * (-1) ** session
            time = 100 * (time_s / self.sequence.baseline_time_s - 1) + late
            found.append(BlockChange(time, 50 * (energy_j / self.sequence.baseline_energy_j - 1)))
        return found


def test_only_locked_pairs_that_every_kernel_reached_and_one_may_want_are_set(held, iteration, iteration_profile):
    assert all(core is not None for core, _ in held.pairs) and 4 < len(held.pairs) < len(iteration.pairs)
    assert held.baseline_time_s == iteration.baseline_time_s and held.baseline is None
    profile = read_profile(iteration_profile)
    names = ("study", "core_mhz", "mem_mhz", "reached_core_mhz")
    for study, core, mem, reached in zip(*(profile.table[name].to_pylist() for name in names)):
        if study == "kernel" and (core, mem) in held.pairs:
            assert reached == pytest.approx(core, rel=0.01)
    for one in range(len(held.pairs)):
        for other in range(len(held.pairs)):
            beats = (held.time_s[:, one] <= held.time_s[:, other]) & (held.energy_j[:, one] <= held.energy_j[:, other])
            assert one == other or not beats.all(), "a pair that another one beats for every kernel"


def test_a_finer_way_claims_no_less_and_all_keep_the_limit(claimed, held):
    energies = [claimed[way].choice.energy_j for way in (RUN, PASS, LAUNCH)]
    assert energies == sorted(energies, reverse=True) and len(set(energies)) == 3
    for each in claimed.values():
        assert each.choice.time_s <= (1 + SLACK) * held.baseline_time_s * (1 + 1e-9)
        assert each.again == each.walked == ()


def test_what_is_claimed_is_what_is_played_at_its_equally_likely_latencies(claimed, held):
    """Every landing of every change by itself, the others on time: totals are sums over changes."""
    changes = claimed[LAUNCH].choice.changes
    assert len(changes) > 6

    def taking(number=None, latency_s=0.0):
        def taken(_, own, before, after):
            return latency_s if own == number else TIMING.lead_s(before, after)

        found = replay(held, TIMING, changes, latency_s=taken)
        return np.array([found.time_s, found.energy_j])

    on_time, before, expected = taking(), changes.first, taking()
    for number, to in enumerate(changes.to):
        kind = MEM if held.pairs[before][1] != held.pairs[to][1] else CORE
        expected += np.mean([taking(number, each) for each in TIMING.landings_s(kind)], axis=0) - on_time
        before = to
    assert chain_of(held, TIMING).totals(changes) == pytest.approx(expected.tolist(), rel=1e-5)


def test_the_walk_passes_what_keeps_the_limit_and_the_best_of_it_is_measured_again(held):
    """Each change costs so much more than claimed that choices of many are over the limit, and none of few."""
    for late_percent, most in ((0.0, math.inf), (0.03, 13)):
        rig = Rig(held, late_percent)
        found = {each.way: each for each in deploy(held, TIMING, SLACK, procedure=ValidationProcedure(rig, 10, 7))}
        for each in found.values():
            time = [block.time for block in each.walked]
            assert mean(time) < 100 * SLACK and len(time) == 20 and len(each.again) == 7
            row = each.row(held, TIMING, 10)
            assert mean(time) < row["time_bound_percent"] <= 100 * SLACK
            assert row["again"][0][1] == pytest.approx(row["energy_change_percent"] / 2)
        fine = found[LAUNCH].choice
        assert 2 < len(fine.changes) < most and fine.energy_j < found[PASS].choice.energy_j
    sessions = sorted(rig.played)
    chosen = sorted({each.choice.changes for each in found.values()})
    assert len(sessions) == 27 and all(rig.played[each] == chosen for each in sessions[20:]), "each once"
    assert all(rig.played[sessions[0]] == rig.played[each] for each in sessions[:20]), "one path, fixed before"


@pytest.mark.parametrize(("later", "more"), [(10.0, 0.0), (0.0, 60.0)])
def test_where_nothing_is_shown_to_keep_the_limit_or_to_save_all_stay_at_auto(held, later, more):
    class Worse(Rig):
        def block(self, session, choices):
            return [BlockChange(own.time + later, own.energy + more) for own in super().block(session, choices)]

    for each in deploy(held, TIMING, SLACK, procedure=ValidationProcedure(Worse(held, 0.0), 10, 2)):
        row = each.row(held, TIMING, 10)
        assert each.choice is None and row["clocks"] == "auto" and row["again"] == []
        assert row["energy_change_percent"] == row["time_change_percent"] == row["changes"] == 0


def test_a_simulated_board_without_noise_gives_what_is_claimed_but_for_its_late_changes(
    setup_of, whole_iteration, monkeypatch, earlier_board
):
    setup = setup_of(gpu_overrides=earlier_board)
    kept = [
        place for place, pair in enumerate(whole_iteration.pairs) if pair in ((1470, 9501), (1050, 9501), (1470, 5001))
    ]
    sequence = whole_iteration.only(np.array(kept))
    board = SimulatedPlayer(setup, sequence, TIMING, exact=True)
    border = sequence.passes[1][1]
    one, few = Changes(0, (), ()), Changes(0, (90, border), (1, 0))
    found = [board.block(session, [one, few]) for session in range(12)]
    base = np.array([sequence.baseline_time_s, sequence.baseline_energy_j])
    alone = 100 * (np.array(chain_of(sequence, TIMING).totals(one)) / base - 1)
    # a sweep measures kernels alone, and its data have noise; a board plays them in their mix
    assert tuple(found[0][0]) == pytest.approx(tuple(alone), abs=2.5) and found[0][0] == found[5][0], (
        "nothing changes, so nothing is drawn"
    )
    times = {round(each[1].time, 6) for each in found}
    assert len(times) == 12, "each session draws latencies of its own"
    alike = Changes(0, (90, 120, border, border + 30), (1, 0, 1, 0))
    keys = []
    monkeypatch.setattr(played, "latency_s", lambda *key: keys.append(key) or 0.01)
    board.block(12, [alike, alike])
    assert len(keys) == len(set(map(repr, keys))) == 2 * 2 * 4, (
        "each change of each iteration of each play draws its own"
    )
    claim = 100 * (np.array(chain_of(sequence, TIMING).totals(few)) / base - 1) - alone
    apart = np.mean([[own.time - first.time, own.energy - first.energy] for first, own in found], axis=0)
    assert apart == pytest.approx(claim, abs=0.6)


def test_the_command_plays_on_the_simulated_gpu_of_a_setup(whole_profile, setup_of, tmp_path, earlier_board):
    setup = setup_of(gpu_overrides=earlier_board)
    path = store(str(tmp_path), *(getattr(setup, name) for name in ("gpu", "workload", "targets", "measurement")))
    words = ["study", "deployable", str(whole_profile), "--gpu", path, "--slack", "30", "-o", str(tmp_path)]
    assert main([*words, "--over", "10", "--repeats", "3"]) == 0
    rows = {row["way"]: row for row in json.loads((tmp_path / "deployable.json").read_text())["rows"]}
    assert [len(rows[way]["again"]) for way in (RUN, PASS, LAUNCH)] == [3] * 3
    assert rows[LAUNCH]["latency_ms"] == 15 and rows[LAUNCH]["costs"] == "assumed", "of the spec"
    for row in rows.values():
        again = np.mean(row["again"], axis=0)
        # a sweep measures kernels alone, which at auto take less energy than in their mix
        assert row["time_bound_percent"] <= 30 and again[1] == pytest.approx(row["energy_change_percent"], abs=3)
    assert read_iteration(tmp_path / f"{rows[LAUNCH]['clocks'].removeprefix('schedules/')}").changes


def test_the_command_writes_what_can_be_played(iteration_profile, tmp_path, refused):
    strict = tmp_path / "strict.json"
    strict.write_text(json.dumps(whole_schedule(walk=whole_walk(reserve_percent=0.05))))
    words = [
        "study",
        "deployable",
        str(iteration_profile),
        "--mem-stall",
        "0.0003",
        "--slack",
        "8",
        "-o",
        str(tmp_path),
    ]
    assert main([*words, "--reserve-of", str(strict), "--latencies", "0.02", "0.005", "--stalls", "0"]) == 0
    written = json.loads((tmp_path / "deployable.json").read_text())
    rows = written["rows"]
    assert [row["way"] for row in rows if row["is_default"]] == [FREE, RUN, PASS, LAUNCH, PASS, LAUNCH]
    assert [row["latency_ms"] for row in rows if row["way"] == LAUNCH] == [20, 20, 5, 5]
    assert [row["mem_latency_ms"] for row in rows if row["way"] == LAUNCH] == [40, 40, 10, 10], "scaled alike"
    assert all(row["time_change_percent"] <= 7.95 + 1e-6 for row in rows[1:]), "the reserve of the strict one"
    schedule = read_iteration(tmp_path / f"{iteration_name(0.02)}.json")
    core, mem = schedule.timing.spreads
    assert core == pytest.approx((0.02, 0.4 / 3)) and mem == pytest.approx((0.04, 0.4))
    assert (schedule.timing.core_stall_s, schedule.timing.mem_stall_s) == (1e-4, 3e-4)
    assert schedule.totals["slack_percent"] == 8, "the limit to judge by: the reserve is not part of it"
    assert "--gpu" in refused(*words, "--over", "10")


@pytest.fixture
def latency_file(tmp_path):
    """`latency_file(gpu name)`: a file as `kernel-dvfs latency` writes it, of made-up changes."""

    def write(name="G", domains=("core", "mem")):
        trials = [
            {"domain": domain, "from_mhz": 1, "to_mhz": 2, "verdict": "ok", "call_s": 0.001, "first_effect_s": 0.5 * s}
            | {"settled_s": s, "nvml_s": s, "stall_s": stall}
            for domain, base, stall in (("core", 0.004, 0.0002), ("mem", 0.009, 0.0005))
            for s in np.linspace(base, 2 * base, 21)
            if domain in domains
        ]
        gpu = {"name": name, "uuid": "GPU-0123456789ab", "driver": "580.1"}
        path = tmp_path / "latency.json"
        path.write_text(json.dumps(content({"gpu": gpu, "started_utc": "2026-11-22T10:00:00Z"}, trials)))
        return path

    return write


MEASURED = "measured on G (GPU-01234567, driver 580.1, 2026-11-22)"


def test_measured_latencies_and_stalls_stand_in_place_of_the_assumed_ones(iteration_profile, latency_file, tmp_path):
    words = ["study", "deployable", str(iteration_profile), "--measured", str(latency_file()), "-o", str(tmp_path)]
    assert main([*words, "--stalls", "0"]) == 0
    launches = [row for row in json.loads((tmp_path / "deployable.json").read_text())["rows"] if row["way"] == LAUNCH]
    # medians of each clock; the swept stall is no measurement
    assert [(row["latency_ms"], row["mem_latency_ms"]) for row in launches] == [pytest.approx((6, 13.5))] * 2
    assert [row["costs"] for row in launches] == [MEASURED, f"latency {MEASURED}, stalls assumed"]
    assert [launches[0][f"{domain}_stall_ms"] for domain in ("core", "mem")] == pytest.approx([0.2, 0.5])
    schedule = json.loads((tmp_path / f"{iteration_name(0.006)}.json").read_text())
    assert schedule["switching"]["sources"] == {"latency": MEASURED, "stalls": MEASURED}


def test_latencies_are_measured_else_of_the_spec_else_assumed_and_scaled_to_a_median(latency_file):
    spec = {"core": {"median_s": 0.01, "p99_s": 0.025}, "mem": {"median_s": 0.03, "p99_s": 0.3}}
    (core, mem), source = latencies(read_latency(latency_file()), spec)
    assert (core.median_s, mem.median_s, source) == (0.006, 0.0135, MEASURED)
    # through the median and the 95th percentile, 7.8 ms
    assert core.at(0.95) == pytest.approx(0.0078) and core.at(0.99) == pytest.approx(core.p99_s)
    (alone, same), _ = latencies(read_latency(latency_file(domains=["core"])), spec)
    assert alone == same, "a clock that was not measured is taken to take as long as the other one"
    assert latencies(None, spec) == ((Spread(0.01, 0.025), Spread(0.03, 0.3)), "assumed")
    assert latencies(None, None) == (ASSUMED_LATENCIES, "assumed")
    scaled, source = latencies(read_latency(latency_file()), spec, 0.0018)
    assert scaled[0].median_s == 0.0018 and scaled[1].median_s == pytest.approx(0.00405) and source == "assumed"


def test_a_spread_has_the_median_as_its_lead_and_late_ones_among_its_landings():
    timing = Timing.spread(Spread(0.015, 0.1), Spread(0.03, 0.3))
    core, mem = (timing.landings_s(kind) for kind in (CORE, MEM))
    assert median(core) == pytest.approx(0.015, rel=0.02) and core[-1] > 3 * 0.015
    assert timing.lead_s((900, 5001), (1200, 5001)) == median(core)
    assert timing.lead_s((900, 5001), (900, 9501)) == timing.lead_s((900, 5001), (1200, 9501)) == median(mem)
    assert timing.latest_of_s((900, 5001), (1200, 5001)) == core[-1] and timing.latest_s == mem[-1]
    for wrong in (Spread(0.0, 0.0), Spread(0.1, math.inf)):
        with pytest.raises(InputError, match="switch latency of"):
            Timing.spread(wrong, Spread(0.015, 0.1))
    with pytest.raises(InputError, match=r"0\.1 s \(median\) and 0\.02 s \(99 %\): expected two ascending"):
        Timing.spread(Spread(0.015, 0.1), Spread(0.1, 0.02))


def test_choose_takes_latency_jitter_and_stalls_from_the_file(iteration_profile, latency_file, tmp_path):
    words = ["sequence", str(iteration_profile)]
    words += ["--switch-latency", str(latency_file()), "-o", str(tmp_path / "s.json")]
    assert main(words) == 0
    # between the 5th and the 95th percentile of the slower domain: 9.45 to 17.55 ms
    timing = read_iteration(tmp_path / "s.json").timing
    assert (timing.latency_s, timing.latency_s * timing.jitter) == pytest.approx((0.0135, 0.00405))
    assert (timing.core_stall_s, timing.mem_stall_s) == pytest.approx((0.0002, 0.0005))
    assert main([*words, "--core-stall", "0", "--switch-jitter", "0"]) == 0
    schedule = json.loads((tmp_path / "s.json").read_text())
    assert schedule["switching"]["sources"]["stalls"] == f"core assumed, memory {MEASURED}"
    assert schedule["switching"]["jitter"] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "{", "latency.json: truncated or not JSON ("),
        (lambda text: "[]", "latency.json: not a kernel-dvfs/latency/1 file; kernel-dvfs latency makes it"),
        (
            lambda text: text.replace("latency/1", "latency/9"),
            "(schema kernel-dvfs/latency/9, this one",
        ),
        (lambda text: text.replace('"median": ', '"median": -'), "settled_s.median is -"),
        (lambda text: text.replace('"n": 21', '"n": 0'), "no change of a clock was seen"),
        (lambda text: text.replace('"driver"', '"diver"'), "gpu.driver is missing; kernel-dvfs latency makes it"),
        (
            lambda text: text.replace('"domains": {"core": {', '"domains": {"core": [], "x": {'),
            "domains.core is [], expected a group of fields",
        ),
    ],
)
def test_a_broken_latency_file_is_one_line(iteration_profile, latency_file, tmp_path, refused, change, said):
    path = latency_file()
    path.write_text(change(path.read_text()))
    words = ["study", "deployable", iteration_profile, "--measured", path, "-o", tmp_path / "out"]
    assert said in refused(*words) and not (tmp_path / "out").exists()


def test_latencies_of_another_gpu_are_refused_for_clocks_of_a_real_one(latency_file):
    assert read_latency(latency_file("A"), {"kind": "simulated", "name": "B"}).gpu_name == "A", "and it says so"
    with pytest.raises(InputError, match=r"measured on A .* but these clocks are chosen for B"):
        read_latency(latency_file("A"), {"kind": "nvml", "name": "B"})


def test_a_pair_that_the_governor_holds_down_may_be_the_runs_alone(iteration, iteration_profile, held):
    offered, alone = offered_pairs(iteration, read_profile(iteration_profile))
    assert alone > 0 and offered.pairs[: len(held.pairs)] == held.pairs
    # the best of them is made better than all that may be mixed
    time_s, energy_j = offered.time_s.copy(), offered.energy_j.copy()
    time_s[:, -1], energy_j[:, -1] = 0.9 * held.time_s.min(axis=1), 0.5 * held.energy_j.min(axis=1)
    better = replace(offered, time_s=time_s, energy_j=energy_j)
    found = {each.way: each for each in deploy(better, TIMING, SLACK, alone=alone)}
    last = len(offered.pairs) - 1
    assert [found[way].choice.changes for way in (RUN, PASS, LAUNCH)] == [Changes(last, (), ())] * 3
    assert all(each.row(better, TIMING, None)["gap_points"] >= 0 for each in found.values())
    # where it is not, finer ways mix the others, and never it
    worse = replace(offered, time_s=np.where(np.arange(last + 1) == last, 9.0, offered.time_s))
    fine = deploy(worse, TIMING, SLACK, alone=alone)[-1].choice.changes
    assert len(fine) > 0 and max(fine.first, *fine.to) < len(held.pairs)


def test_without_a_pair_that_is_held_all_stay_at_auto(held, iteration_profile, iteration):
    nothing = iteration.only(np.array([iteration.baseline]))
    kept, _ = offered_pairs(nothing, read_profile(iteration_profile))
    assert kept.pairs == () and kept.baseline_energy_j == iteration.baseline_energy_j
    rows = [each.row(kept, TIMING, None) for each in deploy(kept, TIMING, 0.0)]
    assert [(row["way"], row["clocks"], row["energy_change_percent"]) for row in rows] == [
        (way, "auto", 0) for way in (RUN, PASS, LAUNCH)
    ]
