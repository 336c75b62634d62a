"""Guided search compared with other ways to search, scored on the truth: rows of a table, one for each way and seed.

A simulated GPU is scored on its truth, without noise; a measured table on its own rows, so that there the luck of a row
counts as real. Shares of measurements count the baseline's repeats on both sides. Of identical launches an
exhaustive search measures all, every other way one (and all at the baseline).

    python experiments/searches/guided.py --table T.csv -o g.csv
    python experiments/searches/guided.py --gpu SETUP.json --pairs auto-auto,1470-5001 --seeds 5 -o g.csv

SETUP.json: a setup of a study of a simulated GPU (setup/ in its folder of results). Writes a row a way and seed, and
their means beside it (g.md).
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np

from experiments.searches import strategies
from experiments.searches.testbed import Testbed, of_setup, of_table
from kernel_dvfs.change import change_of_reduction
from kernel_dvfs.cli.arguments import COUNT, PERCENT, number, one_of
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.clocks import Pair, parse
from kernel_dvfs.gpu.noise import specimen_overrides
from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.search.propose import Options, full_probes, is_small

COLUMNS = (
    "ground",
    "weights",
    "slack_percent",
    "budget_percent",
    "way",
    "seed",
    "measurements_percent",
    "energy_change_percent",
    "time_change_percent",
    "of_oracle_percent",
    "of_exhaustive_percent",
    "rounds",
    "left_percent",
)
AUTO_REPEATS = 10  # of an exhaustive search

Row = dict[str, Any]  # a row of the table, by column


def of_tables(
    path: str | Path, weights: str, slack: float, budget: float, seeds: Sequence[int], without: Sequence[str] = ()
) -> list[Row]:
    """Rows of one measured table: every way with the same budget, a share of all points (>= that of the baselines).

    weights: raw or equal-time. slack: fraction of the baseline's time. without: ways to leave out.
    """
    testbed = of_table(path, weights)
    rows = []
    for seed in seeds:
        options = Options(budget=budget, seed=seed)
        rows += _ways(testbed, slack, int(budget * testbed.measurements), 1, seed, options, without)
    about = {
        "ground": table_name(path),
        "weights": weights,
        "slack_percent": 100 * slack,
        "budget_percent": 100 * budget,
    }
    return [about | row for row in rows]


def shares_of_points(path: str | Path, points: Sequence[float]) -> list[float]:
    """Budgets of so many measurements a kernel, baseline included, as shares of all of a table's points."""
    if not points:
        return []
    testbed = of_table(path, "raw")
    kernels = len(testbed.candidates.targets)
    # half a measurement more, so that rounding takes none away
    return [min(1.0, (each * kernels + 0.5) / testbed.measurements) for each in points]


def table_name(path: str | Path) -> str:
    """A table's name in the rows: its file's."""
    return str(path).rsplit("/", 1)[-1].removesuffix(".csv")


def of_simulated(
    setup: Setup,
    folder: str,
    pairs: Sequence[Pair],
    slack: float,
    budget: float,
    seeds: Sequence[int],
    without: Sequence[str] = (),
) -> list[Row]:
    """Rows of the simulated GPU of a setup, then of second specimens of it, one for each seed.

    folder: where the setups of other seeds and specimens go. The rest: as for of_tables.
    """
    rows: list[Row] = []
    truth = None
    for seed in seeds:
        own = _seeded(setup, folder, seed, {})
        testbed = of_setup(own, pairs, AUTO_REPEATS, truth)
        truth = testbed.true_time_s, testbed.true_energy_j
        allowed = int(budget * testbed.measurements)
        options = Options(budget=budget, seed=seed, baseline_repeats=1, all_baseline_repeats=AUTO_REPEATS)
        name = f"simulated {own.gpu['name']}"
        about = {"ground": name, "weights": "counts", "slack_percent": 100 * slack, "budget_percent": 100 * budget}
        rows += [about | row for row in _ways(testbed, slack, allowed, 1, seed, options, without)]
        other = of_setup(_seeded(setup, folder, seed, specimen_overrides(own.gpu["spec"], seed)), pairs, AUTO_REPEATS)
        about |= {"ground": f"{name}, second specimen"}
        rows += [about | row for row in _carried(testbed, other, slack, allowed, seed, options)]
    return rows


def _seeded(setup: Setup, folder: str, seed: int, overrides: dict) -> Setup:
    """The setup with another seed, and figures of its GPU replaced."""
    spec = specs.merge(setup.gpu["spec"], overrides)
    gpu = setup.gpu | {"spec": spec}
    measurement = setup.measurement | {"seed": seed}
    return setups.read(setups.store(folder, gpu, setup.workload, setup.targets, measurement))


