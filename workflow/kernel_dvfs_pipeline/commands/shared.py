"""What several of these commands share."""

from __future__ import annotations

import argparse
import os

from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import COUNT, SCALE, SECONDS, SIZE, columns_of, number, whole
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.graph import Graph, ordered_graph, pipeline_graph, read_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.recording import GRAPH, LATENCY, STAGES
from kernel_dvfs_pipeline.schedules import Layout, read_schedule
from kernel_dvfs_pipeline.stage_profile import read_stage_profile

SCHEDULE = "1f1b"
EXAMPLE = "stages.csv --scale-energy 8 --blocking-w 669 --microbatches 12"


def part_of(text: str) -> tuple[int, int]:
    """Return (K, N) of K/N, from 1/1."""
    part, _, parts = text.partition("/")
    most = COUNT(parts)
    return whole(1, most)(part), most


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the shape of a pipeline whose stages are a CSV."""
    parser.add_argument(
        "stages_csv",
        metavar="STAGES.csv|FOLDER",
        help="a profile of stages, or what pipeline measure wrote",
    )
    add_schedule(parser)
    parser.add_argument(
        "--blocking-w",
        type=number(0, 1e9, "W"),
        metavar="W",
        help="power of a waiting stage (default: of the rows `waiting`)",
    )
    parser.add_argument(
        "--synchronising-w",
        type=number(0, 1e9, "W"),
        metavar="W",
        help="power of a stage whose pipeline waits for others (default: --blocking-w)",
    )
    parser.add_argument(
        "--transfer-w",
        type=number(0, 1e9, "W"),
        default=0.0,
        metavar="W",
        help="power on top during a transfer (default: 0)",
    )
    add_scales(parser)
    parser.add_argument(
        "--kernels", type=COUNT, default=50, metavar="N", help="equal kernels per operation (default: 50)"
    )


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of what runs where and in which order."""
    parser.add_argument("--microbatches", type=SIZE, metavar="M", help="needed unless the schedule is a file")
    parser.add_argument(
        "--schedule",
        default=SCHEDULE,
        metavar="NAME|FILE",
        help="1f1b (default), gpipe, interleaved, zb-h1, dualpipe; or a CSV stage,instruction,microbatch[,chunk], in "
        "order; or a graph as pipeline graph writes it, .json",
    )
    parser.add_argument("--stages", type=COUNT, metavar="S", help="devices (default: as many as the profile has)")
    parser.add_argument("--chunks", type=COUNT, default=1, metavar="V", help="model chunks per stage (default: 1)")
    parser.add_argument("--early-recompute", action="store_true", help="recompute before the gradient arrives")
    parser.add_argument(
        "--transfer-s", type=SECONDS, default=0.0, metavar="S", help="time of a transfer between stages (default: 0)"
    )
    parser.add_argument("--constant", nargs="*", default=[], metavar="NAME", help="work that runs first, with + last")


def add_scales(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale-time", type=SCALE, default=1.0, metavar="X", help="times in the CSV times X (default: 1)"
    )
    parser.add_argument("--scale-energy", type=SCALE, default=1.0, metavar="X", help="energies times X (default: 1)")
    parser.add_argument(
        "--columns", nargs="+", default=(), metavar="COLUMN=HEADING", help="what no heading says, as time_ms=dur"
    )


def measured_in(options: argparse.Namespace) -> None:
    """Where the stages are a folder of `pipeline measure`, take from its files what was not given otherwise."""
    folder = options.stages_csv
    if not os.path.isdir(folder):
        return
    options.stages_csv = os.path.join(folder, STAGES)
    graph, latency = os.path.join(folder, GRAPH), os.path.join(folder, LATENCY)
    if options.microbatches is None and options.schedule == SCHEDULE and os.path.exists(graph):
        options.schedule = graph
    if getattr(options, "latency", "") is None and os.path.exists(latency):
        options.latency = latency


def planner_of(options: argparse.Namespace) -> Planner:
    """Return the Planner of the options of add_shape. Raises InputError."""
    measured_in(options)
    named = columns_of(options.columns)
    profile = read_stage_profile(options.stages_csv, options.scale_time, options.scale_energy, columns=named)
    stages = profile.stages // max(options.chunks, 1) if options.stages is None else options.stages
    blocking_w = profile.blocking_w if options.blocking_w is None else options.blocking_w
    if blocking_w is None:
        raise InputError(
            f"--blocking-w is missing, and {options.stages_csv} has no rows `waiting`: give what a waiting stage "
            "draws, or measure it: kernel-dvfs pipeline measure"
        )
    powers = blocking_w, options.kernels, options.synchronising_w, options.transfer_w
    return Planner(profile, graph_of(options, stages), *powers)


def graph_of(options: argparse.Namespace, stages: int | None) -> Graph:
    """Return the Graph of the options of add_schedule. stages: what a named schedule has. Raises InputError."""
    kind = options.schedule.rpartition(".")[2]
    if kind in ("csv", "json"):
        given = {
            "--microbatches": options.microbatches is not None,
            "--stages": options.stages is not None,
            "--chunks": options.chunks != 1,
            "--early-recompute": options.early_recompute,
            "--constant": options.constant,
            "--transfer-s": kind == "json" and options.transfer_s,
        }
        if any(given.values()):
            named = ", ".join(name for name, is_given in given.items() if is_given)
            raise InputError(f"{named}: {options.schedule} says it already; leave it out")
        if kind == "json":
            return read_graph(options.schedule)
        order, chunks = read_schedule(options.schedule)
        return ordered_graph(order, Layout(len(order), chunks), options.transfer_s)
    if options.microbatches is None:
        raise InputError("--microbatches is missing: give it, or a schedule file")
    if stages is None:
        raise InputError("--stages is missing: give it, or a schedule file")
    return pipeline_graph(
        options.schedule,
        stages,
        options.microbatches,
        options.chunks,
        options.early_recompute,
        options.transfer_s,
        tuple(options.constant),
    )


def say(*notes: str) -> None:
    tell(*filter(None, notes))
