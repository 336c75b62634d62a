"""A results folder, read by the names of the contract: the report's only way to the data."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from kernel_dvfs.choice.schedule_file import FrontierFile, FrontierPoint, ScheduleWorkload, read_schedule
from kernel_dvfs.layout import DEPLOYABLE, FRONTIER, PUBLISHED, RELIED_ON, fresh_repeats, published, subject
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.profile.store import Profile, read_profile
from kernel_dvfs.table_file import read_rows
from kernel_dvfs_clocks.errors import InputError, Missing
from kernel_dvfs_clocks.shape import read

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.measurement.consistency import ComparedPoint, Comparison

_REMEDY = "delete it and run snakemake"


class _Deployable(TypedDict):
    schema: str
    workload: ScheduleWorkload
    rows: list[dict[str, Any]]


class Results:
    """`results/<gpu>/<workload>`, by one of the two procedures: profile, schedules and their repeats are its own.

    Each reader raises InputError naming the file that is missing or bad.
    """

    def __init__(self, folder: str | Path, procedure: str = RELIED_ON, inputs: Collection[str] | None = None) -> None:
        """procedure: "published", "relied on", or "" for what reads no choice. inputs: paths of the only files that may
        be read; another one that lies there is of another configuration. None: any. Setups are named by their content,
        so none can be a wrong one."""
        self.folder, self.procedure = Path(folder), procedure
        self.inputs = None if inputs is None else frozenset(map(os.path.abspath, inputs))

    def has(self, name: str) -> bool:
        """Return whether a file of this folder is there and may be read."""
        path = self.folder / name
        return path.is_file() and (self.inputs is None or os.path.abspath(path) in self.inputs)

    def path(self, name: str) -> Path:
        """Return a file of this folder. Raises InputError where it is not among the inputs."""
        path = self.folder / name
        if self.inputs is not None and os.path.abspath(path) not in self.inputs:
            raise InputError(f"{path}: not an input of what is made; declare it above its function")
        return path

    def named(self, name: str) -> str:
        """Return a schedule's name in `schedules/`, by the procedure."""
        if not self.procedure:
            raise InputError(f"{self.folder}: schedule {name} belongs to a procedure; declare it above the function")
        return published(name) if self.procedure == PUBLISHED else name

    @cached_property
    def profile_path(self) -> Path:
        """The profile that clocks are chosen from."""
        is_published = self.procedure == PUBLISHED and self.has("published.parquet")
        return self.path("published.parquet" if is_published else "profile.parquet")

    @cached_property
    def _profile(self) -> Profile:
        profile, published = read_profile(self.profile_path), self.folder / "published.parquet"
        # the rows of a table are what they are; what was measured has more than the first measurements
        if (
            self.procedure == PUBLISHED
            and self.profile_path != published
            and profile.metadata["gpu"]["kind"] != "table"
        ):
            raise Missing(f"{published}: missing; run snakemake profile")
        return profile

    @property
    def profile(self) -> pd.DataFrame:
        """The profile: the contract's columns; clocks in MHz, NaN = auto."""
        return self._profile.table.to_pandas()

    @property
    def is_baseline_alone(self) -> bool:
        """Return whether nothing was measured but auto."""
        return all(self._profile.table["is_baseline"].to_pylist())

    @property
    def gpu(self) -> dict:
        """kind, name, slug."""
        return self._profile.metadata["gpu"]

    @property
    def workload(self) -> dict:
        """name and options; for a workload also `kernels`: {id: {row, section, name, kind}}."""
        return self._profile.metadata["workload"]

    @property
    def subject(self) -> str:
        """The GPU as captions name it: "simulated RTX 3080 Ti"."""
        return subject(self.gpu)

    def schedule(self, name: str) -> dict[str, Any]:
        """Return a schedule by its name, without folder and ending; refused if it is of another profile."""
        path = self.path(f"schedules/{self.named(name)}.json")
        schedule = read_schedule(path, _REMEDY, self.profile_path)
        self._is_own(path, schedule["workload"])
        return {**schedule}

    @property
    def frontier(self) -> list[FrontierPoint]:
        """The least energy at each slack."""
        path = self.path(f"schedules/{self.named('frontier')}.json")
        return read(path, FrontierFile, FRONTIER, _REMEDY, is_sealed=True, inputs=self._inputs)["points"]

    @property
    def deployable(self) -> list[dict]:
        """Return what can be deployed at known latencies, as sequence.deployable has it."""
        path = self.path(f"schedules/{self.named('deployable')}.json")
        content = read(path, _Deployable, DEPLOYABLE, _REMEDY, is_sealed=True, inputs=self._inputs)
        self._is_own(path, content["workload"])
        return content["rows"]

    @property
    def _inputs(self) -> dict[str, Path]:
        """Return what choices of this procedure are made of, by the names that they carry."""
        return {"profile": self.profile_path}

    def setup(self, digest: str) -> Setup:
        """Return a setup of this folder by its digest."""
        return setups.read(str(self.folder / "setup" / f"{digest}.json"))

    def variant(self, name: str) -> VariantResults:
        """Return the workload at another batch, degree or tensor-core energy."""
        return VariantResults(self, name)

    def table(self, name: str) -> pd.DataFrame:
        """Return a finished table."""
        import pandas as pd

        return pd.DataFrame(self.rows(name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a finished table, as data."""
        return read_rows(self.path(f"tables/{name}.json"))

    def comparisons(self, *paths: str | Path) -> Comparisons:
        """Return comparison records of this folder, relative paths."""
        return Comparisons(self.folder, [self.path(str(path)) for path in paths])

    def measured_again(self, schedule: str, repeats: int) -> Comparisons:
        """Return the repeats that validate a schedule of this procedure."""
        return self.comparisons(*fresh_repeats(self.named(schedule), repeats))

    def _is_own(self, path: Path, workload: ScheduleWorkload) -> None:
        if workload.get("setup") != self.workload.get("setup"):
            raise InputError(f"{path}: chosen from measurements of another setup; run snakemake choose")


class VariantResults(Results):
    """`variants/<name>` of a results folder: its own profile, and schedules of one sweep with their validation."""

    def __init__(self, parent: Results, name: str) -> None:
        super().__init__(parent.folder / "variants" / name, parent.procedure, parent.inputs)
        self.parent = parent.folder

    @property
    def own_schedule(self) -> dict[str, Any]:
        """The strict global schedule of kernels chosen here."""
        return {**read_schedule(self.path("schedule.json"), _REMEDY, self.profile_path)}

    @property
    def pass_schedule(self) -> dict[str, Any]:
        """The strict global schedule of passes chosen here."""
        return {**read_schedule(self.path("schedule-pass.json"), _REMEDY, self.profile_path)}

    @property
    def validation(self) -> Comparisons:
        """The validation of its own schedule."""
        return Comparisons(self.parent, [self.path("fresh.json")])


class Comparisons:
    """Repeats of auto against chosen clocks, all of one setup.

    `launches`: {id: launches per iteration}, 1 for a pass; `points`: [(id, repeat, [auto, chosen, chosen, auto])];
    `sessions`: the measuring session of each of these.
    """

    launches: dict[str, int]
    points: list[tuple[str, int, list[ComparedPoint]]]
    sessions: list[str]

    def __init__(self, folder: Path, paths: Sequence[Path]) -> None:
        files = [record.read_comparison(str(path)) for path in paths]
        digests = {digest for digest, _ in files}
        if len(digests) != 1:
            raise InputError(f"{paths[0].parent}: comparisons of {len(digests)} setups; delete them and run snakemake")
        targets = setups.read(str(folder / "setup" / f"{digests.pop()}.json")).targets
        kernels = {name: about["launches_per_iteration"] for name, about in targets["kernel"].items()}
        self.launches = dict.fromkeys(targets["pass"], 1) | kernels
        self.points = [
            (comparison["target"], comparison["repeat"], comparison["points"])
            for _, comparisons in files
            for comparison in comparisons
        ]
        self.sessions = [comparison["session"] for _, comparisons in files for comparison in comparisons]
        _check_complete(paths, [comparisons for _, comparisons in files], self.launches)


def _check_complete(paths: Sequence[Path], read: list[list[Comparison]], known: dict[str, int]) -> None:
    """Raise InputError unless every repeat measured the same kernels once each: a sum over less is no iteration."""
    measured_in: dict[tuple[str, int], Path] = {}
    for path, comparisons in zip(paths, read):
        for comparison in comparisons:
            target, repeat = comparison["target"], comparison["repeat"]
            if target not in known:
                raise InputError(f"{path}: its setup has no kernel {target}; delete the file and run snakemake")
            if (target, repeat) in measured_in:
                raise InputError(
                    f"{path.parent}: {target}, repeat {repeat} appears twice ({measured_in[target, repeat].name}, "
                    f"{path.name}); delete both files and run snakemake"
                )
            measured_in[target, repeat] = path
    targets = {target: None for target, _ in measured_in}
    for repeat in sorted({repeat for _, repeat in measured_in}):
        missing = [target for target in targets if (target, repeat) not in measured_in]
        if missing:
            raise InputError(
                f"{paths[0].parent}: repeat {repeat} lacks {', '.join(missing)}; delete the records there and run "
                "snakemake"
            )


def is_chosen(rows: pd.DataFrame, targets: dict[str, dict]) -> pd.Series:
    """Return True where a row of a profile is at the setting that `targets` (a schedule's, not empty) names for its
    target."""
    import pandas as pd

    is_at_setting = pd.Series(True, index=rows.index)
    for column in next(iter(targets.values())):
        wanted = rows.target.map({target: setting[column] for target, setting in targets.items()})
        is_at_setting &= (rows[column] == wanted) | (rows[column].isna() & (wanted == "auto"))
    return is_at_setting
