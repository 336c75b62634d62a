"""What the GPU did is judged by its effect, and every point that was measured is kept."""

import json

import pytest


def test_a_reached_pair_is_ok_and_its_record_says_where_it_is_from(lab):
    made = lab()
    done, record = made.measure("1500,2201")
    assert done.returncode == 0, done.stderr
    assert (record["verdict"], record["reasons"]) == ("ok", [])
    assert record["reached"] == {"core_mhz": 1500.0, "mem_mhz": 2201, "alias_of": None}
    request = record["request"]
    assert (request["policy"], request["lock"]) == ("lock", "range")
    assert (request["core_range_mhz"], request["mem_range_mhz"]) == ([345, 1500], [2201, 2201])
    device = record["device"]
    assert (device["kind"], device["uuid"], device["ecc"], device["persistence"]) == (
        *("nvml", made.boards.uuid),
        *(True, True),
    )
    assert "fake" in device["name"] and "fake" in device["driver"], "numbers from a fake say so"
    assert device["counter_period_ms"] == pytest.approx(100, rel=0.03)
    assert device["counter_read_ms"] == pytest.approx(4.1, rel=0.1)
    assert {"run_id", "started_utc", "host", "boot_id", "config_sha256", "block", "order"} <= record["run"].keys()
    for window in record["windows"]:
        assert window["duration_s"] == pytest.approx(0.5, abs=0.06)
        assert window["launches"] * window["time_us"] == pytest.approx(window["duration_s"] * 1e6, rel=0.01)


def test_an_exact_lock_allows_the_target_alone(lab):
    made = lab()
    _, record = made.measure("1500,2201", lock="exact")
    assert record["request"]["core_range_mhz"] == [1500, 1500] and record["verdict"] == "ok"


@pytest.fixture
def truth(setup_of):
    """What the simulated H200 makes of the labs' kernel and clocks, without noise."""
    from kernel_dvfs.measurement.campaign import Bench
    from kernel_dvfs.measurement.target import MeasurementTarget
    from kernel_dvfs_clocks.clocks import Pair

    return Bench(setup_of(gpu="h200_sxm"), MeasurementTarget("kernel", "forward_gelu"), exact=True).point(
        Pair(1500, 2201)
    )


def test_the_numbers_are_those_of_the_simulated_kernel_at_the_reached_clocks(lab, truth):
    _, record = lab().measure("1500,2201")
    assert record["summary"]["time_us"] == pytest.approx(truth["summary"]["time_us"], rel=0.005)
    assert record["summary"]["energy_mj"] == pytest.approx(truth["summary"]["energy_mj"], rel=0.02)


@pytest.mark.parametrize(
    ("domain", "verdict", "reason"),
    [
        ("mem", "not_reached", "mem clock: asked 2201 MHz, reached 3201 MHz"),
        # the iteration comes to the power cap before it comes to the top, and is above what was asked for all the same
        ("core", "not_reached", "core clock: asked 900 MHz, reached 16"),
    ],
)
def test_an_ignored_clock_is_not_reached_and_the_row_is_kept(lab, domain, verdict, reason):
    _, record = lab(ignore=domain).measure("900,2201")
    assert record["verdict"] == verdict and record["reasons"][0].startswith(reason)
    assert record["summary"]["time_us"] > 0


def test_a_folded_clock_is_an_alias_of_the_pair_that_it_is(lab):
    _, record = lab("rtx_3080_ti").measure("630,405")
    assert (record["verdict"], record["reached"]["mem_mhz"]) == ("not_reached", 810)
    assert record["reached"]["alias_of"] == "630-810"


def test_under_the_cap_a_locked_clock_is_throttled_and_auto_is_ok_with_its_share(lab):
    made = lab(limit_mw=300000)
    _, record = made.measure("1980,3201", target="forward_fc_gemm")
    assert record["verdict"] == "throttled" and record["reached"]["core_mhz"] < 1500
    assert record["windows"][0]["reasons"] == {"0x4": 1.0}
    assert record["windows"][0]["cap_ns"] == pytest.approx(1e9, rel=0.05), "longer than where nothing holds it"
    _, record = made.measure("auto,auto", target="forward_fc_gemm")
    assert (record["verdict"], record["reasons"]) == ("ok", ["power cap active"])
    assert record["request"]["policy"] == "auto" and record["windows"][0]["reasons"] == {"0x4": 1.0}


