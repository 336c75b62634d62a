"""Schedules of today beside 1F1B: time, energy and what a plan saves on each, 8 stages of the simulated A100.

Stages are made from kernels (GPT-3 175B, tensor-parallel 8), so a backward pass can be split into its two gradients.
All schedules run the same work; a shorter one has less waiting left to save. Last column: energy as planned for the
time of its own highest clocks, against 1F1B at the highest clocks.

    python experiments/benchmarks/pipeline_schedules.py [--microbatches M ...]
"""

import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from pipeline_scale import BLOCKING_W, sweep

from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.stages_from_kernels import pass_level, read_kernels

STAGES, STRAGGLER = 8, 1.1
SCHEDULES = ("1f1b", "gpipe", "zb-h1", "dualpipe")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--microbatches", type=int, nargs="+", default=[16, 48], metavar="M")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sweep(f"{folder}/kernels.parquet")
        profile = pass_level(read_kernels(f"{folder}/kernels.parquet"), STAGES)
    print("simulated A100, GPT-3 175B, 8 stages x 8 GPUs; change against the highest clocks of the same schedule")
    waits = f"at T'/T = {STRAGGLER}, %"
    print(
        f"{'microbatches':>12} {'schedule':>9} {'time / 1F1B':>11} {'waiting, %':>10} {'energy, %':>9} {'gap, %':>6}"
        f" {waits:>15} {'energy / 1F1B':>13}"
    )
    for microbatches in options.microbatches:
        first = None
        for schedule in SCHEDULES:
            planner = Planner(profile, pipeline_graph(schedule, STAGES, microbatches), BLOCKING_W)
            base = all_max(planner)
            first = first or base
            plan = planner.plan_ticks(base.time_ticks)
            until_s = STRAGGLER * base.time_s
            slow = planner.plan_for_straggler(until_s)
            busy = float((base.end_ticks - base.begin_ticks).sum()) / (STAGES * base.time_ticks)
            change, slow_change = (
                100 * (own.energy_j(end_s) / base.energy_j(end_s) - 1)
                for own, end_s in ((plan, base.time_s), (slow, until_s))
            )
            print(
                f"{microbatches:12} {schedule:>9} {base.time_s / first.time_s:11.3f} {100 * (1 - busy):10.1f}"
                f" {change:+9.2f} {100 * plan.gap:6.2f} {slow_change:+15.2f}"
                f" {plan.energy_j(base.time_s) / first.energy_j():13.3f}"
            )


if __name__ == "__main__":
    main()
