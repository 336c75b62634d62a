"""A scheduler for Zeus's pipeline-frequency server that follows stragglers, by plans that were made ahead.

    from kernel_dvfs.pipeline.zeus import StragglerPlans    # needs the zeus package

`StragglerPlans` is a `FrequencyScheduler` of `zeus.optimizer.pipeline_frequency.server.scheduler` (Zeus, Chung et al.,
Apache-2.0; written against zeus 0.16.0). From what the ranks report of their instructions it works out how long each
data-parallel pipeline would take without waiting, and answers with the plan for the slowest: the largest of `plans`
that is not longer. A pipeline that straggles runs the first plan, the one without a straggler.

What Zeus does not do today: its server finds schedulers by name in its own module only, so settings that name this
class are made without its check (`PFOServerSettings.construct`, docs/pipeline.md); and its client asks for a schedule
once, at the start, and reports no results. A training loop that follows stragglers reports and asks again itself.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from statistics import median
from typing import Any

from zeus.optimizer.pipeline_frequency.common import FrequencySchedule
from zeus.optimizer.pipeline_frequency.server.scheduler import FrequencyScheduler

from kernel_dvfs.errors import InputError
from kernel_dvfs.pipeline.export import zeus_frequencies
from kernel_dvfs.pipeline.graph import Graph, Operation
from kernel_dvfs.pipeline.schedules import BACKWARD, BACKWARD_INPUT, FORWARD, GRADIENT
from kernel_dvfs.pipeline.study import PlanDocument, read_plan

# a pipeline straggles where its iteration would take longer than planned by more than this share
TOLERANCE = 0.01


class StragglerPlans(FrequencyScheduler):
    """Follows stragglers with plans of one pipeline.

    plans: paths of what `pipeline plan` wrote, first the one without a straggler. tolerance: see TOLERANCE.
    Raises InputError where a plan has another number of stages than the job, or cannot be said in Zeus's schedule.
    """

    def __init__(
        self, job_info: Any, rank_infos: list, pfo_settings: Any, plans: Sequence[str], tolerance: float = TOLERANCE
    ) -> None:
        documents = [read_plan(path) for path in plans]
        if not documents:
            raise InputError("zeus: no plans; give at least the one without a straggler")
        for path, own in zip(plans, documents):
            if len(own["ranks"]) != job_info.pp_degree:
                raise InputError(
                    f"{path}: {len(own['ranks'])} stages, the job has {job_info.pp_degree}: plan for those"
                )
        self.base, *others = documents
        self.ordered = sorted([self.base, *others], key=lambda own: own["time_s"])
        self.tolerance = tolerance
        super().__init__(job_info, rank_infos, pfo_settings)

    def _run(self) -> Generator[list, list, None]:
        """Yield each rank's schedule, receive what the ranks measured with it."""
        pipelines = {info.dp_rank for info in self.rank_infos}
        running = dict.fromkeys(pipelines, self.base)
        while True:
            results = yield [
                FrequencySchedule(rank=info.rank, frequencies=zeus_frequencies(running[info.dp_rank])[info.pp_rank])
                for info in self.rank_infos
            ]
            slowdowns = self._slowdowns(results, running)
            slowest_s = max(slowdown * self.base["time_s"] for slowdown in slowdowns.values())
            in_time = [own for own in self.ordered if own["time_s"] <= slowest_s]
            for pipeline, slowdown in slowdowns.items():
                running[pipeline] = self.base if slowdown > 1 or not in_time else in_time[-1]

    def _slowdowns(self, results: list, running: dict[int, PlanDocument]) -> dict[int, float]:
        """{data-parallel rank: how much longer its iteration would take than planned}, 1 within the tolerance."""
        info_of = {info.rank: info for info in self.rank_infos}
        # per pipeline: how much longer each stage's instructions take than planned
        longer: dict[int, dict[tuple[int, str], float]] = {pipeline: {} for pipeline in running}
        for result in results:
            info = info_of[result.rank]
            planned = durations_s(running[info.dp_rank], info.pp_rank)
            for name, iterations in result.time_breakdown.items():
                measured = [math.fsum(own) for own in iterations if own]
                if measured and name in planned:
                    key, ratio = (info.pp_rank, name), median(measured) / math.fsum(planned[name])
                    # the slowest of a stage's tensor-parallel ranks
                    longer[info.dp_rank][key] = max(ratio, longer[info.dp_rank].get(key, 0.0))
        found = {own: stretched(running[own], longer[own]) for own in running}
        return {pipeline: own if own > 1 + self.tolerance else 1.0 for pipeline, own in found.items()}


def durations_s(plan: PlanDocument, stage: int) -> dict[str, list[float]]:
    """{instruction: seconds of each of them in one iteration} of a stage, as a plan has them."""
    made: dict[str, list[float]] = {}
    for own in plan["ranks"][stage]["instructions"]:
        made.setdefault(own["instruction"], []).append(own["end_s"] - own["begin_s"])
    return made


def stretched(plan: PlanDocument, longer: dict[tuple[int, str], float]) -> float:
    """How much longer a plan's iteration takes where (stage, instruction) takes `longer` times as long as planned.

    Transfers are left out of both.
    """
    operations: list[Operation] = []
    edges: list[tuple[int, int, float]] = []
    planned: list[float] = []
    for rank in plan["ranks"]:
        for place, own in enumerate(rank["instructions"]):
            if place:
                edges.append((len(operations) - 1, len(operations), 0.0))
            operations.append(Operation(rank["stage"], own["virtual_stage"], own["instruction"], own["microbatch"]))
            planned.append(own["end_s"] - own["begin_s"])
    place_of = {own[1:]: number for number, own in enumerate(operations)}
    for number, (_, part, instruction, microbatch) in enumerate(operations):
        # forwards hand on to the next part of the model, gradients to the one before, the last forward to its gradient
        step = {FORWARD: 1, BACKWARD: -1, BACKWARD_INPUT: -1}.get(instruction, 0)
        after = [(part + step, name, microbatch) for name in ((FORWARD,) if step > 0 else GRADIENT if step else ())]
        if step > 0 and after[0] not in place_of:
            after = [(part, name, microbatch) for name in GRADIENT]
        edges += [(number, place_of[each], 0.0) for each in after if each in place_of]
    graph = Graph(operations, edges, len(plan["ranks"]))
    # Graph sorts its operations: durations by operation, not by place
    planned_s = dict(zip(operations, planned))
    own_s = {each: taken * longer.get((each.stage, each.instruction), 1.0) for each, taken in planned_s.items()}
    before, after_s = (
        max(graph.finish_ticks([taken[each] for each in graph.operations])) for taken in (planned_s, own_s)
    )
    return after_s / before
