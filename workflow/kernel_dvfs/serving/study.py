"""The serving study on disk: study.json says what was asked, experiments/*.json what came of it."""

from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json, write_json
from kernel_dvfs.serving.settings import settings

SCHEMA = "kernel-dvfs/serving/1"
# shipped: made by kernel-dvfs serving-trace --hour --rate 3 --seed 1
SYNTHETIC_HOUR = Path(__file__).parent / "traces" / "synthetic_hour.csv"


class ServingStudy:
    """A study's folder. Raises InputError where there is none, or an experiment has not been run."""

    def __init__(self, folder):
        self.folder = Path(folder)
        try:
            self._asked = read_json(self.folder / "study.json")
        except FileNotFoundError:
            raise InputError(f"{folder}: no study.json; make it with snakemake --cores 1 serving") from None
        except ValueError as error:
            raise InputError(f"{folder}/study.json: {error}; delete it and run snakemake --cores 1 serving") from None
        if self._asked.get("schema") != SCHEMA:
            raise InputError(f"{folder}/study.json: of another version; delete it and run snakemake again")

    def __getitem__(self, key: str):
        return self._asked[key]

    @property
    def subject(self) -> str:
        """Whose numbers these are, for captions."""
        return f"{self['hardware']}, {self['trace_subject']}"

    def settings(self, **changed):
        """The study's settings, with some changed."""
        return settings(**(self["settings"] | changed))

    def trace(self):
        """The study's trace."""
        from kernel_dvfs.serving.trace import read_trace

        return read_trace(self["trace"] or SYNTHETIC_HOUR, self["trace_sha256"])

    def bench(self):
        """Machine and profile of the study."""
        from kernel_dvfs.serving.machine import Machine
        from kernel_dvfs.serving.profile import read_profile
        from kernel_dvfs.serving.replay_cluster import Bench

        return Bench(Machine(self["gpu"], self["model"]), read_profile(self["profile"]), slo_scale=self["slo_scale"])

    def experiment(self, name: str):
        """What an experiment wrote."""
        try:
            return read_json(self.folder / "experiments" / f"{name}.json")
        except FileNotFoundError:
            raise InputError(
                f"{self.folder}/experiments/{name}.json: not there yet; run kernel-dvfs serving-experiment {name}"
            ) from None


def make_study(folder, asked: dict) -> None:
    """Write study.json; asked: what the workflow hands over (study_replay). Raises InputError for a bad trace.

    The trace's subject, digest and figures are kept beside, for captions and for checking against its publisher's.
    """
    from kernel_dvfs.serving.profile import KERNEL_LEVEL, read_profile
    from kernel_dvfs.serving.trace import read_trace, sha256, summary

    path = asked["trace"] or SYNTHETIC_HOUR
    trace, profile = read_trace(path, asked["trace_sha256"]), read_profile(asked["profile"])
    hardware = f"simulated {profile.gpu}, {profile.model}" + (
        "" if profile.sources == {"simulated"} else ", given profile"
    )
    written = {"schema": SCHEMA, "hardware": hardware, "trace_subject": trace.subject, "trace_digest": sha256(path)}
    # a given profile may hold no clocks per kernel
    level = asked["kernel_level"] and any(clock.startswith(KERNEL_LEVEL) for _, _, clock in profile.curves)
    whole = written | {"trace_summary": summary(trace)} | asked | {"kernel_level": level}
    write_json(Path(folder) / "study.json", whole)
