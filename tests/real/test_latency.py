"""`kernel-dvfs latency` finds the latencies, ramps and stalls that were put into the fake board, change by change."""

import json

import pytest
from fake import drawn_for

from kernel_dvfs.measurement import latency_file

STEP_S = 20e-6
TRUE = {
    "core_lag_ms": 18,
    "core_lag_spread": 0.5,
    "core_lag_tail": 0.15,
    "core_stall_ms": 0.35,
    "core_ramp_ms": 2,
    "mem_lag_ms": 45,
    "mem_lag_spread": 0.3,
    "mem_stall_ms": 1.2,
    "set_ms": 3,
}


@pytest.fixture(scope="module")
def measured(module_lab):
    """(file, fake board) of three repeats on an H200 whose delays are drawn from known distributions."""
    lab = module_lab("h200", **TRUE)
    done = lab.command("latency", "--repeats", 3, "-o", "latency.json")
    assert done.returncode == 0, done.stderr
    return json.loads((lab.folder / "latency.json").read_text()), lab, done


def close(found, true) -> bool:
    """Within one sampling step or 5 %."""
    return abs(found - true) <= max(STEP_S, 0.05 * true)


def test_each_change_is_found_as_it_was_drawn(measured):
    content, lab, _ = measured
    assert len(content["trials"]) == 3 * (6 + 2)
    for trial, drawn in zip(content["trials"], drawn_for(lab.boards, content["trials"]), strict=True):
        assert trial["verdict"] == "ok", trial
        assert close(trial["first_effect_s"], drawn["lag_s"]), (trial, drawn)
        assert close(trial["settled_s"], sum(drawn.values())), (trial, drawn)
        stall_s = 1e-3 * TRUE[f"{trial['domain']}_stall_ms"]
        assert close(trial["stall_s"], stall_s), trial
        assert trial["longest_stall_s"] == trial["stall_s"], "one stall, not several"
        assert abs(trial["call_s"] - 3e-3) < 1e-3 * 0.1
        # NVML shows the requested memory clock when it is there, to a poll
        if trial["domain"] == "mem":
            assert abs(trial["nvml_s"] - trial["first_effect_s"]) < 2e-3


def test_the_distribution_is_that_of_the_changes_asked_for(measured):
    content, lab, done = measured
    core = content["domains"]["core"]
    assert core["n"] == 18 and not core["missed"]
    assert core["settled_s"]["max"] > 3 * core["settled_s"]["median"], "the long tail shows, a mean would hide it"
    assert "core, ms as median (5 to 95 %, most) of 18 changes" in done.stdout
    assert len((lab.folder / "latency.csv").read_text().splitlines()) == 1 + 8
    assert content["gpu"]["name"] == "Simulated H200 on a fake NVML" and content["started_utc"]


def test_clocks_are_given_back(measured):
    _, lab, _ = measured
    assert lab.restored()


def test_choosing_uses_the_file(measured):
    _, lab, _ = measured
    found = latency_file.read(lab.folder / "latency.json")
    assert found.about.startswith(
        "measured on Simulated H200 on a fake NVML (GPU-fa4e0000, driver 580.00 (fake NVML), "
    )
    slower = max((each.settled_s for each in found.domains.values()), key=lambda each: each["p95"])
    assert found.latency_s * (1 - found.jitter) == pytest.approx(slower["p5"])
    assert found.latency_s * (1 + found.jitter) == pytest.approx(slower["p95"])
    assert found.stall_s("core") == pytest.approx(0.35e-3, abs=STEP_S)


def test_a_change_that_never_comes_is_missed_and_says_so(lab):
    made = lab("h200", ignore="mem")
    done = made.command("latency", "--repeats", 1, "--core", 345, 1980, "-o", "l.json")
    assert done.returncode == 0, done.stderr
    content = json.loads((made.folder / "l.json").read_text())
    assert content["domains"]["core"]["n"] == 2
    assert content["domains"]["mem"] | {"n": 0, "missed": 2} == content["domains"]["mem"]
    assert "mem: no change was seen to land, 2 missed" in done.stdout


def test_a_request_that_changes_nothing_is_no_change(lab):
    # above 1950 MHz this board runs at 1950, so NVML never shows what was asked for
    made = lab("rtx_3080_ti")
    done = made.command("latency", "--repeats", 1, "--core", 2085, 2100, "--mem", 5001, 9501, "-o", "l.json")
    assert done.returncode == 0, done.stderr
    content = json.loads((made.folder / "l.json").read_text())
    assert content["domains"]["core"]["n"] == 0
    assert content["domains"]["mem"]["n"] == 2


@pytest.mark.parametrize(
    "knobs, words, said",
    [
        ({"deny": 1}, (), "no permission"),
        ({"fail": "nvmlDeviceSetGpuLockedClocks:3"}, (), "core clocks cannot be locked here"),
        ({"foreign_compute": 1}, (), "compute on it"),
        ({}, ("--core", 1000), "--core 1000: this GPU has no such clock"),
        ({}, ("--core", 1980, "--mem", 3201), "two different clocks"),
        ({}, ("--repeats", 0), "argument --repeats"),
        ({}, ("--through", "dcgm", "--lock", "exact"), "through: dcgm locks both clocks or none"),
    ],
)
def test_refusals_are_one_line(lab, knobs, words, said):
    made = lab("h200", **knobs)
    done = made.command("latency", *words, "-o", "l.json")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and said in errors[0], done.stderr
    assert "Traceback" not in done.stderr and not (made.folder / "l.json").exists()
    assert made.restored()


def test_a_dry_run_does_everything_but_setting(lab):
    # not even the right to; it asks NVML as often as it can for a second
    made = lab("h200", deny=1, call_ms=0.1)
    done = made.command("latency", "--dry-run", "-o", "l.json")
    assert done.returncode == 0, done.stderr
    content = json.loads((made.folder / "l.json").read_text())
    assert made.boards.get("sets") == "0"
    core = content["quiet"]["core"]
    assert core["step_s"] == pytest.approx(STEP_S, rel=0.01) and core["is_mark_seen"]
    assert 1e3 * core["pace"] == pytest.approx(1980, rel=0.01)
    assert "dry run, nothing was set; core: a stamp each 20.0 us" in done.stdout
    with pytest.raises(Exception, match="of a dry run"):
        latency_file.read(made.folder / "l.json")


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"])
def test_a_killed_probe_leaves_no_lock(lab, how):
    made = lab("h200")
    done = made.command("latency", "--repeats", 1, "-o", "l.json", FAKE_DEATH=f"{how}@0.4")
    assert done.returncode != 0 and not (made.folder / "l.json").exists()
    assert made.restored()
