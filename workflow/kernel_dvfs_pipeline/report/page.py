"""The page of a pipeline study: what its plans save, who else saves what, one command, and the numbers behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_dvfs import registry
from kernel_dvfs.report.page import provenance
from kernel_dvfs.report.page.render import render
from kernel_dvfs.report.page.sections import sections_of
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.study import (
    BEST_PUBLISHED,
    BLOAT_RATIO,
    BOUND,
    FILES,
    ONE_CLOCK,
    PER_STAGE,
    REALISED,
    Method,
    PipelineStudy,
)

# id -> title and what it shows, in the order of the page
SECTIONS = {
    "clocks": ("Which clock runs when", ("timeline",)),
    "straggler": ("When all wait for a straggler", ("straggler", "emulation", "breakdown")),
    "others": ("Beside the published algorithm and its paper", ("no_straggler",)),
    "finer": ("A clock for each kernel, and what changes cost", ("levels", "switching")),
    "proof": ("How it is proven", ("certificate",)),
}
# method -> what a reader calls it; a plan that can be played comes first
_SHOWN = {
    ONE_CLOCK: "one clock an operation",
    BEST_PUBLISHED: "the published algorithm, in time",
    REALISED: "the published algorithm, as run",
    PER_STAGE: "one clock a stage",
}


def make(folder: str | Path) -> tuple[str, list[InputError]]:
    """Return (the page as HTML, [what is missing]) of a study's folder. Raises InputError where nothing is solved."""
    study = PipelineStudy(folder)
    count = study["microbatches"][0]  # that the figures are of
    methods = study.methods(count)
    one_clock = methods[ONE_CLOCK]
    missing: list[InputError] = []
    known = registry.outputs("pipeline")
    drawn = sections_of([study.folder], {"frontier": ("", ["frontier"])}, known, missing)
    shown = [(words, methods[name]) for name, words in _SHOWN.items() if name in methods]
    page = render(
        "pipeline.html.j2",
        subject=study.subject,
        name=study["name"],
        microbatches=count,
        simulated="simulated" in study.subject,
        sentence=_sentence(one_clock),
        drawn=drawn,
        rows=[
            {"who": words, "energy": method.energy_change_percent, "time": method.time_change_percent}
            for words, method in shown
        ]
        + _with_straggler(study, count),
        command=_command(study, count),
        marks=_marks(study, methods, one_clock),
        sections=sections_of([study.folder], SECTIONS, known, missing),
        facts=_facts(study),
        missing=missing,
        written=provenance.now(),
    )
    return page, missing


def _sentence(method: Method) -> list[tuple[str, bool]]:
    energy, time = method.energy_change_percent, method.time_change_percent
    longer = "no longer" if time < 0.005 else f"{time:.2g} % longer"
    return [
        ("An iteration of this pipeline takes ", False),
        (f"{-energy:.1f} % less energy" if energy < 0 else "no less energy", energy < 0),
        (f", and {longer}, than with all clocks at their highest.", False),
    ]


def _with_straggler(study: PipelineStudy, microbatches: int) -> list[dict[str, Any]]:
    """Return what is saved where another pipeline makes all wait; none where the study has no such plan."""
    if BLOAT_RATIO not in study["straggler"]:
        return []
    method = study.methods(microbatches, BLOAT_RATIO)[ONE_CLOCK]
    who = f"one clock an operation, while a straggler takes {100 * (BLOAT_RATIO - 1):.0f} % longer"
    return [{"who": who, "energy": method.energy_change_percent, "time": None}]


def _command(study: PipelineStudy, microbatches: int) -> tuple[str, str]:
    plan = study.solved(microbatches) / "plans" / "one-clock.json"
    if plan.is_absolute():  # a page that is mailed should not tell where its maker keeps files
        plan = plan.relative_to(study.folder)
    return "Hand the plan to a trainer:", f"kernel-dvfs pipeline export {plan} --format zeus -o plan.py"


def _marks(study: PipelineStudy, methods: dict[str, Method], one_clock: Method) -> list[tuple[str, bool]]:
    """Return [(what speaks for or against it, whether against)]."""
    marks = []
    if BOUND in methods:
        above = 100 * (one_clock.energy_j / methods[BOUND].energy_j - 1)
        marks.append((f"Proven: any other plan uses at most {max(above, 0):.2g} % less.", False))
    marks.append(("Planned and emulated: nothing ran on a cluster.", True))
    if "simulated" in study.subject:
        marks.append(("Stages are simulated.", True))
    marks.append(("Changes of clocks take no time here; the page has those that do.", True))
    return marks


def _facts(study: PipelineStudy) -> dict[str, str]:
    facts = {"stages": str(study["stages"]), "schedule": study["schedule"]}
    facts["microbatches"] = ", ".join(map(str, study["microbatches"]))
    facts["GPUs a stage"] = str(study["tensor_parallel"])
    facts["a waiting GPU draws"] = f"{study['blocking_w']:g} W"
    count = study["microbatches"][0]
    records = provenance.of_file(study.solved(count) / FILES[Method], f"mb{count}/{FILES[Method]}", study.made_of)
    chain = [*records, *provenance.of_file(study.made_of["study"], "study.json", {"source": study["source"]})[1:]]
    return facts | dict(chain) | dict(provenance.of_program()[:1])
