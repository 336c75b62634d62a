"""How chosen clocks are put to work: commands that can be copied, each with what it promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json
from kernel_dvfs.gpu.clocks import AUTO
from kernel_dvfs.layout import ITERATION_SCHEDULE, PASS_STRICT, SINGLE, STRICT, iteration_name
from kernel_dvfs.report.page.tables import Rows
from kernel_dvfs.report.results import Results, is_chosen
from kernel_dvfs.report.words import in_words
from kernel_dvfs.sequence.costs import ASSUMED
from kernel_dvfs.sequence.costs import in_words as sources_in_words
from kernel_dvfs.sequence.deployable import FREE, LAUNCH, PASS, RUN

_COMMAND = "python train.py"
_TWO_SIDED = 1.96  # standard errors in half of a 95 % interval


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do."""

    title: str
    text: str
    command: str  # "": none


@dataclass(frozen=True, slots=True)
class Deployment:
    """How to use the chosen clocks."""

    steps: list[Step]
    notes: list[str]


def deployment(results: Results, workload: Mapping[str, Any]) -> Deployment:
    """Steps and notes for a results folder; the steps name only schedules that are there. workload: of its setup."""
    folder = Path(results.folder).resolve()
    # as the contract has it: a page that is mailed should not tell where its maker keeps files
    place = "/".join(("results", *folder.parts[-2:], "schedules"))
    steps = _of_step(results, place, workload) if "step" in workload and not results.gpu.get("forecast") else []
    single = _schedule(results, SINGLE)
    if single:
        pair = next(iter(single["targets"].values()))
        apply = f"kernel-dvfs apply --schedule {place}/{SINGLE}.json --baseline -- {_COMMAND}"
        if pair["core_mhz"] == pair["mem_mhz"] == AUTO:
            steps.append(Step("One pair for the whole run", "Of all pairs, auto is the best: nothing to set.", ""))
        elif unsure := _below_its_error(results, single):
            steps.append(Step("One pair for the whole run", f"{_pair(pair)} {unsure}", ""))
        else:
            steps.append(Step("One pair for the whole run", f"{_pair(pair)}; {_claimed(single)}.", apply))
    passes = _schedule(results, PASS_STRICT)
    if passes:
        pairs = ", ".join(f"{name} {_pair(pair)}" for name, pair in passes["targets"].items())
        apply = f"kernel-dvfs apply --pass-level --schedule {place}/{PASS_STRICT}.json --baseline -- {_COMMAND}"
        text = f"{pairs}; {_claimed(passes)}. The script marks its passes with kernel_dvfs.deploy.mark."
        if all(each == AUTO for pair in passes["targets"].values() for each in pair.values()):
            text, apply = _nothing_to_set(passes), ""
        elif unsure := _below_its_error(results, passes):
            text, apply = f"{pairs}: that {unsure}", ""
        steps.append(Step("A pair for each pass", text, apply))
    launches = [(path, found) for path in _iterations(results) if (found := _iteration(path))]
    if launches:
        text = (
            "The program that launches the kernels plays one of these with kernel_dvfs.deploy.player, and asks for "
            "each change ahead of time. Take the one for the time that a change of clocks takes on your GPU."
        )
        lines = [
            f"{place}/{path.name}\n    changes take {latency} ms ({costs}); claimed: {change}"
            for path, (latency, costs, change) in launches
        ]
        steps.append(Step("Launch by launch", text, "\n".join(lines)))
    steps.append(
        Step(
            "Give the clocks back",
            "Done by apply itself, whatever ends it; by hand where a machine was killed:",
            "kernel-dvfs reset --all",
        )
    )
    return Deployment(steps, _notes(results, workload))


