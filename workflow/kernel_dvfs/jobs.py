"""What jobs of the workflow do within its process, by values instead of command lines: each writes what it is told to.

A rule calls these, and so do the commands that do the same. What one needs is imported when it is called: the workflow
reads all rules before it knows which jobs there are. All raise InputError for what a user can mend.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError, Missing
from kernel_dvfs_clocks.files import write_sealed, write_text

if TYPE_CHECKING:
    from kernel_dvfs.choice.frontier import FrontierFile
    from kernel_dvfs.choice.schedule_file import Schedule, Walked
    from kernel_dvfs.measurement.consistency import Comparison
    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.outputs import Output


# --- measure --------------------------------------------------------------------------------------------------------


def measure(gpu: str, target: str, pair: Pair, campaign: str, repeat: int, output: str, session: str = "") -> None:
    """Measure a target at a pair of clocks: one record. gpu: a setup file; target: an id, kernel/ID or pass/NAME."""
    from kernel_dvfs.measurement import job
    from kernel_dvfs.measurement import target as targets
    from kernel_dvfs.measurement.setup import read

    setup = read(gpu)
    job.measure(setup, gpu, targets.parse(setup, target), pair, campaign, repeat, output, session=session)


def sweep(gpu: str, pairs: Iterable[Pair], auto_repeats: int, studies: Sequence[str], output: str) -> None:
    """Measure all targets of `studies`, kernel and pass, at each pair on a simulated GPU: a profile."""
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.profile import aggregate

    aggregate.from_bench(read(gpu), [*pairs], auto_repeats, output, studies)


def compare(
    gpu: str,
    schedule: str,
    output: str,
    repeats: range,
    target: str = "",
    clocks: Pair | None = None,
    session: str = "",
    is_fresh: bool = False,
) -> list[Comparison]:
    """Measure kernels or passes at auto and at a schedule's clocks in turn: one record; return what is in it.

    target: one alone; "": all. clocks: instead of a schedule, for each. is_fresh: a real GPU's measuring process is
    ended first, so that these repeats share nothing with earlier ones.
    """
    from kernel_dvfs.measurement import campaign, record
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.measurement.target import MeasurementTarget, parse

    setup = read(gpu)
    level, chosen = ("kernel", {}) if clocks else _chosen(schedule, setup)
    targets = (
        [parse(setup, f"{level}/{target}")]
        if target
        else [MeasurementTarget(level, name) for name in setup.targets[level]]
    )
    if is_fresh:
        campaign.new_session(setup, gpu)
    # a kernel that the schedule does not know (another bias split) stays at auto
    pairs = {member: clocks or chosen.get(member.name, BASELINE) for member in targets}
    device, comparisons = campaign.compare(setup, gpu, pairs, repeats, session)
    named = f"{clocks.core_mhz},{clocks.mem_mhz}" if clocks else schedule
    record.write_comparison(output, setup, device, named, comparisons)
    return comparisons


def again(gpu: str, schedules: Sequence[str], repeat: int, outputs: Sequence[str]) -> None:
    """Measure the whole iteration at auto and at schedules' clocks, in a session of its own: a record a schedule."""
    from kernel_dvfs.measurement import campaign, record
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.measurement.target import MeasurementTarget

    setup = read(gpu)
    choices = []
    for path in schedules:
        level, chosen = _chosen(path, setup)
        choices.append({MeasurementTarget(level, name): chosen.get(name, BASELINE) for name in setup.targets[level]})
    campaign.new_session(setup, gpu)
    device, recorded = campaign.compare_iteration(setup, gpu, choices, repeat)
    for output, schedule, comparisons in zip(outputs, schedules, recorded, strict=True):
        record.write_comparison(output, setup, device, schedule, comparisons)


def _chosen(path: str, setup: Setup) -> tuple[str, dict[str, Pair]]:
    """Return (kernel or pass, {target: Pair}) of a schedule, at least one target of it this setup's."""
    from kernel_dvfs.choice.schedule_file import REMEDY, pairs_of, read_schedule

    schedule = read_schedule(path)
    level, chosen = schedule["granularity"], pairs_of(path, schedule)
    if not set(chosen) & set(setup.targets[level]):
        raise InputError(f"schedule {path}: holds no {level} of workload {setup.workload['name']}; {REMEDY}")
    return level, chosen


def pool_visits(gpu: str, records: str, by_clock: str, output: str) -> None:
    """Make the profile of a study by clock from its visits."""
    from kernel_dvfs.measurement.setup import read
    from kernel_dvfs.profile import aggregate
    from kernel_dvfs.search import study_file

    setup, study = read(gpu), study_file.read(by_clock)
    if study.setup != setup.digest:
        raise InputError(
            f"study by clock {by_clock}: its setup is {study.setup}, expected {setup.digest}; run kernel-dvfs measure "
            "by-clock again"
        )
    aggregate.from_visits(setup, records, study.records, study.rows, output)


