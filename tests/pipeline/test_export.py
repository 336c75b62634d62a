"""Plans for other programs: a plain CSV, Zeus's file, and what they cannot hold is one line."""

import ast
import csv
import json
from pathlib import Path

import numpy as np
import pytest
from made_up import BLOCKING_W, profile

from kernel_dvfs.cli.main import main
from kernel_dvfs.pipeline.graph import pipeline_graph
from kernel_dvfs.pipeline.planner import Planner, write_plan
from kernel_dvfs.pipeline.stage_profile import Settings, StageProfile

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


def test_zeus_follows_stragglers_by_plans_made_ahead(tmp_path):
    common = pytest.importorskip("zeus.optimizer.pipeline_frequency.common", reason="needs zeus and torch")
    from kernel_dvfs.pipeline.zeus import StragglerPlans, durations_s

    planner = Planner(profile(STAGES), pipeline_graph("1f1b", STAGES, MICROBATCHES), BLOCKING_W)
    base_s, paths = planner.frontier.time_s[-1], []
    for ratio in (1.0, 1.1, 1.2):
        paths.append(str(tmp_path / f"{ratio}.json"))
        write_plan(paths[-1], planner.plan(ratio * base_s), {})
    plans = [json.loads(Path(path).read_text()) for path in paths]
    job = common.JobInfo(pp_degree=STAGES, dp_degree=2, tp_degree=1, world_size=2 * STAGES)
    ranks = [
        common.RankInfo(rank=own, dp_rank=own // STAGES, pp_rank=own % STAGES, tp_rank=0, available_frequencies=[1400])
        for own in range(2 * STAGES)
    ]
    given = {"plans": paths}
    settings = common.PFOServerSettings.construct(scheduler=StragglerPlans, scheduler_args=given)
    scheduler = settings.scheduler(job, ranks, settings, **settings.scheduler_args)

    def clocks(made, pipeline):
        own = [each for each in made if each.rank // STAGES == pipeline]
        return [[mhz for _, mhz in each.frequencies] for each in sorted(own, key=lambda each: each.rank)]

    def of(plan):
        return [[own["clocks"][0]["core_mhz"] for own in rank["instructions"]] for rank in plan["ranks"]]

    def results(running, slowdown):
        """What the ranks measure when pipeline 0 is slowed."""
        return [
            common.ProfilingResult(
                rank=info.rank,
                iter_time=[1.0],
                iter_energy=[1.0],
                time_breakdown={
                    name: [[own * (1 if info.dp_rank else slowdown) for own in taken]]
                    for name, taken in durations_s(running[info.dp_rank], info.pp_rank).items()
                },
            )
            for info in ranks
        ]

    running = [plans[0], plans[0]]
    for slowdown, others in ((1.0, 0), (1.15, 1), (1.3, 2), (1.005, 0)):
        made = scheduler.next_schedule()
        assert clocks(made, 0) == of(running[0]) and clocks(made, 1) == of(running[1])
        scheduler.observe(results(running, slowdown))
        running = [plans[0], plans[others]]
        assert clocks(scheduler.next_schedule(), 1) == of(plans[others])


def test_one_slow_stage_stretches_an_iteration_as_the_planner_s_graph_says(planned):
    pytest.importorskip("zeus.optimizer.pipeline_frequency.common", reason="needs zeus and torch")
    from kernel_dvfs.pipeline.zeus import stretched

    _, document = planned(profile(STAGES))
    graph = pipeline_graph("1f1b", STAGES, MICROBATCHES)
    taken = {
        (rank["stage"], own["instruction"], own["microbatch"]): own["end_s"] - own["begin_s"]
        for rank in document["ranks"]
        for own in rank["instructions"]
    }
    for slow in ((0, "forward"), (1, "backward")):
        longer = {slow: 1.2}
        lengths = [
            max(
                graph.finish_ticks(
                    [
                        taken[own.stage, own.instruction, own.microbatch] * factor.get((own.stage, own.instruction), 1)
                        for own in graph.operations
                    ]
                )
            )
            for factor in ({}, longer)
        ]
        assert stretched(document, longer) == pytest.approx(lengths[1] / lengths[0], rel=1e-12)
        assert 1 < stretched(document, longer) < 1.2, "one stage is not the whole iteration"
    assert stretched(document, {}) == 1


def test_work_without_a_clock_is_left_out_for_zeus_and_empty_in_the_csv(planned, tmp_path):
    settings = dict(profile(STAGES).settings)
    nothing = np.array([np.nan])
    for stage in range(STAGES):
        settings[stage, "load"] = Settings(nothing, nothing, np.array([0.01]), np.array([1.0]), ["made up"])
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
