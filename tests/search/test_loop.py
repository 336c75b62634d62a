"""A search ends with nothing asked, measures nothing twice, goes on where it stopped, and never rests on old data."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import OPTIONS, PAIRS

from kernel_dvfs.choice.schedule import choose
from kernel_dvfs.cli.main import main
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO, BASELINE, Pair, label
from kernel_dvfs.measurement import campaign, job, record, request
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.profile.aggregate import columns
from kernel_dvfs.profile.records import Records, changed
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.search import loop, search_file

pytestmark = pytest.mark.slow

LONGER = OPTIONS | {"refine": OPTIONS["refine"] | {"windows": 600}}
SHORTER = OPTIONS | {"refine": OPTIONS["refine"] | {"windows": 200}}
OFF = OPTIONS | {"refine": OPTIONS["refine"] | {"windows": 0}}


@pytest.fixture
def measured(monkeypatch) -> list:
    """Paths of the records that are measured from now on."""
    paths, measure = [], job.measure

    def counted(*what, **more):
        measure(*what, **more)
        paths.append(what[6])

    monkeypatch.setattr(job, "measure", counted)
    return paths


@pytest.fixture(scope="module")
def undisturbed(folder_of, tmp_path_factory):
    """The folder of a search that nobody disturbed. Not to be changed."""
    folder = folder_of(tmp_path_factory.mktemp("undisturbed"))
    folder.sweep()
    folder.run()
    return folder


@pytest.fixture(scope="module")
def finished(undisturbed):
    """(records, bytes of the search) of it."""
    return undisturbed.records(), undisturbed.output.read_bytes()


def restored(folder, records) -> None:
    for name, content in records.items():
        path = Path(folder.measurements, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_rounds_go_on_from_the_sweep_and_the_last_asks_for_nothing(undisturbed):
    folder, sweep = undisturbed, request.sweep(undisturbed.setup, PAIRS, 3)
    found = search_file.read(str(folder.output))
    asked = list(sweep)
    for each in found.rounds[:-1]:
        auto = {one.target: len(one.repeats) for one in each.requests if one[2:4] == (AUTO, AUTO)}
        if each.stage == "race":
            assert auto.keys() == set(folder.setup.targets["kernel"]), (
                "auto of all is measured beside what might be chosen"
            )
        known = request.merged(asked)
        for one in each.requests:
            before = known["kernel", one.target].get(Pair(*one[2:4]))
            first = before[-1] + 1 if before else 0
            count = auto[one.target] if before else 1
            assert one.repeats == tuple(range(first, first + count)), "numbers go on, so nothing is measured twice"
        asked += each.requests
    stages = [each.stage for each in found.rounds]
    assert stages == sorted(stages) and set(stages) == {"race", "walk"} and stages.count("walk") > 3
    assert not found.rounds[-1].requests
    assert found.requests == asked[len(sweep) :]
    assert {each.stage for each in found.rounds if set(each.requests) & set(found.walked)} == {"walk"}
    assert [*found.pooled, *found.walked] == found.requests
    paths = {request.path(each, repeat) for each in asked for repeat in each.repeats}
    assert set(folder.records()) == paths == set(found.records)
    assert changed(folder.measurements, found.records) == []


def points(requests) -> int:
    return sum(len(each.repeats) for each in requests)


def test_race_and_walk_keep_to_their_budget_in_windows_or_in_hours(folder):
    windows = OPTIONS["refine"]["windows"]
    found = folder.run()
    per_point = folder.setup.measurement["windows"]
    block = points(found.rounds[-2].requests)
    assert windows - block * per_point < points(found.requests) * per_point <= windows
    raced = [points(each.requests) for each in found.rounds if each.stage == "race"]
    assert sum(raced) <= 0.5 * windows / per_point + max(raced)
    # a point takes its warm-up, its windows and what they wait for
    own = folder.setup.measurement
    point_s = own["warmup_s"] + 0.5 + per_point * (own["window_s"] + 0.1)
    hours = {"windows": None, "hours": (windows // per_point + 0.5) * point_s / 3600, "over_percent": 10}
    assert folder.run(OPTIONS | {"refine": hours}).requests == found.requests


@pytest.mark.parametrize("little", [{"windows": 1, "hours": None}, {"windows": None, "hours": 1e-6}])
def test_the_least_budget_is_a_walk_of_three_blocks(folder, little):
    found = folder.run(OPTIONS | {"refine": little | {"over_percent": 10}})
    assert [each.stage for each in found.rounds] == ["walk"] * 4 and set(found.walks) == {
        "kernel-slack0",
        "kernel-slack2",
    }


def test_a_race_needs_auto_measured_twice(folder):
    with pytest.raises(InputError, match=r"search: auto_repeats is 1, .*; allowed: 2 or more"):
        folder.run(OPTIONS | {"auto_repeats": 1})
    assert not folder.records(), "refused before anything is measured"
    assert folder.run(OFF | {"auto_repeats": 1}).requests == []


def test_a_block_of_four_sessions_measures_a_target_once_in_those_that_it_is_due_in(folder, monkeypatch):
    sweep = folder.sweep()
    calls, began = [], []
    monkeypatch.setattr(loop, "new_session", lambda setup, path, is_warm: began.append((len(calls), is_warm)))
    study_measure = loop._Study.measure
    monkeypatch.setattr(loop._Study, "measure", lambda own, todo: (calls.append(todo), study_measure(own, todo)))
    found = folder.run()
    assert [place for place, _ in began] == list(range(len(calls))), "before each session"
    cold = [place for place, is_warm in began if not is_warm]
    assert len(cold) == len(found.rounds) - 1, "a process for each block"
    block = next(each for each in found.rounds if each.stage == "walk")
    first = cold[[each.stage for each in found.rounds].index("walk")]
    sessions = calls[first : first + 4]
    assert points(block.requests) == sum(map(len, sessions)) == len({each for todo in sessions for each in todo})
    for todo in sessions:
        assert len({each[:2] for each in todo}) == len(todo), "none twice in a session"
        for target in {each[0] for each in todo}:
            pairs = {each[1] for each in todo if each[0] == target}
            assert BASELINE in pairs and len(pairs) > 1, "auto beside what it is compared with"
    assert len(sweep) == len(request.sweep(folder.setup, PAIRS, 3))


def test_the_campaign_of_a_record_follows_from_its_number(undisturbed):
    assert campaign.of_repeat(BASELINE, 0, 10) == "sweep" and campaign.of_repeat(BASELINE, 9, 10) == "sweep-9"
    assert campaign.of_repeat(BASELINE, 10, 10) == "remeasure-1"
    assert campaign.of_repeat(Pair(1470, AUTO), 0, 10) == "sweep"
    assert campaign.of_repeat(Pair(1470, AUTO), 2, 10) == "remeasure-2"
    again = json.loads(Path(undisturbed.measurements, "kernel/forward_gelu/auto-auto/r4.json").read_bytes())
    assert again["run"]["campaign"] == "remeasure-2"


def summary(folder, target, pair, repeat):
    path = request.path(request.Request("kernel", target, *pair, ()), repeat)
    return json.loads(Path(folder.measurements, path).read_bytes())["summary"]


@pytest.mark.slow
def test_what_a_walk_has_shown_is_worked_out_from_its_own_records_alone(undisturbed):
    folder, found = undisturbed, search_file.read(str(undisturbed.output))
    table = columns(
        folder.setup,
        [*request.sweep(folder.setup, PAIRS, 3), *found.pooled],
        3,
        Records(folder.setup, folder.measurements).points,
    )
    launches = {name: own["launches_per_iteration"] for name, own in folder.setup.targets["kernel"].items()}
    whole = {
        name: sum(
            launches[target] * value
            for target, value, auto in zip(table["target"], table[name], table["is_baseline"])
            if auto
        )
        for name in ("time_s", "energy_j")
    }
    blocks = [each.requests for each in found.rounds if each.stage == "walk" and each.requests]
    assert set(found.walks) == {"kernel-slack0", "kernel-slack2"}
    for walked in found.walks.values():
        assert len(walked["time_percent"]) == len(blocks)
        energies = []
        for number, block in enumerate(blocks):
            repeats = {(each.target, Pair(*each[2:4])): each.repeats for each in block}
            changes = {"time_us": 0.0, "energy_mj": 0.0}
            for target, pair in walked["pairs"].items():
                if pair == list(BASELINE):
                    continue
                for field in changes:
                    chosen, auto = (
                        np.mean([summary(folder, target, at, each)[field] for each in repeats[target, at]])
                        for at in (Pair(*pair), BASELINE)
                    )
                    changes[field] += launches[target] * (chosen - auto)
            assert walked["time_percent"][number] == pytest.approx(100e-6 * changes["time_us"] / whole["time_s"])
            energies.append(100e-3 * changes["energy_mj"] / whole["energy_j"])
        assert walked["energy_percent"] == pytest.approx(np.mean(energies))
        assert walked["energy_se_percent"] == pytest.approx(np.std(energies, ddof=1) / len(energies) ** 0.5)
    strict, relaxed = (found.walks[f"kernel-slack{limit}"]["energy_percent"] for limit in (0, 2))
    assert relaxed < -1 and relaxed < strict <= 0 and found.walks["kernel-slack2"]["passed"] > 0


def test_a_profile_is_pooled_from_all_but_the_walk(undisturbed, tmp_path):
    folder, sweep = undisturbed, request.sweep(undisturbed.setup, PAIRS, 3)
    found = search_file.read(str(folder.output))
    assert main([*folder.words()[:-1], str(tmp_path / "profile.parquet")]) == 0
    table = read_profile(tmp_path / "profile.parquet").table.to_pandas()
    asked = request.merged([*sweep, *found.pooled])
    assert len(table) == sum(map(len, asked.values()))
    for row in table.itertuples():
        pair = Pair(*("auto" if np.isnan(mhz) else int(mhz) for mhz in (row.core_mhz, row.mem_mhz)))
        repeats = asked["kernel", row.target][pair]
        times = [summary(folder, row.target, pair, each)["time_us"] for each in repeats]
        assert row.n == len(repeats) and row.time_s == pytest.approx(1e-6 * sum(times) / len(times))
    walked = found.walks["kernel-slack2"]
    chosen = choose(str(tmp_path / "profile.parquet"), slack_percent=2, walked=walked)
    assert {name: list(own.values()) for name, own in chosen["targets"].items()} == walked["pairs"]
    assert chosen["energy_change_percent"] == pytest.approx(walked["energy_percent"])


def test_a_race_asks_for_clocks_between_those_of_the_sweep_of_every_target(undisturbed):
    folder, found = undisturbed, search_file.read(str(undisturbed.output))
    new = {(each.target, Pair(*each[2:4])) for each in found.pooled} - {
        (name, pair) for name in folder.setup.targets["kernel"] for pair in PAIRS
    }
    pairs = {pair for _, pair in new}
    assert pairs and new == {(name, pair) for name in folder.setup.targets["kernel"] for pair in pairs}
    assert all(pair.core_mhz in range(210, 2101, 15) for pair in pairs)


def test_a_sweep_that_is_missing_is_measured_too(folder, finished):
    folder.run()
    assert (folder.records(), folder.output.read_bytes()) == finished


def test_a_second_run_measures_nothing_and_gives_the_same_bytes(folder, finished, measured):
    restored(folder, finished[0])
    folder.run()
    assert not measured and (folder.records(), folder.output.read_bytes()) == finished


@pytest.mark.parametrize("after", [0, 7, 130])
def test_a_search_that_was_stopped_goes_on_and_ends_with_the_same_bytes(folder, finished, measured, monkeypatch, after):
    folder.sweep()
    del measured[:]
    counted = job.measure

    def stopping(*what, **more):
        if len(measured) == after:
            raise KeyboardInterrupt
        counted(*what, **more)

    monkeypatch.setattr(job, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        folder.run()
    assert not folder.output.exists()
    monkeypatch.setattr(job, "measure", counted)
    folder.run()
    assert len(measured) == len(set(measured)), "none of them twice"
    assert (folder.records(), folder.output.read_bytes()) == finished


def test_a_search_that_was_killed_goes_on_and_ends_with_the_same_bytes(folder, finished):
    text = (
        "import os, signal, sys\n"
        "from kernel_dvfs.measurement import job\n"
        "from kernel_dvfs.search import loop\n"
        "measure, left = job.measure, 9\n"
        "def killed(*what):\n"
        "    global left\n"
        "    left -= 1\n"
        "    left or os.kill(os.getpid(), signal.SIGKILL)\n"
        "    measure(*what)\n"
        "job.measure = killed\n"
        f"loop.run({folder.path!r}, {folder.measurements!r}, {OPTIONS!r}, {str(folder.output)!r})\n"
    )
    library = str(Path(loop.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", text], env=os.environ | {"PYTHONPATH": library}, capture_output=True)
    assert done.returncode == -signal.SIGKILL and not folder.output.exists() and len(folder.records()) == 8
    folder.run()
    assert (folder.records(), folder.output.read_bytes()) == finished


def test_a_larger_budget_goes_on_from_the_smaller_one(folder, measured):
    folder.sweep()
    short = folder.run(SHORTER)
    before = folder.records()
    del measured[:]
    long = folder.run(LONGER)
    assert len(short.requests) < len(long.requests) and long.rounds[0].requests == short.rounds[0].requests
    assert before.items() < folder.records().items() and len(measured) == len(folder.records()) - len(before)
    assert not set(long.pooled) & set(long.walked)


def test_refinement_switched_off_and_on_again_measures_nothing(folder, finished, measured):
    restored(folder, finished[0])
    found = folder.run(OFF)
    assert found.requests == [] and len(found.records) == 3 * (len(PAIRS) - 1 + 3)
    folder.run()
    assert not measured and (folder.records(), folder.output.read_bytes()) == finished


def test_records_that_nothing_asks_for_are_ignored_and_stay(folder, finished):
    restored(folder, finished[0])
    stale = Path(folder.measurements, "kernel/forward_gelu/1050-9251/r77.json")
    stale.write_text("of another search")
    folder.run()
    assert stale.read_text() == "of another search" and folder.output.read_bytes() == finished[1]


def other_numbers(folder, name: str) -> bytes:
    """The record of the same point on another day: valid, with other numbers."""
    _, kernel, clocks, file = name.split("/")
    pair, repeat = Pair(*map(int, clocks.split("-"))), int(file[1:-5])
    bench = Bench(folder.setup, Target("kernel", kernel))
    point = bench.point(pair, "another-day", repeat)
    record.write_point(f"{folder.measurements}/{name}", folder.setup, bench, bench.target, "another-day", repeat, point)
    return Path(folder.measurements, name).read_bytes()


SOME = "kernel/forward_gelu/1470-9251/r0.json"


def test_a_changed_record_is_refused_by_the_pool_and_read_by_the_next_search(folder, finished, refused):
    restored(folder, finished[0])
    folder.run()
    assert main(folder.words()) == 0
    assert other_numbers(folder, SOME) != finished[0][SOME]
    assert changed(folder.measurements, search_file.read(str(folder.output)).records) == [SOME]
    assert "r0.json: was changed since the search read it; run snakemake again" in refused(*folder.words())
    folder.run()
    assert folder.output.read_bytes() != finished[1] and main(folder.words()) == 0


def test_a_deleted_record_is_refused_by_the_pool_and_measured_by_the_next_search(folder, finished, measured, refused):
    restored(folder, finished[0])
    folder.run()
    asked = search_file.read(str(folder.output)).walked[-1]
    last = request.path(asked, asked.repeats[-1])
    for name in (SOME, last):
        Path(folder.measurements, name).unlink()
    assert set(changed(folder.measurements, search_file.read(str(folder.output)).records)) == {SOME, last}
    assert "missing; run snakemake again" in refused(*folder.words())
    folder.run()
    assert len(measured) == 2 and (folder.records(), folder.output.read_bytes()) == finished


def test_a_damaged_record_is_named_and_stays(folder, finished):
    restored(folder, finished[0])
    damaged = Path(folder.measurements, SOME)
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(InputError, match=r"r0\.json: truncated.*delete it"):
        folder.run()
    assert len(damaged.read_bytes()) == 100 and not folder.output.exists()


def test_records_of_another_protocol_are_measured_again_and_their_search_is_refused(folder, finished, refused):
    restored(folder, finished[0])
    folder.run()
    other = folder.another(seed=folder.setup.measurement["seed"] + 1)
    # the search of the old protocol, with the setup of the new one
    said = refused(*other.words())
    assert f"its setup is {folder.setup.digest}, expected {other.setup.digest}" in said
    other.run()
    before, after = (set(json.loads(text)["records"].values()) for text in (finished[1], other.output.read_bytes()))
    assert before and after and not before & after, "it rests on nothing that the old protocol measured"


def test_another_protocol_in_an_empty_folder_gives_another_search(folder_of, tmp_path, finished):
    folder = folder_of(tmp_path).another(seed=77)
    folder.run()
    assert not set(folder.records().values()) & set(finished[0].values())
    assert folder.output.read_bytes() != finished[1]


@pytest.fixture
def build(monkeypatch) -> Callable[[str], None]:
    """build("a"): from now on kernels of this build run."""

    def use(library: str) -> None:
        device = Bench.device.fget
        monkeypatch.setattr(Bench, "device", property(lambda own: device(own) | {"library_sha256": library}))

    return use


def test_after_another_build_of_the_kernels_all_is_measured_again(folder, build, measured):
    build("first")
    first = folder.run(kernels="first")
    del measured[:]
    folder.run(kernels="first")
    assert not measured
    build("second")
    second = folder.run(kernels="second")
    assert not set(first.records.values()) & set(second.records.values())
    libraries = [json.loads(content)["device"]["library_sha256"] for content in folder.records().values()]
    assert libraries.count("second") == len(second.records) == len(measured)


def test_records_of_two_builds_are_refused_where_nobody_says_which_runs_now(folder, build):
    build("first")
    folder.sweep()
    build("second")
    with pytest.raises(InputError, match=r"ran kernels of different builds .* delete the records of one of them"):
        folder.run()


def test_a_pool_with_other_clocks_than_the_search_is_refused(folder, finished, refused):
    restored(folder, finished[0])
    folder.run()
    fewer = [word.replace(",1050-9251", "") for word in folder.words()]
    assert "1050-9251/r0.json: the search read it, but it is not pooled" in refused(*fewer)
    folder.run(OFF)
    words = [word.replace("auto-auto,", "auto-auto,555-9251,") for word in folder.words()]
    assert "missing" in refused(*words)


def test_a_real_gpu_changes_clocks_as_seldom_as_can_be(folder, measured):
    """All targets at one pair, then the next; what is measured again after what is swept, auto first."""
    study = loop._Study(folder.path, folder.measurements, OPTIONS, "")
    swept = study.missing(request.sweep(folder.setup, PAIRS, 3))
    stretches = [pair for place, (_, pair, _) in enumerate(swept) if not place or swept[place - 1][1] != pair]
    assert stretches.count(BASELINE) == 3 and len(stretches) == len(PAIRS) - 1 + 3
    again = study.missing([request.Request(*each[:4], (5, 6)) for each in request.sweep(folder.setup, PAIRS, 3)])
    stretches = [pair for place, (_, pair, _) in enumerate(again) if not place or again[place - 1][1] != pair]
    assert sorted(map(label, stretches)) == sorted(map(label, PAIRS)), "each pair once"


def test_copies_that_a_guided_search_left_out_are_measured_when_they_might_be_chosen(setup_of, folder_of, tmp_path):
    kernels = setup_of().targets["kernel"]
    group = kernels["backward_datt_gemm"]["replicate_group"]
    copies = [name for name in kernels if kernels[name]["replicate_group"] == group]
    folder = folder_of(tmp_path, [*copies, "forward_gelu", "forward_fc_gemm"])
    guided = {"threshold_percent": 0.1, "budget_percent": 90, "auto_repeats": 2, "probes": None, "draws": 8}
    found = folder.run(OPTIONS | {"search": "guided", "guided": guided | {"passes": False}})
    first = next(place for place, each in enumerate(found.rounds) if each.stage == "race")
    assert first > 1 and {each.stage for each in found.rounds[:first]} == {"search"}
    assert found.rounds[first].about["estimate"]["finished"]
    known = request.merged([one for each in found.rounds[:first] for one in each.requests])
    asked = found.rounds[first].requests
    assert len(copies) > 1
    pairs = {name: {each[2:4] for each in asked if each.target == name} for name in copies}
    assert len(set(map(frozenset, pairs.values()))) == 1, "all copies at the same pairs"
    later = [each for each in asked if each.target == copies[1] and each[2:4] != (AUTO, AUTO)]
    assert later and all(Pair(*each[2:4]) not in known["kernel", copies[1]] for each in later)
    # at the first copy's pairs, and between them
    swept = [each.repeats[0] for each in later if Pair(*each[2:4]) in known["kernel", copies[0]]]
    assert swept and set(swept) == {1}, "a sweep's own repeat may be left out, so what is chosen counts on from it"


def test_a_line_on_stderr_says_what_each_block_does_and_what_is_left_to_gain(folder, capsys):
    folder.sweep()
    what = folder.path, folder.measurements, OPTIONS, str(folder.output)
    found = loop.run(*what)
    lines = capsys.readouterr().err.splitlines()
    hope = r"; at most [\d.e-]+ points of energy are left to gain"
    races = sum(each.stage == "race" for each in found.rounds)
    for number, line in enumerate(lines[:races]):
        assert re.fullmatch(rf"race {number + 1}: \d+ points to measure{hope}", line)
    assert re.fullmatch(rf"walk 1: \d+ points to measure{hope}", lines[races])
    blocks = len(found.rounds) - races - 1
    assert re.fullmatch(rf"walk: ended after {blocks} blocks{hope}", lines[-3])
    for limit, line in zip((0, 2), lines[-2:]):
        moved = any(pair != [AUTO, AUTO] for pair in found.walks[f"kernel-slack{limit}"]["pairs"].values())
        shown = "energy -" if moved else "no schedule keeps the limit for sure, all stay at auto"
        worth = found.walks[f"kernel-slack{limit}"]["another_minute"]
        assert line.startswith(f"walk: kernel-slack{limit}: {shown}")
        assert line.endswith(f"over {blocks} blocks; another minute: at most {worth:.2g} points of energy")
    loop.run(*what)
    assert " points, all measured before; " in capsys.readouterr().err.splitlines()[0]


def test_the_command_searches_and_refuses_options_that_say_too_little(folder, refused, capsys):
    words = ["measure", "search", "--gpu", folder.path, "--records", folder.measurements, "-o", str(folder.output)]
    assert main([*words, "--options", json.dumps(OPTIONS)]) == 0 and folder.output.exists()
    capsys.readouterr()
    few = {name: value for name, value in OPTIONS.items() if name != "refine"}
    assert "search: options: refine is missing; give search, pairs," in refused(*words, "--options", json.dumps(few))
    assert "not JSON" in refused(*words, "--options", "{")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"refine": {}}, "refine.windows is missing"),
        ({"refine": {"windows": None, "hours": None, "over_percent": 10}}, "refine needs windows or hours"),
        ({"refine": {"windows": 5, "hours": 1, "over_percent": 10}}, "refine needs windows or hours"),
        (
            {"refine": OPTIONS["refine"] | {"over_percent": 0}},
            "over_percent is 0, expected a number from 0.001 to 50",
        ),
        ({"limits_percent": []}, "limits_percent is [], expected a list of at least one"),
        ({"limits_percent": [0, -1]}, "limits_percent[1] is -1, expected a number >= 0"),
        ({"search": "random"}, "search is 'random', expected one of exhaustive, guided"),
        ({"search": "guided"}, "guided is missing"),
        ({"search": "guided", "guided": {"draws": 8}}, "guided.threshold_percent is missing"),
        ({"auto_repeats": "4"}, "auto_repeats is '4'"),
    ],
)
def test_an_option_that_no_search_can_use_is_told_by_its_name(folder, change, said):
    with pytest.raises(InputError, match=rf"^search: options: .*{re.escape(said)}"):
        folder.run(OPTIONS | change)
    assert not folder.records()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": "kernel-dvfs/search/2", "rounds": [["ker', "truncated or not JSON"),
        ('{"schema": "kernel-dvfs/round/1"}', "not a kernel-dvfs/search/2 file"),
    ],
)
def test_a_file_that_is_no_search_is_named(tmp_path, text, said):
    path = tmp_path / "search.json"
    with pytest.raises(InputError, match=r"search\.json: missing; run snakemake again"):
        search_file.read(str(path))
    path.write_text(text)
    with pytest.raises(InputError, match=rf"search\.json: {said}.*; run snakemake again, which searches again"):
        search_file.read(str(path))


def test_a_search_that_was_edited_is_none_any_more(tmp_path, finished):
    path = tmp_path / "search.json"
    content = json.loads(finished[1])
    for change in ({"token": "other"}, {"options": content["options"] | {"ties": "untied"}}, {"sha256": "0" * 64}):
        path.write_text(json.dumps(content | change))
        with pytest.raises(InputError, match=r"search\.json: was changed.*which searches again"):
            search_file.read(str(path))
    path.write_text(json.dumps({name: value for name, value in content.items() if name != "sha256"}))
    with pytest.raises(InputError, match=r"sha256 is missing"):
        search_file.read(str(path))


def test_a_search_with_a_number_that_json_cannot_hold_is_not_written(tmp_path, finished):
    path = tmp_path / "search.json"
    path.write_bytes(finished[1])
    found = search_file.read(str(path))
    search_file.write(str(path), found)
    assert path.read_bytes() == finished[1]
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            search_file.write(str(path), replace(found, options=found.options | {"gain": number}))
    assert path.read_bytes() == finished[1]
