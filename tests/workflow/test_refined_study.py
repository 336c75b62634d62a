"""What is measured beyond the sweep, in a clone: it ends, measures nothing twice, and cannot outlive its records."""

import csv
import json
import shutil

import pytest
from reduced_study import FOLDER, RECORDS, clone, planned, snakemake

from kernel_dvfs.profile.store import read_profile

pytestmark = pytest.mark.workflow

ON = "refine={windows: 1000, hours: null, over_percent: 10}"
QUICK = ("data_parallel_batches=[]", "tensor_parallel_degrees=[1]", "tensor_energy_pj=[2.2]", "headline_map=null")
# auto twice, so that a race knows what a measurement scatters
QUICK += ("auto_repeats=2", "limits_percent=[1]")
SWEPT = RECORDS + 48
# what rests on a search; figures and pages do as tables do (test_partial_reruns.py)
MADE = ("choose", str(FOLDER / "tables/headline.csv"))
REMEASURED = FOLDER / "measurements/kernel/forward_gelu/auto-auto/r2.json"


def times(directory, pattern="measurements/*/*/*/r*.json") -> dict:
    return {path.relative_to(directory): path.stat().st_mtime_ns for path in (directory / FOLDER).glob(pattern)}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A study of one sweep."""
    directory = clone(tmp_path_factory.mktemp("search") / "clone")
    snakemake(directory, "profile", config=QUICK)
    return directory


@pytest.fixture(scope="module")
def finished_search(swept):
    """The same with race and walk: the sweep's records must have stayed. Not to be changed: use `refined`."""
    before = times(swept)
    snakemake(swept, *MADE, config=(*QUICK, ON))
    after = times(swept)
    assert len(before) == SWEPT and before.items() <= after.items()
    return swept


@pytest.fixture
def refined(finished_search, tmp_path):
    directory = tmp_path / "clone"
    shutil.copytree(finished_search, directory, symlinks=True)
    return directory


def search_of(directory) -> dict:
    return json.loads((directory / FOLDER / "search.json").read_text())


def test_a_search_ends_when_nothing_is_asked_for_and_its_records_are_there(finished_search):
    found = search_of(finished_search)
    asked = {stage: [] for stage in ("race", "walk")}
    for each in found["rounds"]:
        asked[each["stage"]].append(sum(len(request[-1]) for request in each["requests"]))
    assert all(asked["race"]) and all(asked["walk"][:3]) and asked["walk"][3:] == [0]
    measured = sum(map(sum, asked.values()))
    assert len(times(finished_search)) == SWEPT + measured == len(found["records"])
    # the race begins no block after half of the budget; a walk of three blocks is made whatever is left
    assert sum(asked["race"][:-1]) < 500


def test_the_schedules_of_each_limit_are_those_that_the_walk_has_shown(finished_search):
    walks = search_of(finished_search)["walks"]
    assert list(walks) == ["kernel-slack0", "kernel-slack1", "pass-slack0", "pass-slack1"]
    for name, walked in walks.items():
        level, limit = name.split("-slack")
        path = finished_search / FOLDER / f"schedules/{level}-global-waste-slack{limit}.json"
        schedule = json.loads(path.read_text())
        chosen = {name: [pair["core_mhz"], pair["mem_mhz"]] for name, pair in schedule["targets"].items()}
        assert chosen == walked["pairs"] and schedule["walk"]["passed"] == walked["passed"]
        assert schedule["walk"]["time_bound_percent"] <= float(limit) + 1e-9
        assert schedule["energy_change_percent"] == pytest.approx(walked["energy_percent"], abs=1e-9)
    assert walks["kernel-slack1"]["passed"] > walks["kernel-slack0"]["passed"] > 0, "so that it says something"
    own = ("kernel-global-edp", "kernel-single-waste-slack0")
    published = ("published/kernel-global-waste-slack0", "published/kernel-global-waste-slack1")
    for other in (*own, *published):
        assert json.loads((finished_search / FOLDER / f"schedules/{other}.json").read_text())["walk"] is None
    with open(finished_search / FOLDER / "tables/headline.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["schedule"] for row in rows] == [
        "kernel-global-waste-slack0",
        "pass-global-waste-slack0",
        "kernel-global-waste-slack1",
    ]
    assert {row["status"] for row in rows} == {"shown by a walk"} and rows[0]["fresh_time_change_percent"]
    assert {row["verdict"] for row in rows} <= {"contradicts", "does not contradict"}
    assert [float(row["time_bound_percent"]) <= float(row["slack_percent"]) + 1e-9 for row in rows] == [True] * 3


