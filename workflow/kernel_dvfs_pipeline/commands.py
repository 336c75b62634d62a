"""`kernel-dvfs pipeline ...`: plans for a training pipeline from a CSV of stages, and the steps of a pipeline study."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kernel_dvfs.cli import Command, json_object, tell
from kernel_dvfs.cli.arguments import COUNT, SCALE, SECONDS, SIZE, number, one_of, whole
from kernel_dvfs.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs_pipeline.graph import Graph
    from kernel_dvfs_pipeline.planner import Planner

_STUDY = "results/pipeline/sim-a100-sxm/gpt3-175b-b1-tp8/pp8"
_STAGES = "stages.csv --scale-energy 8 --blocking-w 669 --microbatches 12"


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline profile`."""
    parser.epilog = "example: kernel-dvfs pipeline profile profile.parquet FOLDER --options '{\"stages\": 8, ...}'"
    parser.add_argument("source", metavar="STAGES.csv|KERNELS.parquet")
    parser.add_argument("folder", metavar="FOLDER", help="gets stages.csv and study.json")
    parser.add_argument("--options", required=True, metavar="JSON", help="what study.json says")
    _add_scales(parser)


def run_profile(options: argparse.Namespace) -> None:
    """Write stages.csv and study.json."""
    from kernel_dvfs_pipeline.steps import make_study
    from kernel_dvfs_pipeline.study import check_options

    asked = json_object("--options", options.options)
    check_options("--options", asked)
    make_study(options.source, options.folder, asked, options.scale_time, options.scale_energy)


def add_frontier(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline frontier`."""
    parser.epilog = f"example: kernel-dvfs pipeline frontier {_STAGES} -o frontier.csv"
    _add_shape(parser)
    jobs = parser.add_mutually_exclusive_group()
    jobs.add_argument("--part", type=_part, metavar="K/N", help="only the K-th of N parts, each a job of its own")
    jobs.add_argument("--join", nargs="+", metavar="PART.csv", help="make it of all its parts")
    parser.add_argument("-o", "--output", required=True, metavar="F.csv")


def run_frontier(options: argparse.Namespace) -> None:
    """Write the frontier's corners and say what it allows; or a part of it."""
    from kernel_dvfs_pipeline.baselines import all_max
    from kernel_dvfs_pipeline.bracket import Bracket, Solved
    from kernel_dvfs_pipeline.steps import corners
    from kernel_dvfs_pipeline.study import Corner, write_records

    planner = _planner(options)
    _say(*planner.notes)
    if options.part:
        write_records(options.output, Solved, planner.part_of_frontier(*options.part))
        return
    if options.join:
        planner.join_frontier(options.join)
    write_records(options.output, Corner, corners(planner))
    base, frontier = all_max(planner), planner.frontier
    ticks = min(max(base.time_ticks, frontier.fastest_ticks), frontier.slowest_ticks)
    saved = 100 * (1 - (float(frontier.energy_at(ticks)) + planner.transfer_j) / base.energy_j())
    known = f"proven within {100 * frontier.error:.2g} %" if isinstance(frontier, Bracket) else "exact"
    print(f"{len(frontier.cost_j)} corners: at most {saved:.2f} % can be saved at the same time; {known}")


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline plan`."""
    parser.epilog = f"example: kernel-dvfs pipeline plan {_STAGES} --time 28.4 -o plan.json"
    _add_shape(parser)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "--no-slowdown", action="store_true", default=None, help="never later than all clocks at their highest"
    )
    asked.add_argument("--time", type=number(0, 1e9, "seconds"), metavar="S", help="never later than this")
    asked.add_argument("--straggler", type=number(0, 1e9, "seconds"), metavar="S", help="all wait until then anyway")
    asked.add_argument("--energy", type=number(0, 1e15, "J"), metavar="J", help="the fastest within this budget")
    asked.add_argument("--price", type=number(0, 1e9, "W"), metavar="W", help="where one second less costs this much")
    parser.add_argument(
        "--frontier", metavar="F.csv", help="of this pipeline, from pipeline frontier: spares solving it again"
    )
    parser.add_argument("--split", action="store_true", help="may change clocks within an operation")
    parser.add_argument(
        "--switch-latency",
        type=SECONDS,
        default=0.0,
        metavar="S",
        help="each change of clocks stops its stage for so long; the plan keeps its time nevertheless (default: 0)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="PLAN.json")


def run_plan(options: argparse.Namespace) -> None:
    """Write one plan and say what it saves."""
    from kernel_dvfs_pipeline.baselines import all_max
    from kernel_dvfs_pipeline.planner import told, write_plan
    from kernel_dvfs_pipeline.slow_changes import in_time
    from kernel_dvfs_pipeline.study import ONE_CLOCK, SPLIT

    latency_s = options.switch_latency
    if latency_s and (options.energy is not None or options.price is not None):
        raise InputError("--switch-latency keeps a time: give --time, --straggler or --no-slowdown")
    planner = _planner(options)
    if options.frontier:
        planner.read_frontier(options.frontier)
    answers = {
        "no_slowdown": lambda _, kind: planner.plan_ticks(all_max(planner).time_ticks, kind),
        "time": planner.plan,
        "straggler": planner.plan_for_straggler,
        "energy": planner.plan_for_energy,
        "price": planner.plan_for_price,
    }
    asked = next(name for name in answers if getattr(options, name) is not None)
    kind = SPLIT if options.split else ONE_CLOCK
    plan = answers[asked](getattr(options, asked), kind)
    if latency_s:
        plan = in_time(planner, plan.promised_ticks, latency_s, kind)
    _say(*planner.notes, plan.note)
    microbatches = 1 + max(operation.microbatch for operation in planner.graph.operations)
    about = {"profile": options.stages_csv, "schedule": options.schedule, "microbatches": microbatches}
    about |= {"switch_latency_s": latency_s} if latency_s else {}
    write_plan(options.output, plan, about | {"asked": {asked: getattr(options, asked)}})
    print(told(plan, all_max(planner)))


def add_export(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline export`."""
    parser.epilog = "example: kernel-dvfs pipeline export plan.json --format zeus -o plan.py"
    parser.add_argument("plan", metavar="PLAN.json", help="what pipeline plan wrote")
    parser.add_argument("--format", **one_of(("csv", "zeus")), default="csv", help="default: csv")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="FILE.csv, or FILE.py for zeus")


