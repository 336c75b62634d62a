"""`kernel-dvfs serving clock`: what a plan would ask of a GPU, on a fake NVML."""

import yaml


def test_the_clock_of_a_plan_is_tried_on_a_gpu_and_never_set(lab):
    """Through the guard on a fake NVML, with no right to set anything."""
    made = lab(deny=1)
    ladder = [{"up_to_tps": 1000, "core_mhz": 1200}, {"up_to_tps": 3000, "core_mhz": 1500}]
    written = {
        "schema": "kernel-dvfs/serving-plan/1",
        "levels": [{"instances": [{"pool": "MM-tp1", "clocks": ladder}]}],
    }
    (made.folder / "plan.yaml").write_text(yaml.safe_dump(written))
    done = made.command("serving", "clock", "plan.yaml", "--pool", "MM-tp1", "--tps", "1500", "--gpu", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1500\n" and "would be asked for 1500-auto; nothing is set" in done.stderr
    assert made.boards.get("sets") == "0" and not made.lease.exists()
    ladder[1]["core_mhz"] = 1501
    (made.folder / "plan.yaml").write_text(yaml.safe_dump(written))
    done = made.command("serving", "clock", "plan.yaml", "--pool", "MM-tp1", "--tps", "1500", "--gpu", "0")
    assert done.returncode == 2 and "1501" in done.stderr and done.stderr.count("\n") == 1
