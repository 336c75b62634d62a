"""Which algorithms "timed" chooses for an iteration's products, in how long, and what they take as they run on and on.

Two commands: `choose` in a process for each library and each time, `compare` once for two files of choices. Products
whose choices differ are watched for seconds each, in turn (A B B A), then whole iterations of either: time and energy.
Sets nothing on the GPU.

    python experiments/benchmarks/gemm_choices.py choose before.json --results results_of_the_older_commit
    python experiments/benchmarks/gemm_choices.py choose after.json
    python experiments/benchmarks/gemm_choices.py compare before.json after.json
"""

import argparse
import datetime
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

from gpu_iteration import iteration_of_ours, measured

from kernel_dvfs.measurement.real.gemm_algorithms import GemmAlgorithms
from kernel_dvfs.native.load import library_sha256, load
from kernel_dvfs.native.plans import row_plan
from kernel_dvfs.native.steady import Steady
from kernel_dvfs.workload.models import model as model_named
from kernel_dvfs.workload.rows import kernel_rows
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.board import Board
from kernel_dvfs_clocks.nvml.library import Library

WARM_S, WINDOW_S = 1.5, 2.0


def products(options):
    """[rows of one shape, ...] of the iteration."""
    shapes = {}
    for row in kernel_rows(model_named(options.model), options.batch):
        if row.gemm:
            shapes.setdefault(str(row.settings), []).append(row)
    return [*shapes.values()]


def choose(options, cuda, device):
    """Choose for every product, print the place among the proposals and the seconds, and keep the choices in a file."""
    (path,) = options.files
    if os.path.exists(path):
        raise InputError(f"{path} is there: choices would be taken from it")
    choices, total_s = GemmAlgorithms(path, device.info()["cublaslt"]), 0.0
    for rows in products(options):
        arena = cuda.Arena(device)
        first = row_plan(cuda, arena, rows[0], options.model)  # fills the tensors
        start_s = time.monotonic()
        plan = row_plan(cuda, arena, rows[0], options.model, algorithm="timed", choices=choices)
        took_s = time.monotonic() - start_s
        total_s += took_s
        print(f"{' '.join(row.id for row in rows):45} {plan.info()['algorithm_rank']:3} {took_s:6.2f} s", flush=True)
        del first, plan
    print(f"{len(products(options))} shapes in {total_s:.1f} s")


def in_turn(board, loads, order):
    """[(ms, J, W, SM MHz), ...] of the loads, means of their windows in that order, after a while that is not counted:
    the clock of a board that was at rest swings at first."""
    loads[order[-1]].run_for(WARM_S)
    loads[order[-1]].stop()
    taken = [[] for _ in loads]
    for number in order:
        taken[number].append(measured(board, loads[number], WINDOW_S))
    return [[statistics.mean(column) for column in zip(*rows, strict=True)] for rows in taken]


def compare(options, cuda, device):
    """Print what either choice takes, of each product and of the whole iteration."""
    both = [GemmAlgorithms(path, device.info()["cublaslt"]) for path in options.files]
    saved_us = 0.0
    print(f"{'product':45} {'A, us':>9} {'B, us':>9}  time B/A  energy B/A")
    with Library() as nvml:
        board = Board(nvml, device.info()["uuid"])
        for rows in products(options):
            label, choices = " ".join(row.id for row in rows), [kept.known(rows[0].settings) for kept in both]
            if choices[0] == choices[1]:
                print(f"{label:45} the same")
                continue
            arena = cuda.Arena(device)
            plans = [row_plan(cuda, arena, rows[0], options.model, algorithm=choice) for choice in choices]
            a, b = in_turn(board, [Steady(cuda, device, plan) for plan in plans], (0, 1, 1, 0))
            saved_us += 1e3 * (a[0] - b[0]) * sum(row.multiplicity for row in rows)
            times = f"{1e3 * a[0]:9.1f} {1e3 * b[0]:9.1f} {b[0] / a[0]:9.3f} {b[1] / a[1]:11.3f}"
            print(f"{label:45} {times}", flush=True)
            del plans, arena
        print(f"A less B, these products over the iteration: {1e-3 * saved_us:.2f} ms")
        arena = cuda.Arena(device)
        whole = [iteration_of_ours(cuda, arena, options.model, options.batch, kept) for kept in both]
        a, b = in_turn(board, [Steady(cuda, device, each) for each in whole], (0, 1, 1, 0, 0, 1))
        ratios = f"time {b[0] / a[0]:.4f}, energy {b[1] / a[1]:.4f}"
        print(f"whole iteration: A {a[0]:.2f} ms, {a[1]:.2f} J; B {b[0]:.2f} ms, {b[1]:.2f} J; {ratios}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for run, count, files in (
        (choose, 1, "gets the choices; must not exist"),
        (compare, 2, "of choices: A, B"),
    ):
        command = commands.add_parser(run.__name__, help=run.__doc__.partition(".")[0])
        command.set_defaults(run=run)
        command.add_argument("files", nargs=count, metavar="FILE", help=files)
        command.add_argument("--results", default="results", help="folder with native/cuda")
        command.add_argument("--model", default="gpt3-xl")
        command.add_argument("--batch", type=int, default=40)
    options = parser.parse_args()
    cuda = load("cuda", options.results)
    device = cuda.Device(0)
    about = device.info()
    print(f"{about['name']}, default clocks, nothing set; {datetime.date.today().isoformat()}")
    library = library_sha256("cuda", options.results)[:12]
    print(f"driver CUDA {about['driver']}, cuBLASLt {about['cublaslt']}, library {library}")
    print(f"{options.model}, batch {options.batch}")
    options.run(options, cuda, device)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
