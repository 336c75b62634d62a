"""Joules in the log of a real library's training on the CPU, beside a fake board, whose power is known."""

import json
import subprocess
import sys
from itertools import pairwise

import pytest
from known_board import BUSY_W, IDLE_W, TRAIN

POWER_W = IDLE_W + BUSY_W / 2
TOKENS = {"trainer": 56, "lightning": 2 * 56, "torchtitan": 28, "megatron": 3 * 56}  # a step's; see train.py
STEP_S = {"trainer": 0.032, "lightning": 2 * 0.032, "torchtitan": 0.032, "megatron": 3 * 0.032}


@pytest.mark.parametrize("name", TOKENS)
def test_joules_of_steps_stand_in_the_log(lab, library, trained, name):
    library({"trainer": "transformers", "megatron": "megatron.core"}.get(name, name))
    rows, said = trained(lab(), name, 90)
    title = "energy/{}" if name == "torchtitan" else "{}"
    joules, power, tokens = ("j_per_step" if "/" in title else "energy_j_per_step"), "power_w", "tokens_per_j"
    joules, power, tokens, is_good = map(
        title.format, (joules, power, tokens, "believed" if "/" in title else "energy_believed")
    )
    told = [row for row in rows if joules in row]
    believed = [row for row in told if row.get(is_good, row.get("energy_verdict")) in (1, "ok")]
    assert believed, (rows, said)
    for row in believed:
        assert row[power] == pytest.approx(POWER_W, rel=0.04)
        assert row[joules] > 0.9 * POWER_W * STEP_S[name], "the host may hold a step up, and never shortens it"
        assert row[tokens] * row[joules] == pytest.approx(TOKENS[name], rel=1e-6)
    assert ("J a step" in said) == (name in ("torchtitan", "megatron"))
    if name == "trainer":
        last = rows[-1]
        steps = [now["step"] - before["step"] for before, now in pairwise([{"step": 0}, *told])]
        energy_j = sum(number * row[joules] for number, row in zip(steps, told))
        assert last["train_energy_j"] == pytest.approx(energy_j) and energy_j < 1.04 * POWER_W * last["train_runtime"]
        assert len(told) < len(rows) and not any(joules in row for row in rows if "eval_loss" in row)


def test_a_trainer_that_counts_tokens_and_logs_its_loss_still_has_one_last_row(lab, library, trained):
    """Every row of it says train_runtime, and one of its user's train_loss."""
    library("transformers")
    rows, _ = trained(lab(), "trainer", 90, COUNTS="1", LOGS="1")
    assert [row["step"] for row in rows if "train_loss" in row] == [45, 90]
    assert all("train_runtime" in row for row in rows if "loss" in row)
    assert [row for row in rows if "train_energy_j" in row] == rows[-1:]
    assert {row["energy_verdict"] for row in rows[:-1] if "energy_verdict" in row} == {"ok"}


def test_ranks_are_summed_and_each_reads_its_own_board(lab, library, trained):
    library("transformers")
    made = lab("h200,h200")
    made.boards.set(1, time="real", utilisation=0.2)
    rows, _ = trained(made, "trainer", 90, ranks=2)
    told = [row for row in rows if row.get("energy_verdict") == "ok"]
    assert told, rows
    for row in told:
        assert row["power_w"] == pytest.approx(2 * IDLE_W + 0.7 * BUSY_W, rel=0.04)
        assert row["tokens_per_j"] * row["energy_j_per_step"] == pytest.approx(2 * 56, rel=1e-6)


def test_pipeline_stages_that_wait_for_each_other_are_not_made_to_wait_for_a_sum(lab, library, trained):
    library("megatron.core")
    made = lab("h200,h200")
    rows, said = trained(made, "megatron", 31, ranks=2)
    assert rows == [{"step": 31}]
    assert said.count("with pipeline stages no joules are told") == 1 and "J a step" not in said


def test_a_board_that_cannot_be_read_ends_no_training_and_its_log_goes_without(lab, library, trained):
    library("transformers")
    rows, said = trained(lab(), "trainer", 30, GPU="7")
    assert len(rows) > 3 and all(row.get("energy_verdict", "counter") == "counter" for row in rows)
    assert not any("energy_j_per_step" in row or "train_energy_j" in row for row in rows)
    assert said.count("energy of the steps: counter: ") == 1 and "no such GPU" in said


def test_a_trainer_is_tuned_by_its_callback_from_the_first_step_to_the_certificate(lab, library):
    """No --progress: the callback tells the steps."""
    library("transformers")
    pytest.importorskip("numpy")
    made = lab()
    words = ["--slack", "40", "--minutes", "0.5", "--block", "1", "--report", "r.json"]
    tune = [sys.executable, "-m", "kernel_dvfs", "tune", *words]
    train = [sys.executable, TRAIN, "trainer", "100000", "0.1"]
    process = made.start(*tune, "--", *train, stdout=subprocess.DEVNULL)
    said = ""
    while "next time: " not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    (made.folder / "end").touch()
    said += process.communicate(timeout=120)[1]
    assert process.returncode == 0, said
    report = json.loads((made.folder / "r.json").read_text())
    core, mem = report["pair"].split("-")
    assert report["verdict"].startswith("ok") and report["energy_change_at_most_percent"] < 0
    # a tenth of 30 of 32 ms follows the core clock
    assert report["time_change_percent"] == pytest.approx(100 * 3 / 32 * (1980 / int(core) - 1), abs=3)
    assert f"kernel-dvfs apply --pair {core},{mem} -- COMMAND" in said and made.restored()
    rows = [json.loads(line) for line in (made.folder / "log.jsonl").read_text().splitlines()]
    powers_w = [row["power_w"] for row in rows if row.get("energy_verdict") == "ok"]
    assert min(powers_w) < 0.95 * POWER_W, "the log shows the lock"
