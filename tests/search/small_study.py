"""A small study to search in: three kernels, five clock pairs, three measurements of auto."""

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

from kernel_dvfs.gpu.clocks import AUTO, BASELINE, Pair, label
from kernel_dvfs.measurement import job, request
from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement.campaign import of_repeat
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.search import loop, search_file

PAIRS = [BASELINE, Pair(1470, 5001), Pair(1470, 9251), Pair(1050, 9251), Pair(2100, AUTO)]
KERNELS = ("forward_gelu", "forward_fc_gemm", "backward_fcproj_bias_reduce")
OPTIONS = {
    "search": "exhaustive",
    "pairs": ",".join(map(label, PAIRS)),
    "auto_repeats": 3,
    "limits_percent": [0, 2],
    "ties": "tied",
    "refine": {"windows": 400, "hours": None, "over_percent": 10},
}


@dataclass
class Folder:
    """A study in a folder of its own."""

    root: Path
    path: str  # of the setup

    @property
    def setup(self):
        return setups.read(self.path)

    @property
    def measurements(self) -> str:
        return str(self.root / "measurements")

    @property
    def output(self) -> Path:
        return self.root / "search.json"

    def run(self, options=OPTIONS, **more):
        """The search, played to its end; its lines are not shown."""
        with contextlib.redirect_stderr(io.StringIO()):
            loop.run(self.path, self.measurements, options, str(self.output), **more)
        return search_file.read(str(self.output))

    def sweep(self):
        """Measure the sweep, as the jobs before a search do; its requests."""
        asked = request.sweep(self.setup, PAIRS, 3)
        for each in asked:
            for repeat in each.repeats:
                pair = Pair(*each[2:4])
                path = f"{self.measurements}/{request.path(each, repeat)}"
                what = Target(each.kind, each.target), pair, of_repeat(pair, repeat, 3), repeat
                job.measure(self.setup, self.path, *what, path)
        return asked

    def records(self) -> dict:
        """{path: bytes} of all records."""
        root = Path(self.measurements)
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.json"))}

    def another(self, **protocol) -> "Folder":
        """The same folder under another protocol."""
        own = self.setup
        path = setups.store(
            str(self.root / "setup"), own.gpu, own.workload, own.targets, {**own.measurement, **protocol}
        )
        return Folder(self.root, path)

    def words(self) -> list:
        """The command line that pools the sweep and the search."""
        words = [
            "measure",
            "aggregate",
            "--gpu",
            self.path,
            "--records",
            self.measurements,
            f"--pairs={OPTIONS['pairs']}",
        ]
        return [*words, "--auto-repeats", "3", "--search", str(self.output), "-o", str(self.root / "profile.parquet")]
