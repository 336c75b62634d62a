"""The exact global choice against a plain CP-SAT model of the same problem, in one run.

Both minimise the same whole numbers under the same budget (integer_grid.py). Plain: one Boolean per option, exactly one
per target, one linear constraint, no bound, no fixing, no hint; as many workers as there are cores. Its presolve step
that can cut off the optimum of such models (google/or-tools#5293) is switched off, or the two would not always agree.

    python experiments/benchmarks/global_choice.py [--limit SECONDS] [--runs N] [--quick]
"""

import argparse
import itertools
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))

import numpy as np
from ortools.sat.python import cp_model

from kernel_dvfs.choice.global_waste import least_energy
from kernel_dvfs.choice.integer_grid import integer_grid_of
from kernel_dvfs.choice.problem import Problem


def roofline(rng, targets, options, noise):
    """t = ((C/f)^3 + (M/b)^3)^(1/3) + t0; power convex in the core clock f; baseline at the highest clocks."""
    memories = 3 if options < 100 else 10
    clocks = np.linspace(0.21, 2.1, options // memories), np.linspace(0.1, 1.0, memories)
    f, b = (grid.ravel() for grid in np.meshgrid(*clocks, indexing="ij"))
    size = np.exp(rng.normal(0, 1, (targets, 1)))
    bound = rng.uniform(0, 1, (targets, 1))
    core, memory = 1.9 * size * bound, size * (1 - bound)
    t = ((core / f) ** 3 + (memory / b) ** 3) ** (1 / 3) + size * rng.uniform(0, 0.2, (targets, 1))
    voltage = 1 + 0.9 * np.maximum(f - 1.2, 0) ** 2
    activity = rng.uniform(20, 120, (targets, 1))
    p = 30 + 60 * b + 8.8 * voltage**2 * f + voltage**2 * activity * core / t + 70 * memory / t
    t = t * np.exp(0.3 * noise * rng.normal(size=t.shape))
    e = t * p * np.exp(noise * rng.normal(size=t.shape))
    return Problem.of(list(t), list(e), [t.shape[1] - 1] * targets)


def uniform(rng, targets, options):
    """Times and energies without any relation; the baseline is a fast option."""
    t, e = rng.uniform(0.5, 1.5, (2, targets, options))
    return Problem.of(list(t), list(e), list(np.argsort(t, axis=1)[:, options // 50]))


def nearly_tied(rng, targets, options):
    """Every option within 3 % of one straight line of energy against time."""
    size = np.exp(rng.normal(0, 1, (targets, 1)))
    t = rng.uniform(0.8, 1.6, (targets, options))
    e = 3 - t + 0.03 * rng.uniform(size=t.shape)
    return Problem.of(list(size * t), list(100 * size * e), [0] * targets)


def collinear(rng, targets, options, counts):
    """Every option exactly on one straight line; times to two decimals, each target launched up to `counts` times."""
    size, t = rng.integers(1, counts, (targets, 1)), rng.integers(80, 160, (targets, options)) / 100
    t[:, 0] = 1.0
    return Problem.of(list(size * t), list(97.3 * size * (3 - t)), [0] * targets)


INSTANCES = (
    ("roofline", lambda rng: roofline(rng, 46, 57, 0.0), 0.0),
    ("roofline, noisy", lambda rng: roofline(rng, 46, 57, 0.01), 0.0),
    ("roofline, noisy, 5 %", lambda rng: roofline(rng, 46, 57, 0.01), 0.05),
    ("random", lambda rng: uniform(rng, 46, 57), 0.0),
    ("nearly tied", lambda rng: nearly_tied(rng, 46, 57), 0.0),
    ("collinear", lambda rng: collinear(rng, 12, 57, 1000), 0.05),
    ("collinear", lambda rng: collinear(rng, 46, 57, 100), 1e-7),
    ("roofline", lambda rng: roofline(rng, 1000, 640, 0.0), 0.02),
    ("roofline, noisy", lambda rng: roofline(rng, 1000, 640, 0.01), 0.0),
    ("random", lambda rng: uniform(rng, 1000, 640), 0.0),
)


def plain(grid, limit_s):
    """(seconds to build, seconds to solve, status, objective or None, bound) of the plain model."""
    start = time.perf_counter()
    model = cp_model.CpModel()
    literals = [model.new_bool_var("") for _ in grid.t]
    bounds = [*grid.first.tolist(), len(literals)]
    for a, b in itertools.pairwise(bounds):
        model.add_exactly_one(literals[a:b])
    weigh = cp_model.LinearExpr.weighted_sum
    model.add(weigh(literals, grid.t.astype(np.int64).tolist()) <= int(grid.budget))
    model.minimize(weigh(literals, grid.e.astype(np.int64).tolist()))
    built = time.perf_counter()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = os.cpu_count() or 1
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.presolve_inclusion_work_limit = 0
    status = solver.solve(model)
    done = time.perf_counter()
    objective = solver.objective_value if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    return built - start, done - built, solver.status_name(status), objective, solver.best_objective_bound


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=60, help="seconds for each plain CP-SAT solve (default: 60)")
    parser.add_argument("--runs", type=int, default=9, help="runs of ours, the median counts (default: 9)")
    parser.add_argument("--quick", action="store_true", help="46 x 57 only")
    options = parser.parse_args()
    warm = uniform(np.random.default_rng(0), 6, 6)
    least_energy(warm, warm.baseline_time, effort=1)  # imports are not timed

    print(f"{os.cpu_count()} cores; ours: median (max) of {options.runs} runs, CP-SAT witness included")
    print(f"plain CP-SAT stops at {options.limit:g} s, or when its presolve next looks at the clock")
    print(
        f"{'instance':22} {'size':>10} {'slack':>5}  {'ours':>18} {'proof':8} {'core':>9}"
        f"  {'plain CP-SAT':>12} {'(build)':>8} {'status':9} {'gap':>8} {'ratio':>8}  energies"
    )
    agree = True
    for name, make, slack in INSTANCES:
        problem = make(np.random.default_rng(1))
        if options.quick and len(problem.targets) > 46:
            continue
        limit = (1 + slack) * problem.baseline_time
        times = []
        for _ in range(options.runs):
            start = time.perf_counter()
            found = least_energy(problem, limit)
            times.append(time.perf_counter() - start)
        ours = statistics.median(times)
        grid = integer_grid_of(problem, limit, only_fitting=False)
        built, solved, status, objective, bound = plain(grid, options.limit)
        energy = float(grid.e[found.option].sum())
        if objective is None:
            verdict, gap = "plain has none", "-"
        else:
            verdict = "equal" if energy == objective else f"plain {100 * (objective / energy - 1):+.2e} %"
            gap = f"{(objective - bound) / objective:.1e}"
            agree &= energy * (1 - found.gap) <= objective and (
                status != "OPTIMAL" or energy == objective or found.by == "gap"
            )
        size = f"{len(problem.targets)}x{len(problem.time) // len(problem.targets)}"
        proof = (f"{found.gap:.0e}" if found.by == "gap" else found.by) + (" +CP" if found.confirmed else "")
        undecided = f"{found.undecided_targets}/{found.undecided_options}"
        ratio = ("" if status == "OPTIMAL" else ">") + f"{solved / ours:.0f}"
        print(
            f"{name:22} {size:>10} {slack:5.2f}  {1e3 * ours:7.1f} ({1e3 * max(times):6.1f}) ms {proof:10}"
            f" {undecided:>7}  {solved:10.2f} s {built:6.1f} s {status:9} {gap:>8}"
            f" {ratio:>8}  {verdict}",
            flush=True,
        )
    print(
        "proof: bound = the LP bound alone, search = exact search, a number = the relative gap left, +CP = confirmed by"
        " CP-SAT; core = targets/options left by reduced costs; ratio = plain solve / ours, > where plain stopped at"
        " its limit"
    )
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
