"""The page of a serving study: who serves the trace for the least energy, what to start, and the numbers behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_dvfs import registry
from kernel_dvfs.report.page import provenance
from kernel_dvfs.report.page.render import render
from kernel_dvfs.report.page.sections import sections_of
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.deployment import Served, started
from kernel_dvfs_serving.report.share import by_system, plan_in_words, promise_kept, token_change_percent
from kernel_dvfs_serving.study import ServingStudy
from kernel_dvfs_serving.system import ABLE, FIXED, HINDSIGHT, NO_SPARE, SLOWER, TUNED

# id -> title and what it shows, in the order of the page; what is named nowhere stands last
SECTIONS = {
    "systems": ("Every system on this trace", ("savings", "margins", "classes", "cost", "power")),
    "hangs-on": ("What the answer hangs on", ("sensitivity",)),
    "paper": ("DynamoLLM: the paper's numbers beside these", ("paper", "misprediction")),
    "instance": (
        "The simulated instance, held to published measurements",
        ("anchors", "table1_agreement", "table1"),
    ),
}
_SHOWN = (*FIXED, "DynamoLLM", HINDSIGHT)


def make(folder: str | Path) -> tuple[str, list[InputError]]:
    """Return (a study's page as HTML, [what is missing]). Raises InputError without its experiment `systems`."""
    study = ServingStudy(folder)
    runs = by_system(study.experiment("systems"))
    missing: list[InputError] = []
    asked = [_row(study, runs[name], runs[TUNED]) for name in dict.fromkeys((*_SHOWN, *ABLE)) if name in runs]
    keeping = [row for row in asked if row["kept"] and row["system"] in ABLE]
    best = min(keeping, key=lambda row: row["j_per_token"], default=None)
    rows = [row for row in asked if row["system"] in _SHOWN or row is best]
    page = render(
        "serving.html.j2",
        subject=study.subject,
        simulated="simulated" in study.subject,
        sentence=_sentence(study, best, runs),
        rows=rows,
        promise=study["settings"]["promise_percent"],
        command=_command(study, best, runs),
        marks=_marks(study, runs, best),
        # the simulated instance's stand one folder up
        sections=sections_of([study.folder, study.folder.parent], SECTIONS, registry.outputs("serving"), missing),
        missing=missing,
        written=provenance.now(),
        facts=dict(provenance.of_program()[:1])
        | study["trace_summary"]
        | {"servers at most": study["settings"]["servers"]}
        | _chain(study),
    )
    return page, missing


def _chain(study: ServingStudy) -> dict[str, str]:
    """Return what the answer was made of, down to profile and trace."""
    rows = provenance.of_file(study.path("systems"), "experiments/systems.json", study.made_of)
    return dict([*rows, *provenance.of_file(study.folder / "study.json", "study.json", study.inputs)[1:]])


def _row(study: ServingStudy, run: dict, plan: dict) -> dict[str, Any]:
    return {
        "system": run["system"],
        "j_per_token": run["j_per_token_in_time"],
        "kept_percent": int(100 * run["kept_percent"]) / 100,  # 98.999 % is not 99
        "kept": promise_kept(study, run),
        "change_percent": token_change_percent(study, run, plan),
        "plan": plan_in_words(run),
    }


def _sentence(study: ServingStudy, best: dict | None, runs: dict) -> str:
    least = study["settings"]["promise_percent"]
    if best is None:
        return f"No system keeps {least:g} % of the promises on these servers."
    sentence = f"{best['system'][0].upper()}{best['system'][1:]} serves this trace for the least energy: "
    sentence += f"{best['j_per_token']:.3f} J a token"
    if best["system"] != TUNED and best["change_percent"] is not None:
        sentence += f", {-best['change_percent']:.1f} % less than the tuned static plan"
    sentence += f", with {best['kept_percent']:g} % of the promises kept"
    return f"{sentence}." if promise_kept(study, runs[TUNED]) else f"{sentence}; no static plan keeps {least:g} %."


def _command(study: ServingStudy, best: dict | None, runs: dict) -> tuple[str, str] | None:
    if best is None or not best["plan"]:
        return None
    run = runs[best["system"]]
    served = Served(study["model"], run["kv_tokens"], study["model_len"], study["settings"]["max_batch"])
    lines = started(served, run)
    count = run["replicas"]
    return f"{count} replica{'s' if count > 1 else ''} ({best['plan']}), started by:", "\n".join(lines.values())


def _marks(study: ServingStudy, runs: dict, best: dict | None) -> list[tuple[str, bool]]:
    """Return [(what speaks for or against it, whether against)]."""
    marks = []
    if "simulated" in study.subject:
        marks.append(("Simulated: no server ran.", True))
    is_plan = best is not None and best["system"] in FIXED
    if best is not None and is_plan:
        kept_percent = runs[best["system"]]["tried"]["kept_percent"]
        percents = " / ".join(f"{int(100 * value) / 100:.2f}" for value in kept_percent.values())
        promised = min(kept_percent.values()) >= study["settings"]["promise_percent"]
        marks.append(
            (f"Kept on both halves of the trace, then with steps {SLOWER:g} times as long: {percents} %.", not promised)
        )
    if best is not None:
        if best["plan"].startswith("1 server "):
            marks.append((f"O{NO_SPARE[1:]}.", True))
        if is_plan:
            marks.append(("Nothing is forecast.", False))
    return marks
