"""Which studies go with a study, and the command that makes each: what the rules of the workflow read. Pure and light.

Selection bias and guided search are tried out on simulated GPUs, whose truth is known; the study of slow clock changes
takes the profile of any GPU that is measured here and whose clocks are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_dvfs.gpu.clocks import clocks_argument
from kernel_dvfs.outputs import Output
from kernel_dvfs.plan.asked import Study
from kernel_dvfs.studies.report import selection_bias, switching

# rounds that the study of selection bias looks at where `refine` is off: it still shows what they would be worth
_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class StudyJob:
    """One job: a command that makes all files of a study."""

    name: str
    inputs: list[str]  # paths
    outputs: list[str]  # paths, the reported ones excluded
    reported: list[str]  # paths of the outputs that Snakemake's report shows
    caption: str  # of those
    words: list[str]  # the command line behind `kernel-dvfs`


def studies(study: Study) -> list[StudyJob]:
    """The jobs of the studies that go with `study`; their files lie in `beyond/` of its folder."""
    jobs = []
    # they draw the simulated GPU of a model over and over; a forecast is of one that was measured
    if study.is_simulated and not study.is_step:
        jobs += [_selection_bias(study), _guided(study)]
    if switching.OUTPUT.made_by(study):
        jobs.append(_switching(study))
    return jobs


def _folder(study: Study) -> str:
    return f"{study.folder}/beyond"


def _tables(study: Study, name: str, output: Output) -> list[str]:
    return [f"{_folder(study)}/tables/{name}.{form}" for form in output.formats]


def _setup(study: Study) -> str:
    assert study.setup is not None, "a study that is measured has a setup"
    return study.setup.path


def _selection_bias(study: Study) -> StudyJob:
    options, refine = study.options, study.options["refine"]
    words: list[object] = ["study", "selection-bias", "--gpu", _setup(study), "--pairs", clocks_argument(study.pairs)]
    own = options["selection_bias"]
    words += ["--first-seed", own["first_seed"], "--seeds", own["seeds"], "--rounds", refine["rounds"] or _ROUNDS]
    words += ["--gain", refine["gain"], "--checks", refine["checks"], "--margin-z", refine["margin_z"]]
    words += ["--auto-repeats", options["auto_repeats"], "--fresh", study.repeats, "-o", _folder(study)]
    return StudyJob(
        name="selection_bias",
        inputs=[_setup(study)],
        outputs=[f"{_folder(study)}/selection_bias_studies.csv"],
        reported=_tables(study, "selection_bias", selection_bias.OUTPUT),
        caption=selection_bias.OUTPUT.caption,
        words=list(map(str, words)),
    )


def _guided(study: Study) -> StudyJob:
    own, table = study.options["guided_study"], f"{_folder(study)}/guided_search"
    words: list[object] = ["study", "guided", "--gpu", _setup(study), "--pairs", clocks_argument(study.pairs)]
    words += ["--seeds", own["seeds"], "--budget", own["budget_percent"], "--slack", *own["slacks_percent"]]
    words += [] if own["bayesian"] else ["--without", "bayesian"]
    return StudyJob(
        name="guided_study",
        inputs=[_setup(study)],
        outputs=[f"{table}.csv", f"{table}.md"],
        reported=[],
        caption="",
        words=[*map(str, words), "-o", f"{table}.csv"],
    )


def _switching(study: Study) -> StudyJob:
    own = study.options["switching_study"]
    words: list[object] = [
        "study",
        "switching",
        study.profile,
        "--latencies",
        *own["latency_s"],
        "--jitters",
        *own["jitter"],
    ]
    words += ["--slack", study.options["slack_percent"]]
    words += study.cost_options()
    figures = [f"{_folder(study)}/figures/switching.{form}" for form in switching.FIGURE.formats]
    return StudyJob(
        name="switching_study",
        inputs=[study.profile, *study.latency_files()],
        outputs=_tables(study, "switching_known", switching.KNOWN),
        reported=[*_tables(study, "switching", switching.OUTPUT), *figures],
        caption=switching.OUTPUT.caption,
        words=[*map(str, words), "-o", _folder(study)],
    )
