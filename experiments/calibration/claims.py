"""The paper's claims on the shipped board and on the one before it, over seeds: what is the board, what is one draw.

    python experiments/calibration/claims.py --seeds 1 2 3 4 5 [--board earlier] [-o FILE]

Runs the paper's own procedure (config/paper.yaml) as a whole study for each seed, on today's simulated RTX 3080 Ti or
on the earlier one (config/earlier_board.yaml), judges the claims by today's judges, and adds
a row a study to experiments/results/claims_seeds.csv: the headline, and each verdict. Then prints how often each holds.
About 1.7 CPU minutes a study; those that the file has are not run again.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_text
from kernel_dvfs_paper.claim import DIFFERS, HOLDS, NOT_TESTABLE

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "experiments/results/claims_seeds.csv"
BOARDS = ("earlier", "default")
HEADLINE = ("pass_energy_percent", "claimed_energy_percent", "repeated_energy_percent", "repeated_time_percent")
LETTERS = {HOLDS: "h", DIFFERS: "d", NOT_TESTABLE: "n"}
CLAIMS = [str(number) for number in range(1, 31)]
COLUMNS = ("board", "seed", *HEADLINE, *CLAIMS)


def overrides(board: str) -> dict[str, Any]:
    """Figures of the spec that make today's board into this one."""
    if board == "default":
        return {}
    earlier = yaml.safe_load((ROOT / "config/earlier_board.yaml").read_text("utf-8"))["gpu_overrides"]
    return dict(json.loads(json.dumps(earlier)))  # keys as a command line has them


def study(board: str, seed: int) -> dict[str, Any]:
    """The row of a study. Raises InputError where its run fails."""
    asked = {"seed": seed, "gpu_overrides": overrides(board), "reoptimise": False}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("Snakefile", "config.yaml"):
            shutil.copy2(ROOT / name, folder)
        for name in ("workflow", "profiles", "native", "envs", "config"):
            shutil.copytree(ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        words = [sys.executable, "-m", "snakemake", "--cores", "1", "--configfile", "config/paper.yaml"]
        words += ["--config", *(f"{name}={json.dumps(value)}" for name, value in asked.items())]
        setup = Path(plan(load(str(ROOT / "config.yaml")) | asked, str(Path(folder, "results"))).setup.path)
        target = setup.parents[1] / "tables/claims.csv"
        words += ["--", str(target.relative_to(folder))]
        run = subprocess.run(
            words,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(Path(folder, "workflow"))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if run.returncode:
            raise InputError(f"{board} board, seed {seed}: {run.stdout[-1500:]}")
        return row_of(board, seed, target)


def row_of(board: str, seed: int, claims: Path) -> dict[str, Any]:
    """The row of a finished study, by its table of claims and two beside it, of the strategies and the validation."""
    verdicts = {row["number"]: LETTERS[row["verdict"]] for row in read(claims)}
    again = {row["quantity"]: row for row in read(claims.with_name("validation.csv"))}
    strategies = {row["schedule"]: row for row in read(claims.with_name("strategies.csv"))}
    figures = (
        strategies["pass-global-waste-slack0"]["energy_change_percent"],
        again["energy"]["claimed_change_percent"],
        again["energy"]["fresh_change_percent"],
        again["time"]["fresh_change_percent"],
    )
    headline = {name: f"{float(value):.3f}" for name, value in zip(HEADLINE, figures)}
    return {"board": board, "seed": str(seed), **headline, **verdicts}


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def written(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: (BOARDS.index(row["board"]), int(row["seed"]))))
    return text.getvalue()


def summary(rows: list[dict[str, str]]) -> str:
    """How often each claim holds on each board, as Markdown; the headline and the number of claims that hold."""
    of = {board: own for board in BOARDS if (own := [row for row in rows if row["board"] == board])}
    lines = [f"| claim | {' | '.join(f'{board} board, {len(own)} drawn' for board, own in of.items())} |"]
    lines.append("|---" * (1 + len(of)) + "|")
    for number in CLAIMS:
        letters = [[row[number] for row in own] for own in of.values()]
        cells = [counted(each) for each in letters]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    held = [[sum(row[number] == "h" for number in CLAIMS) for row in own] for own in of.values()]
    lines.append(f"| **hold, mean (least to most)** | {' | '.join(map(_spread, held))} |")
    for name in HEADLINE:
        values = [[float(row[name]) for row in own] for own in of.values()]
        lines.append(f"| {name} | {' | '.join(map(_spread, values))} |")
    return "\n".join(lines)


def counted(letters: list[str]) -> str:
    """How often a claim holds, of the letters of its verdicts."""
    if set(letters) == {"n"}:
        return "not testable"
    held = letters.count("h")
    if len(letters) == 1:
        return "holds" if held else "differs"
    return {0: "never", len(letters): "always"}.get(held, f"{held} of {len(letters)}")


def _spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[], help="studies to run, one a seed")
    parser.add_argument("--board", choices=BOARDS, default="default")
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = read(options.output) if options.output.exists() else []
    for seed in options.seeds:
        if any((row["board"], row["seed"]) == (options.board, str(seed)) for row in rows):
            continue
        try:
            rows.append(study(options.board, seed))
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        write_text(options.output, written(rows))
    print(summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
