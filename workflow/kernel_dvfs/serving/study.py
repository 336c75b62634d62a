"""The serving study on disk: study.json says what was asked, experiments/*.json what came of it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json, write_json
from kernel_dvfs.serving.system import settings as checked_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_dvfs.serving.replay import Replayer
    from kernel_dvfs.serving.system import Settings
    from kernel_dvfs.serving.trace import Trace

SCHEMA = "kernel-dvfs/serving/2"


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1e9


def _text(value: Any) -> bool:
    return isinstance(value, str)


# what a study is asked for: {key: whether a value is one}
_ASKED: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("gpu", "model", "profile"), _text),
    **dict.fromkeys(("trace", "trace_sha256"), lambda value: value is None or _text(value)),
    **dict.fromkeys(("usd_per_server_hour", "usd_per_kwh", "co2_g_per_kwh", "host_s"), _number),
    **dict.fromkeys(("slo_scale", "loads_span_s"), lambda value: _number(value) and value > 0),
    "trace_times": lambda value: value is None or (type(value) is int and 1 <= value <= 1000),
    "kernel_level": lambda value: isinstance(value, bool),
    "loads_tps": lambda value: isinstance(value, list) and all(map(_number, value)),
    "week": lambda value: value is None or (isinstance(value, dict) and value.keys() == {"service", "scale", "days"}),
    "settings": lambda value: isinstance(value, dict),
}


def _check(where: str, asked: dict[str, Any]) -> None:
    """Raise InputError, beginning with `where`, for what is missing or no possible value."""
    for key, is_one in _ASKED.items():
        if key not in asked or not is_one(asked[key]):
            found = repr(asked[key])[:40] if key in asked else "missing"
            raise InputError(
                f"{where}: {key} is {found}; run snakemake --cores 1 serving, which writes it from config.yaml"
            )
    checked_settings(f"{where}: settings", asked["settings"])


class ServingStudy:
    """The folder of a replay, or of an instance, which has experiments and no study.json.

    Raises InputError where study.json is asked for and is not there, or an experiment has not been run.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    @cached_property
    def _asked(self) -> dict[str, Any]:
        folder = self.folder
        try:
            asked = read_json(folder / "study.json")
        except FileNotFoundError:
            raise InputError(f"{folder}: no study.json; make it with snakemake --cores 1 serving") from None
        except ValueError as error:
            raise InputError(f"{folder}/study.json: {error}; delete it and run snakemake --cores 1 serving") from None
        if not isinstance(asked, dict) or asked.get("schema") != SCHEMA:
            raise InputError(f"{folder}/study.json: of another version; delete it and run snakemake again")
        _check(f"{folder}/study.json", asked)
        return asked

    def __getitem__(self, key: str) -> Any:
        return self._asked[key]

    @property
    def subject(self) -> str:
        """Whose numbers these are, for captions."""
        return f"{self['hardware']}, {self['trace_subject']}"

    def settings(self, **changed: Any) -> Settings:
        """The study's settings, with some changed."""
        return checked_settings("settings", self["settings"] | changed)

    def trace(self) -> Trace:
        """The study's trace."""
        return _trace(self._asked)

    def replayer(self) -> Replayer:
        """Machine and profile of the study."""
        from kernel_dvfs.serving.machine import machine
        from kernel_dvfs.serving.profile import read_profile
        from kernel_dvfs.serving.replay import Replayer

        profile, settings = read_profile(self["profile"]), self.settings()
        own = machine(
            profile,
            self["gpu"],
            self["model"],
            self["host_s"],
            max_batch=settings.max_batch,
            chunk_tokens=settings.chunk_tokens,
        )
        return Replayer(own, profile, slo_scale=self["slo_scale"])

    def experiment(self, name: str) -> Any:
        """What an experiment wrote."""
        try:
            return read_json(self.folder / "experiments" / f"{name}.json")
        except FileNotFoundError:
            raise InputError(
                f"{self.folder}/experiments/{name}.json: not there yet; run snakemake --cores 1 serving"
            ) from None


def _trace(asked: dict[str, Any]) -> Trace:
    """What is asked for: the given or the shipped trace, each request as often as `trace_times` says."""
    from kernel_dvfs.serving.trace import SYNTHETIC_HOUR, multiplied, read_trace

    one = read_trace(asked["trace"] or SYNTHETIC_HOUR, asked["trace_sha256"])
    return multiplied(one, asked["trace_times"], asked["settings"]["seed"])


def make_study(folder: str | Path, asked: dict) -> None:
    """Write study.json. asked: study_plan.ServingPlan.options. Raises InputError for bad options or a bad trace.

    The trace's subject, digest and figures are kept with it, for captions and for checking against its publisher's.
    """
    from kernel_dvfs.serving.profile import KERNEL_LEVEL, read_profile
    from kernel_dvfs.serving.trace import SYNTHETIC_HOUR, sha256, summary

    _check("serving study", asked)
    trace, profile = _trace(asked), read_profile(asked["profile"])
    hardware = f"simulated {profile.gpu}, {profile.model}"
    if not profile.simulated:
        hardware = f"{profile.gpu}, {profile.model} as in {Path(asked['profile']).name}, simulated from it"
    written = {
        "schema": SCHEMA,
        "hardware": hardware,
        "trace_subject": trace.subject,
        "trace_digest": sha256(asked["trace"] or SYNTHETIC_HOUR),
    }
    # a given profile may hold no clocks per kernel
    level = asked["kernel_level"] and any(clock.startswith(KERNEL_LEVEL) for _, _, clock in profile.curves)
    whole = written | {"trace_summary": summary(trace)} | asked | {"kernel_level": level}
    write_json(Path(folder) / "study.json", whole)
