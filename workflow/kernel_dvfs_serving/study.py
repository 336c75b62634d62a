"""The serving study on disk: study.json says what was asked, experiments/*.json what came of it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import change_of, digest, write_sealed
from kernel_dvfs_clocks.shape import Is, checked, read
from kernel_dvfs_serving.machine import machine
from kernel_dvfs_serving.profile import read_profile
from kernel_dvfs_serving.system import SYNTHETIC_HOUR
from kernel_dvfs_serving.system import settings as checked_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_dvfs_serving.replay import Replayer
    from kernel_dvfs_serving.system import ClusterSettings
    from kernel_dvfs_serving.trace import Trace

SCHEMA = "kernel-dvfs/serving/3"
EXPERIMENT = "kernel-dvfs/serving-experiment/1"

_REMEDY = "run snakemake --cores 1 serving, which writes it from config.yaml"
_Number: TypeAlias = Annotated[float, Is("a number from 0 to 1e9", lambda value: 0 <= value <= 1e9)]
_Factor: TypeAlias = Annotated[float, Is("a number above 0, at most 1e9", lambda value: 0 < value <= 1e9)]


class ServingOptions(TypedDict):
    """What a study is asked for."""

    gpu: str
    model: str
    profile: str
    trace: str | None  # a file; None: the shipped hour
    trace_sha256: str | None
    trace_times: Annotated[int, Is("a whole number from 1 to 1000", lambda value: 1 <= value <= 1000)]
    usd_per_server_hour: _Number
    usd_per_kwh: _Number
    co2_g_per_kwh: _Number
    host_s: _Number
    slo_scale: _Factor
    settings: dict[str, Any]  # system.settings checks them


class _ServingStudyFile(ServingOptions):
    schema: str
    hardware: str
    trace_subject: str
    model_len: int


class _Experiment(TypedDict):
    schema: str
    found: Any
    sha256: str  # of all of this without it, see files.checksum


def _check(where: str, asked: Any) -> ServingOptions:
    """Raise InputError, beginning with `where`, for what is missing or no possible value."""
    options = checked(asked, ServingOptions, where, _REMEDY)
    checked_settings(f"{where}: settings", options["settings"])
    return options


class ServingStudy:
    """The folder of a replay, or of an instance, which has experiments and no study.json. cores: for its experiments.

    Raises InputError where study.json is asked for and is not there, or an experiment has not been run.
    """

    def __init__(self, folder: str | Path, cores: int = 1):
        self.folder, self.cores = Path(folder), cores

    @cached_property
    def _asked(self) -> _ServingStudyFile:
        path = self.folder / "study.json"
        content = read(path, _ServingStudyFile, SCHEMA, f"delete it and {_REMEDY}", missing=_REMEDY, is_sealed=True)
        checked_settings(f"{path}: settings", content["settings"])
        return content

    def __getitem__(self, key: str) -> Any:
        asked: Mapping[str, Any] = self._asked
        return asked[key]

    @property
    def subject(self) -> str:
        """Return whose numbers these are, for captions."""
        return f"{self['hardware']}, {self['trace_subject']}"

    def settings(self, **changed: Any) -> ClusterSettings:
        """Return the study's settings, with some changed."""
        return checked_settings("settings", self["settings"] | changed)

    @property
    def inputs(self) -> dict[str, str | Path]:
        """Return the files that the study is of, by name."""
        return _inputs(self._asked)

    def _check_input(self, name: str) -> None:
        if what := change_of(self._asked, {name: self.inputs[name]}):
            raise InputError(f"{self.folder / 'study.json'}: {what}; delete it and {_REMEDY}")

    def trace(self) -> Trace:
        """Return the study's trace."""
        self._check_input("trace")
        return _trace(self._asked)

    def replayer(self) -> Replayer:
        """Return a Replayer on the study's machine and profile."""
        from kernel_dvfs_serving.replay import Replayer  # loads pandas, which reading a study does not need

        self._check_input("profile")
        profile, settings = read_profile(self["profile"]), self.settings()
        runs_on = machine(
            profile,
            self["gpu"],
            self["model"],
            self["host_s"],
            max_batch=settings.max_batch,
            chunk_tokens=settings.chunk_tokens,
        )
        return Replayer(runs_on, profile, slo_scale=self["slo_scale"])

    def path(self, experiment: str) -> Path:
        """Return the file of an experiment."""
        return self.folder / "experiments" / f"{experiment}.json"

    @property
    def made_of(self) -> dict[str, Path]:
        """Return what an experiment follows from, by name."""
        return {"study": self.folder / "study.json"}

    def experiment(self, name: str) -> Any:
        """Return what an experiment found. Raises InputError."""
        remedy = "delete it and run snakemake --cores 1 serving"
        inputs = self.made_of
        file = read(self.path(name), _Experiment, EXPERIMENT, remedy, missing=_REMEDY, is_sealed=True, inputs=inputs)
        return file["found"]


def write_experiment(path: str | Path, findings: Any, made_of: Mapping[str, str | Path] | None = None) -> None:
    """Write what an experiment found, under seal. made_of: ServingStudy.made_of, where it is of a study."""
    write_sealed(path, {"schema": EXPERIMENT, "found": findings}, made_of)


def _inputs(asked: ServingOptions) -> dict[str, str | Path]:
    return {"profile": asked["profile"], "trace": asked["trace"] or SYNTHETIC_HOUR}


def _trace(asked: ServingOptions) -> Trace:
    """Return the given or the shipped trace, each request as often as `trace_times` says."""
    from kernel_dvfs_serving.trace import multiplied, read_trace  # loads pandas

    trace = read_trace(asked["trace"] or SYNTHETIC_HOUR, asked["trace_sha256"])
    return multiplied(trace, asked["trace_times"], asked["settings"]["seed"])


def make_study(folder: str | Path, asked: dict[str, Any]) -> tuple[str, ...]:
    """Write study.json; returns what is odd about the trace, a line each.

    asked: study_plan.ServingPlan.options. Raises InputError for bad options or a bad trace.

    The trace's subject, digest and figures are kept with it, for captions and for checking against its publisher's.
    """
    from kernel_dvfs_serving.trace import held_by_model, model_len, summary  # loads pandas

    checked_asked = _check("serving study", asked)
    trace, profile = _trace(checked_asked), read_profile(asked["profile"])
    hardware = f"simulated {profile.gpu}, {profile.model}"
    if not profile.simulated:
        hardware = f"{profile.gpu}, {profile.model} as in {Path(asked['profile']).name}, simulated from it"
    written = {
        "schema": SCHEMA,
        "hardware": hardware,
        "trace_subject": trace.subject,
        "trace_digest": digest(asked["trace"] or SYNTHETIC_HOUR),
        "model_len": model_len(trace, profile.model),
    }
    content = written | {"trace_summary": summary(trace)} | asked
    write_sealed(Path(folder) / "study.json", content, _inputs(checked_asked))
    return held_by_model(trace, profile.model).notices
