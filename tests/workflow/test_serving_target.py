"""The target `serving`: a profile and a replay of a given trace, each made once, and again only when what it depends on
changes; what cannot be is refused in front of the user."""

import csv
import os
from contextlib import chdir

import pytest
import yaml
from reduced_study import clone, planned, snakemake

from kernel_dvfs_serving.study_plan import ServingPlan, plan_serving
from kernel_dvfs_serving.system import FIXED, HINDSIGHT, SYSTEMS

pytestmark = pytest.mark.workflow

SMALL = "serving={degrees: [8], core_mhz: [1200, 1980], requests: 40, trace: mine.csv, servers: 2, pools: 2}"
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{second},{200 + second},50\n" for second in range(60))


def plan(directory, text=SMALL) -> ServingPlan:
    """The study in the clone, whose folders' names say what was asked."""
    config = yaml.safe_load((directory / "config.yaml").read_text())
    config["serving"] |= yaml.safe_load(text.partition("=")[2])
    with chdir(directory):
        return plan_serving(config)


def savings(directory, text=SMALL) -> str:
    """Path of the table of savings."""
    return f"{plan(directory, text).replay}/tables/savings.csv"


def refused(directory, config, dry=False) -> str:
    """The one line of a run that ends in front of the user."""
    run = snakemake(directory, "serving", check=False, dry=dry, config=[config])
    (line,) = {line for line in run.stdout.splitlines() if line.startswith("error:") and ": rule " not in line}
    assert run.returncode != 0
    return line


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = clone(tmp_path_factory.mktemp("serving") / "clone")
    (directory / "mine.csv").write_text(TRACE)
    snakemake(directory, savings(directory), config=[SMALL])
    return directory


def test_a_profile_is_made_once(finished):
    profile = plan(finished).profile
    assert (finished / profile).read_text().count(",simulated,") > 50
    assert planned(finished, profile, config=[SMALL]) == {}


def test_another_trace_is_replayed_or_refused_where_its_date_is_the_old_one(finished):
    path = finished / "mine.csv"
    about = path.stat()
    path.write_text(TRACE.replace("0,200,50", "0,210,50", 1))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    said = refused(finished, SMALL, dry=True)
    assert "was made of another trace than mine.csv is now; delete it and run snakemake" in said
    os.utime(path)
    assert planned(finished, savings(finished), config=[SMALL])["serving_study"] == 1
    path.write_text(TRACE)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert planned(finished, savings(finished), config=[SMALL]) == {}


def test_other_clocks_make_another_profile_and_nothing_else(finished):
    other = SMALL.replace("1200, 1980", "1200, 1600, 1980")
    profile = plan(finished, other).profile
    assert profile != plan(finished).profile and planned(finished, profile, config=[other]) == {"serving_profile": 1}


def test_a_trace_is_replayed_once(finished):
    text = (finished / savings(finished)).read_text()
    rows = list(csv.DictReader(text.splitlines()))
    expected = [*SYSTEMS, HINDSIGHT, *FIXED]
    assert sorted(row["system"] for row in rows) == sorted(expected)
    assert all("simulated" in line and "mine.csv" in line for line in text.splitlines()[1:])
    assert planned(finished, savings(finished), config=[SMALL]) == {}


def test_another_setting_is_another_study_on_the_same_profile(finished):
    other = SMALL.replace("pools: 2", "pools: 1, margin: 1.3")
    jobs = planned(finished, savings(finished, other), config=[other])
    assert jobs == {"serving_study": 1, "serving_experiment": 1, "tables/savings": 1}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("core_mhz: [2500]", "core_mhz = 2500 is not possible; allowed: 345 to 1980"),
        ("degrees: [3]", "tp 3 does not split llama2-70b"),
        ("degrees: [2, 4]", "degrees = [2, 4] are not possible; allowed: 2, 4, 8, among them 8"),
        ("profile: nowhere.csv", "profile = 'nowhere.csv': no such file"),
        ("chunk_tokens: 100", "chunk_tokens = 100 is not possible; allowed: above max_batch"),
        ("chunk_tokens: 16385", "chunk_tokens = 16385 is not possible; allowed: above max_batch (256), up to 16384"),
        ("trace: nowhere.csv", "trace = 'nowhere.csv': no such file"),
        ("servers: 1, pools: 2", "at least one for each of the 2 pools"),
        ("servers: 4, spare: 4", "spare = 4 is not possible; allowed: fewer than the servers (4)"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(finished, wrong, said):
    assert said in refused(finished, f"serving={{{wrong}}}", dry=True)


def test_a_bad_line_of_a_trace_is_named_in_front_of_the_user(tmp_path):
    directory = clone(tmp_path / "clone")
    (directory / "mine.csv").write_text(TRACE.replace("30,230,50", "30,230,-3"))
    assert "mine.csv, line 32, column GeneratedTokens: '-3'" in refused(directory, SMALL)
