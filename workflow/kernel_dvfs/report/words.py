"""An answer in words, for the terminal and for a page: what a schedule claims, and what a study has found.

The line that a run ends with is made from files alone, with the standard library: the workflow imports it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kernel_dvfs.choice.schedule_file import FrontierPoint, Schedule, read_schedule
from kernel_dvfs.extensions import part
from kernel_dvfs.layout import ANSWER, LAUNCH, PASS, RUN, STRICT, subject
from kernel_dvfs.limit_verdict import limit_in_words
from kernel_dvfs.report import sealed
from kernel_dvfs.table_file import read_rows
from kernel_dvfs_clocks.clocks import AUTO
from kernel_dvfs_clocks.errors import InputError, Missing
from kernel_dvfs_clocks.shape import fault

# the paper's headline, by level of choice, percent of energy: its abstract, measured again
PAPER_PERCENT = {"kernel": -14.6, "pass": -2.0}
# the GPU and the workload that it is of, and its changes of energy and time there, measured again
PAPER_STUDY, PAPER_POINT = ("RTX 3080 Ti", "gpt3-xl-b40-tp1"), (PAPER_PERCENT["kernel"], 0.6)
# what the strict choice claimed there, by a third-party summary
PAPER_CLAIMED_PERCENT = -15.64
# clock pairs of a pass that lose no time there and save energy
PAPER_PAIRS = {"forward": 6, "backward": 0}
# how a change is known: by the data that chose, or by measuring the choice again
CLAIMED, MEASURED_AGAIN = "claimed", "measured again"
_OPTIMISTIC = f"{CLAIMED}: optimistic, since the same noisy data selected the clocks"
_OBJECTIVES = {
    "waste": "least energy, {limit}",
    "edp": "the least energy-delay product",
    "energy": "the least energy, however long it takes",
}
_SCOPES = {"single": "one pair for all {}", "local": "each of the {} on its own", "global": "all {} together"}


def is_papers(subject: str, workload: str) -> bool:
    """Return whether a study is of the paper's GPU (simulated or not) and workload, so that its figures may stand
    beside."""
    return subject.endswith(PAPER_STUDY[0]) and workload == PAPER_STUDY[1]


def in_words(percent: float, quantity: str) -> str:
    """Return `7.23 % less energy`, `the same time` where it rounds to nothing."""
    text = f"{abs(percent):.2f}"
    if float(text) == 0:
        return f"the same {quantity}"
    return f"{text} % {'more' if percent > 0 else 'less'} {quantity}"


def asked(schedule: Mapping[str, Any]) -> str:
    """Return what a schedule was asked for."""
    limit = time_limit(schedule["slack_percent"])
    objective, scope = _OBJECTIVES[schedule["objective"]], _SCOPES[schedule["scope"]]
    return f"{objective.format(limit=limit)}; {scope.format(kinds(schedule))}"


def how_known(gpu: Mapping[str, Any], is_measured_again: bool) -> str:
    """Return how a change is known, in words: `claimed`; `measured again`; `forecast`, where all of it comes from a
    model of the GPU that a captured step ran on, what was "measured again" too."""
    if gpu.get("forecast"):
        return "forecast"
    return MEASURED_AGAIN if is_measured_again else CLAIMED


def against(workload: Mapping[str, Any]) -> str:
    """Return what changes are against: `auto`, or the reference of a table that has no auto rows."""
    reference = workload.get("reference")
    return f"the reference {reference}" if reference else "auto"


def time_limit(slack_percent: float | None) -> str:
    """Return `no slower`, `at most 2 % slower`, `3 % faster`."""
    if not slack_percent:
        return "no slower"
    return f"at most {slack_percent:.3g} % slower" if slack_percent > 0 else f"{-slack_percent:.3g} % faster"


def kinds(schedule: Mapping[str, Any]) -> str:
    """Return what clocks are chosen for."""
    return "passes" if schedule["granularity"] == "pass" else "kernels"


def whose(schedule: Mapping[str, Any]) -> str:
    """Return `simulated RTX 3080 Ti, gpt3-xl-b40-tp1`."""
    name = schedule["workload"].get("name", "")
    return ", ".join(filter(None, (subject(schedule["gpu"]), name)))


def time_bound_percent(schedule: Mapping[str, Any]) -> float | None:
    """Return the most that a choice changes the time by, percent of that at auto, as a walk has shown; None without."""
    return (schedule.get("walk") or {}).get("time_bound_percent")


def another_minute_pp(schedule: Mapping[str, Any]) -> float | None:
    """Return the points of energy that another minute of measuring saves at most; None where there was no walk."""
    return (schedule.get("walk") or {}).get("another_minute")


# what a total is of, by the weights that it is made with
OF_WEIGHTS = {
    "counts": "",
    "raw": ", each kernel launched once",
    "equal-time": ", each kernel with equal time at the baseline",
}


def checked(schedule: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schedule itself. Raises InputError where it is none that says what it changes."""
    wrong = fault(dict(schedule) if isinstance(schedule, Mapping) else schedule, Schedule)
    if not wrong and schedule["status"] != "optimal":
        wrong = f"status is {schedule['status']}"
    if wrong:
        raise InputError(
            f"schedule: {wrong}: it holds no choice of clocks; make one with kernel-dvfs choose, with a larger --slack "
            "if nothing can be chosen"
        )
    return schedule