def _of_step(results: Results, place: str, workload: Mapping[str, Any]) -> list[Step]:
    """How a captured step is played, with clocks launch by launch where they were chosen (for the middle latency, as on
    the first screen), else a pair a section."""
    found = [path.stem for path in _iterations(results)]
    schedule = f"{place}/{found[len(found) // 2] if found else PASS_STRICT}.json"
    text = (
        f"step is what kernel_dvfs.capture gives of {workload.get('source') or 'it'}. It is cut where clocks change, "
        "and the schedule is used only if repeats on the step itself show that it saves and keeps its limit. Take the "
        "schedule whose ms are the time that a clock change takes on your GPU (switch_s of a record's request)."
    )
    play = (
        f"with kernel_dvfs.deploy.play(step, {schedule!r}) as run:\n    for batch in batches:\n"
        "        inputs.copy_(batch)\n        run()"
    )
    return [Step("Your own step at its clocks", text, play)]


@dataclass(frozen=True, slots=True)
class Deployable:
    """What can be deployed, beside the headline. Changes in percent, negative = saved, claimed."""

    energy: float  # launch by launch, at the latency
    latency: str  # of a change, ms: the middle one of those that were looked at
    others: list[tuple[str, float]]  # (way, change of energy) of what else can be deployed
    free: float  # a clock for each kernel and changes that cost nothing, chosen from the same data
    one_pair: tuple[float, float] | None  # of energy and of time, of one pair for the whole run
    stall: str  # in words
    costs: str  # where latency and stall are from: "assumed", or "measured on NVIDIA H200 (..., 2026-11-22)"


