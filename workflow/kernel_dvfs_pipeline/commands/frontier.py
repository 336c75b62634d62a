"""`kernel-dvfs pipeline frontier`."""

from __future__ import annotations

import argparse

from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.bracket import Bracket, Solved
from kernel_dvfs_pipeline.commands.shared import EXAMPLE, add_shape, part_of, planner_of, say
from kernel_dvfs_pipeline.steps import corners
from kernel_dvfs_pipeline.study import Corner, write_records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline frontier`."""
    parser.epilog = f"example: kernel-dvfs pipeline frontier {EXAMPLE} -o frontier.csv"
    add_shape(parser)
    jobs = parser.add_mutually_exclusive_group()
    jobs.add_argument("--part", type=part_of, metavar="K/N", help="only the K-th of N parts, each a job of its own")
    jobs.add_argument("--join", nargs="+", metavar="PART.csv", help="make it of all its parts")
    parser.add_argument("-o", "--output", required=True, metavar="F.csv")


def run(options: argparse.Namespace) -> None:
    """Write the frontier's corners and say what it allows; or a part of it."""
    planner, made_of = planner_of(options), {"stages": options.stages_csv}
    say(*planner.notes)
    if options.part:
        write_records(options.output, Solved, planner.part_of_frontier(*options.part), made_of)
        return
    if options.join:
        planner.join_frontier(options.join, made_of)
    write_records(options.output, Corner, corners(planner), made_of)
    base, frontier = all_max(planner), planner.frontier
    ticks = min(max(base.time_ticks, frontier.fastest_ticks), frontier.slowest_ticks)
    saved = 100 * (1 - (float(frontier.energy_at(ticks)) + planner.transfer_j) / base.energy_j())
    known = f"proven within {100 * frontier.error:.2g} %" if isinstance(frontier, Bracket) else "exact"
    print(f"{len(frontier.cost_j)} corners: at most {saved:.2f} % can be saved at the same time; {known}")