def answer_of(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer for other programs: changes against auto, percent, negative = less, claimed by the data that
    chose."""
    checked(schedule)
    columns = (
        "weights",
        "granularity",
        "scope",
        "objective",
        "slack_percent",
        "energy_change_percent",
        "time_change_percent",
    )
    return {
        "schema": ANSWER,
        "gpu": subject(schedule["gpu"]),
        "workload": schedule["workload"].get("name"),
        "simulated": schedule["gpu"]["kind"] == "simulated",
        **{name: schedule[name] for name in columns},
        "time_bound_percent": time_bound_percent(schedule),
        "targets": len(schedule["targets"]),
    }


def answer_line(schedule: Mapping[str, Any]) -> str:
    """Return the answer in one line: what is claimed, that it is a claim, and what was shown of its time."""
    checked(schedule)
    energy, time = schedule["energy_change_percent"], schedule["time_change_percent"]
    held = how_known(schedule["gpu"], False)
    if schedule["walk"]:
        held += f"; {limit_in_words(schedule)}"
    elif held == CLAIMED:
        held = _OPTIMISTIC
    settings = {tuple(setting.values()) for setting in schedule["targets"].values()}
    pairs = "1 clock pair" if len(settings) == 1 else f"{len(settings)} clock pairs"
    chosen = schedule["granularity"] if len(schedule["targets"]) == 1 else kinds(schedule)
    return (
        f"{whose(schedule)}: {in_words(energy, 'energy')} and {in_words(time, 'time')}"
        f"{OF_WEIGHTS[schedule['weights']]}, against {against(schedule['workload'])} ({held}); "
        f"{len(schedule['targets'])} {chosen} at {pairs}; asked for: {asked(schedule)}"
    )


def frontier_line(about: Mapping[str, Any], points: Sequence[FrontierPoint], path: str) -> str:
    """Return a frontier in one line, by its ends of all kernels together. about: gpu, workload and weights; path: its
    file."""
    together = [point for point in points if point["scope"] == "global" and point["slack_percent"] >= 0]
    ends = [
        f"{time_limit(point['slack_percent'])}: {in_words(point['energy_change_percent'], 'energy')} and "
        f"{in_words(point['time_change_percent'], 'time')}"
        for point in (together[0], together[-1])
    ]
    held = how_known(about["gpu"], False)
    return (
        f"{whose(about)}: {'; '.join(ends)}{OF_WEIGHTS[about['weights']]}, against {against(about['workload'])} "
        f"({_OPTIMISTIC if held == CLAIMED else held}); these choose all kernels together; with those that choose "
        f"each kernel on its own there are {len(points)} points in {path}"
    )


def iteration_line(schedule: Mapping[str, Any]) -> str:
    """Return the same of an iteration schedule, and how often it changes clocks."""
    energy, time = schedule["energy_change_percent"], schedule["time_change_percent"]
    count = schedule["change_count"]
    return (
        f"{whose(schedule)}: {in_words(energy, 'energy')} and {in_words(time, 'time')}, against "
        f"{against(schedule['workload'])} (claimed), with {count} change{'s' * (count != 1)} of clocks an iteration; "
        f"asked for: least energy, {time_limit(schedule['slack_percent'])}"
    )


# --- of a study, when its run ends ------------------------------------------------------------------------------------


def line_of_study(folder: str, device: str) -> str | None:
    """Return `simulated RTX 3080 Ti: -6.7 % energy, -0.1 % time (measured again). It is at most ... Open <page>`.

    Changes of an iteration under the strict schedule, in percent of auto, negative where something is saved: as
    measured again (tables/headline.json), else as the schedule claims; then what is known of its time limit, and what
    can be set today, where changes of clocks take time (tables/deployable.json). Where nothing was chosen, what was
    found of a captured step, and the page. None where the folder holds none of these. device: how the GPU is called in
    text. Raises InputError where what it is taken from was changed since it was written.
    """
    schedule = _strict(folder)
    answer = _measured_again(folder, schedule) or _claimed(schedule)
    page = os.path.join(folder, "report.html")
    is_there = os.path.isfile(page)
    if answer is None:
        return f"{device}: {_of_step(folder) or 'no clocks chosen'}. Open {page}" if is_there else None
    energy_percent, time_percent, how, verdict = answer
    limit = limit_in_words(schedule or {}, verdict)
    sentences = f" {limit[0].upper()}{limit[1:]}." if limit else ""
    sentences += _set_today(folder, schedule["gpu"] if schedule else {})
    where = f" Open {page}" if is_there else f" See {folder}"
    return f"{device}: {signed(energy_percent)} % energy, {signed(time_percent)} % time ({how}).{sentences}{where}"


def _of_step(folder: str) -> str | None:
    """Return what the tables of a captured step say first; None where they are not there."""
    in_words, tables = part("step answer"), {}
    for name in ("step_totals", "step_check"):
        with suppress(Missing):
            tables[name] = read_rows(os.path.join(folder, "tables", f"{name}.json"))
    answer: str | None = in_words(tables) if in_words else None
    return answer


Row = TypeVar("Row", bound="Mapping[str, Any]")
# what can be set today, in few words
WAYS = {RUN: "one pair", PASS: "a pair a pass", LAUNCH: "launch by launch"}


def set_today(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of schedules/deployable.json, or of the table `deployable`, that a board can be set to at its own
    stalls and, where several are asked for, the middle latency."""
    at_defaults = [row for row in rows if row["is_default"] and row["way"] in WAYS]
    latencies = [row["latency_ms"] for row in at_defaults if row["way"] == LAUNCH]
    middle = latencies[len(latencies) // 2 : len(latencies) // 2 + 1]
    return [row for row in at_defaults if row["latency_ms"] in (None, *middle)]


def costs_in_words(row: Mapping[str, Any]) -> str:
    """Return what a change of clocks takes and costs, of a row of the table `deployable` that changes clocks."""
    core, mem, core_stall, mem_stall = (
        f"{row[name]:.3g} ms" for name in ("latency_ms", "mem_latency_ms", "core_stall_ms", "mem_stall_ms")
    )
    stall = core_stall if core_stall == mem_stall else f"{core_stall} (core) or {mem_stall} (memory)"
    return f"a change takes {core} (core) or {mem} (memory), medians, and stalls {stall}: {row['costs']}"


def _set_today(folder: str, gpu: Mapping[str, Any]) -> str:
    """Return a sentence, with a space before it; "" where the table is not there."""
    try:
        rows = set_today(read_rows(os.path.join(folder, "tables", "deployable.json")))
        changes = {
            WAYS[row["way"]]: "no change" if row["clocks"] == AUTO else f"{signed(change_of(row))} %" for row in rows
        }
        # where no mixture of pairs is better, all ways are one pair
        values = {*changes.values()}
        in_ways = values.pop() if len(values) == 1 else ", ".join(map(" ".join, changes.items()))
        again = [row["fresh_energy_change_percent"] is not None for row in rows if row["clocks"] != AUTO]
        how = how_known(gpu, all(again))
        known = f"{how}; {costs_in_words(rows[-1])}"
        return f" This counts changes of clocks as free. Energy with what can be set today: {in_ways} ({known})."
    except (Missing, LookupError):
        return ""


def change_of(row: Mapping[str, Any], quantity: str = "energy") -> float:
    """Return what a row of the table `deployable` changes, percent: as measured again, else as claimed."""
    again = row[f"fresh_{quantity}_change_percent"]
    change: float = row[f"claimed_{quantity}_change_percent"] if again is None else again
    return change


def _strict(folder: str) -> Schedule | None:
    """Return the strict schedule; None where it cannot be read. Raises InputError where it was changed."""
    path = os.path.join(folder, "schedules", f"{STRICT}.json")
    try:
        return read_schedule(path)
    except InputError:
        sealed.check_file(path)
        return None


def _measured_again(folder: str, schedule: Schedule | None) -> tuple[float, float, str, str] | None:
    try:
        # the strict schedule comes first
        row = read_rows(os.path.join(folder, "tables", "headline.json"))[0]
        energy, time = (row[f"fresh_{quantity}_change_percent"] for quantity in ("energy", "time"))
    except (Missing, LookupError):
        return None
    if energy is None or time is None:
        return None
    return energy, time, how_known(schedule["gpu"] if schedule else {}, True), row["verdict"] or ""


def _claimed(schedule: Schedule | None) -> tuple[float, float, str, str] | None:
    if schedule is None:
        return None
    energy, time = schedule["energy_change_percent"], schedule["time_change_percent"]
    if energy is None or time is None:
        return None
    how = how_known(schedule["gpu"], False)
    if how == "claimed":
        how += ", from the table's own rows" if schedule["gpu"]["kind"] == "table" else ", not measured again"
    return energy, time, how, ""


def signed(percent: float) -> str:
    """Return one decimal, with a sign unless it is zero: what rounds to zero is no saving."""
    text = f"{percent:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text