def test_heat_is_told_from_the_power_cap(lab):
    _, record = lab(forced_c=95).measure("1980,3201")
    assert record["verdict"] == "throttled" and record["reasons"][1] == "software thermal slowdown active"
    assert record["windows"][0]["thermal_delta"] > 0 and record["windows"][0]["cap_ns"] == 0


def test_a_counter_that_freezes_in_a_later_window_makes_the_point_unusable(lab):
    made = lab(counter="freeze@5.0")
    done, record = made.measure("auto,auto", clocks="auto-only", windows=3, max_windows=3)
    assert done.returncode == 0, done.stderr
    assert record["verdict"] == "counter" and "energy counter: stood at" in record["reasons"][0]
    assert 1 <= record["summary"]["n"] < 3, "the windows before are kept"


def test_a_counter_that_falls_stops_the_run_and_restores(lab):
    made = lab()
    made.measure()
    made.boards.set(counter="reset@0")
    made.refused("energy counter: fell from", "driver reloaded")
    assert made.restored()


def test_a_lost_gpu_ends_the_run_and_keeps_the_lease_for_the_next(lab):
    made = lab(fail="*:15:200")
    done, record = made.measure()
    assert done.returncode == 2 and record is None
    assert "the GPU is lost" in done.stderr and "reset the GPU or reboot" in done.stderr
    assert made.lease.exists(), "restoring was tried and failed"
    assert made.boards.locks != ("none", "none")
    made.boards.set(fail="")
    done, record = made.measure()
    assert done.returncode == 0 and "ended without restoring its clocks; reset" in done.stderr, done.stderr
    assert record["verdict"] == "ok"


def test_processes_that_come_and_go_disturb_a_point_which_is_measured_once_more(lab):
    made = lab(foreign_compute=1)
    _, record = made.measure(share=True)
    assert record["verdict"] == "disturbed"
    assert "1 other process(es) computed on the GPU" in record["reasons"]
    assert any("measured twice" in reason for reason in record["reasons"])
    made.boards.set(foreign_compute=0)
    _, record = made.measure(share=True)
    assert record["verdict"] == "ok", "once they are gone, nothing is disturbed"


def test_a_changed_power_limit_disturbs(lab):
    made = lab()
    made.measure()
    code = """
import glob, json, sys
from kernel_dvfs.cli.main import main
setup = glob.glob("plan/*/*/setup/*.json")[0]
main(["measure", "--gpu", setup, "--target", "forward_gelu", "--clocks", "1500,2201", "-o", "r1.json"])
"""
    plan = (
        "import yaml; from kernel_dvfs.plan.study import plan; "
        "c = yaml.safe_load(open('config.yaml')); c['gpu'] = 'nvml'; "
    )
    assert made.python(plan + "plan(c, 'plan').setup.write()").returncode == 0
    made.boards.set(limit_mw=650000)
    done = made.python(code)
    record = json.loads((made.folder / "r1.json").read_text())
    assert record["verdict"] == "disturbed", done.stderr
    assert "the power limit changed from 700000 to 650000 mW" in record["reasons"]


def test_noise_that_stays_wide_is_unstable_after_more_windows(lab):
    _, record = lab(jitter_ms=0, read_ms=20).measure(
        "auto,auto", clocks="auto-only", windows=2, max_windows=4, energy_ci_percent=1e-9
    )
    assert record["verdict"] == "unstable" and "95 % interval of the energy" in record["reasons"][-1]
    assert 3 <= record["summary"]["n"] <= 4


@pytest.mark.parametrize(
    "version", ["12.535", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("12.560", "13.580", "13.615"))]
)
def test_every_binding_gives_the_same_record(lab, binding, version, truth):
    made = lab()
    done, record = made.measure(environment={"PYTHONPATH": str(binding(version))})
    assert done.returncode == 0, done.stderr
    assert record["device"]["binding"].startswith(version)
    assert (record["verdict"], record["reached"]) == ("ok", {"core_mhz": 1500.0, "mem_mhz": 2201, "alias_of": None})
    assert record["summary"]["time_us"] == pytest.approx(truth["summary"]["time_us"], rel=1e-3)
    assert record["summary"]["power_mw"] == pytest.approx(truth["summary"]["power_mw"], rel=0.02)
    assert 25 <= record["windows"][0]["temp_c"][0] <= record["windows"][0]["temp_c"][1] <= 35


