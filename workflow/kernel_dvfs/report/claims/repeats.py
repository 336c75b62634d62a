"""Claims on what is left of a choice once it is measured again (section 6): claimed against fresh."""

from collections import namedtuple

import numpy as np

from kernel_dvfs.report import validation
from kernel_dvfs.report.claims import evidence
from kernel_dvfs.report.claims.claim import Finding, NotTestable, claim, percent, points, span

# Kernels that choose for themselves, in random subsets: how many, and how many draws of each (drawn once for
# all, so that a verdict is the same every time).
SUBSETS = (5, 11, 22)
DRAWS = 400
SEED = 1
# "Grows": from the smallest subset to all kernels by more than half as much again.
GROWS = 1.5

Kernels = namedtuple("Kernels", "claimed fresh")
Kernels.__doc__ = """claimed: (K, 2) time of an iteration in each kernel, auto and chosen, s, as
the choice saw it. fresh: (repeats, K, 2) the same in each fresh repeat."""


@claim(20, "Repeats show more time and less energy saved than claimed; no repeat reaches the claim", "6")
def optimism(results) -> Finding:
    rows = evidence.table(results, "validation").set_index("quantity")
    claimed = evidence.schedule(results, evidence.STRICT)
    time, energy = validation.changes(evidence.validation(results))
    reached = sum(
        each_time <= claimed["time_change_percent"] and each_energy <= claimed["energy_change_percent"]
        for each_time, each_energy in zip(time.values, energy.values)
    )
    cheap = sum(value <= claimed["energy_change_percent"] for value in energy.values)
    return Finding(
        f"{time.repeats} repeats: time {span(time.values, 2)} (claimed"
        f" {percent(claimed['time_change_percent'], 2)}), energy {span(energy.values, 2)} (claimed"
        f" {percent(claimed['energy_change_percent'], 2)}); {reached} reach the claim in both, {cheap} in"
        " energy",
        bool(rows.optimism_pp.time > 0 and rows.optimism_pp.energy > 0 and not reached),
        "table validation: the claim is the best of noisy measurements (selection bias), fresh repeats did not choose",
    )


@claim(21, "The selection error grows with the number of kernels", "6")
def error_grows(results) -> Finding:
    kernels = _kernels(results)
    count = len(kernels.claimed)
    sizes = [size for size in SUBSETS if size < count]
    if not sizes or len(kernels.fresh) < 2:
        raise NotTestable(
            f"{count} kernels and {len(kernels.fresh)} fresh repeats: more than {SUBSETS[0]} kernels and two"
            " repeats are needed"
        )
    draw = np.random.default_rng(SEED)
    bias, ratio = [], []
    for size in (*sizes, count):
        draws = DRAWS if size < count else 1
        found = np.array([_error(kernels, draw.choice(count, size, replace=False)) for _ in range(draws)])
        bias.append(found[:, 0].mean())
        ratio.append(found[:, 0].mean() / found[:, 1].mean())
    shown = ", ".join(str(size) for size in sizes) + f", all {count} kernels that choose for themselves"
    return Finding(
        f"time fresh - claimed of {shown}: {', '.join(points(value, 2) for value in bias)} points; in units"
        f" of the scatter of one repeat: {', '.join(f'{value:.1f}' for value in ratio)}",
        bool(bias[0] > 0 and bias[-1] > GROWS * bias[0]),
        "random subsets of the same choice (schedule and validation records): at one price of time each"
        " kernel is chosen by itself, so its error is a share of its own time whatever the others do; more"
        " kernels average the scatter out, which makes the same error more certain, not larger",
    )


def _kernels(results) -> Kernels:
    """Time of an iteration in each kernel that chooses for itself (replicates are one), claimed and fresh."""
    problem = evidence.problem(results)
    chosen = evidence.schedule(results, evidence.STRICT)["targets"]
    keys = [[chosen[own[0]][name] for name in problem.settings] for own in problem.members]
    keys = [tuple(None if clock == "auto" else clock for clock in key) for key in keys]
    option = [
        next(i for i in np.flatnonzero(problem.target == k) if problem.keys[problem.key[i]] == key)
        for k, key in enumerate(keys)
    ]
    claimed = np.column_stack([problem.time[problem.baseline], problem.time[option]])
    comparisons = evidence.validation(results)
    place = {name: k for k, own in enumerate(problem.members) for name in own}
    repeats = sorted({repeat for _, repeat, _ in comparisons.points})
    times = np.zeros((len(repeats), len(keys), 2))
    for target, repeat, compared in comparisons.points:
        for column, mean_us in enumerate(validation.means(compared, "time_us")):
            times[repeats.index(repeat), place[target], column] += comparisons.launches[target] * mean_us * 1e-6
    return Kernels(claimed, times)


def _error(kernels: Kernels, subset) -> tuple:
    """(bias, scatter of one repeat) of the change of time of a subset of kernels, in points."""
    auto, chosen = kernels.claimed[subset].sum(axis=0)
    again = kernels.fresh[:, subset].sum(axis=1)
    changes = 100 * (again[:, 1] / again[:, 0] - 1)
    return changes.mean() - 100 * (chosen / auto - 1), changes.std(ddof=1)


CLAIMS = (optimism, error_grows)
