"""Plans for other programs: a plain CSV, Zeus's file, and what they cannot hold is one line."""

import ast
import csv
import json

import numpy as np
import pytest
from made_up import BLOCKING_W, profile

from kernel_dvfs.cli.main import main
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner, write_plan
from kernel_dvfs_pipeline.stage_profile import InstructionSettings, StageProfile

STAGES, MICROBATCHES = 3, 4


@pytest.fixture
def planned(tmp_path):
    """Writes a plan of a profile; its path and document."""

    def write(stages, kind="one clock", constant=()):
        planner = Planner(stages, pipeline_graph("1f1b", STAGES, MICROBATCHES, constant=constant), BLOCKING_W)
        write_plan(tmp_path / "plan.json", planner.plan(1.03 * planner.frontier.time_s[-1], kind), {})
        return tmp_path / "plan.json", json.loads((tmp_path / "plan.json").read_text())

    return write


def changed(stages, **columns):
    return StageProfile({key: own._replace(**columns) for key, own in stages.settings.items()}, "changed")


def in_order(document):
    return [[own["instruction"] for own in rank["instructions"]] for rank in document["ranks"]]


def test_zeus_gets_every_instruction_of_every_stage_in_order_with_its_clock(planned, tmp_path):
    path, document = planned(profile(STAGES))
    assert main(["pipeline", "export", str(path), "--format", "zeus", "-o", str(tmp_path / "plan.py")]) == 0
    loaded = ast.literal_eval((tmp_path / "plan.py").read_text())
    assert [[name for name, _ in own] for own in loaded] == in_order(document)
    clocks = [[own["clocks"][0]["core_mhz"] for own in rank["instructions"]] for rank in document["ranks"]]
    assert [[mhz for _, mhz in own] for own in loaded] == clocks
    assert all(type(mhz) is int for own in loaded for _, mhz in own)


def test_zeus_itself_loads_the_file(planned, tmp_path):
    scheduler = pytest.importorskip("zeus.optimizer.pipeline_frequency.server.scheduler", reason="needs zeus and torch")
    common = pytest.importorskip("zeus.optimizer.pipeline_frequency.common")
    path, document = planned(profile(STAGES))
    assert main(["pipeline", "export", str(path), "--format", "zeus", "-o", str(tmp_path / "plan.py")]) == 0
    job = common.JobInfo(pp_degree=STAGES, dp_degree=1, tp_degree=1, world_size=STAGES)
    ranks = [
        common.RankInfo(rank=own, dp_rank=0, pp_rank=own, tp_rank=0, available_frequencies=[1400])
        for own in range(STAGES)
    ]
    given = {"solution_path": str(tmp_path / "plan.py")}
    made = scheduler.PointSolution(job, ranks, common.PFOServerSettings(scheduler_args=given), **given).next_schedule()
    assert [[name for name, _ in own.frequencies] for own in made] == in_order(document)
    for own, rank in zip(made, document["ranks"]):
        assert [mhz for _, mhz in own.frequencies] == [each["clocks"][0]["core_mhz"] for each in rank["instructions"]]


def test_work_without_a_clock_is_left_out_for_zeus_and_empty_in_the_csv(planned, tmp_path):
    settings = dict(profile(STAGES).settings)
    nothing = np.array([np.nan])
    for stage in range(STAGES):
        settings[stage, "load"] = InstructionSettings(nothing, nothing, np.array([0.01]), np.array([1.0]), ["made up"])
    path, document = planned(StageProfile(settings, "loads"), constant=("load",))
    assert main(["pipeline", "export", str(path), "--format", "zeus", "-o", str(tmp_path / "plan.py")]) == 0
    loaded = ast.literal_eval((tmp_path / "plan.py").read_text())
    assert [["load", *(name for name, _ in own)] for own in loaded] == in_order(document)
    assert main(["pipeline", "export", str(path), "-o", str(tmp_path / "plan.csv")]) == 0
    with open(tmp_path / "plan.csv", newline="") as file:
        assert {row["core_mhz"] for row in csv.DictReader(file) if row["instruction"] == "load"} == {""}


def test_the_csv_holds_every_part_of_a_split_plan(planned, tmp_path):
    path, document = planned(profile(STAGES), "split")
    assert main(["pipeline", "export", str(path), "-o", str(tmp_path / "plan.csv")]) == 0
    with open(tmp_path / "plan.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    parts = [
        (rank["stage"], place, own["instruction"], own["microbatch"], own["begin_s"], own["end_s"], part["core_mhz"],
         part["share_of_kernels"])
        for rank in document["ranks"]
        for place, own in enumerate(rank["instructions"])
        for part in own["clocks"]
    ]  # fmt: skip
    kinds = (int, int, str, int, float, float, float, float)
    columns = ("stage", "place", "instruction", "microbatch", "begin_s", "end_s", "core_mhz", "share_of_kernels")
    assert [tuple(kind(row[column]) for kind, column in zip(kinds, columns)) for row in rows] == parts
    assert len(rows) > 2 * STAGES * MICROBATCHES


@pytest.mark.parametrize(
    ("columns", "kind", "output", "named"),
    [
        ({}, "split", "plan.py", "changes clocks on its way"),
        ({"mem_mhz": np.full(12, 5001.0)}, "one clock", "plan.py", "sets the memory clock"),
        ({"core_mhz": np.linspace(1000.5, 1400.5, 12)}, "one clock", "plan.py", "Zeus needs whole MHz"),
        ({}, "one clock", "plan.txt", "ends in .py"),
    ],
)
def test_what_zeus_cannot_run_is_one_line_and_leaves_no_file(planned, tmp_path, capsys, columns, kind, output, named):
    path, _ = planned(changed(profile(STAGES), **columns), kind)
    assert main(["pipeline", "export", str(path), "--format", "zeus", "-o", str(tmp_path / output)]) == 2
    said = capsys.readouterr().err
    assert named in said and said.count("\n") == 1 and not (tmp_path / output).exists()