def test_a_record_of_another_board_is_foreign(lab):
    made = lab()
    made.measure()
    path = made.folder / "r0.json"
    path.write_text(path.read_text().replace(made.boards.uuid, "GPU-of-another-board"))
    code = (
        "from kernel_dvfs_clocks.clocks import parse\nfrom kernel_dvfs.measurement import record, setup, target\n"
        f"own = setup.read({made.setup()!r})\n"
        "record.read_point('r0.json', own, target.parse(own, 'kernel/forward_gelu'), parse('1500,2201'), 0)"
    )
    done = made.python(code)
    assert "foreign: its device is GPU-of-another-board" in done.stderr, done.stderr


def lock_from_outside(made, core_mhz):
    """Another tool locks the core clock."""
    code = "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    code += f"with Library() as nvml: Board(nvml, {made.boards.uuid!r}).lock_core(345, {core_mhz})"
    assert made.python(code).returncode == 0


# of 1980 MHz, in steps of 15: 50, 60, 70, 80, 90, 95, 97.7 %; then 98.5 and 99.2 %
@pytest.mark.parametrize("clocks", ["auto-only", "external"])
@pytest.mark.parametrize(
    "core_mhz",
    [990, 1785, 1965, *(pytest.param(mhz, marks=pytest.mark.nightly) for mhz in (1185, 1380, 1590, 1890, 1935, 1950))],
)
def test_a_lock_from_outside_that_auto_runs_under_is_seen_whatever_the_kernel(lab, core_mhz, clocks):
    """Also where the kernel that is measured is held below it by its own power."""
    made = lab()
    lock_from_outside(made, core_mhz)
    done, record = made.measure("auto,auto", target="forward_fc_gemm", clocks=clocks)
    is_seen = core_mhz < 0.98 * 1980
    assert record["verdict"] == ("not_free" if is_seen else "ok"), done.stderr
    assert record["run"]["probe"] == {"core_mhz": core_mhz, "top_mhz": 1980}
    if is_seen:
        said = f"under next to no load its core clock stays at {core_mhz} of 1980 MHz"
        assert said in record["reasons"][0] and said in done.stderr
        assert f"kernel-dvfs reset --uuid {made.boards.uuid}" in done.stderr
    made.stop()
    assert made.boards.locks == (f"345-{core_mhz}", "none"), "not ours to take off"


@pytest.mark.parametrize("profile", ["h200", "rtx_3080_ti"])
def test_a_free_board_is_free_also_hot_and_at_its_power_limit(lab, profile):
    made = lab(profile, limit_mw=250_000, temperature_c=80)
    for _ in range(3):
        _, record = made.measure("auto,auto", target="forward_fc_gemm", clocks="auto-only")
        assert record["verdict"] == "ok"
        top_mhz = {"h200": 1980, "rtx_3080_ti": 1930}[profile]  # this one lists 2100 MHz, and never boosts to it
        assert record["run"]["probe"]["core_mhz"] == top_mhz
        made.stop()


def test_a_lock_that_the_site_names_is_the_top(lab):
    made = lab()
    lock_from_outside(made, 1500)
    after = {"core": [345, 1500], "mem": None}
    _, record = made.measure("auto,auto", clocks="external", after=after)
    assert record["verdict"] == "ok" and record["run"]["probe"] == {"core_mhz": 1500, "top_mhz": 1500}


def test_where_clocks_are_set_a_lock_of_another_tool_is_taken_off(lab):
    made = lab()
    lock_from_outside(made, 1500)
    done, record = made.measure("auto,auto")
    assert record["verdict"] == "ok" and "its core clock stays at 1500 of 1980 MHz" in done.stderr
    assert "; reset" in done.stderr and made.boards.locks == ("none", "none")
    _, record = made.measure("1500,2201")
    assert record["run"]["probe"] == {"core_mhz": 1500, "top_mhz": 1980}, "once a session, of auto"


def test_apply_runs_no_command_under_a_lock_from_outside(lab):
    made = lab(time="real")
    lock_from_outside(made, 1785)
    line = "not free: under next to no load its core clock stays at 1785"
    done = made.command("apply", "--pair", "auto,auto", "--", "touch", "ran")
    assert done.returncode == 2 and line in done.stderr and not (made.folder / "ran").exists()
    done = made.command("apply", "--pair", "1500,auto", "--dry-run", "--", "touch", "dry")
    assert done.returncode == 0 and f"note: GPU {made.boards.uuid}: {line}" in done.stderr, "nothing is claimed of it"
    done = made.command("apply", "--pair", "1500,auto", "--report", "r.json", "--", "touch", "ran")
    assert done.returncode == 0 and (made.folder / "ran").exists(), "its own reset has taken it off"
    assert json.loads((made.folder / "r.json").read_text())["probe"]["core_mhz"] == 1980
