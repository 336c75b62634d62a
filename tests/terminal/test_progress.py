"""How far a run is: counts grow, and no time is promised before it is known."""

import pytest

from snakemake_logger_plugin_kernel_dvfs.progress import OTHER, STAGES, Progress, duration, rough, stage_of


class Run:
    """A run on a clock of its own: jobs are numbered as they start."""

    def __init__(self, **jobs):
        self.progress, self.now_s, self.started = Progress(), 0.0, 0
        self.progress.plan(jobs, 0.0)

    def do(self, rule, count=1, seconds=1.0):
        """Jobs of a rule, one after the other, each of so many seconds."""
        for _ in range(count):
            self.started += 1
            self.progress.start(self.started, rule, self.now_s)
            self.now_s += seconds
            self.progress.finish(self.started, self.now_s)
        return self

    def line(self, columns=None):
        return self.progress.line(self.now_s, self.now_s, columns)


@pytest.mark.parametrize(
    ("rule", "stage"),
    [
        ("measure", "measure"),
        ("measure_1470_9251_r0", "measure"),
        ("compare_locked", "measure"),
        ("compare_gpus", "report"),
        ("comparison_page", "report"),
        ("report_page", "report"),
        ("choose_schedule", "choose"),
        ("choose_variant", "carry over"),
        ("validate_schedule", "validate"),
        ("table_headline", "tables"),
        ("fig5_kernels", "figures"),
        ("build_native", "setup"),
        ("serving_table", "studies"),
        ("something_new", OTHER),
    ],
)
def test_a_rule_belongs_to_the_stage_of_its_longest_beginning(rule, stage):
    assert stage_of(rule) == stage


def test_no_two_stages_claim_the_same_beginning():
    starts = [start for beginnings in STAGES.values() for start in beginnings]
    assert len(starts) == len(set(starts))


def test_stages_come_in_the_order_of_a_run_and_targets_are_no_work():
    run = Run(all=1, fig5_kernels=2, choose_schedule=3, measure=1234)
    assert run.line() == "measure 0 of 1,234 · choose 0 of 3 · figures 0 of 2   0 s"
    assert run.do("all").line().startswith("measure 0 of 1,234")


def test_done_only_grows_however_often_a_job_is_told():
    run = Run(measure=3).do("measure", 2)
    run.progress.finish(1, run.now_s)
    run.progress.start(1, "measure", run.now_s)
    assert run.line().startswith("measure 2 of 3 ")


def test_a_total_may_grow_but_never_shrinks():
    run = Run(measure=3)
    run.progress.plan({"measure": 2, "table_a": 1}, 0.0)
    assert run.line().startswith("measure 0 of 3 · tables 0 of 1 ")
    run.progress.plan({"measure": 5}, 0.0)
    assert run.line().startswith("measure 0 of 5 · tables 0 of 1 ")
    # started beyond what was planned
    assert run.do("table_a").do("table_a").line().startswith("measure 0 of 5 · tables 2 of 2 ")


def test_jobs_that_a_checkpoint_adds_are_told_before_it_is_known_of_which_rule():
    run = Run(measure=3).do("measure", 3)
    run.progress.count_all(7)
    assert run.line().startswith("measure 3 of 3 · 4 more ") and not run.progress.complete
    assert run.do("table_a", 4).line().startswith("measure 3 of 3 · tables 4 of 4 ")
    assert run.progress.complete


def test_a_failed_job_is_told_until_it_succeeds():
    run = Run(choose_a=2)
    run.progress.start(7, "choose_a", 0.0)
    run.progress.fail(7, 1.0)
    assert run.line().startswith("choose 0 of 2 (1 failed) ")
    run.progress.finish(7, 2.0)
    assert run.line().startswith("choose 1 of 2 ")


def test_no_time_is_promised_before_a_twentieth_is_done_and_ten_seconds_have_passed():
    # 4 % in 40 s; half in 5 s
    assert "left" not in Run(measure=100).do("measure", 4, seconds=10).line()
    assert "left" not in Run(measure=100).do("measure", 50, seconds=0.1).line()
    assert Run(measure=100).do("measure", 5, seconds=2).line() == "measure 5 of 100   10 s, about 3 min left"


def test_as_long_as_a_later_stage_is_unknown_the_promise_is_for_the_stages_that_are_known():
    run = Run(measure=20, choose_a=2).do("measure", 10, seconds=6)
    assert run.line().endswith("1 min 0 s, measure: about 1 min left")
    run.do("measure", 10, seconds=6).do("choose_a", seconds=30)
    # one choice is left, at the time that the other took
    assert run.line() == "measure 20 of 20 · choose 1 of 2   2 min 30 s, about 30 s left"


def test_jobs_side_by_side_share_the_time():
    run = Run(measure=100)
    for job in range(40):
        run.progress.start(job, "measure", 0.0)
    for job in range(40):
        run.progress.finish(job, 20.0)
    run.now_s = 20.0
    assert run.line().endswith("20 s, about 30 s left")


def test_a_job_that_runs_brings_the_end_nearer_by_no_more_than_its_time():
    run = Run(measure=4).do("measure", 2, seconds=300)
    assert run.line().endswith("about 10 min left")
    run.now_s += 120
    assert run.line().endswith("about 8 min left")
    run.now_s += 6000
    assert run.line().endswith("about 5 min left")


def test_a_failed_job_is_not_waited_for():
    run = Run(measure=20).do("measure", 10, seconds=6)
    for job in range(100, 105):
        run.progress.start(job, "measure", run.now_s)
        run.progress.fail(job, run.now_s)
    assert run.line().endswith("about 30 s left")


def test_a_narrow_terminal_gets_what_is_at_work():
    run = Run(build_native=2, measure=3000, choose_a=29, table_a=13, fig5=7).do("build_native", 2).do("measure", 10)
    assert run.line(200).startswith("setup 2 of 2 · measure 10 of 3,000 · choose 0 of 29")
    assert run.line(80).startswith("measure 10 of 3,000 · choose 0 of 29 · tables 0 of 13 · figures 0 of 7")
    assert run.line(70) == "measure 10 of 3,000 · then choose, tables, figures   12 s"
    assert run.line(40) == "measure 10 of 3,000   12 s"
    assert all(len(run.line(columns)) <= columns for columns in range(1, 120))


def test_a_log_hears_of_each_stage_twice():
    run = Run(measure=2, choose_a=1)
    assert list(run.progress.news()) == []
    run.do("measure", 2, seconds=40)
    assert list(run.progress.news()) == ["measure: begins, 2 jobs", "measure: done, 2 jobs in 1 min 20 s"]
    run.do("choose_a").do("choose_a")
    assert list(run.progress.news()) == ["choose: begins, 2 jobs", "choose: done, 2 jobs in 2 s"]
    run.do("choose_a")
    assert list(run.progress.news()) == []


@pytest.mark.parametrize(
    ("seconds", "exact", "about"),
    [
        (0, "0 s", "10 s"),
        (44, "44 s", "40 s"),
        (59, "59 s", "1 min"),
        (130, "2 min 10 s", "2 min"),
        (7500, "2 h 5 min", "2 h 5 min"),
        (40000, "11 h 6 min", "11 h"),
        (300000, "3 d 11 h", "83 h"),
    ],
)
def test_durations_and_estimates_are_as_fine_as_they_need_to_be(seconds, exact, about):
    assert duration(seconds) == exact and rough(seconds) == about