def _ways(
    testbed: Testbed,
    slack: float,
    allowed: int,
    baselines: int,
    seed: int,
    options: Options,
    without: Sequence[str],
) -> list[Row]:
    """Oracle, exhaustive, guided, and the baselines with the budget that guided may spend."""
    all_repeats = testbed.base_time_s.shape[1]
    rows: list[Row] = []

    def note(way: str, measured: np.ndarray, **more: Any) -> None:
        choice = testbed.choose(measured, baselines, slack)
        rows.append(_row(testbed, way, seed, testbed.candidates.spent(measured, baselines), choice) | more)

    rows.append(_row(testbed, "oracle", seed, None, testbed.oracle(slack)))
    rows.append(_exhaustive(testbed, all_repeats, slack, seed))
    measured, last, rounds = strategies.guided(testbed, slack, options)
    left = None if last.left is None else 100 * last.left
    note("guided", measured, rounds=rounds, left_percent=left)
    if is_small(testbed.candidates, options):
        full = replace(options, probes=full_probes(testbed.candidates))
        note("guided, full probes", strategies.guided(testbed, slack, full)[0])
    ways = {
        "random": lambda: strategies.random(testbed, allowed, baselines, seed),
        "grid": lambda: strategies.grid(testbed, allowed, baselines, seed),
        "three clocks": lambda: strategies.rule(testbed, allowed, baselines, seed),
        "bayesian": lambda: strategies.bayesian(testbed, slack, allowed, baselines, seed),
    }
    for way, search in ways.items():
        if way not in without:
            note(way, search())
    return _against(rows)


def _exhaustive(testbed: Testbed, repeats: int, slack: float, seed: int) -> Row:
    choice = testbed.choose(testbed.candidates.offered, repeats, slack, every=True)
    return _row(testbed, "exhaustive", seed, testbed.measurements, choice)


def _carried(first: Testbed, other: Testbed, slack: float, allowed: int, seed: int, options: Options) -> list[Row]:
    """A second specimen: the first one's choice as it is, remeasured around it, and searched from scratch."""
    optimum = first.choose(first.candidates.offered, AUTO_REPEATS, slack, every=True)
    rows = [_row(other, "oracle", seed, None, other.oracle(slack))]
    rows.append(_exhaustive(other, AUTO_REPEATS, slack, seed))
    rows.append(_row(other, "carried over as it is", seed, 0, optimum))
    near = strategies.around(other, allowed, 1, optimum, seed)
    spent = other.candidates.spent(near, 1)
    rows.append(_row(other, "re-measured around the first's", seed, spent, other.choose(near, 1, slack)))
    measured, last, rounds = strategies.guided(other, slack, options)
    left = None if last.left is None else 100 * last.left
    row = _row(other, "guided", seed, other.candidates.spent(measured, 1), other.choose(measured, 1, slack))
    return _against([*rows, row | {"rounds": rounds, "left_percent": left}])


def _row(testbed: Testbed, way: str, seed: int, spent: int | None, choice: np.ndarray) -> Row:
    saving, change = testbed.score(choice)
    return {
        "way": way,
        "seed": seed,
        "measurements_percent": None if spent is None else 100 * spent / testbed.measurements,
        "energy_change_percent": change_of_reduction(100 * saving),
        "time_change_percent": 100 * change,
        "rounds": None,
        "left_percent": None,
    }


def _against(rows: list[Row]) -> list[Row]:
    """The rows with their shares of what the oracle and the exhaustive search save; None where that is nothing."""
    best = next(row["energy_change_percent"] for row in rows if row["way"] == "oracle")
    full = next((row["energy_change_percent"] for row in rows if row["way"] == "exhaustive"), None)
    return [
        row
        | {
            "of_oracle_percent": 100 * row["energy_change_percent"] / best if best < 0 else None,
            "of_exhaustive_percent": 100 * row["energy_change_percent"] / full if full else None,
        }
        for row in rows
    ]


def summarised(rows: list[Row]) -> list[Row]:
    """Means over seeds, with the least share of the oracle's saving and how often the time is over its limit."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in COLUMNS[:5]), []).append(row)
    summary = []
    for (where, weights, slack, budget, way), own in groups.items():

        def mean(name: str, own: list[Row] = own) -> float | None:
            values = [row[name] for row in own if row[name] is not None]
            return float(np.mean(values)) if values else None

        times = np.array([row["time_change_percent"] for row in own])
        summary.append(
            {"ground": where, "weights": weights, "slack_percent": slack, "budget_percent": budget}
            | {"way": way, "seeds": len(own)}
            | {name: mean(name) for name in COLUMNS[6:]}
            | {
                "least_of_oracle_percent": min(
                    (row["of_oracle_percent"] for row in own if row["of_oracle_percent"] is not None), default=None
                ),
                "over_limit": float((times > slack + 1e-6).mean()),
            }
        )
    return summary


def csv_of(rows: list[Row]) -> str:
    """The rows as CSV, figures to five digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(row[name]) for name in COLUMNS] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


