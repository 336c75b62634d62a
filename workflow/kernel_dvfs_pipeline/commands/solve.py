"""`kernel-dvfs pipeline solve`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli.arguments import SIZE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.commands.shared import part_of, say
from kernel_dvfs_pipeline.solver import Solver
from kernel_dvfs_pipeline.steps import PARTS, solve_frontier_part
from kernel_dvfs_pipeline.study import PipelineStudy

_STUDY = "results/pipeline/sim-a100-sxm/gpt3-175b-b1-tp8/pp8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pipeline solve`."""
    parser.epilog = f"example: kernel-dvfs pipeline solve {_STUDY} 12"
    parser.add_argument("folder", metavar="FOLDER", help="of the study; written to its mb<M>/")
    parser.add_argument("microbatches", metavar="M", type=SIZE)
    # the names are checked where the solver is imported
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="plans, switching, certificate or levels (default: all that it can)"
    )
    jobs = parser.add_mutually_exclusive_group()
    jobs.add_argument("--frontier-part", type=part_of, metavar="K/N", help="only that of the frontier, for --join")
    jobs.add_argument("--join", nargs="*", default=[], metavar="PART.csv", help="make the frontier of all its parts")


def run(options: argparse.Namespace) -> None:
    """Solve a study for one number of microbatches."""
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        raise InputError(f"pipeline solve: unknown part {', '.join(unknown)}; allowed: {', '.join(PARTS)}")
    solver = Solver(PipelineStudy(options.folder), options.join)
    say(*solver.planner(options.microbatches).notes)
    if options.frontier_part:
        solve_frontier_part(solver, options.microbatches, *options.frontier_part)
        return
    # kernels are read only where levels might be solved
    for part in options.parts or [part for part in PARTS if part != "levels" or solver.kernels is not None]:
        PARTS[part](solver, options.microbatches)