def deployable(rows: Rows | None) -> Deployable | None:
    """What the table of that name says, rows as text; None where it was not made, or nothing can be deployed."""
    default = [row for row in rows or () if row["is_default"] == "True"]
    launches = [row for row in default if row["way"] == LAUNCH]
    if not launches:
        return None
    middle = launches[len(launches) // 2]
    latency = f"{float(middle['latency_ms']):g}"
    others = [(f"at {float(row['latency_ms']):g} ms", row) for row in launches if row is not middle]
    passes = [row for row in default if row["way"] == PASS and row["latency_ms"] == middle["latency_ms"]]
    others += [(row["way"], row) for row in (*passes, *(row for row in default if row["way"] == RUN))]
    core, mem = (f"{float(middle[f'{domain}_stall_ms']):g}" for domain in ("core", "mem"))
    return Deployable(
        float(middle["energy_change_percent"]),
        latency,
        [(name, float(row["energy_change_percent"])) for name, row in others],
        next(float(row["energy_change_percent"]) for row in default if row["way"] == FREE),
        next(
            (
                (float(row["energy_change_percent"]), float(row["time_change_percent"]))
                for row in default
                if row["way"] == RUN
            ),
            None,
        ),
        f"{core} ms" if core == mem else f"{core} ms (core) and {mem} ms (memory)",
        middle.get("costs") or ASSUMED,
    )


def _schedule(results: Results, name: str) -> dict | None:
    try:
        schedule = results.schedule(name)
    except InputError:
        return None
    return schedule if schedule.get("status") == "optimal" and schedule.get("targets") else None


def _below_its_error(results: Results, schedule: dict) -> str:
    """Why a schedule is not worth to be set, where its saving is less than its error; else ""."""
    error = _error_percent(results, schedule)
    if error is None or -schedule["energy_change_percent"] > error:
        return ""
    return f"would save less than can be told from nothing ({_claimed(schedule)}; error {error:.2f} %): nothing to set."


def _error_percent(results: Results, schedule: dict) -> float | None:
    """Half of the 95 % interval of a schedule's change of energy, percent of that at auto: of its walk, else of the
    errors that the profile has, those of kernels independent of each other; None where it has none."""
    if walk := schedule.get("walk"):
        return float(_TWO_SIDED * walk["energy_se_percent"])
    profile = results.profile
    profile = profile[profile.study == schedule["granularity"]]
    auto = profile[profile.is_baseline].set_index("target")
    chosen = profile[is_chosen(profile, schedule["targets"])].drop_duplicates("target").set_index("target")
    count = auto.launches_per_iteration if schedule["weights"] == "counts" else auto.launches_per_iteration**0
    # a target that stays at auto has no change, and no error of it
    moved = chosen.index[~chosen.is_baseline]
    errors_j = [(count * rows.energy_se_j)[moved] for rows in (auto, chosen)]
    variance_j2 = float(sum((own**2).sum(skipna=False) for own in errors_j))
    found = 100 * _TWO_SIDED * math.sqrt(variance_j2) / float((count * auto.energy_j).sum())
    return found if math.isfinite(found) else None


def _iterations(results: Results) -> list[Path]:
    """The schedules launch by launch that this study has chosen, by latency. Others in the folder are left over from
    another configuration."""
    try:
        latencies_ms = sorted({row["latency_ms"] for row in results.deployable if row["way"] == LAUNCH})
    except InputError:
        return []
    paths = [Path(results.folder) / "schedules" / f"{iteration_name(ms / 1e3)}.json" for ms in latencies_ms]
    return [path for path in paths if path.is_file()]


def _iteration(path: Path) -> tuple[str, str, str] | None:
    """(latency in ms, where it and the stalls are from, what it saves, in words) of an iteration schedule that changes
    clocks; None of another file."""
    try:
        content = read_json(path)
        switching = content["switching"]
        costs = sources_in_words(**switching.get("sources", {"latency": ASSUMED}))
        found = f"{1e3 * switching['latency_s']:g}", costs, _claimed(content).removeprefix("claimed: ")
        return found if content["schema"] == ITERATION_SCHEDULE and content["change_count"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _pair(pair: dict) -> str:
    core, mem = (each if each == AUTO else f"{each} MHz" for each in (pair["core_mhz"], pair["mem_mhz"]))
    return f"core {core}, memory {mem}"


def _nothing_to_set(schedule: dict) -> str:
    """Why passes are left at auto. Another pair may be better than a walk could show."""
    if walk := schedule.get("walk"):
        sure = f"with a confidence of {100 - walk['over_percent']:g} %"
        return f"No pair is shown to save energy in auto's time {sure}: nothing to set."
    return "Of all pairs, auto is the best for each pass: nothing to set."


def _claimed(schedule: dict) -> str:
    energy, time = (in_words(schedule[f"{each}_change_percent"], each) for each in ("energy", "time"))
    return f"claimed: {energy}, {time}"


def _notes(results: Results, workload: Mapping[str, Any]) -> list[str]:
    notes = []
    if results.gpu.get("forecast"):
        source = workload.get("source") or "FILE.py:FUNCTION"
        notes.append(
            "These schedules are a forecast, and are refused on a real GPU. Measure the step where clocks can be set: "
            f"snakemake --cores 1 all --config gpu=nvml workload=step:{source}"
        )
    elif results.gpu["kind"] == "simulated":
        notes.append(
            "These schedules are of a simulated GPU, and apply refuses them on a real one. Measure yours first: "
            "snakemake --cores 1 all --config gpu=nvml"
        )
    takes = _measured(results)
    latency_s = _latency_s(results)
    takes = takes or (f"about {1e3 * latency_s:.0f} ms (the GPU's spec)" if latency_s else "milliseconds")
    profile = results.profile
    kernels = profile[(profile.study == "kernel") & profile.is_baseline]
    notes.append(
        f"Clocks per kernel ({STRICT}) assume that a change of clocks costs nothing. It takes {takes}, and the kernels "
        f"take {1e3 * kernels.time_s.min():.3g} to {1e3 * kernels.time_s.max():.3g} ms a launch. The table of what "
        "can be deployed has what is left of the saving at known latencies."
    )
    return notes


def _measured(results: Results) -> str | None:
    """What a change takes where that was measured, in words."""
    try:
        rows = [row for row in results.deployable if row["way"] == LAUNCH and row.get("is_default")]
    except InputError:
        return None
    costs = next((row.get("costs") for row in rows), None)
    if not costs or costs == ASSUMED:
        return None
    latencies = " to ".join(f"{latency_ms:.3g}" for latency_ms in sorted({row["latency_ms"] for row in rows}))
    return f"{latencies} ms ({costs})"


def _latency_s(results: Results) -> float | None:
    """Median time of a change of core clocks by the spec of a simulated GPU, else None."""
    digest = results.workload.get("setup")
    try:
        return results.setup(digest).gpu["spec"]["switching"]["core"]["median_s"] if digest else None
    except (InputError, KeyError):
        return None
