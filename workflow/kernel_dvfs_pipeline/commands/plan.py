"""`kernel-dvfs pipeline plan`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli.arguments import SECONDS, number
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.commands.shared import EXAMPLE, add_shape, planner_of, say
from kernel_dvfs_pipeline.planner import saving_line, write_plan
from kernel_dvfs_pipeline.reach import reachable
from kernel_dvfs_pipeline.slow_changes import in_time
from kernel_dvfs_pipeline.spreads import spreads
from kernel_dvfs_pipeline.study import ONE_CLOCK, SPLIT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline plan`."""
    parser.epilog = f"example: kernel-dvfs pipeline plan {EXAMPLE} --time 28.4 -o plan.json"
    add_shape(parser)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "--no-slowdown", action="store_true", default=None, help="never later than all clocks at their highest"
    )
    asked.add_argument("--time", type=number(0, 1e9, "seconds"), metavar="S", help="never later than this")
    asked.add_argument("--straggler", type=number(0, 1e9, "seconds"), metavar="S", help="all wait until then anyway")
    asked.add_argument("--energy", type=number(0, 1e15, "J"), metavar="J", help="the fastest within this budget")
    asked.add_argument("--price", type=number(0, 1e9, "W"), metavar="W", help="where one second less costs this much")
    parser.add_argument("--frontier", metavar="F.csv", help="of this pipeline: spares solving it again")
    parser.add_argument("--split", action="store_true", help="may change clocks within an operation")
    parser.add_argument(
        "--switch-latency",
        type=SECONDS,
        default=0.0,
        metavar="S",
        help="each change stops its stage for so long (default: 0)",
    )
    parser.add_argument(
        "--latency",
        metavar="L.json",
        help="of kernel-dvfs latency: no clock is asked for that cannot be reached in time, and pipeline run plays the "
        "plan (default: of the folder of pipeline measure)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="PLAN.json")


def run(options: argparse.Namespace) -> None:
    """Write one plan and say what it saves."""
    latency_s = options.switch_latency
    if options.latency and (latency_s or options.split):
        raise InputError("--latency is for plans of one clock per operation that are played: leave the others out")
    if latency_s and (options.energy is not None or options.price is not None):
        raise InputError("--switch-latency keeps a time: give --time, --straggler or --no-slowdown")
    planner, made_of = planner_of(options), {"stages": options.stages_csv}
    if options.frontier:
        planner.read_frontier(options.frontier, made_of)
        made_of["frontier"] = options.frontier
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
    known = spreads(options.latency) if options.latency else None
    if known:
        plan = reachable(planner, plan, known)
    say(*planner.notes, plan.note)
    microbatches = 1 + max(operation.microbatch for operation in planner.graph.operations)
    about = {"profile": options.stages_csv, "schedule": options.schedule, "microbatches": microbatches}
    about |= {"switch_latency_s": latency_s} if latency_s else {}
    about |= {"latency": known.document()} if known else {}
    made_of |= {"latency": options.latency} if known else {}
    write_plan(options.output, plan, about | {"asked": {asked: getattr(options, asked)}}, made_of)
    print(saving_line(plan, all_max(planner)))
