"""benchmarks/own_step.py: a captured step is measured at default clocks and added up, beside fake boards."""

import csv
import json
import shutil
import sys

import pytest


def test_a_captured_step_is_added_up_and_nothing_is_set(lab, root):
    import yaml

    made = lab()
    (made.folder / "config.yaml").write_text(yaml.safe_dump(made.config))
    (made.folder / "captured").mkdir()
    shutil.copy(root / "tests/workload/steps/hand_made.json", made.folder / "captured/conv.step.json")
    words = ("-o", "out", "--captured", "captured", "--steps", "conv")
    done = made._run([sys.executable, str(root / "benchmarks/own_step.py"), *words], {})
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((made.folder / "out/own_step.json").read_text())["steps"]
    with open(made.folder / "out/conv.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [each["target"] for each in rows if each["study"] == "pass"] == [
        *("step", "forward", "backward", "optimiser", "step"),
    ]
    whole = row["parts"]["step"]
    alone = {each["target"]: int(each["launches"]) * float(each["time_us"]) for each in rows if each["launches"]}
    # the kernel that hung is not measured: it counts with its time in the step
    assert "embedding_sort" not in alone
    assert whole["sum_ms"] == pytest.approx((sum(alone.values()) + 9.0) / 1e3)
    assert whole["time_percent"] == pytest.approx(100 * (whole["sum_ms"] / whole["whole_ms"] - 1))
    assert made.boards.get("sets") == "0" and not made.lease.exists()
