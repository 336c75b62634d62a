"""From a training in torch.distributed.pipelining to its certificate by three commands: a toy GPT on the CPU, in ranks
of a torchrun, each with a fake board. Skipped without torch."""

import csv
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
TOY = Path(__file__).parent / "toy_gpt.py"
FORWARD_MS = (14, 11, 12, 17)


def _has_titan():
    """Return whether the torchtitan is there that titan_llama.py is written for."""
    try:
        return importlib.metadata.version("torchtitan").startswith("0.2.")
    except importlib.metadata.PackageNotFoundError:
        return False


@pytest.fixture
def ranks(boards, root, tmp_path):
    """`ranks(4, "measure", ...)` runs a command in so many ranks, each with a board: (boards, what was printed)."""

    def run(count, *words, code=0, made=None, **environment):
        own = made or boards(",".join(["h200"] * count))
        if made is None:
            for board in range(count):
                # quick to answer, so that a test takes a minute: a counter that moves 50 times a second
                own.set(board, core_lag_ms=2, read_ms=0.2, period_ms=20, jitter_ms=0.2)
        more = {"PYTHONPATH": str(root / "workflow"), "OMP_NUM_THREADS": "1"} | environment
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count)]
        words = [*launch, "-m", "kernel_dvfs", "pipeline", *map(str, words)]
        done = subprocess.run(words, env=own.environment(**more), cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode == 0) == (code == 0), done.stderr[-3000:]
        assert all(own.get(lock, board) == "none" for board in range(count) for lock in ("core_lock", "mem_lock"))
        return own, done.stdout + done.stderr

    return run


def plan(tmp_path, *words):
    words = [sys.executable, "-m", "kernel_dvfs", "pipeline", "plan", "measured", "-o", "plan.json", *words]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(root / "workflow")}
    )
    assert done.returncode == 0, done.stderr
    return json.loads((tmp_path / "plan.json").read_text())


