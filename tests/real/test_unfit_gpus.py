"""What cannot be measured is refused before the first point: one line with the remedy, and nothing changed."""

import os
import stat
import subprocess
import sys

import pytest


def untouched(lab) -> bool:
    return lab.boards.locks == ("none", "none") and not lab.lease.exists()


def test_permission_denied_names_call_gpu_user_and_every_remedy(lab):
    made = lab(deny=1)
    made.refused(
        *("nvmlDeviceSetMemoryLockedClocks", made.boards.uuid, f"user {os.geteuid()}", "--cap-add=SYS_ADMIN"),
        *("root", "Slurm", "clocks: external", "clocks: auto-only", "docs/cluster.md"),
    )
    assert untouched(made) and made.boards.get("sets") == "0"


def test_without_the_right_to_set_clocks_auto_can_still_be_measured(lab):
    made = lab(deny=1)
    done, record = made.measure("auto,auto", clocks="auto-only")
    assert done.returncode == 0 and (record["verdict"], record["request"]["policy"]) == ("ok", "auto"), done.stderr
    made.refused("clocks 1500-2201", "configure clocks: lock", pair="1500,2201", clocks="auto-only")
    done, record = made.measure("auto,auto")
    assert done.returncode == 0 and record["verdict"] == "ok", "the right is asked for with the first locked pair"
    made.refused("nvmlDeviceSetMemoryLockedClocks", "clocks: auto-only", pair="1500,2201")
    assert made.boards.get("sets") == "0"


def test_clocks_set_from_outside_are_verified_recorded_and_left_alone(lab):
    made = lab()
    outside = "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    outside += f"board = Board(Library().__enter__(), {made.boards.uuid!r})\n"
    assert made.python(outside + "board.lock_mem(2201, 2201); board.lock_core(1500, 1500)").returncode == 0
    made.boards.set(deny=1)
    done, record = made.measure("1500,2201", clocks="external")
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    assert record["request"]["policy"] == "external"
    _, record = made.measure("900,2201", clocks="external")
    assert (record["verdict"], record["reached"]["core_mhz"]) == ("not_reached", 1500)
    made.stop()
    assert made.boards.locks == ("1500-1500", "2201-2201") and made.boards.get("sets") == "2"


@pytest.mark.parametrize(
    ("knobs", "named"),
    [
        ({"fail": "nvmlDeviceSetMemoryLockedClocks:3"}, ["memory clocks cannot be locked", "mem_mhz: []"]),
        ({"fail": "nvmlDeviceSetGpuLockedClocks:3"}, ["core clocks cannot be locked", "clocks=auto-only"]),
        ({"fail": "nvmlDeviceGetTotalEnergyConsumption:3"}, ["no energy counter", "simulated GPU"]),
        ({"counter": "freeze@0"}, ["energy counter: stood at"]),
        ({"mig": 1}, ["MIG is on", "nvidia-smi -mig 0"]),
        ({"foreign_compute": 2}, ["2 other process(es)", "share: true"]),
    ],
)
def test_an_unfit_gpu_is_refused_with_the_remedy(lab, knobs, named):
    made = lab(**knobs)
    made.refused(made.boards.uuid if "counter" not in knobs else "", *named)
    assert untouched(made)
    if "LockedClocks" not in str(knobs):
        assert made.boards.get("sets") == "0", "refused before the first clock is set"


def test_a_window_alone_that_is_too_short_for_a_slow_counter_is_refused_and_that_of_a_visit_is_longer(lab):
    made = lab(period_ms=400)
    made.refused(made.boards.uuid, "window_s = 2 is too short", "window_s: ", pair="auto,auto", clocks="auto-only")
    done, record = made.measure()
    assert done.returncode == 0 and record["windows"][0]["duration_s"] == pytest.approx(1.6, abs=0.1), done.stderr


def test_a_right_that_ends_between_two_controls_is_one_denied_line_with_the_cause_first(lab):
    made = lab(fail="nvmlDeviceSetGpuLockedClocks:4")
    made.boards.set(fail="nvmlDeviceResetMemoryLockedClocks:4")
    made.boards.set(fail="nvmlDeviceResetGpuLockedClocks:4")
    line = made.refused("no permission", "clocks: auto-only", f"kernel-dvfs reset --uuid {made.boards.uuid}")
    assert line.startswith("error: nvmlDeviceSetGpuLockedClocks on ")
    assert line.index("no permission") < line.index("nvmlDeviceResetMemoryLockedClocks")
    assert made.lease.exists() and made.boards.locks[1] != "none", "it says what it could not undo"


def test_where_the_driver_does_not_tell_who_computes_it_is_unknown_not_nobody(lab):
    made = lab(fail="nvmlDeviceGetComputeRunningProcesses_v3:3", foreign_compute=1)
    done, record = made.measure()
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    assert "does not tell who computes on it" in done.stderr
    assert [window["processes"] for window in record["windows"]] == [None]


