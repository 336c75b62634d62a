"""From a checked configuration to what the pipeline study is made of: its folder, the stages' source, its options.

Planning is pure: it works out names and contents of files and writes none.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.model import clock_w, static_w
from kernel_dvfs.outputs import Output
from kernel_dvfs.plan.asked import PlannedFile
from kernel_dvfs.plan.study import ALONE, plan
from kernel_dvfs.report.words import signed
from kernel_dvfs.table_file import read_rows
from kernel_dvfs_clocks.clocks import Pair
from kernel_dvfs_clocks.errors import InputError, Missing
from kernel_dvfs_pipeline.study import FILES, KEYS, ONE_CLOCK, LevelEnergy


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """What the pipeline study of a configuration is made of."""

    folder: str  # of the study
    source: str  # a CSV of stages or a kernel profile
    setup: PlannedFile | None  # that the kernel profile is swept from; None: the source is given
    pairs: tuple[Pair, ...]  # of that sweep
    options: dict[str, Any]  # what study.json says
    frontier_parts: int  # jobs among which the times of a frontier are divided
    scale_time: float  # of a CSV
    scale_energy: float
    knows_kernels: bool  # whether the kernels behind the stages are known

    def solved(self, kind: type) -> list[str]:
        """Return the files that hold a kind of records (study.FILES), one a number of microbatches."""
        return [f"{self.folder}/mb{microbatches}/{FILES[kind]}" for microbatches in self.options["microbatches"]]

    def records(self) -> list[str]:
        """Return the files of all kinds of records."""
        paths = [path for kind in FILES if kind is not LevelEnergy for path in self.solved(kind)]
        return paths + (self.solved(LevelEnergy)[:1] if self.knows_kernels else [])

    def folder_of(self, output: Output) -> str:
        """Return where a table or figure belongs."""
        return self.folder

    def inputs_of(self, output: Output) -> list[str]:
        """Return what it is made from."""
        return [f"{self.folder}/stages.csv", f"{self.folder}/study.json", *output.made_from(self)]

    def setups(self) -> list[PlannedFile]:
        """Return every setup that its jobs read."""
        return [self.setup] if self.setup else []

    def sealed(self) -> tuple[list[str], dict[str, str]]:
        """Return the folders of what it derives, and {name: path} of what that is made of and lies elsewhere."""
        return [self.folder], {"source": self.source}

    def answer_line(self) -> str:
        """Return what a run ends with. Raises InputError as line_of_pipeline does."""
        return line_of_pipeline(self.folder)

    def plans(self) -> list[str]:
        """Return the folders of plans, one a number of microbatches."""
        return [f"{self.folder}/mb{microbatches}/plans" for microbatches in self.options["microbatches"]]


def plan_pipeline(config: dict, results: str = "results") -> PipelinePlan:
    """Return the pipeline study of a checked `config`. Raises InputError for what the schema cannot say."""
    asked = config["pipeline"]
    try:
        repeated = [key for key in ("early_recompute", "transfer_s", "constant") if asked[key]]
        if asked["schedule"].endswith(".json") and repeated:
            raise InputError(f"{', '.join(repeated)}: {asked['schedule']} says it already; leave it out")
        return _given(asked, results) if asked["profile"] else _simulated(config, asked, results)
    except InputError as error:
        raise InputError(f"config: pipeline: {str(error).removeprefix('config: ')}") from None


def _given(asked: dict, results: str) -> PipelinePlan:
    path = Path(asked["profile"])
    if not path.is_file():
        raise InputError(f"profile = '{path}': no such file; allowed: a CSV of stages or a kernel profile (.parquet)")
    if asked["blocking_w"] is None:
        raise InputError("blocking_w = null: a given profile does not say it; allowed: W that one waiting GPU draws")
    knows_kernels = path.suffix == ".parquet"
    if knows_kernels:
        _unscaled(asked, "stages of a kernel profile")
    # the same name with other scales is another study
    scales = [asked["scale_time"], asked["scale_energy"], asked["blocking_w"]]
    name = f"{path.stem}-{_shape(asked)}"
    folder = f"{results}/pipeline/table-{path.stem}/{_shape(asked)}-{_digest(scales)}"
    options = _options(asked, name, asked["blocking_w"])
    return PipelinePlan(
        folder=folder,
        source=str(path),
        setup=None,
        pairs=(),
        options=options,
        frontier_parts=asked["frontier_parts"],
        scale_time=asked["scale_time"],
        scale_energy=asked["scale_energy"],
        knows_kernels=knows_kernels,
    )


def _simulated(config: dict, asked: dict, results: str) -> PipelinePlan:
    _unscaled(asked, "stages of simulated kernels")
    kernels = {key: asked[key] for key in ("gpu", "model", "batch", "tensor_parallel")}
    grid = {"core_mhz": {"step": asked["core_step_mhz"]}, "mem_mhz": "all", "auto": False}
    alone = ALONE | {"workload": "model", "grid": grid, "gpu_overrides": {}}
    study = plan(config | kernels | alone, f"{results}/pipeline")
    blocking_w = asked["blocking_w"]
    if blocking_w is None:
        blocking_w = waiting_w(gpu_spec.resolve(asked["gpu"]))
    options = _options(asked, f"{study.workload}-{_shape(asked)}", blocking_w)
    return PipelinePlan(
        folder=f"{study.folder}/{_shape(asked)}",
        source=f"{study.folder}/kernels.parquet",
        setup=study.setup,
        pairs=study.pairs,
        options=options,
        frontier_parts=asked["frontier_parts"],
        scale_time=1,
        scale_energy=1,
        knows_kernels=True,
    )


def _unscaled(asked: dict, what: str) -> None:
    if (asked["scale_time"], asked["scale_energy"]) != (1, 1):
        raise InputError(f"scale_time, scale_energy: {what} are in full scale; allowed: 1")


def waiting_w(spec: dict) -> float:
    """Return what a simulated GPU draws while it waits at auto, W: memory and clock tree, no kernel's work."""
    clocks = spec["clocks"]
    warm_c = spec["thermal"]["reference_c"]
    return round(static_w(spec, clocks["auto_mem_mhz"], warm_c) + clock_w(spec["core"], clocks["auto_core_mhz"]), 2)


