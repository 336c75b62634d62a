"""A results folder, read by the names of the contract: the report's only way to the data."""

import json
from functools import cached_property
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement import record, setup
from kernel_dvfs.profile.store import read_profile


class Results:
    """`results/<gpu>/<workload>`. Each reader raises InputError naming the file that is missing or bad."""

    def __init__(self, folder):
        self.folder = Path(folder)

    @cached_property
    def _profile(self):
        return read_profile(self.folder / "profile.parquet")

    @property
    def profile(self):
        """The profile as a pandas DataFrame: the contract's columns; clocks in MHz, NaN = auto."""
        return self._profile.table.to_pandas()

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
        return f"simulated {self.gpu['name']}" if self.gpu["kind"] == "simulated" else self.gpu["name"]

    def schedule(self, name: str) -> dict:
        """A schedule by its name in `schedules/`, without the ending; refused if it is of another profile."""
        schedule = self._json(f"schedules/{name}.json")
        if (schedule.get("workload") or {}).get("setup") != self.workload.get("setup"):
            raise InputError(
                f"{self.folder}/schedules/{name}.json: chosen from measurements of another setup; run snakemake choose"
            )
        return schedule

    def setup(self, digest: str):
        """A setup of this folder by its digest (measurement.setup.Setup)."""
        return setup.read(str(self.folder / "setup" / f"{digest}.json"))

    def variant(self, name: str) -> "Variant":
        """The workload at another batch, degree or tensor-core energy."""
        return Variant(self.folder, name)

    def table(self, name: str):
        """A finished table as a pandas DataFrame."""
        import pandas

        path = self.folder / "tables" / f"{name}.csv"
        if not path.is_file():
            raise InputError(f"table {path}: missing; run snakemake report")
        return pandas.read_csv(path)

    def comparisons(self, *paths) -> "Comparisons":
        """Comparison records of this folder, relative paths."""
        return Comparisons(self.folder, [self.folder / path for path in paths])

    def _json(self, relative: str) -> dict:
        path = self.folder / relative
        try:
            content = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: {error}; run snakemake") from None
        if not isinstance(content, dict):
            raise InputError(f"{path}: not a mapping of fields; delete it and run snakemake")
        return content


class Variant(Results):
    """`variants/<name>` of a results folder: own profile, own schedule, own fresh repeats."""

    def __init__(self, parent: Path, name: str):
        super().__init__(Path(parent) / "variants" / name)
        self.parent = Path(parent)

    @property
    def own_schedule(self) -> dict:
        """The strict global schedule chosen here."""
        return self._json("schedule.json")

    @property
    def fresh(self) -> "Comparisons":
        """Fresh repeats of it."""
        return Comparisons(self.parent, [self.folder / "fresh.json"])


class Comparisons:
    """Fresh repeats of auto against chosen clocks, all of one setup.

    `launches`: {id: launches per iteration}, 1 for a pass; `points`: [(id, repeat, [auto, chosen, chosen, auto])].
    """

    def __init__(self, folder: Path, paths: list):
        read = [record.read_comparison(str(path)) for path in paths]
        digests = {digest for digest, _ in read}
        if len(digests) != 1:
            raise InputError(f"{paths[0].parent}: comparisons of {len(digests)} setups; delete them and run snakemake")
        targets = setup.read(str(folder / "setup" / f"{digests.pop()}.json")).targets
        kernels = {name: about["launches_per_iteration"] for name, about in targets["kernel"].items()}
        self.launches = dict.fromkeys(targets["pass"], 1) | kernels
        self.points = [
            (each["target"], each["repeat"], each["points"]) for _, comparisons in read for each in comparisons
        ]
        _check_complete(paths, [comparisons for _, comparisons in read], self.launches)


def _check_complete(paths: list, read: list, known: dict) -> None:
    """Raise InputError unless every repeat measured the same kernels once each: a sum over less is no iteration."""
    found = {}
    for path, comparisons in zip(paths, read):
        for each in comparisons:
            target, repeat = each["target"], each["repeat"]
            if target not in known:
                raise InputError(f"{path}: its setup has no kernel {target}; delete the file and run snakemake")
            if (target, repeat) in found:
                raise InputError(
                    f"{path.parent}: {target}, repeat {repeat} stands twice ({found[target, repeat].name}, {path.name})"
                    "; delete both files and run snakemake"
                )
            found[target, repeat] = path
    targets = {target: None for target, _ in found}
    for repeat in sorted({repeat for _, repeat in found}):
        missing = [target for target in targets if (target, repeat) not in found]
        if missing:
            raise InputError(
                f"{paths[0].parent}: repeat {repeat} lacks {', '.join(missing)}; delete the records there and run "
                "snakemake"
            )
