"""`kernel-dvfs pipeline measure` and `pipeline run`, in each rank of a torchrun, with a training's own file.

The file has a function `training(follow)` (torch_stages.py). Every rank holds the clocks of its own GPU.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_json, write_sealed
from kernel_dvfs_clocks.nvml.facts import facts_of
from kernel_dvfs_deploy.guarded_control import GuardedControl
from kernel_dvfs_pipeline.executor import Executor, Noted, PlanCertificate
from kernel_dvfs_pipeline.following import read_played
from kernel_dvfs_pipeline.graph import Graph, recorded_graph, write_graph
from kernel_dvfs_pipeline.measuring import Measuring, in_turns, pairs_to_try
from kernel_dvfs_pipeline.recording import GRAPH, LATENCY, STAGES, write_rows
from kernel_dvfs_pipeline.spreads import of_document
from kernel_dvfs_pipeline.stragglers import Lookup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_dvfs_pipeline.planner import Plan
    from kernel_dvfs_pipeline.runtime import Runtime
    from kernel_dvfs_pipeline.torch_stages import Follow

NO_GPU = "none"
_PATIENCE = timedelta(minutes=30)


class Place(NamedTuple):
    """Which process this is, as torchrun says it."""

    rank: int
    local_rank: int
    ranks: int

    @staticmethod
    def here() -> Place:
        """Return this process's place. Raises InputError outside of torchrun."""
        try:
            return Place(*(int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))
        except (KeyError, ValueError):
            raise InputError(
                "pipeline: start it in every rank: torchrun --nproc-per-node N --no-python kernel-dvfs pipeline ..."
            ) from None


def uuid_of(gpus: str, place: Place) -> str:
    """Return the UUID of this rank's GPU; "" where none is looked at. gpus: one for each local rank, or fewer that they
    share; "": that of the rank's own number. Raises InputError."""
    if gpus == NO_GPU:
        return ""
    named = [gpu.strip() for gpu in gpus.split(",")] if gpus else []
    which = named[place.local_rank % len(named)] if named else str(place.local_rank)
    uuid: str = facts_of(which)["uuid"]
    return uuid


@contextmanager
def _started(path: str, say: Callable[[str], object]) -> Iterator[tuple[Follow, Callable[[], object]]]:
    """Yield a training's Follow, and what runs an iteration of it."""
    make = _training(path)
    import torch
    import torch.distributed as dist

    from kernel_dvfs_pipeline.torch_stages import Follow

    place, follow = Place.here(), Follow()
    # NCCL takes one rank a GPU
    has_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if not dist.is_initialized():
        if has_gpu:
            torch.cuda.set_device(place.local_rank)
        dist.init_process_group("nccl" if has_gpu else "gloo", timeout=_PATIENCE)
    try:
        iteration = make(follow)
        if not callable(iteration) or not follow.stages:
            raise InputError(f"{path}: training(follow) must make its stages by follow.stage and return a function")
        yield follow, iteration
    finally:
        if dist.is_initialized() and sys.exc_info()[0] is None:
            dist.destroy_process_group()


