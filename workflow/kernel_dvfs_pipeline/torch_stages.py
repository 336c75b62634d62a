"""torch.distributed.pipelining: stages that are followed, replayed for measurement, and marked on a CUDA stream.

Every schedule runs a stage by three public methods of PipelineStage, forward_one_chunk, backward_one_chunk and
backward_weight_one_chunk (1F1B, interleaved, zero-bubble). `FollowedStage` is a PipelineStage that says when they begin
and end; nothing of torch is patched. A training is a function of one argument:

    def training(follow):
        stage = follow.stage(part, rank, ranks, device)             # in place of PipelineStage(...)
        schedule = Schedule1F1B(stage, 8, loss_fn=follow.loss(loss))
        def iteration():
            schedule.step(...)
            optimizer.step()
        return iteration

`kernel-dvfs pipeline measure` and `pipeline run` call it in each rank of a torchrun.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.executor import Executor, GpuMarks, HostMarks
from kernel_dvfs_pipeline.following import PlannedOperation
from kernel_dvfs_pipeline.measuring import Timed, mixes_of
from kernel_dvfs_pipeline.schedules import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD

_ANEW_S = 10.0
_AHEAD = 2  # rounds that the host launches ahead of the GPU


class _Mark:
    """An event, and when the GPU passed it, once that is known."""

    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()
        self.passed_s: float | None = None


class CudaMarks:
    """Marks on the current CUDA stream.

    That a mark was passed is seen later than it was. How far two marks lie apart the GPU knows, so all of them tell
    when one of them was passed at the latest, and the earliest of that counts; anew now and then, since clocks drift.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._first: _Mark | None = None
        self._first_s = 0.0

    def mark(self) -> _Mark:
        return _Mark()

    def passed_s(self, mark: _Mark) -> float | None:
        if mark.passed_s is None and mark.event.query():
            now_s = self._now_s()
            since_s = self._first.event.elapsed_time(mark.event) / 1000 if self._first else 0.0
            if self._first is None or since_s > _ANEW_S:
                self._first, self._first_s, since_s = mark, now_s, 0.0
            self._first_s = min(self._first_s, now_s - since_s)
            mark.passed_s = self._first_s + since_s
        return mark.passed_s

    def synchronise(self) -> None:
        torch.cuda.synchronize()


def marks_for(device: torch.device) -> GpuMarks:
    """Return the marks of what runs on a device."""
    return CudaMarks() if device.type == "cuda" else HostMarks()


def gathered(value: Any) -> list[Any]:
    """Return what all ranks give, in their order."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


class FollowedStage(PipelineStage):
    """A PipelineStage that tells its `Follow` what it runs. Arguments: as of PipelineStage, after it."""

    def __init__(self, follow: Follow, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.follow = follow

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        self.follow.inputs[self.stage_index, fwd_chunk_id] = arguments, named
        self.follow.begin(FORWARD, self.stage_index, fwd_chunk_id)
        output = super().forward_one_chunk(fwd_chunk_id, *arguments, **named)
        self.follow.end()
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        is_full = arguments[1] if len(arguments) > 1 else named.get("full_backward", True)
        self.follow.begin(BACKWARD if is_full else BACKWARD_INPUT, self.stage_index, bwd_chunk_id)
        result = super().backward_one_chunk(bwd_chunk_id, *arguments, **named)
        self.follow.end()
        return result

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        self.follow.begin(BACKWARD_WEIGHT, self.stage_index, bwd_chunk_id)
        result = super().backward_weight_one_chunk(bwd_chunk_id, *arguments, **named)
        self.follow.end()
        return result


class Follow:
    """What a training is given: it makes its stages, and knows what they run.

    executor: what follows a plan; None while stages are only recorded or replayed.
    """

    def __init__(self) -> None:
        self.executor: Executor | None = None
        self.stages: list[FollowedStage] = []
        self.works: list[PlannedOperation] = []  # of the iteration that was recorded
        self.inputs: dict[tuple[int, int], tuple[tuple, dict]] = {}  # of each forward pass
        self.targets: dict[int, Any] = {}  # of each microbatch, on the last stage
        self.loss_of: Callable[[Any, Any], torch.Tensor] | None = None
        self.dp_rank = self.tp_rank = 0
        self._records = False
        self._forward = 0  # microbatch of the last forward pass

    def stage(
        self,
        module: torch.nn.Module,
        index: int,
        count: int,
        device: torch.device,
        *,
        dp_rank: int = 0,
        tp_rank: int = 0,
        **more: Any,
    ) -> FollowedStage:
        """Return a stage, as PipelineStage(module, index, count, device, ...) does. dp_rank, tp_rank: of this rank."""
        stage = FollowedStage(self, module, index, count, device, **more)
        self.stages.append(stage)
        self.dp_rank, self.tp_rank = dp_rank, tp_rank
        return stage

    def of(self, stage: PipelineStage) -> FollowedStage:
        """Return the followed stage of one that a framework has made, before its first iteration."""
        return self.stage(stage.submod, stage.stage_index, stage.num_stages, stage.device, group=stage.group)

    def loss(self, function: Callable[[Any, Any], torch.Tensor]) -> Callable[[Any, Any], torch.Tensor]:
        """Return the loss function for the schedule. Its work counts as the last stage's."""
        self.loss_of = function

        def loss(output: Any, target: Any) -> torch.Tensor:
            self.targets[self._forward] = target
            return function(output, target)

        return loss

    def begin(self, instruction: str, stage: int, microbatch: int) -> None:
        """Note that an operation begins."""
        if instruction == FORWARD:
            self._forward = microbatch
        work = PlannedOperation(instruction, stage, microbatch)
        if self._records:
            self.works.append(work)
        if self.executor:
            self.executor.begin(work)

    def end(self) -> None:
        """Note that it has ended."""
        if self.executor:
            self.executor.end()

    def record(self, iteration: Callable[[], object]) -> None:
        """Run one iteration and keep the order of its operations. Raises InputError where no stage ran any."""
        self.works, self._records = [], True
        try:
            iteration()
        finally:
            self._records = False
        if not self.works:
            raise InputError("the training ran no operation of a stage: make its stages by follow.stage(...)")

    @property
    def device(self) -> torch.device:
        """Of its stages."""
        return torch.device(self.stages[0].device)

    @property
    def pipeline_rank(self) -> int:
        """Return which device of its pipeline this rank is."""
        return int(self.stages[0].group_rank)


