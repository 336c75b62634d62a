"""Each study that goes with a study is one job: a command that is there, with what the configuration asks for."""

import argparse
import json
import shlex

import pytest

from kernel_dvfs.cli.main import group
from kernel_dvfs.measurement.latency_file import content
from kernel_dvfs.plan.study import plan
from kernel_dvfs.studies.plan import studies

QUICK = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}


@pytest.fixture
def jobs(config, tmp_path):
    """jobs(**changed): {name: StudyJob} of a configuration."""
    return lambda **changed: {
        each.name: each for each in studies(plan(config(**(QUICK | changed)), str(tmp_path / "results")))
    }


def test_a_simulated_gpu_has_all_three_and_a_table_none(jobs, tmp_path):
    assert list(jobs()) == ["selection_bias", "guided_study", "switching_study"]
    table = tmp_path / "t.csv"
    table.write_text("kernel,core_mhz,mem_mhz,time_s,energy_j\na,,,1,1\n")
    assert jobs(gpu={"path": str(table)}) == {}


def test_each_job_is_a_command_that_takes_its_words(jobs):
    for job in jobs().values():
        assert job.words[0] == "study" and shlex.split(shlex.join(job.words)) == job.words
        parser = argparse.ArgumentParser()
        group("study")[job.words[1]].add_arguments(parser)
        parser.parse_args(job.words[2:])


def test_the_files_are_those_that_the_commands_write(jobs):
    names = {path.partition("/beyond/")[2] for job in jobs().values() for path in job.outputs + job.reported}
    assert names == {
        "selection_bias_studies.csv",
        "tables/selection_bias.csv",
        "tables/selection_bias.md",
        "guided_search.csv",
        "guided_search.md",
        "tables/switching.csv",
        "tables/switching.md",
        "tables/switching_known.csv",
        "tables/switching_known.md",
        "figures/switching.pdf",
        "figures/switching.png",
    }


def test_options_come_from_the_configuration(jobs):
    def word(job, flag):
        return job.words[job.words.index(flag) + 1]

    switching_study = {"latency_s": [0, 0.001], "jitter": [0.1]}
    clock_changes = {"measured": None, "latency_s": [0.01], "core_stall_s": 0, "mem_stall_s": 0.002, "stall_w": 80}
    clock_changes["swept_stall_s"] = []
    own = jobs(
        refine={"rounds": 0, "gain": 0.2, "checks": 3, "margin_z": 1.5},
        guided_study={"seeds": 3, "budget_percent": 8, "slacks_percent": [0, 2], "bayesian": True},
        switching_study=switching_study,
        clock_changes=clock_changes,
        slack_percent=1.5,
    )
    bias, guided, switching = (own[name] for name in ("selection_bias", "guided_study", "switching_study"))
    assert word(bias, "--rounds") == "10", "off, the study still shows what rounds would be worth"
    assert [word(bias, f"--{each}") for each in ("gain", "checks", "margin-z", "fresh")] == ["0.2", "3", "1.5", "10"]
    assert (word(bias, "--seeds"), word(bias, "--first-seed")) == ("200", "0")
    assert (
        guided.words[guided.words.index("--slack") :][:3] == ["--slack", "0", "2"] and "--without" not in guided.words
    )
    assert word(switching, "--slack") == "1.5"
    assert {"--core-stall=0", "--mem-stall=0.002", "--stall-w=80"} < set(switching.words)
    assert word(jobs()["guided_study"], "--without") == "bayesian"
    assert not any(each.startswith("--stall-w") for each in jobs()["switching_study"].words)


def test_a_stall_that_the_latency_file_does_not_tell_is_the_configured_one(jobs, tmp_path):
    def words(*domains):
        trial = {"from_mhz": 1, "to_mhz": 2, "verdict": "ok", "call_s": 0.001, "first_effect_s": 0.002}
        trial |= {"settled_s": 0.004, "nvml_s": 0.004, "stall_s": 0.0003}
        gpu = {"name": "G", "uuid": "GPU-0123456789ab", "driver": "580.1"}
        about = {"gpu": gpu, "started_utc": "2026-11-22T10:00:00Z"}
        path = tmp_path / "latency.json"
        path.write_text(json.dumps(content(about, [trial | {"domain": domain} for domain in domains])))
        changes = {"measured": str(path), "latency_s": [0.01], "core_stall_s": 0.001, "mem_stall_s": 0.002}
        found = jobs(clock_changes=changes | {"stall_w": None, "swept_stall_s": []})["switching_study"].words
        assert f"--measured={path}" in found
        return [word for word in found if "-stall=" in word]

    assert words("core", "mem") == []
    assert words("core") == ["--mem-stall=0.002"]
    assert words("mem") == ["--core-stall=0.001"]
