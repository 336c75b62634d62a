"""Tables and figures of the pipeline study: their figures agree with each other and with the plans."""

import itertools

import pandas as pd
import pytest

from kernel_dvfs_pipeline.report import figures, paper, tables
from kernel_dvfs_pipeline.solver import Solver
from kernel_dvfs_pipeline.steps import LEVEL_RATIOS
from kernel_dvfs_pipeline.study import ALL_MAX, PER_STAGE, UNIFORM, PipelineStudy, RunnablePlan


@pytest.fixture(scope="module")
def study(solved_study):
    return PipelineStudy(solved_study)


@pytest.fixture(scope="module")
def solver(study):
    return Solver(study)


def ours(frame, **chosen) -> pd.DataFrame:
    frame = frame[frame.source == "ours"]
    for column, value in chosen.items():
        frame = frame[frame[column] == value]
    return frame.set_index("method")


def test_without_a_straggler_the_bound_saves_most_and_nothing_of_ours_is_late(study):
    frame = tables.no_straggler(study)
    for microbatches in (4, 6):
        own = ours(frame, microbatches=microbatches)
        change = own.energy_change_percent
        assert change["bound"] <= change["split"] <= change["one clock"] <= change["per-stage clock"] <= 0
        assert (own.time_change_percent[["one clock", "split", "uniform clock"]] <= 1e-9).all()


def test_the_papers_rows_follow_ours_and_are_marked(study):
    frame = tables.no_straggler(study)
    theirs = frame[frame.source == paper.SOURCE]
    assert len(theirs) == 2 * len(paper.NO_STRAGGLER) == 20
    derived = frame[frame.source == paper.DERIVED]
    assert len(derived) == 10 and derived.method.str.startswith("Zeus").all()
    row = theirs[
        (theirs.method == "Perseus") & theirs.workload.str.contains("A40") & theirs.workload.str.contains("T5")
    ]
    assert row.energy_change_percent.item() == -28.5 and row.microbatches.item() == 32


def test_the_three_tables_of_changes_agree(study):
    plain, clusters, waiting = tables.no_straggler(study), tables.emulation(study), tables.straggler(study)
    for method in ("one clock", "split", "bound"):
        a, b = (ours(frame, microbatches=4).energy_change_percent[method] for frame in (plain, clusters))
        assert a == pytest.approx(b)
    both = tables.breakdown(study)
    for method in ("one clock", "split", "bound"):
        row = ours(both, microbatches=4).loc[method]
        assert row.pipeline_change_percent == pytest.approx(row.intrinsic_change_percent + row.extrinsic_change_percent)
        assert row.pipeline_change_percent < 0
        at_ratio = ours(waiting, microbatches=4, straggler_ratio=1.2).energy_change_percent[method]
        assert row.pipeline_change_percent == pytest.approx(at_ratio)
    assert ours(clusters, microbatches=4).gpus["bound"] == 6 * 4 * 2


def test_a_pipeline_that_waits_saves_more_by_waiting_slower(study):
    frame = tables.straggler(study)
    for microbatches in (4, 6):
        early, late = (
            ours(frame, microbatches=microbatches, straggler_ratio=ratio).energy_change_percent for ratio in (1.05, 1.2)
        )
        assert late["bound"] < early["bound"] and late["one clock"] < early["one clock"]


def test_each_level_of_choice_adds(study):
    frame = tables.levels(study).set_index(["straggler_ratio", "level"]).energy_change_percent
    for ratio in LEVEL_RATIOS:
        own = frame[ratio]
        assert own["kernels in the pipeline, bound"] < own["operations, bound"] <= own["operations, one clock"]
        assert own["kernels in the pipeline, bound"] < own["kernels alone"] < 0


def test_the_checks_hold_on_this_study(study):
    frame = tables.certificate(study)
    assert (frame.latest_s <= 0).all() and (frame.ordered == "bound <= split <= one clock").all()
    assert (frame.lp_difference.astype(float) <= 1e-6).all() and (frame.points >= 20).all()