class Replays:
    """Operations of recorded stages, run again by themselves: a RankBench for measuring.Measuring.

    follow: after an iteration was recorded, so that every stage has its inputs, gradients and buffers. Parameters keep
    their values; their gradients are gone afterwards (`clear`).
    """

    def __init__(self, follow: Follow) -> None:
        self._follow = follow
        self._stages = {stage.stage_index: stage for stage in follow.stages}
        self._is_cuda = follow.device.type == "cuda"
        self._chunks = {
            index: sorted(microbatch for stage, microbatch in follow.inputs if stage == index) for index in self._stages
        }

    def mixes(self) -> list[tuple[int, tuple[str, ...]]]:
        """See RankBench."""
        ran = {
            index: {work.instruction for work in self._follow.works if work.virtual_stage == index}
            for index in self._stages
        }
        return [(index, mix) for index in sorted(self._stages) for mix in mixes_of(ran[index])]

    def run(self, stage: int, mix: tuple[str, ...], rounds: int) -> Timed:
        """See RankBench."""
        followed, chunks = self._stages[stage], self._chunks[stage]
        stamps: list[list[Any]] = []
        for number in range(rounds):
            if number >= _AHEAD and self._is_cuda:
                stamps[number - _AHEAD][-1].synchronize()
            stamps.append(self._round(followed, mix, chunks[number % len(chunks)]))
        if self._is_cuda:
            torch.cuda.synchronize()
        times_s = {
            name: sum(self._between_s(round_stamps[place], round_stamps[place + 1]) for round_stamps in stamps) / rounds
            for place, name in enumerate(mix)
        }
        return Timed(times_s, self._between_s(stamps[0][0], stamps[-1][-1]) / rounds)

    def _round(self, stage: FollowedStage, mix: tuple[str, ...], chunk: int) -> list[Any]:
        """Run one of each operation of a mix; return stamps before, between and after them."""
        arguments, named = self._follow.inputs[stage.stage_index, chunk]
        stamps, loss = [self._stamp()], None
        for name in mix:
            if name == FORWARD:
                output = stage.forward_one_chunk(chunk, *arguments, **named)
                if stage.is_last and self._follow.loss_of is not None:
                    loss = self._follow.loss_of(output, self._follow.targets[chunk])
            elif name == BACKWARD_WEIGHT:
                stage.backward_weight_one_chunk(chunk)
            else:
                stage.backward_one_chunk(chunk, loss=loss, full_backward=name == BACKWARD)
            stamps.append(self._stamp())
        stage.clear_runtime_states()
        return stamps

    def _stamp(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between_s(self, first: Any, last: Any) -> float:
        return first.elapsed_time(last) / 1000 if self._is_cuda else last - first

    def clear(self) -> None:
        """Forget the gradients that measuring has left."""
        for stage in self._stages.values():
            for parameter in stage.submod.parameters():
                parameter.grad = None

    def wait(self, seconds: float, metered: Callable[[Callable[[], None]], None]) -> None:
        """See RankBench: by pairs of neighbours; of an odd number the last waits for the first."""
        rank, count = dist.get_rank(), dist.get_world_size()
        if count == 1:
            metered(lambda: time.sleep(seconds))  # nobody to wait for: an idle GPU
            return
        place = self._follow.device if dist.get_backend() == "nccl" else torch.device("cpu")
        message = torch.zeros(1, device=place)
        pairs = [(first, first + 1) for first in range(0, count - 1, 2)]
        turns = [pairs, [pair[::-1] for pair in pairs]] + ([[(count - 1, 0)]] if count % 2 else [])

        def receive(other: int) -> None:
            dist.recv(message, other)
            if self._is_cuda:
                torch.cuda.synchronize()

        for turn in turns:
            for waits, sends in turn:
                if rank == waits:
                    metered(lambda other=sends: receive(other))  # type: ignore[misc]
                elif rank == sends:
                    time.sleep(seconds)
                    dist.send(message, waits)
