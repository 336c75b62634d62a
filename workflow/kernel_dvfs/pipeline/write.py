"""Frontiers and plans on disk: CSV and JSON, each whole or not at all."""

from __future__ import annotations

import csv
from pathlib import Path

from kernel_dvfs.files import whole
from kernel_dvfs.pipeline.curve import UW_PER_W
from kernel_dvfs.pipeline.frontier import Frontier
from kernel_dvfs.pipeline.plan import write_plan
from kernel_dvfs.pipeline.planner import KINDS
from kernel_dvfs.pipeline.study import PipelineStudy


def write_frontier(path, frontier: Frontier) -> None:
    """One row a corner, slowest first; between two rows the frontier is straight.

    price_w: effective energy that a second less costs, between this row and the one before; 0 in the first.
    """
    columns = (frontier.time_s, frontier.energy_j, frontier.cost_j, frontier.records.price_uw / UW_PER_W)
    _write(path, ("time_s", "energy_j", "effective_energy_j", "price_w"), zip(*(own.tolist() for own in columns)))


def write_solution(study: PipelineStudy, microbatches: int) -> None:
    """`mb<M>/` of the study's folder: frontier.csv, published.csv, and plans/<name>.json.

    Plans: all-max; one-clock and split for its time; straggler-<ratio> for each T'/T of the study.
    """
    folder = Path(study.folder) / f"mb{microbatches}"
    planner, base = study.planner(microbatches), study.base(microbatches)
    write_frontier(folder / "frontier.csv", planner.frontier)
    rows = []
    for filter_on in ("raw", "effective"):
        _, found = study.published(microbatches, filter_on)
        rows += [(filter_on, *point) for point in zip(found.time_s.tolist(), found.energy_j.tolist())]
    _write(folder / "published.csv", ("filter_on", "time_s", "energy_j"), rows)
    about = {"profile": study["name"], "subject": study.subject, "schedule": study["schedule"]}
    about["microbatches"] = microbatches
    plans = {"all-max": base}
    plans |= {kind.replace(" ", "-"): planner.plan_ticks(base.time_ticks, kind) for kind in KINDS}
    for ratio in study["straggler"]:
        plans[f"straggler-{ratio:g}"] = planner.plan_for_straggler(ratio * base.time_s)
    for name, plan in plans.items():
        write_plan(folder / "plans" / f"{name}.json", plan, about)


def _write(path, header: tuple, rows) -> None:
    with whole(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow([cell if isinstance(cell, str) else repr(cell) for cell in row])
