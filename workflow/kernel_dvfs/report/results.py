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
        """A schedule by its name in `schedules/`, without the ending."""
        return self._json(f"schedules/{name}.json")

    def schedules(self) -> dict:
        """Every schedule of the folder by name."""
        return {
            path.stem: self.schedule(path.stem) for path in sorted((self.folder / "schedules").glob("*.json"))
        }

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
            return json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: {error}; run snakemake") from None


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

    `launches`: {id: launches per iteration}; `points`: [(id, repeat, [auto, chosen, chosen, auto])].
    """

    def __init__(self, folder: Path, paths: list):
        read = [record.read_comparison(str(path)) for path in paths]
        digests = {digest for digest, _ in read}
        if len(digests) != 1:
            raise InputError(
                f"{paths[0].parent}: comparisons of {len(digests)} setups; delete them and run snakemake"
            )
        kernels = setup.read(str(folder / "setup" / f"{digests.pop()}.json")).targets["kernel"]
        self.launches = {name: about["launches_per_iteration"] for name, about in kernels.items()}
        self.points = [
            (each["target"], each["repeat"], each["points"])
            for _, comparisons in read
            for each in comparisons
        ]
