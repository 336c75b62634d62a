"""The scheduler plugin: which of the ready jobs run next."""

import logging
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from snakemake_interface_scheduler_plugins.tests import TestSchedulerBase as OfTheInterface

from snakemake_scheduler_plugin_kernel_dvfs import Scheduler


class TestByTheInterface(OfTheInterface):
    """What Snakemake's interface asks of every scheduler."""

    __test__ = True

    def get_scheduler_cls(self):
        return Scheduler

    def get_scheduler_settings(self):
        return None


@dataclass(eq=False)
class Job:
    name: str
    priority: int = 0
    scheduler_resources: dict = field(default_factory=lambda: {"_cores": 1, "_job_count": 1})


def needing(name, priority=0, **resources):
    return Job(name, priority, {"_cores": 1, "_job_count": 1} | resources)


@pytest.fixture
def selected():
    scheduler = Scheduler(None, None, logging.getLogger("test"))

    def names(jobs, **free):
        return [job.name for job in scheduler.select_jobs(jobs, jobs, {"_job_count": 1000} | free, {})]

    return names


def test_the_highest_priority_goes_first_and_equals_keep_their_order(selected):
    jobs = [needing("c"), needing("a", 7), needing("d"), needing("b", 3)]
    assert selected(jobs, _cores=3) == ["a", "b", "c"]


def test_a_job_that_does_not_fit_leaves_its_place_to_those_after_it(selected):
    # one GPU: its jobs run one at a time, in order; what needs none goes on beside them
    jobs = [needing("pair 2", 5, gpu=1), needing("pair 1", 9, gpu=1), needing("table"), needing("large", 8, _cores=5)]
    assert selected(jobs, _cores=4, gpu=1) == ["pair 1", "table"]
    assert selected(jobs, _cores=4, gpu=0) == ["table"]


def test_a_job_without_a_core_of_its_own_waits_for_none(selected):
    points = [needing(str(number), _cores=0) for number in range(300)]
    assert len(selected([needing("long"), *points], _cores=1)) == 301
    assert len(selected(points, _cores=1, _job_count=120)) == 120, "but for the limit of jobs a second"


def test_of_thousands_some_hundreds_are_selected_at_a_time_and_of_more_an_eighth_so_that_the_counter_moves(selected):
    points = [needing(str(number), number, _cores=0) for number in range(8000)]
    assert selected(points, _cores=1, _job_count=10**6) == [str(number) for number in range(7999, 6999, -1)]
    assert len(selected(points[:3000], _cores=1, _job_count=10**6)) == 500


def test_what_runs_within_snakemakes_process_takes_no_core_from_a_process():
    rules = Path(__file__).parents[1].glob("workflow/rules/*.smk")
    blocks = [each for path in rules for each in re.split(r"\n\s*(?:rule|checkpoint)\b", path.read_text())[1:]]
    within = [block for block in blocks if re.search(r"^\s+run:$", block, re.M)]
    assert len(within) > 5
    assert [block for block in within if not re.search(r"^\s+threads: 0$", block, re.M)] == []
