"""`kernel-dvfs pipeline replay`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli.arguments import SIZE, number, whole
from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.commands.shared import EXAMPLE, add_shape, planner_of
from kernel_dvfs_pipeline.runtime import LASTING, Runtime, StragglerIteration, read_slowdowns, replay, summary
from kernel_dvfs_pipeline.study import write_records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline replay`."""
    parser.epilog = f"example: kernel-dvfs pipeline replay {EXAMPLE} --stragglers slow.csv --pipelines 16 -o replay.csv"
    add_shape(parser)
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
        help="of an iteration without a straggler (default: at the highest clocks)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="REPLAY.csv")


def run(options: argparse.Namespace) -> None:
    """Replay iterations with stragglers; write a row for each and say what was saved."""
    slowdowns = read_slowdowns(options.stragglers, options.pipelines, options.iterations)
    planner = planner_of(options)
    base_s = all_max(planner).time_s if options.time is None else options.time
    for lasting in sorted({*LASTING, options.lasting}):
        iterations = replay(Runtime(planner, base_s, lasting=lasting), slowdowns, options.known_after)
        if lasting == options.lasting:
            made_of = {"stages": options.stages_csv, "stragglers": options.stragglers}
            write_records(options.output, StragglerIteration, iterations, made_of)
        print(f"followed once it has lasted {lasting}: {summary(iterations)}")