def test_a_profile_is_pooled_from_sweep_and_race_alone(finished_search):
    raced = {}
    for each in search_of(finished_search)["rounds"]:
        if each["stage"] == "race":
            for kind, target, core, mem, repeats in each["requests"]:
                raced[kind, target, core, mem] = raced.get((kind, target, core, mem), 0) + len(repeats)
    for row in read_profile(finished_search / FOLDER / "profile.parquet").table.to_pylist():
        pair = ("auto", "auto") if row["is_baseline"] else (row["core_mhz"], row["mem_mhz"])
        own = raced.get((row["study"], row["target"], *pair), 0)
        swept = 2 if row["is_baseline"] else row["core_mhz"] in (1470, 2100)
        assert row["n"] == swept + own, row


def test_as_published_is_the_first_measurement_of_each_point_of_the_sweep(finished_search):
    rows = read_profile(finished_search / FOLDER / "published.parquet").table.to_pylist()
    assert len(rows) == RECORDS, "no point between the grid's clocks"
    for row in rows:
        pair = "auto-auto" if row["is_baseline"] else f"{row['core_mhz']:.0f}-{row['mem_mhz']:.0f}"
        path = f"measurements/{row['study']}/{row['target']}/{pair}/r0.json"
        summary = json.loads((finished_search / FOLDER / path).read_text())["summary"]
        assert (row["n"], row["time_se_s"]) == (1, None)
        assert row["time_s"] == pytest.approx(1e-6 * summary["time_us"], rel=1e-12)
        assert row["energy_j"] == pytest.approx(1e-3 * summary["energy_mj"], rel=1e-12)


def test_a_second_run_does_nothing(finished_search):
    assert planned(finished_search, *MADE, config=(*QUICK, ON)) == {}


def test_a_record_that_the_search_measured_and_that_is_gone_is_measured_again_and_nothing_rests_on_less(refined):
    whole, before = (refined / REMEASURED).read_bytes(), times(refined, "**/*")
    not_made = planned(refined, config=(*QUICK, ON))
    (refined / REMEASURED).unlink()
    assert planned(refined, *MADE, config=(*QUICK, ON))["search"] == 1
    snakemake(refined, *MADE, config=(*QUICK, ON))
    assert (refined / REMEASURED).read_bytes() == whole
    after = times(refined, "**/*")
    again = {str(path.relative_to(FOLDER)) for path in after if path.suffix and after[path] != before[path]}
    assert again - {"search.json.ended"} == {
        *(str(REMEASURED.relative_to(FOLDER)), "search.json", "profile.parquet", "published.parquet")
    }, "the same bytes run nothing"
    assert planned(refined, *MADE, config=(*QUICK, ON)) == {}
    # nor do they in the whole study, pages and all: what is to be done there is what nobody has made yet
    assert not_made and planned(refined, config=(*QUICK, ON)) == not_made
    assert not {"measure", "search", "aggregate", "choose_schedule", "tables/headline"} & set(not_made)


def rewritten(path, factor):
    """A record that stands for one that was measured, not edited, with another energy."""
    record = json.loads(path.read_text())
    for each in (*record["windows"], record["summary"]):
        each["energy_mj"] *= factor
    record["summary"]["power_mw"] *= factor
    del record["sha256"]
    path.write_text(json.dumps(record) + "\n")