def test_slower_changes_leave_less_and_no_plan_is_late(study):
    frame = tables.switching(study)
    assert (frame.late_s == 0).all()
    for _, own in frame.groupby(["microbatches", "asked"]):
        assert own.sort_values("latency_ms").energy_change_percent.is_monotonic_increasing


def bound_percent(planner, base, time_percent):
    """The least change of energy of an iteration whose time changes so."""
    energy_j = float(planner.frontier.energy_at((1 + time_percent / 100) * base.time_ticks))
    return 100 * (energy_j / base.energy_j() - 1)


def test_the_frontier_figure_draws_no_plan_below_the_bound(study, solver):
    lines, marks, baselines = figures.frontier_data(study, 4)
    planner, base = solver.planner(4), solver.base(4)
    for mark in pd.concat([marks, baselines]).itertuples():
        bound = bound_percent(planner, base, mark.time)
        assert mark.energy >= bound - 1e-7
    assert lines.energy.min() < 0 and baselines.time.min() == baselines.energy.max() == 0
    # nobody wants to be slower for more energy
    for own in (lines, *(each for _, each in marks.groupby("series", observed=True))):
        assert own.energy.idxmin() == own.time.idxmax()
    # names that would cover each other stand at one point
    points = list(baselines[["time", "energy"]].itertuples(index=False))
    assert all(max(abs(a - b) for a, b in zip(one, other)) >= 1 for one, other in itertools.combinations(points, 2))
    assert ", ".join(baselines.name).count(", ") + 1 == sum(
        run.method in (ALL_MAX, UNIFORM, PER_STAGE) for run in study.read(4, RunnablePlan)
    )
    for point in lines.itertuples():
        assert point.energy == pytest.approx(bound_percent(planner, base, point.time), abs=1e-9)


def test_the_timeline_shows_every_operation_twice_and_less_power_afterwards(study, solver):
    bars = figures.timeline_data(study, 4)
    assert len(bars) == 2 * len(solver.graph(4))
    before, after = (own for _, own in bars.groupby("plan", observed=True))
    assert after.watt.mean() < before.watt.mean()
    assert after.end_s.max() <= before.end_s.max()
    for (_, low), own in bars.groupby(["plan", "low"], observed=True):
        spans = own.sort_values("begin_s")
        assert (spans.end_s.to_numpy()[:-1] <= spans.begin_s.to_numpy()[1:] + 1e-12).all(), low


def test_the_straggler_figure_shows_its_tables_series(study):
    frame = figures.straggler_data(study, 6)
    assert list(frame.method.cat.categories) == [
        "proven lower bound",
        "one clock per operation",
        "published plan, as run",
        "published plan, best in time",
    ]
    assert set(frame.microbatches) == {6}
    table = tables.straggler(study)
    shown = table[(table.source == "ours") & (table.microbatches == 6) & (table.method == "bound")]
    drawn = frame[frame.method == "proven lower bound"]
    assert (
        drawn.energy_change_percent.tolist() == shown.energy_change_percent.tolist()
        and max(drawn.energy_change_percent) < 0
    )


@pytest.mark.parametrize("name", figures.OUTPUTS.of("figure"))
def test_a_figure_has_units_the_one_sign_and_no_shorthand(name, study, cut_off):
    plot = figures.OUTPUTS["figure", name].make(study)
    words = " ".join(str(plot.labels.get(key, "")) for key in ("title", "x", "y", "fill", "caption"))
    assert "all-max" not in words and "saved, %" not in words and "saved" not in plot.labels.title
    axes = [plot.labels.x, plot.labels.y]
    if name != "timeline":
        assert any("change of" in axis and "(negative: saved)" in axis.replace("\n", " ") for axis in axes), axes
        assert "better: " in plot.labels.subtitle.replace("\n", " ")
    assert cut_off(plot) == []


def test_published_reductions_stand_beside_ours_with_the_same_sign(study):
    frame = figures.breakdown_data(study)
    assert (frame.change_percent <= 0).all() and set(frame.part) == {"intrinsic", "extrinsic", "paper"}
