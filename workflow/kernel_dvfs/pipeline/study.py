"""One pipeline study on disk: what is asked (study.json), the stages (stages.csv), the kernels behind them if known.

Hands out planners, one per number of microbatches, and the published algorithm's answer beside them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json, write_text
from kernel_dvfs.pipeline.baselines import all_max
from kernel_dvfs.pipeline.graph import Graph, pipeline_graph
from kernel_dvfs.pipeline.kernel_switching import switched_kernel_level
from kernel_dvfs.pipeline.options import KEYS
from kernel_dvfs.pipeline.plan import Plan
from kernel_dvfs.pipeline.planner import Planner
from kernel_dvfs.pipeline.published import PublishedFrontier, published_frontier, published_length
from kernel_dvfs.pipeline.published_curve import unit_curve
from kernel_dvfs.pipeline.stage_profile import read_stage_profile, write_stage_profile
from kernel_dvfs.pipeline.stages_from_kernels import kernel_level, pass_level, read_kernels
from kernel_dvfs.pipeline.ticks import TICKS_PER_S, duration_ticks

SCHEMA = "kernel-dvfs/pipeline-study/1"


@dataclass(frozen=True, eq=False)
class Realised:
    """A point of the published frontier at measured figures: what it promised, what it takes, effective J."""

    promised_s: float
    time_s: float
    cost_j: float


class PipelineStudy:
    """A study's folder. Raises InputError naming the file that is missing or bad."""

    def __init__(self, folder):
        self.folder = Path(folder)
        path = self.folder / "study.json"
        try:
            self.options = read_json(path)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: {error}; make it with kernel-dvfs pipeline-profile") from None
        if not isinstance(self.options, dict) or self.options.get("schema") != SCHEMA:
            raise InputError(f"{path}: not a {SCHEMA} file; make it with kernel-dvfs pipeline-profile")
        missing = [key for key in (*KEYS, "name", "subject", "source") if key not in self.options]
        if missing:
            raise InputError(f"{path}: {', '.join(missing)} missing; make it again with kernel-dvfs pipeline-profile")
        self._planners: dict = {}
        self._published: dict = {}

    def __getitem__(self, key: str):
        return self.options[key]

    @property
    def subject(self) -> str:
        """Whose numbers these are: "simulated A100 SXM", or the measured table's name; always an emulated pipeline."""
        return f"{self['subject']}, emulated pipeline"

    @property
    def stage_blocking_w(self) -> float:
        """What a stage with all its ranks draws while it waits, W."""
        return self["blocking_w"] * self["tensor_parallel"]

    def pipelines(self, microbatches: int) -> int:
        """Data-parallel pipelines that share a global batch of `total_microbatches`."""
        return max(1, self["total_microbatches"] // microbatches)

    def gpus(self, microbatches: int) -> int:
        return self.pipelines(microbatches) * self["stages"] * self["tensor_parallel"]

    @cached_property
    def profile(self):
        """The stages, one pair of clocks per operation."""
        return read_stage_profile(self.folder / "stages.csv", name=self["name"])

    @cached_property
    def kernels(self):
        """The kernels that the stages were made from, or None where they came from a CSV of stages."""
        return read_kernels(self["source"]) if str(self["source"]).endswith(".parquet") else None

    def graph(self, microbatches: int) -> Graph:
        return pipeline_graph(
            self["schedule"],
            self["stages"],
            microbatches,
            self["chunks"],
            self["early_recompute"],
            self["transfer_s"],
            tuple(self["constant"]),
        )

    def planner(self, microbatches: int) -> Planner:
        """One pair of clocks per operation, or two with a split."""
        if microbatches not in self._planners:
            graph = self.graph(microbatches)
            self._planners[microbatches] = Planner(self.profile, graph, self.stage_blocking_w, self["kernels"])
        return self._planners[microbatches]

    def kernel_planner(self, microbatches: int, latency_s: float = 0.0) -> Planner:
        """A pair of clocks per kernel, changes within an operation taking latency_s.

        Raises InputError where only stages are known.
        """
        if self.kernels is None:
            raise InputError(
                f"{self['name']}: a profile of stages knows no kernels; make the stages from a kernel profile"
            )
        shape = self.kernels, self["stages"] * self["chunks"], self.stage_blocking_w
        profile = switched_kernel_level(*shape, latency_s) if latency_s else kernel_level(*shape)
        return Planner(profile, self.graph(microbatches), self.stage_blocking_w, self["kernels"])

    def base(self, microbatches: int) -> Plan:
        """All clocks at their highest."""
        return all_max(self.planner(microbatches))

    def published(self, microbatches: int, filter_on: str = "raw") -> tuple:
        """(curves per operation, PublishedFrontier) of the published algorithm."""
        key = microbatches, filter_on
        if key not in self._published:
            planner = self.planner(microbatches)
            of_key = {
                each: unit_curve(own.time_s, own.energy_j, self.stage_blocking_w, self["unit_time_s"], filter_on)
                for each in planner.options
                for own in [self.profile.of(*each)]
            }
            curves = [of_key[each] for each in planner.keys]
            frontier = published_frontier(planner.graph, curves, self.stage_blocking_w, self["unit_time_s"])
            self._published[key] = curves, frontier
        return self._published[key]

    def realised(self, microbatches: int, point: int, filter_on: str = "raw") -> Realised:
        """What point number `point` of the published frontier really takes: its options at their measured figures."""
        planner, (curves, frontier) = self.planner(microbatches), self.published(microbatches, filter_on)
        time_s, cost = [], 0.0
        for key, curve, units in zip(planner.keys, curves, frontier.units[point].tolist()):
            own, row = self.profile.of(*key), curve.setting_at(units)
            time_s.append(float(own.time_s[row]))
            cost += float(own.energy_j[row] - self.stage_blocking_w * own.time_s[row])
        ticks = duration_ticks(time_s).tolist()
        return Realised(float(frontier.time_s[point]), max(planner.graph.finish_ticks(ticks)) / TICKS_PER_S, cost)


def published_base(study: PipelineStudy, microbatches: int) -> tuple:
    """(time s, energy J) of all-max as the artifact counts it: time from floored durations of the fastest options."""
    planner, (curves, _) = study.planner(microbatches), study.published(microbatches)
    base = study.base(microbatches)
    fastest = [curve.fastest for curve in curves]
    time_s = published_length(planner.graph, fastest, study["unit_time_s"]) * study["unit_time_s"]
    return time_s, base.energy_j(time_s)


def cheapest_within(frontier: PublishedFrontier, time_s: float) -> int:
    """The artifact's lookup: the point of least energy among those that promise at most `time_s`; the last if none."""
    within = [point for point, own in enumerate(frontier.time_s.tolist()) if own <= time_s * (1 + 1e-12)]
    return min(within, key=lambda point: frontier.energy_j[point]) if within else len(frontier.time_s) - 1


def make_study(source, folder, options: dict, scale_time: float = 1.0, scale_energy: float = 1.0) -> None:
    """Write stages.csv and study.json into `folder`.

    source: a CSV of stages (scaled by the two factors) or a kernel profile, `.parquet`, from which stages are made.
    options: the keys of KEYS and `name`; blocking_w may not be None. Raises InputError.
    """
    if str(source).endswith(".parquet"):
        kernels = read_kernels(source)
        if kernels.ranks != options["tensor_parallel"]:
            raise InputError(
                f"{source}: kernels of tensor-parallel degree {kernels.ranks}, asked for {options['tensor_parallel']}"
            )
        profile, subject = pass_level(kernels, options["stages"] * options["chunks"]), kernels.source
    else:
        profile = read_stage_profile(source, scale_time, scale_energy)
        subject = "stages from a table"
    if profile.stages < options["stages"] * options["chunks"]:
        raise InputError(
            f"{source}: {profile.stages} stages, the schedule needs {options['stages'] * options['chunks']}; "
            "add rows, or ask for fewer stages"
        )
    study = {"schema": SCHEMA, "subject": subject, "source": str(source)} | options
    write_stage_profile(Path(folder) / "stages.csv", profile)
    write_text(Path(folder) / "study.json", json.dumps(study, indent=1, allow_nan=False) + "\n")