@pytest.mark.parametrize("stage", [pytest.param("race", marks=pytest.mark.nightly), "walk"])
def test_a_record_that_the_search_measured_and_that_was_changed_makes_it_choose_again(refined, stage):
    """One of the race changes the profile; one of the walk changes nothing but what is claimed."""
    before, name = search_of(refined), REMEASURED
    if stage == "walk":
        pairs = before["walks"]["kernel-slack0"]["pairs"]
        first = next(each["requests"] for each in before["rounds"] if each["stage"] == "walk")
        target, pair, repeats = next(
            (target, pair, repeats)
            for kind, target, *pair, repeats in first
            if kind == "kernel" and "auto" not in pair and pairs[target] == pair
        )
        name = FOLDER / f"measurements/kernel/{target}/{pair[0]}-{pair[1]}/r{repeats[0]}.json"
    profile = (refined / FOLDER / "profile.parquet").read_bytes()
    rewritten(refined / name, 1.1)
    snakemake(refined, *MADE, config=(*QUICK, ON))
    after, path = search_of(refined), str(name.relative_to(FOLDER / "measurements"))
    assert before["records"][path] != after["records"][path]
    assert (profile == (refined / FOLDER / "profile.parquet").read_bytes()) == (stage == "walk")
    strict = json.loads((refined / FOLDER / "schedules/kernel-global-waste-slack0.json").read_text())
    energy = after["walks"]["kernel-slack0"]["energy_percent"]
    assert strict["energy_change_percent"] == pytest.approx(energy, abs=1e-9)
    if stage == "walk":
        assert energy > before["walks"]["kernel-slack0"]["energy_percent"]
    assert planned(refined, *MADE, config=(*QUICK, ON)) == {}


@pytest.mark.parametrize(
    "damage", ["edited", *(pytest.param(damage, marks=pytest.mark.nightly) for damage in ("truncated", "emptied"))]
)
def test_a_search_whose_file_was_changed_is_made_again_by_the_next_run(refined, damage):
    before = search_of(refined)
    path = refined / FOLDER / "search.json"
    whole = path.read_text()
    path.write_text({"edited": whole.replace('"walk"', '"race"', 1), "truncated": whole[:-9], "emptied": ""}[damage])
    assert planned(refined, *MADE, config=(*QUICK, ON))["search"] == 1
    snakemake(refined, *MADE, config=(*QUICK, ON))
    after = search_of(refined)
    assert after["records"] == before["records"] and after["walks"] == before["walks"]
    assert planned(refined, *MADE, config=(*QUICK, ON)) == {}


@pytest.mark.nightly
def test_another_protocol_leaves_no_search_that_rests_on_the_old_one(refined):
    before = search_of(refined)
    jobs = planned(refined, "choose", config=(*QUICK, ON, "window_s=4"))
    assert jobs["measure"] == SWEPT and jobs["search"] == 1
    snakemake(refined, "profile", config=(*QUICK, ON, "window_s=4"))
    after = search_of(refined)
    assert after["setup"] != before["setup"] and not set(after["records"].values()) & set(before["records"].values())


def test_off_and_on_again_measures_nothing(refined):
    off = planned(refined, "choose", config=QUICK)
    assert off["aggregate"] == 1 and not {"measure", "search"} & set(off)
    before = times(refined)
    snakemake(refined, "profile", config=QUICK)
    snakemake(refined, "profile", config=(*QUICK, ON))
    assert times(refined) == before


@pytest.mark.nightly
def test_a_larger_budget_goes_on_from_the_smaller_one(refined):
    before = times(refined)
    snakemake(refined, "profile", config=(*QUICK, ON.replace("1000", "1600")))
    after = times(refined)
    assert before.items() <= after.items() and len(after) > len(before)
