"""Does a study by clock keep its limits, what does it save of what is possible, and in how many minutes?

    python experiments/searches/by_clock.py --first-seed 30000 --seeds 200

studies boards whose truth is known (clock_rig.py): simulated GPUs, measured tables taken as the truth, a step of 400
kernels, the same where the power cap costs nothing, and a board whose physics the prior does not know. Each study is
judged by the truth, and by ten fresh blocks of auto and the choice, whose interval ought to hold the truth. It writes
by_clock.csv and by_clock.txt (a row for each board, level and limit) into experiments/results, and ends with a line for
each board and limit. Seeds of development were below 30000.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np
import pandas as pd

from experiments.searches.clock_rig import BOARDS, OPENING_S, board_of, studied, validated
from kernel_dvfs.search.by_clock import StudyOptions
from kernel_dvfs.search.parts import KERNEL
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text

ROOT = Path(__file__).resolve().parents[2]
LIMITS = 0.0, 0.6, 2.0  # percent of time
WORTH_PERCENT, OVER_PERCENT = 0.02, 10.0
_NOTHING = -0.05  # percent: where less is possible, a share of it says nothing
_FRESH = 1_000_000  # added to a seed: what measures a validation


def by_clock(name: str, seed: int, minutes: float | None, worth_percent: float) -> list[dict[str, Any]]:
    """A study by clock of a board: a row for each level and limit."""
    board = board_of(name)
    given = BOARDS[name][1] if minutes is None else minutes
    found = studied(board, StudyOptions(LIMITS, given, worth_percent, OVER_PERCENT, "tied", seed, OPENING_S))
    rows = []
    for (level, limit), shown in found.shown.items():
        row = {"board": name, "level": level, "limit_percent": limit, "seed": seed}
        row |= {"minutes": found.spent_s / 60, "visits": found.visits, "sessions": found.sessions}
        row |= {"blocks": len(shown.time_percent), "pairs": len(found.table.pairs) - 1, "passed": shown.passed}
        row |= dict(zip(("time_true_percent", "energy_true_percent"), board.change(shown)))
        if shown.passed:
            row |= {"time_claimed_percent": float(np.mean(shown.time_percent))}
            row |= {"energy_claimed_percent": shown.energy_percent, "energy_se_percent": shown.energy_se_percent}
        if level == KERNEL and shown.passed:
            row |= validated(board, shown, seed + _FRESH)
        rows.append(row)
    return rows


def make(studies: pd.DataFrame) -> pd.DataFrame:
    """A row for each board, level and limit: means over the seeds.

    studies: rows of `by_clock`, with best_percent. over: share of studies whose true time exceeds the limit.
    """
    rows = []
    for key, own in studies.groupby(["board", "level", "limit_percent"], sort=False):
        best = own.best_percent.iloc[0]
        best = best if best < _NOTHING else np.nan
        row = dict(zip(("board", "level", "limit_percent"), key))
        row |= {"studies": len(own), "best_percent": best, "share_percent": 100 * own.energy_true_percent.mean() / best}
        row |= {"tenth_share_percent": 100 * own.energy_true_percent.quantile(0.9) / best}
        row |= {"minutes": own.minutes.mean(), "blocks": own.blocks.mean()}
        row |= {"over_percent": 100 * (own.time_true_percent > own.limit_percent + 1e-6).mean()}
        for quantity in ("time", "energy"):
            row[f"{quantity}_optimism_pp"] = (
                own[f"{quantity}_claimed_percent"] - own[f"{quantity}_true_percent"]
            ).mean()
            held = own.get(f"{quantity}_held", pd.Series(dtype=float)).dropna().astype(float)
            row[f"{quantity}_coverage_percent"] = 100 * held.mean()
        rows.append(row)
    return pd.DataFrame(rows)


def line(row: Mapping[str, Any]) -> str:
    """What studies by clock deliver on a board at a limit."""
    return (
        f"{row['board']} {row['limit_percent']:g} %: share {row['share_percent']:.1f} %, "
        f"minutes {row['minutes']:.1f}, over {row['over_percent']:.1f} %"
    )


def text(compared: pd.DataFrame) -> str:
    """The rows as a table for people."""
    lines = [
        "What studies by clock promise and deliver where the truth is known. Share: of the saving of one who knows the",
        "truth. Claimed - true: points of an iteration at auto. Held: fresh 95 % intervals that hold the truth.",
        "",
        f"{'board':18} {'level':6} {'limit':>5} {'n':>4} {'best':>7} {'share':>6} {'tenth':>6} "
        f"{'minutes':>8} {'blocks':>6} {'over':>5} {'claimed - true, energy / time':>30} {'held, time / energy':>20}",
    ]
    for row in compared.to_dict("records"):
        lines.append(
            f"{row['board']:18} {row['level']:6} {row['limit_percent']:4g}% {row['studies']:4d} "
            f"{row['best_percent']:7.2f} {row['share_percent']:6.1f} {row['tenth_share_percent']:6.1f} "
            f"{row['minutes']:8.1f} {row['blocks']:6.1f} {row['over_percent']:5.1f} "
            f"{row['energy_optimism_pp']:+18.3f} / {row['time_optimism_pp']:+9.3f} "
            f"{row['time_coverage_percent']:12.1f} / {row['energy_coverage_percent']:5.1f}"
        )
    return "\n".join(lines) + "\n"


def best_percent(name: str, level: str, limit: float) -> float:
    """The most that can be saved on a board, at a level."""
    board = board_of(name)
    return board.best(limit) if level == KERNEL else board.best_of_passes(limit)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the studies and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=30000, metavar="N")
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--boards", nargs="+", choices=list(BOARDS), default=list(BOARDS), metavar="BOARD")
    parser.add_argument("--minutes", type=float, metavar="M", help="of a study; default: by board")
    parser.add_argument("--worth-percent", type=float, default=WORTH_PERCENT, metavar="P")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("-o", "--output", default=str(ROOT / "experiments/results"), metavar="DIR")
    options = parser.parse_args(arguments)
    boards = []
    for name in options.boards:
        try:
            board_of(name)
            boards.append(name)
        except InputError as error:
            print(f"{name}: {error}", file=sys.stderr)
    tasks = [(name, options.first_seed + number) for name in boards for number in range(options.seeds)]
    with ProcessPoolExecutor(options.jobs) as pool:
        running = [pool.submit(by_clock, *task, options.minutes, options.worth_percent) for task in tasks]
        studies = pd.DataFrame([row for each in running for row in each.result()])
    if not len(studies):
        raise InputError("nothing was studied; give --seeds, and boards whose tables are there")
    wanted = studies[["board", "level", "limit_percent"]].drop_duplicates()
    best = {key: best_percent(*key) for key in wanted.itertuples(index=False, name=None)}
    keys = zip(studies.board, studies.level, studies.limit_percent)
    studies = studies.assign(best_percent=[best[key] for key in keys])
    compared = make(studies)
    write_text(f"{options.output}/by_clock.csv", compared.to_csv(index=False, float_format="%.5g"))
    write_text(f"{options.output}/by_clock.txt", text(compared))
    print(text(compared))
    for row in compared[compared.level == KERNEL].to_dict("records"):
        print(line(row))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