def rows_of(tmp_path):
    with open(tmp_path / "measured/stages.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_three_commands_from_a_training_to_its_certificate(ranks, tmp_path):
    made, _ = ranks(4, "measure", TOY, "-o", "measured")
    rows = rows_of(tmp_path)
    assert {(row["stage"], row["instruction"]) for row in rows} == {
        (str(stage), name) for stage in range(4) for name in ("forward", "backward", "waiting")
    }
    top = {(int(row["stage"]), row["instruction"]): float(row["time_s"]) for row in rows if row["core_mhz"] == "1980.0"}
    for stage, forward_ms in enumerate(FORWARD_MS):
        # never less than the board takes, and not many times as much on a busy machine
        assert 0.0009 * forward_ms < top[stage, "forward"] < 0.01 * forward_ms
        assert 0.0018 * forward_ms < top[stage, "backward"] < 0.02 * forward_ms
    # a board that waits draws what an idle one does: 75 W and the memory's
    waits = [float(row["energy_j"]) / float(row["time_s"]) for row in rows if row["instruction"] == "waiting"]
    assert waits == pytest.approx([139] * 4, rel=0.05)
    found = plan(tmp_path, "--no-slowdown")
    assert "can be reached in time" in found["note"] and len(found["ranks"]) == 4
    clocks = {part["core_mhz"] for rank in found["ranks"] for own in rank["instructions"] for part in own["clocks"]}
    assert len(clocks) > 1
    words = ["--iterations", 4, "--blocks", 2, "--block-s", 1, "--slack", 50, "-o", "certificate.json"]
    _, said = ranks(4, "run", TOY, "plan.json", *words, made=made)
    told = json.loads((tmp_path / "certificate.json").read_text())
    assert told["ranks"] == told["counted"] == 4 and told["restored"] and not told["dry_run"]
    assert told["asked"] > 0 and told["changes"] > 0 and "restored" in said
    assert told["energy"]["mean"] < 0  # at lower clocks the toy draws less, and waits anyway
    assert [own["mode"] for own in told["blocks"][0]] == ["auto", "plan", "plan", "auto"]


def test_marks_on_a_gpu_are_dated_by_the_gpu_and_not_by_who_sees_them_late(monkeypatch):
    """Events at known moments, seen at others: 40 s of them, so that they are dated anew on the way."""
    import torch

    from kernel_dvfs_pipeline.torch_stages import CudaMarks

    moments, now_s = iter([100.0 + 0.37 * number for number in range(108)]), [0.0]

    class Event:
        def __init__(self, enable_timing):
            self.at_s = next(moments)

        def record(self):
            pass

        def query(self):
            return now_s[0] >= self.at_s

        def elapsed_time(self, other):
            return 1000 * (other.at_s - self.at_s)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    marks = CudaMarks(lambda: now_s[0])
    made = [marks.mark() for _ in range(108)]
    assert marks.passed_s(made[0]) is None
    late_s = [0.29, 0.0003, 0.35, 0.21]
    for number, mark in enumerate(made):
        now_s[0] = mark.event.at_s + late_s[number % 4]
        found = marks.passed_s(mark)
        # the first ones after each new beginning know no better than that they were seen
        assert mark.event.at_s <= found + 1e-9 and found <= now_s[0] + 1e-9
    assert sum(mark.passed_s - mark.event.at_s < 0.0004 for mark in made) > 90


@pytest.mark.nightly
@pytest.mark.parametrize("schedule", ["interleaved", "zero-bubble"])
def test_schedules_of_several_stages_a_rank_are_recorded_planned_and_followed(ranks, tmp_path, schedule):
    made, _ = ranks(2, "measure", TOY, "-o", "measured", TOY_SCHEDULE=schedule)
    seen = {row["instruction"] for row in rows_of(tmp_path)} - {"waiting"}
    assert seen == (
        {"forward", "backward"} if schedule == "interleaved" else {"forward", "backward_input", "backward_weight"}
    )
    found = plan(tmp_path, "--no-slowdown")
    assert {own["virtual_stage"] for own in found["ranks"][1]["instructions"]} == {1, 3}
    words = ["--iterations", 3, "--blocks", 2, "--block-s", 0.6, "--slack", 90, "-o", "certificate.json"]
    ranks(2, "run", TOY, "plan.json", *words, made=made, TOY_SCHEDULE=schedule)
    told = json.loads((tmp_path / "certificate.json").read_text())
    assert "came where the plan has" not in told["why"] and told["asked"] > 0 and told["restored"]


@pytest.mark.nightly
def test_a_slower_replica_is_noticed_and_the_other_follows_a_slower_plan(ranks, tmp_path):
    made, _ = ranks(4, "measure", TOY, "-o", "measured", TOY_REPLICAS="2", TOY_MS="14,17")
    assert {row["dp_rank"] for row in rows_of(tmp_path)} == {"0", "1"}
    found = plan(tmp_path, "--no-slowdown")
    assert len(found["ranks"]) == 2
    words = ["--iterations", 40, "--blocks", 0, "--look-every", 5, "--stages", "measured", "-o", "certificate.json"]
    slow = {"TOY_REPLICAS": "2", "TOY_MS": "14,17", "TOY_SLOW": "1.5@10"}
    _, said = ranks(4, "run", TOY, "plan.json", *words, made=made, **slow)
    assert "replica 1 takes" in said and "the others follow a plan of" in said
    told = json.loads((tmp_path / "certificate.json").read_text())
    assert told["plans"] >= 2 and told["restored"]


@pytest.mark.nightly
def test_ranks_that_share_a_board_measure_in_turn_and_follow_a_plan_dry(ranks, boards, tmp_path):
    made, _ = ranks(2, "measure", TOY, "-o", "measured", TOY_MS="14,17")
    found = plan(tmp_path, "--no-slowdown")
    changes = sum(len({own["clocks"][0]["core_mhz"] for own in rank["instructions"]}) > 1 for rank in found["ranks"])
    sets = [made.get("sets", board) for board in (0, 1)]
    shared = ["--gpus", made.uuid, "--dry-run"]
    _, said = ranks(2, "measure", TOY, "-o", "alone", *shared, made=made, TOY_MS="14,17")
    assert "at 1 clocks" in said and (tmp_path / "alone/stages.csv").exists()
    words = ["--iterations", 3, "--blocks", 2, "--block-s", 0.5, *shared, "-o", "c.json"]
    ranks(2, "run", TOY, "plan.json", *words, made=made, TOY_MS="14,17")
    told = json.loads((tmp_path / "c.json").read_text())
    assert told["dry_run"] and told["counted"] == 1 and told["why"] == "" and (told["asked"] > 0) == (changes > 0)
    assert [made.get("sets", board) for board in (0, 1)] == sets


@pytest.mark.nightly
@pytest.mark.skipif(not _has_titan(), reason="torchtitan 0.2 is not installed: in 0.3 what makes stages is private")
def test_stages_that_torchtitan_makes_are_measured_planned_and_followed(ranks, tmp_path):
    training = TOY.with_name("titan_llama.py")
    # dry: what torchtitan computes is no load of a fake board
    made, said = ranks(2, "measure", training, "--dry-run", "-o", "measured")
    assert "loss" in said
    rows = rows_of(tmp_path)
    names = ("forward", "backward", "waiting")
    assert {(row["stage"], row["instruction"]) for row in rows} == {(own, name) for own in "01" for name in names}
    graph = json.loads((tmp_path / "measured/graph.json").read_text())
    assert len(graph["operations"]) == 2 * 2 * 4
    assert made.get("sets") == "0"
    # how long such boards take to change clocks, another training has shown
    made, _ = ranks(2, "measure", TOY, "-o", "toy", TOY_MS="14,17")
    sets = made.get("sets")
    assert len(plan(tmp_path, "--no-slowdown", "--latency", "toy/latency.json")["ranks"]) == 2
    words = ["--iterations", 3, "--blocks", 2, "--block-s", 0.5, "--dry-run", "-o", "certificate.json"]
    _, said = ranks(2, "run", training, "plan.json", *words, made=made)
    told = json.loads((tmp_path / "certificate.json").read_text())
    assert told["dry_run"] and told["why"] == "" and told["ranks"] == 2 and "loss" in said
    assert made.get("sets") == sets