# --- choose ---------------------------------------------------------------------------------------------------------


def choose(
    profile: str,
    output: str | None,
    level: str = "kernel",
    scope: str = "global",
    objective: str = "waste",
    slack_percent: float = 0,
    weights: str | None = None,
    ties: str = "tied",
    walk: str = "",
) -> Schedule:
    """Choose clocks; return the schedule. output: where it goes; None: nowhere. Warns as choice.schedule.choose does.

    Other arguments as of choice.schedule.choose. walk: a study by clock, whose walk has shown what is chosen.
    """
    from kernel_dvfs.choice import schedule as choosing

    walked = _walked(walk, level, slack_percent) if walk else None
    schedule = choosing.choose(profile, level, scope, objective, slack_percent, weights, ties, walked)
    if schedule["status"] != "optimal":
        raise InputError(
            f"{profile}: no choice keeps the limit of {slack_percent:g} % slowdown ({schedule['proof']}); raise --slack"
        )
    if output is not None:
        write_sealed(output, schedule, {"profile": profile})
    return schedule


def _walked(path: str, level: str, slack_percent: float) -> Walked:
    """Return what the walk of a study by clock has shown for a limit."""
    from kernel_dvfs.search import study_file

    walks = study_file.read(path).walks
    name = study_file.name_of(level, slack_percent)
    if name not in walks:
        raise InputError(f"study by clock {path}: it walked no {name}; it walked {', '.join(walks) or 'nothing'}")
    return walks[name]


def frontier(profile: str, output: str, ties: str = "tied", weights: str | None = None) -> FrontierFile:
    """Choose clocks of kernels at every slowdown; return what is written."""
    from kernel_dvfs.choice.frontier import relaxed_frontier

    written = relaxed_frontier(profile, ties, weights)
    write_sealed(output, written, {"profile": profile})
    return written


# --- report ---------------------------------------------------------------------------------------------------------


def output(declared: Output, folder: str, options: Mapping[str, Any], inputs: Collection[str] | None = None) -> None:
    """Make a table or figure of a study's folder. inputs: the only files to read; None: any."""
    from kernel_dvfs import registry
    from kernel_dvfs.report.results import Results
    from kernel_dvfs.report.write import write

    is_gpus = registry.kind_of(folder) == "gpu"
    read = Results(folder, declared.procedure, inputs) if is_gpus else registry.reader(folder)
    content = declared.make(read, **options)
    write(content, declared, folder, declared.subject(read) if declared.subject else read.subject)


def write_page(
    folder: str,
    output: str,
    left_out: Sequence[str] = (),
    usd_per_kwh: float | None = None,
    co2_g_per_kwh: float | None = None,
) -> list[InputError]:
    """Write the page of a study, or of all studies; return what it misses."""
    from kernel_dvfs import registry
    from kernel_dvfs.report import sealed
    from kernel_dvfs.report.page import comparison_page, study_page

    sealed.check(folder)
    if os.path.isfile(os.path.join(folder, comparison_page.TABLE)):
        html, missing = comparison_page.make(folder)
    elif (make_page := registry.page_of(folder)) is not None:
        html, missing = make_page(folder)
    else:
        html, missing = study_page.make(folder, left_out, usd_per_kwh, co2_g_per_kwh)
    write_text(output, html)
    return missing


def write_page_so_far(folder: str) -> str:
    """Write the page of a GPU's study, of the tables and figures that are made, which misses no others; return its
    path. Raises InputError where something of it is damaged."""
    from kernel_dvfs import registry

    known = registry.outputs("gpu").values()
    left_out = [wanted.name for wanted in known if not os.path.isfile(os.path.join(folder, wanted.files[0]))]
    path = os.path.join(folder, "report.html")
    page(folder, path, left_out)
    return path


def page_of_schedule(profile: str, schedule: str, output: str) -> None:
    """Write the page of a profile and of a schedule, a file, that was chosen from it."""
    from kernel_dvfs.choice.schedule_file import read_schedule
    from kernel_dvfs.report.page import schedule_page

    write_text(output, schedule_page.make(profile, read_schedule(schedule, profile=profile), called=schedule))


def refuse_damaged(page: str, missing: Sequence[InputError]) -> None:
    """Raise InputError where a page lacks what is damaged, and not just not made yet."""
    if damaged := [str(fault) for fault in missing if not isinstance(fault, Missing)]:
        raise InputError(f"{page} is written, without what is damaged: {'; '.join(damaged)}")


def page(folder: str, output: str, *about: Any) -> None:
    """Write the page of a study, or of all studies, and raise InputError where something of it is damaged."""
    refuse_damaged(output, write_page(folder, output, *about))
