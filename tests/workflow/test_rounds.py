"""Rounds of measuring again, in a clone: they end, nothing is measured twice, switching them on and off reuses all."""

import json

import pytest
from reduced_study import FOLDER, RECORDS, clone, planned, snakemake

pytestmark = pytest.mark.workflow

ON = "refine={rounds: 2, repeats: 1, margin_z: 1.645}"
QUICK = ("data_parallel_batches=[]", "tensor_parallel_degrees=[1]", "tensor_energy_pj=[2.2]")


def records(directory):
    return {path: path.stat().st_mtime_ns for path in (directory / FOLDER / "measurements").glob("*/*/*/r*.json")}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A study without rounds."""
    directory = clone(tmp_path_factory.mktemp("rounds") / "clone")
    snakemake(directory, "choose", config=QUICK)
    return directory


@pytest.fixture(scope="module")
def refined(swept):
    """The same with rounds: the sweep's records must have stayed."""
    before = records(swept)
    snakemake(swept, "all", config=(*QUICK, ON))
    after = records(swept)
    assert len(before) == RECORDS and before.items() <= after.items()
    return swept


def test_rounds_end_with_an_empty_plan_and_their_records_are_there(refined):
    plans = [json.loads((refined / FOLDER / f"rounds/{number}.json").read_text()) for number in (1, 2, 3)]
    asked = [len(plan["requests"]) for plan in plans]
    assert asked[0] > 48 and asked[1] > 48 and asked[2] == 0
    assert len(records(refined)) == RECORDS + sum(asked)
    schedule = json.loads((refined / FOLDER / "schedules/kernel-global-waste-slack0.json").read_text())
    assert schedule["margin"]["z"] == 1.645
    headline = (refined / FOLDER / "tables/headline.csv").read_text().splitlines()
    assert len(headline) == 3 and "fresh_time_change_percent" in headline[0]


def test_a_second_run_does_nothing(refined):
    assert planned(refined, config=(*QUICK, ON)) == {}


def test_one_deleted_record_of_a_round_is_measured_again_alone(refined):
    path = refined / FOLDER / "measurements/kernel/forward_gelu/auto-auto/r1.json"
    whole = path.read_bytes()
    path.unlink()
    jobs = planned(refined, config=(*QUICK, ON))
    assert jobs["measure"] == 1 and jobs["pool_records"] == 1 and "plan_round" not in jobs
    snakemake(refined, "measurements", config=(*QUICK, ON))
    assert path.read_bytes() == whole


def test_off_and_on_again_measures_nothing(refined):
    off = planned(refined, "choose", config=QUICK)
    assert off["pool_records"] == 1 and not {"measure", "plan_round"} & set(off)
    before = records(refined)
    snakemake(refined, "choose", config=QUICK)
    snakemake(refined, "choose", config=(*QUICK, ON))
    assert records(refined) == before


def test_a_longer_refinement_goes_on_from_the_shorter_one(refined):
    before = records(refined)
    snakemake(refined, "profile", config=(*QUICK, ON.replace("rounds: 2", "rounds: 3")))
    after = records(refined)
    assert before.items() <= after.items() and len(after) > len(before)
