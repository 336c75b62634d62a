"""How chosen clocks are put to work: commands that can be copied, each with what it promises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO
from kernel_dvfs.layout import PASS_STRICT, STRICT
from kernel_dvfs.report.page.answer import in_words
from kernel_dvfs.report.results import Results

SINGLE = "kernel-single-waste-slack0"
_COMMAND = "python train.py"


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


def deployment(results: Results) -> Deployment:
    """Steps and notes for a results folder; the steps name only schedules that are there."""
    folder = Path(results.folder).resolve()
    # as the contract has it: a page that is mailed should not tell where its maker keeps files
    place = "/".join(("results", *folder.parts[-2:], "schedules"))
    steps = []
    single = _schedule(results, SINGLE)
    if single:
        pair = next(iter(single["targets"].values()))
        apply = f"kernel-dvfs apply --schedule {place}/{SINGLE}.json --baseline -- {_COMMAND}"
        if pair["core_mhz"] == pair["mem_mhz"] == AUTO:
            steps.append(Step("One pair for the whole run", "Of all pairs, auto is the best: nothing to set.", ""))
        else:
            steps.append(Step("One pair for the whole run", f"{_pair(pair)}; {_claimed(single)}.", apply))
    passes = _schedule(results, PASS_STRICT)
    if passes:
        pairs = ", ".join(f"{name} {_pair(pair)}" for name, pair in passes["targets"].items())
        apply = f"kernel-dvfs apply --pass-level --schedule {place}/{PASS_STRICT}.json --baseline -- {_COMMAND}"
        text = f"{pairs}; {_claimed(passes)}. The script marks its passes with kernel_dvfs.deploy.mark."
        steps.append(Step("A pair for each pass", text, apply))
    steps.append(
        Step(
            "Give the clocks back",
            "Done by apply itself, whatever ends it; by hand where a machine was killed:",
            "kernel-dvfs reset --all",
        )
    )
    return Deployment(steps, _notes(results))


def _schedule(results: Results, name: str) -> dict | None:
    try:
        schedule = results.schedule(name)
    except InputError:
        return None
    return schedule if schedule.get("status") == "optimal" and schedule.get("targets") else None


def _pair(pair: dict) -> str:
    core, mem = (each if each == AUTO else f"{each} MHz" for each in (pair["core_mhz"], pair["mem_mhz"]))
    return f"core {core}, memory {mem}"


def _claimed(schedule: dict) -> str:
    energy, time = (in_words(schedule[f"{each}_change_percent"], each) for each in ("energy", "time"))
    return f"claimed: {energy}, {time}"


def _notes(results: Results) -> list[str]:
    notes = []
    if results.gpu["kind"] == "simulated":
        notes.append(
            "These schedules are of a simulated GPU, and apply refuses them on a real one. Measure yours first: "
            "snakemake --cores 1 all --config gpu=nvml"
        )
    latency_s = _latency_s(results)
    takes = f"about {1e3 * latency_s:.0f} ms (the GPU's spec)" if latency_s else "milliseconds"
    profile = results.profile
    kernels = profile[(profile.study == "kernel") & profile.is_baseline]
    notes.append(
        f"Clocks per kernel ({STRICT}) assume that a change of clocks costs nothing. It takes {takes}, and the kernels "
        f"take {1e3 * kernels.time_s.min():.3g} to {1e3 * kernels.time_s.max():.3g} ms a launch: "
        "the saving per kernel is what is there to be had, not what can be switched to today."
    )
    return notes


def _latency_s(results: Results) -> float | None:
    """Median time of a change of core clocks by the spec of a simulated GPU, else None."""
    digest = results.workload.get("setup")
    try:
        return results.setup(digest).gpu["spec"]["switching"]["core"]["median_s"] if digest else None
    except (InputError, KeyError):
        return None
