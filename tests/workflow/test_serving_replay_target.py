"""The replay's part of the target `serving`: a given trace, made once, refused where it is bad."""

from contextlib import chdir

import pytest
import yaml
from reduced_study import clone, planned, snakemake

from kernel_dvfs.serving.study_plan import plan_serving

pytestmark = pytest.mark.workflow

SMALL = (
    "serving={degrees: [8], core_mhz: [1200, 1980], kernel_level: false, requests: 40, trace: mine.csv, servers: 2, "
    "pools: 2, loads_tps: []}"
)
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{second},{200 + second},50\n" for second in range(60))


def table(directory, text=SMALL) -> str:
    """Path of the table of savings of a study in the clone, whose folder's name says what was asked."""
    config = yaml.safe_load((directory / "config.yaml").read_text())
    config["serving"] |= yaml.safe_load(text.partition("=")[2])
    with chdir(directory):
        return plan_serving(config).table_files("savings")[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = clone(tmp_path_factory.mktemp("replay") / "clone")
    (directory / "mine.csv").write_text(TRACE)
    snakemake(directory, table(directory), config=[SMALL])
    return directory


def test_a_trace_is_replayed_once(finished):
    rows = (finished / table(finished)).read_text().splitlines()
    assert len(rows) == 1 + 10 and all("simulated" in row and "mine.csv" in row for row in rows[1:])
    assert planned(finished, table(finished), config=[SMALL]) == {}


def test_another_setting_is_another_study_on_the_same_profile(finished):
    other = SMALL.replace("pools: 2", "pools: 1, margin: 1.3")
    jobs = planned(finished, table(finished, other), config=[other])
    assert jobs == {"serving_study": 1, "serving_experiment": 1, "serving_table_savings": 1}


def test_a_bad_trace_is_one_line_in_front_of_the_user(tmp_path):
    directory = clone(tmp_path / "clone")
    run = snakemake(directory, "serving", check=False, config=[SMALL])
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("error:"))
    assert run.returncode != 0 and "trace = 'mine.csv': no such file" in line
    (directory / "mine.csv").write_text(TRACE.replace("30,230,50", "30,230,0"))
    run = snakemake(directory, "serving", check=False, config=[SMALL])
    line = next(line for line in run.stdout.splitlines() if line.startswith("error:"))
    assert run.returncode != 0 and "mine.csv: line 32: GeneratedTokens is '0'" in line
    run = snakemake(directory, "serving", check=False, config=[SMALL.replace("servers: 2", "servers: 1")])
    assert "at least one for each of the 2 pools" in run.stdout and run.returncode != 0