def run_export(options: argparse.Namespace) -> None:
    """Write a plan for another program."""
    from kernel_dvfs_pipeline.export import FORMATS
    from kernel_dvfs_pipeline.study import read_plan

    FORMATS[options.format](options.output, read_plan(options.plan))


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline replay`."""
    parser.epilog = f"example: kernel-dvfs pipeline replay {_STAGES} --stragglers slow.csv --pipelines 16 -o replay.csv"
    _add_shape(parser)
    parser.add_argument(
        "--stragglers", required=True, metavar="SLOW.csv", help="iteration,pipeline,slowdown: a factor above 1"
    )
    parser.add_argument(
        "--pipelines", type=SIZE, required=True, metavar="N", help="pipelines that share each iteration"
    )
    parser.add_argument("--iterations", type=whole(1, 10**7), metavar="K", help="(default: to the end of SLOW.csv)")
    parser.add_argument(
        "--known-after",
        type=whole(0, 10**7),
        default=1,
        metavar="K",
        help="iterations until a straggler is known (default: 1)",
    )
    parser.add_argument(
        "--lasting",
        type=whole(0, 10**7),
        default=0,
        metavar="K",
        help="stay at the plan without a straggler until one has lasted for K more iterations; 0, 1, 3 and 10 are "
        "printed besides (default: 0)",
    )
    parser.add_argument(
        "--time",
        type=number(0, 1e9, "seconds"),
        metavar="S",
        help="time of an iteration without a straggler (default: all clocks at their highest)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="REPLAY.csv")


def run_replay(options: argparse.Namespace) -> None:
    """Replay iterations with stragglers; write a row for each and say what was saved."""
    from kernel_dvfs_pipeline.baselines import all_max
    from kernel_dvfs_pipeline.runtime import LASTING, Iteration, Runtime, read_slowdowns, replay, summary
    from kernel_dvfs_pipeline.study import write_records

    slowdowns = read_slowdowns(options.stragglers, options.pipelines, options.iterations)
    planner = _planner(options)
    base_s = all_max(planner).time_s if options.time is None else options.time
    for lasting in sorted({*LASTING, options.lasting}):
        iterations = replay(Runtime(planner, base_s, lasting=lasting), slowdowns, options.known_after)
        if lasting == options.lasting:
            write_records(options.output, Iteration, iterations)
        print(f"followed once it has lasted {lasting}: {summary(iterations)}")


def add_graph(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline graph`."""
    parser.epilog = "example: kernel-dvfs pipeline graph --schedule dualpipe --stages 8 --microbatches 20 -o graph.json"
    _add_schedule(parser)
    parser.add_argument("-o", "--output", required=True, metavar="GRAPH.json")


def run_graph(options: argparse.Namespace) -> None:
    """Write the operations of a schedule, and what each waits for."""
    from kernel_dvfs_pipeline.graph import write_graph

    write_graph(options.output, _graph(options, options.stages))


def add_solve(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline solve`."""
    parser.epilog = f"example: kernel-dvfs pipeline solve {_STUDY} 12"
    parser.add_argument("folder", metavar="FOLDER", help="of the study; written to its mb<M>/")
    parser.add_argument("microbatches", metavar="M", type=SIZE)
    # the names are checked where the solver is imported
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="plans, switching, certificate or levels (default: all that it can)"
    )
    jobs = parser.add_mutually_exclusive_group()
    jobs.add_argument("--frontier-part", type=_part, metavar="K/N", help="only that of the frontier, for --join")
    jobs.add_argument("--join", nargs="*", default=[], metavar="PART.csv", help="make the frontier of all its parts")


