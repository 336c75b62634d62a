"""The benchmark that takes steps through the workflow asks for studies that the workflow takes, and sets no clock."""

import csv
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.benchmarks import own_step_workflow
from kernel_dvfs.plan.config import check, load
from kernel_dvfs.workload.step import read
from kernel_dvfs_clocks.files import write_json

ROOT = Path(__file__).resolve().parents[2]


def test_every_step_is_one_of_the_users_file_and_its_study_one_that_may_be_configured():
    text = (ROOT / own_step_workflow.SOURCE).read_text(encoding="utf-8")
    for name in own_step_workflow.STEPS:
        assert f"\ndef {name}(" in text
        config = load(str(ROOT / "config.yaml")) | own_step_workflow.configuration(name, "nvml:1")
        check(config, str(ROOT / "workflow/schemas/config.schema.yaml"))
        assert (config["clocks"], config["gpu"]) == ("auto-only", "nvml:1")


@pytest.fixture
def benchmarked(tmp_path, monkeypatch):
    """`benchmarked({target: exit code})`: (what it ended with, row, whether it took tables) where an earlier run left
    tables, and records of another setup. Snakemake and the plan of a study are stand-ins: the real ones need a GPU."""
    folder = tmp_path / "results"
    study = SimpleNamespace(
        step_record=str(ROOT / "tests/workload/steps/hand_made.json"),
        folder=str(folder),
        gpu="gpu",
        setup=SimpleNamespace(digest="0123456789ab"),
    )
    for place, digest in enumerate(("0123456789ab", "another", "another")):
        about = {"run": {"setup": digest, "spent_s": {"measuring": 2.0}}, "verdict": "ok"}
        about |= {"kernel": {"study": "kernel", "name": f"k{place}"}, "windows": [{"temp_c": [30 + place, 45]}]}
        write_json(folder / f"measurements/kernel/k{place}/auto-auto/r0.json", about)
    (folder / "tables").mkdir()
    (folder / "tables/step_check.csv").write_text("section,time_ms,energy_j,time_difference_percent\nstep,1,2,0\n")

    def run(codes):
        monkeypatch.setattr(own_step_workflow, "snakemake", lambda name, gpu, target, *_: (codes[target], 1.0))
        monkeypatch.setattr(own_step_workflow, "plan", lambda config: study)
        monkeypatch.setattr(sys, "argv", ["own_step_workflow.py", "-o", str(tmp_path / "out"), "--steps", "llama"])
        monkeypatch.chdir(ROOT)
        ended = ""
        try:
            own_step_workflow.main(own_step_workflow.parsed())
        except SystemExit as error:
            ended = str(error)
        with (tmp_path / "out/steps.csv").open(newline="") as file:
            return ended, next(csv.DictReader(file)), (tmp_path / "out/llama/step_check.csv").exists()

    return run


def test_tables_are_taken_from_a_run_that_made_its_page_and_records_of_its_own_setup_are_counted(benchmarked):
    ended, row, has_tables = benchmarked({"profile": 0, "all": 0})
    assert ended == "" and has_tables and row["time_ms"] == "1"
    assert (row["records"], row["lowest_c"], row["highest_c"]) == ("1", "30", "45")
    assert (row["measured_exit_code"], row["page_exit_code"]) == ("0", "0")


@pytest.mark.parametrize("codes", [{"profile": 1, "all": 1}, {"profile": 0, "all": 1}])
def test_a_run_that_failed_passes_no_earlier_tables_for_its_own_and_says_so(benchmarked, codes):
    ended, row, has_tables = benchmarked(codes)
    assert "not complete: llama" in ended
    assert not has_tables and "time_ms" not in row and row["page_exit_code"] == "1"


def test_kernels_at_their_clock_of_the_step_are_told_beside_themselves_alone_and_in_the_step():
    def record(study, name, time_us, power_w, core_mhz, rest_us=0.0, **window):
        return {
            "kernel": {"study": study, "name": name, "paced_mhz": 1550.0, "rest_us": rest_us},
            "summary": {"time_us": time_us, "power_mw": 1e3 * power_w},
            **{"reached": {"core_mhz": core_mhz}, "windows": [window]},
        }

    rests = {
        "beginning": {"duration_s": 2.0, "energy_mj": 250e3},
        "with_beginning": {"duration_s": 2, "energy_mj": 14e5},
    }
    step = read(str(ROOT / "tests/workload/steps/hand_made.json"))
    rows = own_step_workflow.paced_rows(
        "mine",
        step,
        [
            record("pass", "step", 900.0, 690.0, 1600.0),
            record("pass", "paced_gelu_forward", 35.0, 600.0, 1790.0),
            record("pass", "paced_nvjet_linear_forward", 117.0, 850.0, 1549.0, 60.0, **rests),
            record("pass", "paced_nvjet_linear_backward", 120.0, 850.0, 1549.0, 60.0, **rests),  # not measured alone
            record("kernel", "gelu_forward", 35.0, 600.0, 1795.0),
            record("kernel", "nvjet_linear_forward", 130.0, 691.0, 1390.0),
        ],
    )
    assert [(row["kernel"], row["launches"], row["trace_us"]) for row in rows] == [
        ("nvjet_linear_forward", 2, 118.0),
        ("gelu_forward", 2, 36.0),
    ]
    assert rows[0] == {
        **{"step": "mine", "kernel": "nvjet_linear_forward", "launches": 2, "trace_us": 118.0},
        **{"capture_core_mhz": 1560.0, "wanted_core_mhz": 1550.0},
        **{"alone_us": 130.0, "alone_w": 691.0, "alone_core_mhz": 1390.0},
        **{"taking_turns": 2, "rest_us": 60.0, "rest_w": 125.0, "with_rest_w": 700.0},
        **{"paced_us": 117.0, "paced_w": 850.0, "paced_core_mhz": 1549.0},
    }
    assert (rows[1]["rest_us"], rows[1]["rest_w"]) == (0.0, None)