_SHOWN = {
    "measurements_percent": ("measured, %", "{:.1f}"),
    "energy_change_percent": ("energy, %", "{:+.2f}"),
    "time_change_percent": ("time, %", "{:+.2f}"),
    "over_limit": ("over the limit", "{:.0%}"),
    "of_oracle_percent": ("of oracle, %", "{:.1f}"),
    "least_of_oracle_percent": ("least", "{:.1f}"),
    "of_exhaustive_percent": ("of exhaustive, %", "{:.1f}"),
    "rounds": ("rounds", "{:.0f}"),
    "left_percent": ("left, %", "{:.2f}"),
}


def markdown_of(summary: list[Row]) -> str:
    """The means over seeds as Markdown tables, one for each testbed, weighting and slack."""
    groups: dict[tuple, list[Row]] = {}
    for row in summary:
        key = (row["ground"], row["weights"], row["slack_percent"], row["budget_percent"], row["seeds"])
        groups.setdefault(key, []).append(row)
    parts = []
    for (where, weights, slack, budget, seeds), own in groups.items():
        many = f"means of {seeds} seeds" if seeds > 1 else "one seed"
        parts.append(f"**{where}**, weights {weights}, slack {slack:g} %, budget {budget:.3g} %, {many}\n")
        parts.append(f"| way | {' | '.join(title for title, _ in _SHOWN.values())} |")
        parts.append("|---|" + "---|" * len(_SHOWN))
        for row in own:
            cells = ["" if row[name] is None else form.format(row[name]) for name, (_, form) in _SHOWN.items()]
            parts.append(f"| {row['way']} | {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", metavar="SETUP", help="a setup file of a simulated GPU")
    parser.add_argument("--pairs", help="clock pairs CORE-MEM of its exhaustive search, separated by commas")
    parser.add_argument("--table", metavar="T.csv", help="instead: a measured table, as `kernel-dvfs import` takes it")
    parser.add_argument("--weights", **one_of(("raw", "equal-time")), nargs="+", default=("raw", "equal-time"))
    parser.add_argument("--slack", type=PERCENT, nargs="+", default=[0.0], metavar="PERCENT", help="default: 0")
    parser.add_argument(
        "--budget",
        type=number(0.01, 100, "percent"),
        default=10.0,
        metavar="PERCENT",
        help="percent of all measurements (default: 10)",
    )
    parser.add_argument(
        "--points",
        type=number(1, 1e6),
        nargs="+",
        default=(),
        metavar="N",
        help="instead of --budget, for a table: so many measurements a kernel, its baseline included; one study each",
    )
    parser.add_argument("--seeds", type=COUNT, default=3, metavar="N", help="seeds 1 to N (default: 3)")
    ways = ("random", "grid", "three clocks", "bayesian")
    parser.add_argument("--without", **one_of(ways), nargs="+", default=(), help="ways to leave out")
    parser.add_argument("-o", "--output", required=True, metavar="G.csv", help="a row a way and seed; G.md: means")
    options = parser.parse_args()
    if bool(options.gpu) == bool(options.table):
        raise InputError("give either --gpu SETUP (with --pairs) or --table T.csv")
    if options.points and not options.table:
        raise InputError("--points are measurements a kernel of a table; give --table T.csv")
    share, seeds = options.budget / 100, list(range(1, options.seeds + 1))
    rows: list[dict] = []
    for slack in options.slack:
        if options.table:
            shares = shares_of_points(options.table, options.points) or [share]
            for weights, own in itertools.product(options.weights, shares):
                rows += of_tables(options.table, weights, slack / 100, own, seeds, options.without)
        else:
            rows += _simulated(options, slack / 100, share, seeds)
    write_text(options.output, csv_of(rows))
    write_text(options.output.removesuffix(".csv") + ".md", markdown_of(summarised(rows)))


def _simulated(options: argparse.Namespace, slack: float, share: float, seeds: list[int]) -> list[Row]:
    if not options.pairs:
        raise InputError("--gpu needs --pairs, the grid of the exhaustive search")
    setup = setups.read(options.gpu)
    if setup.gpu["kind"] != "simulated":
        raise InputError(f"{options.gpu}: a {setup.gpu['kind']} GPU; its truth is not known, give a simulated one")
    pairs = [parse(text, "-") for text in options.pairs.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        return of_simulated(setup, folder, pairs, slack, share, seeds, options.without)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
