"""What is measured beyond the sweep, in a clone: it ends, measures nothing twice, and cannot outlive its records."""

import json
import shutil

import pytest
from reduced_study import FOLDER, RECORDS, clone, planned, snakemake

pytestmark = pytest.mark.workflow

ON = "refine={rounds: 2, gain: 0, checks: 2, margin_z: 1.645}"
QUICK = ("data_parallel_batches=[]", "tensor_parallel_degrees=[1]", "tensor_energy_pj=[2.2]", "headline_map=null")
# what rests on a search; figures and pages do as tables do (test_partial_reruns.py)
MADE = ("choose", str(FOLDER / "tables/headline.csv"))
REMEASURED = FOLDER / "measurements/kernel/forward_gelu/auto-auto/r1.json"


def times(directory, pattern="measurements/*/*/*/r*.json") -> dict:
    return {path.relative_to(directory): path.stat().st_mtime_ns for path in (directory / FOLDER).glob(pattern)}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A study without refinement."""
    directory = clone(tmp_path_factory.mktemp("search") / "clone")
    snakemake(directory, "profile", config=QUICK)
    return directory


@pytest.fixture(scope="module")
def finished_search(swept):
    """The same with refinement: the sweep's records must have stayed. Not to be changed: use `refined`."""
    before = times(swept)
    snakemake(swept, *MADE, config=(*QUICK, ON))
    after = times(swept)
    assert len(before) == RECORDS and before.items() <= after.items()
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
    asked = [sum(len(request[-1]) for request in each["requests"]) for each in found["rounds"]]
    # two rounds, then a check of two measurements
    assert asked[0] > 48 and asked[1] > 48 and asked[2] > 2 * 48 and asked[3:] == [0]
    assert len(times(finished_search)) == RECORDS + sum(asked) == len(found["records"])
    schedule = json.loads((finished_search / FOLDER / "schedules/kernel-global-waste-slack0.json").read_text())
    assert schedule["margin"]["z"] == 1.645 and schedule["margin"]["checked"]
    headline = (finished_search / FOLDER / "tables/headline.csv").read_text().splitlines()
    assert len(headline) == 3 and "fresh_time_change_percent" in headline[0]


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
    assert again == {str(REMEASURED.relative_to(FOLDER)), "search.json", "profile.parquet"}, (
        "the same bytes run nothing"
    )
    assert planned(refined, *MADE, config=(*QUICK, ON)) == {}
    # nor do they in the whole study, pages and all: what is to be done there is what nobody has made yet
    assert not_made and planned(refined, config=(*QUICK, ON)) == not_made
    assert not {"measure", "search", "aggregate", "choose_schedule", "tables/headline"} & set(not_made)


def test_a_record_that_the_search_measured_and_that_was_changed_makes_it_choose_again(refined):
    before = search_of(refined)
    record = json.loads((refined / REMEASURED).read_text())
    for window in record["windows"]:
        window["energy_mj"] *= 1.1
    for field in ("energy_mj", "energy_sd_mj", "power_mw"):
        record["summary"][field] *= 1.1
    del record["sha256"]  # it stands for one that was measured, not edited
    (refined / REMEASURED).write_text(json.dumps(record) + "\n")
    snakemake(refined, *MADE, config=(*QUICK, ON))
    after = search_of(refined)
    name = str(REMEASURED.relative_to(FOLDER / "measurements"))
    assert before["records"][name] != after["records"][name]
    assert planned(refined, *MADE, config=(*QUICK, ON)) == {}


def test_another_protocol_leaves_no_search_that_rests_on_the_old_one(refined):
    before = search_of(refined)
    jobs = planned(refined, "choose", config=(*QUICK, ON, "window_s=4"))
    assert jobs["measure"] == RECORDS and jobs["search"] == 1
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


def test_a_longer_refinement_goes_on_from_the_shorter_one(refined):
    before = times(refined)
    snakemake(refined, "profile", config=(*QUICK, ON.replace("rounds: 2", "rounds: 3")))
    after = times(refined)
    assert before.items() <= after.items() and len(after) > len(before)