def _training(path: str) -> Callable[[Any], Any]:
    """Return the function `training` of a file. Raises InputError where it has none."""
    spec = importlib.util.spec_from_file_location("training", path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise InputError(f"{path}: expected a Python file with a function training(follow)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    make = getattr(module, "training", None)
    if not callable(make):
        raise InputError(f"{path}: has no function training(follow); docs/pipeline.md shows one")
    return make


def measure(
    path: str,
    folder: str,
    gpus: str = "",
    through: str = "auto",
    dry_run: bool = False,
    block_s: float = 2.0,
    say: Callable[[str], object] = print,
) -> None:
    """Measure the stages of a training and write stages.csv, graph.json and latency.json. Raises InputError."""
    place = Place.here()
    tell = say if place.rank == 0 else lambda line: None
    uuid = uuid_of(gpus, place)
    if not uuid:
        raise InputError("pipeline measure: a GPU must be looked at; name it by --gpus")
    with _started(path, tell) as (follow, iteration):
        from kernel_dvfs_pipeline.torch_stages import Replays, gathered

        iteration()  # what is made ready at first
        follow.record(iteration)
        bench = Replays(follow)
        who = gathered((os.uname().nodename, uuid))
        sharing = [rank for rank, gpu in enumerate(who) if gpu == who[place.rank]]
        turns, turn = max(who.count(gpu) for gpu in who), sharing.index(place.rank)
        # the first rank of each turn speaks
        speaks = place.rank == next(at for at, gpu in enumerate(who) if who[:at].count(gpu) == turn)
        tell = say if speaks else lambda line: None
        measured: list[tuple[list[Any], dict[str, Any] | None]] = []

        def take_turn(gather: Callable[[Any], list[Any]]) -> None:
            with GuardedControl(uuid, dry_run, tell, through=through) as control:
                control.preflight(True, tell, [] if dry_run else pairs_to_try(control.clocks))
                control.announce("the clock pairs of pipeline measure")
                measuring = Measuring(bench, control, gather, block_s, follow.dp_rank, follow.tp_rank, tell)
                measuring.waiting(is_alone=turns == 1)
                measuring.visits([BASELINE] if dry_run else pairs_to_try(control.clocks))
                measured.append((measuring.rows, measuring.latency()))

        in_turns(gathered, turn, turns, take_turn)
        bench.clear()
        every = gathered((measured[0], (follow.pipeline_rank, follow.dp_rank, follow.tp_rank, follow.works)))
        if place.rank:
            return
        rows = [row for (rank_rows, _), _ in every for row in rank_rows]
        latency = next((document for (_, document), _ in every if document), None)
        write_rows(os.path.join(folder, STAGES), rows)
        write_graph(os.path.join(folder, GRAPH), _graph([about for _, about in every]))
        if latency:
            write_json(os.path.join(folder, LATENCY), latency)
        pairs = {row.core_mhz for row in rows if row.instruction != "waiting"}
        tell(f"{len(rows)} rows of {place.ranks} ranks at {len(pairs)} clocks: {folder}")


def _graph(every: Sequence[tuple[int, int, int, Sequence[Any]]]) -> Graph:
    """Return the graph of the first replica's pipeline, in the order that was recorded."""
    orders = {device: works for device, dp_rank, tp_rank, works in every if dp_rank == tp_rank == 0}
    return recorded_graph([orders[device] for device in sorted(orders)])


def run(
    path: str,
    plan: str,
    output: str,
    iterations: int,
    gpus: str = "",
    through: str = "auto",
    dry_run: bool = False,
    blocks: int = 5,
    block_s: float = 2.0,
    slack_percent: float = 1.0,
    make_runtime: Callable[[], Runtime] | None = None,
    look_every: int = 10,
    say: Callable[[str], object] = print,
) -> PlanCertificate | None:
    """Run a training at a plan's clocks and write its certificate. make_runtime: makes, on rank 0, what finds plans
    beside stragglers. Returns the certificate, on rank 0. Raises InputError."""
    place, played = Place.here(), read_played(plan)
    tell = say if place.rank == 0 else lambda line: None
    uuid = uuid_of(gpus, place)
    with _started(path, tell) as (follow, iteration):
        from kernel_dvfs_pipeline.torch_stages import gathered, marks_for

        who = gathered((os.uname().nodename, uuid))
        is_shared = bool(uuid) and who.count(who[place.rank]) > 1
        if is_shared and not dry_run:
            raise InputError(f"GPU {uuid}: several ranks share it, and its clocks are of one; give each its own")
        holds = bool(uuid) and who.index(who[place.rank]) == place.rank
        lookup = None
        if make_runtime and place.rank == 0:
            # needs the solver, which a training's own Python seldom has
            from kernel_dvfs_pipeline.reach import reachable

            runtime, latency = make_runtime(), played["latency"]

            def document(followed: Plan) -> dict[str, Any]:
                return reachable(runtime.planner, followed, of_document(latency)).document() | {"latency": latency}

            lookup = Lookup(runtime, document, tell)
        with ExitStack() as stack:
            control: GuardedControl | Noted = Noted()
            if holds:
                control = stack.enter_context(GuardedControl(uuid, dry_run, tell, through=through))
                control.preflight(True, tell)
                control.announce("the clocks of a pipeline's plan")
            executor = Executor(
                played,
                follow.pipeline_rank,
                control,
                marks_for(follow.device),
                gathered,
                *(blocks, block_s, slack_percent, lookup, look_every, follow.dp_rank, tell),
            )
            with executor:
                follow.executor = executor
                done = 0
                while done < iterations or executor.is_judging:
                    with executor.iteration():
                        iteration()
                    done += 1
                follow.executor = None
        certificate = executor.certificate
        if place.rank or certificate is None:
            return None
        write_sealed(output, certificate.document() | {"ran": done}, {"plan": plan})
        return certificate