def run_solve(options: argparse.Namespace) -> None:
    """Solve a study for one number of microbatches."""
    from kernel_dvfs_pipeline.solver import Solver
    from kernel_dvfs_pipeline.steps import PARTS, solve_frontier_part
    from kernel_dvfs_pipeline.study import PipelineStudy

    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        raise InputError(f"pipeline solve: unknown part {', '.join(unknown)}; allowed: {', '.join(PARTS)}")
    solver = Solver(PipelineStudy(options.folder), options.join)
    _say(*solver.planner(options.microbatches).notes)
    if options.frontier_part:
        solve_frontier_part(solver, options.microbatches, *options.frontier_part)
        return
    # kernels are read only where levels might be solved
    for part in options.parts or [part for part in PARTS if part != "levels" or solver.kernels is not None]:
        PARTS[part](solver, options.microbatches)


def _part(text: str) -> tuple[int, int]:
    """K/N, from 1/1."""
    part, _, parts = text.partition("/")
    most = COUNT(parts)
    return whole(1, most)(part), most


def _add_shape(parser: argparse.ArgumentParser) -> None:
    """The shape of a pipeline whose stages are a CSV."""
    parser.add_argument("stages_csv", metavar="STAGES.csv", help="a profile of pipeline stages")
    _add_schedule(parser)
    parser.add_argument(
        "--blocking-w",
        type=number(0, 1e9, "W"),
        required=True,
        metavar="W",
        help="power of a waiting stage, all its GPUs",
    )
    parser.add_argument(
        "--synchronising-w",
        type=number(0, 1e9, "W"),
        metavar="W",
        help="power of a stage whose pipeline is done and waits for others (default: --blocking-w)",
    )
    parser.add_argument(
        "--transfer-w",
        type=number(0, 1e9, "W"),
        default=0.0,
        metavar="W",
        help="additional power during a transfer (default: 0)",
    )
    _add_scales(parser)
    parser.add_argument(
        "--kernels", type=COUNT, default=50, metavar="N", help="equal kernels per operation (default: 50)"
    )


def _add_schedule(parser: argparse.ArgumentParser) -> None:
    """What runs where and in which order."""
    parser.add_argument("--microbatches", type=SIZE, metavar="M", help="needed unless the schedule is a file")
    parser.add_argument(
        "--schedule",
        default="1f1b",
        metavar="NAME|FILE",
        help="1f1b (default), gpipe, interleaved, zb-h1, dualpipe; or a CSV stage,instruction,microbatch[,chunk], in "
        "order; or a graph as pipeline graph writes it, .json",
    )
    parser.add_argument("--stages", type=COUNT, metavar="S", help="devices (default: as many as the profile has)")
    parser.add_argument("--chunks", type=COUNT, default=1, metavar="V", help="model chunks per stage (default: 1)")
    parser.add_argument(
        "--early-recompute", action="store_true", help="recompute activations before the gradient arrives"
    )
    parser.add_argument(
        "--transfer-s", type=SECONDS, default=0.0, metavar="S", help="time of a transfer between stages (default: 0)"
    )
    parser.add_argument("--constant", nargs="*", default=[], metavar="NAME", help="work that runs first, with + last")


def _add_scales(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale-time", type=SCALE, default=1.0, metavar="X", help="times in the CSV times X (default: 1)"
    )
    parser.add_argument("--scale-energy", type=SCALE, default=1.0, metavar="X", help="energies times X (default: 1)")


def _planner(options: argparse.Namespace) -> Planner:
    """The Planner of the options of _add_shape. Raises InputError."""
    from kernel_dvfs_pipeline.planner import Planner
    from kernel_dvfs_pipeline.stage_profile import read_stage_profile

    profile = read_stage_profile(options.stages_csv, options.scale_time, options.scale_energy)
    stages = profile.stages // max(options.chunks, 1) if options.stages is None else options.stages
    powers = options.blocking_w, options.kernels, options.synchronising_w, options.transfer_w
    return Planner(profile, _graph(options, stages), *powers)


def _graph(options: argparse.Namespace, stages: int | None) -> Graph:
    """The Graph of the options of _add_schedule. stages: what a named schedule has. Raises InputError."""
    from kernel_dvfs_pipeline.graph import ordered_graph, pipeline_graph, read_graph
    from kernel_dvfs_pipeline.schedules import Layout, read_schedule

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


def _say(*notes: str) -> None:
    tell(*filter(None, notes))


COMMANDS = {
    "frontier": Command("a pipeline's whole frontier of time against energy, as CSV", add_frontier, run_frontier),
    "plan": Command("clocks for every instruction: by time, straggler, energy or price", add_plan, run_plan),
    "graph": Command("operations and edges of a schedule, to change and give to --schedule", add_graph, run_graph),
    "replay": Command("iterations with several, changing stragglers: time and energy", add_replay, run_replay),
    "export": Command("a plan as plain CSV, or as Zeus's pipeline-frequency server loads it", add_export, run_export),
    "profile": Command("stages of a study, from a CSV or a profile of kernels", add_profile, run_profile),
    "solve": Command("solve a study for one number of microbatches", add_solve, run_solve),
}