def test_where_the_driver_lists_no_clocks_auto_can_still_be_planned(lab):
    made = lab(fail="nvmlDeviceGetSupportedMemoryClocks:3")
    made.refused("lists no clocks", "clocks: auto-only")
    assert "the driver lists none" in made.command("devices").stdout
    code = (
        "from kernel_dvfs.plan.config import load\nfrom kernel_dvfs.plan.study import plan\n"
        "study = plan(load('config.yaml') | {'gpu': 'nvml', 'clocks': "
    )
    done = made.python(f"{code}'auto-only'}}, 'r')\nprint(*map(tuple, study.pairs))")
    assert done.stdout == "('auto', 'auto')\n", done.stderr


def test_a_mig_slice_that_cuda_is_confined_to_is_refused(lab):
    lab().refused("MIG is on", environment={"CUDA_VISIBLE_DEVICES": "MIG-0123"})


def test_a_refused_configuration_leaves_no_trace(lab):
    made = lab()
    code = "from kernel_dvfs.plan.config import load\nfrom kernel_dvfs.plan.study import plan\n"
    code += "plan(load('config.yaml') | {'gpu': 'nvml', 'limits_percent': [1e-9]}, 'r')"
    made.measure()
    done = made.python(code)
    assert "at most six decimals" in done.stderr and not (made.folder / "r").exists()


def test_a_core_only_sweep_is_possible_where_memory_cannot_be_locked(lab):
    made = lab(fail="nvmlDeviceSetMemoryLockedClocks:3")
    made.refused("mem_mhz: []")
    # as the message says: the memory clock left to the governor
    done, record = made.measure("1500,auto", grid={"core_mhz": [1500], "mem_mhz": [], "auto": True})
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    assert made.boards.locks == ("345-1500", "none")


def test_an_unsupported_clock_is_refused_with_those_that_exist(lab):
    made = lab()
    made.refused("no core clock 1501 MHz", "345 to 1980 in steps of 15", pair="1501,2201")
    made.refused("no memory clock 2200 MHz", "2201, 3201", pair="1500,2200")
    made.stop()
    assert untouched(made)


@pytest.mark.parametrize(
    ("gpu", "named"),
    [
        ("nvml:GPU-0", ["no such GPU", "0: GPU-fa4e0000"]),
        ("nvml:7", ["no such GPU", "1: GPU-fa4e0001"]),
        ("nvml", ["there are 2 GPUs", "nvml:INDEX or nvml:UUID", "GPU-fa4e0001"]),
        ("nvml:MIG-1234", ["per board", "whole GPU"]),
    ],
)
def test_a_gpu_that_is_not_one_is_refused_with_those_that_are(lab, gpu, named):
    lab("h200,h200").refused(*named, gpu=gpu)


def test_no_driver_is_said_with_the_remedy(lab, tmp_path):
    made = lab()
    nowhere = {"LD_LIBRARY_PATH": str(tmp_path)}
    made.refused("no NVIDIA driver", "--gpus", "h200_sxm", environment=nowhere)
    done = made.command("devices", **nowhere)
    assert done.returncode == 0 and "no NVIDIA driver" in done.stdout and "gpu: h200_sxm" in done.stdout
    done = made.command("reset", "--all", **nowhere)
    assert done.returncode == 2 and "no NVIDIA driver" in done.stderr
    done = made.command("reset", "--all", "--stale", **nowhere)
    assert (done.returncode, done.stdout) == (0, "no lease is left behind: nothing to reset\n")


def test_a_fake_nvml_without_the_test_hook_measures_nothing(lab):
    lab().refused("this NVML is a fake", environment={"KERNEL_DVFS_TEST_LOAD": ""})


def test_the_test_hook_does_nothing_on_a_real_driver(tmp_path, root):
    code = """
from kernel_dvfs.measurement.real.loads import open_loads
class Real:
    shared_library = object()
open_loads(Real, "GPU-1")
"""
    environment = {"PYTHONPATH": str(root / "workflow"), "KERNEL_DVFS_TEST_LOAD": "anything.py"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "is for tests on a fake NVML, but this NVML is a driver's" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_lock_directory_that_is_not_writable_is_named(lab, tmp_path):
    made = lab()
    nowhere = tmp_path / "missing"
    made.refused("missing", "KERNEL_DVFS_LOCK_DIR", environment={"KERNEL_DVFS_LOCK_DIR": str(nowhere)})
    assert untouched(made)


@pytest.mark.parametrize(("folder", "lease"), [(0o1777, 0o666), (0o755, 0o600)])
def test_a_lease_can_be_taken_over_by_any_user_who_may_make_one(lab, folder, lease):
    made = lab()
    made.locks.chmod(folder)
    made.measure()
    assert stat.S_IMODE(made.lease.stat().st_mode) == lease
