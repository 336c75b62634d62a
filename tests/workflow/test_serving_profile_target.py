"""The instance's part of the target `serving`: made once, and made again only when what it depends on changes."""

import pytest
import yaml
from reduced_study import ROOT, clone, planned, snakemake

from kernel_dvfs.serving.study_plan import plan_serving

pytestmark = pytest.mark.workflow

SMALL = "serving={degrees: [8], core_mhz: [1200, 1980], kernel_level: false, requests: 40}"


def profile(text=SMALL) -> str:
    """Path of a configuration's profile, whose folder's name says what was asked."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    config["serving"] |= yaml.safe_load(text.partition("=")[2])
    return plan_serving(config).profile


PROFILE = profile()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = clone(tmp_path_factory.mktemp("serving") / "clone")
    snakemake(directory, PROFILE, config=[SMALL])
    return directory


def test_a_profile_is_made_once(finished):
    assert (finished / PROFILE).read_text().count(",simulated\n") > 50
    assert planned(finished, PROFILE, config=[SMALL]) == {}


def test_other_clocks_make_another_profile_and_nothing_else(finished):
    other = SMALL.replace("1200, 1980", "1200, 1600, 1980")
    assert profile(other) != PROFILE and planned(finished, profile(other), config=[other]) == {"serving_profile": 1}


def test_what_cannot_be_is_refused_before_anything_runs(finished):
    for wrong, said in (
        ("core_mhz: [2500]", "core_mhz = 2500 is not possible; allowed: 345 to 1980"),
        ("degrees: [3]", "tp 3 does not split llama2-70b"),
        ("degrees: [2, 4]", "degrees = [2, 4] are not possible; allowed: 2, 4, 8, among them 8"),
        ("profile: nowhere.csv", "profile = 'nowhere.csv': no such file"),
        ("chunk_tokens: 100", "chunk_tokens = 100 is not possible; allowed: above max_batch"),
    ):
        run = snakemake(finished, PROFILE, check=False, config=[f"serving={{{wrong}}}"])
        (line,) = (line for line in run.stdout.splitlines() if line.startswith("error:"))
        assert run.returncode != 0 and said in line