def _shape(asked: dict) -> str:
    """Return `pp8`, and what else sets the schedule apart: `pp8-interleaved2-recompute`."""
    words = [f"pp{asked['stages']}"]
    if asked["schedule"] != "1f1b":
        words.append(_schedule(asked["schedule"]) + (str(asked["chunks"]) if asked["chunks"] > 1 else ""))
    return "-".join(words + (["recompute"] if asked["early_recompute"] else []))


def _schedule(asked: str) -> str:
    """Return its name; of a graph that of its file, and what tells its content from any other."""
    if not asked.endswith(".json"):
        return asked
    try:
        return f"{Path(asked).stem}-{_digest([Path(asked).read_text(encoding='utf-8')])}"
    except (OSError, ValueError):
        raise InputError(f"schedule = '{asked}': no such graph; write one with kernel-dvfs pipeline graph") from None


def _digest(content: list) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:6]


def _options(asked: dict, name: str, blocking_w: float) -> dict:
    return {"name": name} | {key: asked[key] for key in KEYS if key != "blocking_w"} | {"blocking_w": blocking_w}


def line_of_pipeline(folder: str) -> str:
    """Return what a run ends with: `pipeline gpt3-xl-pp8: -10.7 % energy at 0.0 % time with 12 microbatches (planned,
    simulated A100), against all clocks at their highest. Open <folder>/report.html`.

    From tables/no_straggler.json: the plans with one clock an operation, which can be played. Where that table is not
    made, where the files are. Raises InputError where it was changed since it was written.
    """
    try:
        table = read_rows(Path(folder) / "tables/no_straggler.json")
        rows = [row for row in table if row["source"] == "ours" and row["method"] == ONE_CLOCK]
        savings = [
            f"{signed(row['energy_change_percent'])} % energy at {signed(row['time_change_percent'])} % "
            f"time with {row['microbatches']} microbatches"
            for row in rows
        ]
        who, device = rows[0]["workload"], rows[0]["gpu"]
    except (Missing, LookupError, TypeError):
        return f"pipeline: tables and figures are in {folder}"
    return (
        f"pipeline {who}: {'; '.join(savings)} (planned, {device}), against all clocks at their highest. "
        f"Open {folder}/report.html"
    )
