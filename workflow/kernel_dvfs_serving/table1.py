"""DynamoLLM's Table I as data, its arithmetic, and the same grid from the simulated instance.

The table's unit of work is not stated. Read as energy of one request's share it exceeds what the GPUs can draw; read as
instance power times one request's lifetime, undivided by the batch, it fits in size and in how it grows with the answer
(both inferred). So it is used for order, feasibility and ratios inside a row only, and ours is given in both readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernel_dvfs.change import change_percent
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs_serving.instance import Slower
from kernel_dvfs_serving.make_profile import PoissonArrivals, excess, measure
from kernel_dvfs_serving.requests import CLASSES
from kernel_dvfs_serving.steps import StepModel
from kernel_dvfs_serving.system import HOST_S, REQUESTS

Setting = tuple[int, float]  # GPUs, GHz: a column of the table
Row = dict[Setting, float]  # Wh

SOURCE = "DynamoLLM, Table I, as quoted on public slides (arXiv 2408.00741, HPCA 2025)"
TPS = 2000  # "medium system load"
DEGREES = (2, 4, 8)
CLOCKS_GHZ = (0.8, 1.2, 1.6, 2.0)
COLUMNS = tuple((tp, ghz) for tp in DEGREES for ghz in CLOCKS_GHZ)
REFERENCE = (8, 2.0)

# Wh, Llama2-70B, in the order of COLUMNS
_: None = None  # a promise was broken
PAPER_WH: dict[str, tuple[float | None, ...]] = {
    "SS": (_, 0.77, 0.97, 1.03, 0.94, 0.79, 0.91, 1.01, 1.35, 1.19, 1.29, 1.49),
    "SM": (_, 2.78, 3.45, 3.68, 3.39, 2.82, 3.37, 3.81, 4.55, 4.15, 4.43, 4.74),
    "SL": (_, _, _, _, 4.84, 4.17, 4.97, 5.52, 6.37, 5.62, 5.59, 6.95),
    "MS": (_, _, 1.02, 1.09, _, 1.08, 1.07, 1.20, 1.51, 1.29, 1.34, 1.73),
    "MM": (_, _, _, _, _, 4.23, 3.91, 4.08, 5.34, 4.39, 4.56, 5.44),
    "ML": (_, _, _, _, _, 4.99, 4.66, 4.53, 6.86, 5.79, 6.52, 7.12),
    "LS": (_, _, _, _, _, 1.51, 1.64, 1.76, 2.55, 2.53, 2.83, 2.94),
    "LM": (_, _, _, _, _, _, _, _, _, 7.71, 8.81, 9.17),
    "LL": (_, _, _, _, _, _, _, _, _, 12.99, 11.89, 13.21),
}


def paper_row(class_: str) -> Row:
    """Return {(tp, GHz): Wh} of a class, cells that broke a promise left out."""
    return {column: wh for column, wh in zip(COLUMNS, PAPER_WH[class_]) if wh is not None}


def best(row: Row) -> tuple[Setting, float]:
    """Return ((tp, GHz), change against the reference in percent) of the least energy in a row."""
    column = min(row, key=row.__getitem__)
    return column, change_percent(row[column], row[REFERENCE])


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """A cell of both tables: what is published, and the simulated rest, given also where a promise is broken."""

    class_: str
    tp: int
    ghz: float
    paper_wh: float | None  # None: the promise was broken
    feasible: bool  # ours keeps both promises at TPS
    power_w: float
    share_wh: float  # power over request rate
    lifetime_wh: float  # power times a request's mean lifetime
    ttft_p99_s: float
    tbt_p99_s: float
    only_ours: str = ""  # of one that keeps its promises in ours alone: what breaks them in ours, one of KINDS


# what may break a promise in the paper's table that ours keeps, in the order that it is tried: the host of its engine,
# as public rows of vLLM of 2023 have it (anchors.py), then that and steps as slow as its first tokens were
OLD_HOST_S, OLD_STEPS = 0.018, 1.8
KINDS = ("the host's 18 ms a step of 2023", "steps 1.8 times as long, too", "neither")


def simulated_cells(
    gpu: str, model: str, requests: int = REQUESTS, seed: int = 1, host_s: float = HOST_S, **limits: int
) -> list[ComparedCell]:
    """Return every class at every column: a simulated instance under TPS tokens/s. limits: as make_profile.measure."""
    loads = {class_: PoissonArrivals.draw(class_, requests, seed) for class_ in CLASSES}
    cells = []
    for tp in DEGREES:
        steps, old_steps = (StepModel(gpu, model, tp, host_s=each_s) for each_s in (host_s, OLD_HOST_S))
        for ghz in CLOCKS_GHZ:
            # the table says 2.0 where the GPU's highest clock is 1.98
            engine = steps.at(min(round(1000 * ghz), steps.top_mhz))
            for class_, load in loads.items():
                point = measure(engine, steps.kv_tokens, load, TPS, **limits)
                feasible, paper_wh = excess(class_, point) <= 1, paper_row(class_).get((tp, ghz))
                kind = ""
                if feasible and paper_wh is None:
                    old = old_steps.at(engine.core_mhz)
                    slow = (
                        excess(class_, measure(old_engine, steps.kv_tokens, load, TPS, **limits)) > 1
                        for old_engine in (old, Slower(old, OLD_STEPS))
                    )
                    kind = next((name for name, broken in zip(KINDS, slow) if broken), KINDS[-1])
                lifetime_s = point.ttft_mean_s + (float(load.output.mean()) - 1) * point.tbt_mean_s
                cells.append(
                    ComparedCell(
                        class_,
                        tp,
                        ghz,
                        paper_wh,
                        feasible,
                        point.power_w,
                        point.power_w * load.tokens / TPS / 3600,
                        point.power_w * lifetime_s / 3600,
                        point.ttft_p99_s,
                        point.tbt_p99_s,
                        kind,
                    )
                )
    return sorted(cells, key=lambda cell: (CLASSES.index(cell.class_), cell.tp, cell.ghz))


@dataclass(frozen=True, slots=True)
class ClassAgreement:
    """A class of both tables, in both readings of the unit; None where nothing can be compared."""

    class_: str
    paper_best: Setting  # least energy among feasible cells
    ours_best_share: Setting | None
    ours_best_lifetime: Setting | None
    feasible_alike: int  # of 12 cells
    order_share: float | None  # share of pairs of cells feasible in both that stand in the same order
    order_lifetime: float | None
    ratio_error_share: float | None  # mean |ratio to the reference, ours over theirs, minus 1|
    ratio_error_lifetime: float | None


def agreement(cells: Sequence[ComparedCell]) -> list[ClassAgreement]:
    """Return a ClassAgreement for each class of `cells`."""
    rows = []
    for class_ in CLASSES:
        class_cells = {(cell.tp, cell.ghz): cell for cell in cells if cell.class_ == class_}
        paper = paper_row(class_)
        feasible = {column for column, cell in class_cells.items() if cell.feasible}
        both = [column for column in COLUMNS if column in feasible and column in paper]
        share, lifetime = (
            {column: getattr(cell, name) for column, cell in class_cells.items()}
            for name in ("share_wh", "lifetime_wh")
        )
        rows.append(
            ClassAgreement(
                class_=class_,
                paper_best=best(paper)[0],
                ours_best_share=min(feasible, key=share.__getitem__, default=None),
                ours_best_lifetime=min(feasible, key=lifetime.__getitem__, default=None),
                feasible_alike=sum((column in feasible) == (column in paper) for column in COLUMNS),
                order_share=_order(both, paper, share),
                order_lifetime=_order(both, paper, lifetime),
                ratio_error_share=_ratio_error(both, paper, share),
                ratio_error_lifetime=_ratio_error(both, paper, lifetime),
            )
        )
    return rows


def _order(columns: Sequence[Setting], paper: Row, ours: Row) -> float | None:
    pairs = [(a, b) for place, a in enumerate(columns) for b in columns[:place] if paper[a] != paper[b]]
    alike = sum(bool((paper[a] < paper[b]) == (ours[a] < ours[b])) for a, b in pairs)
    return alike / len(pairs) if pairs else None


def _ratio_error(columns: Sequence[Setting], paper: Row, ours: Row) -> float | None:
    if REFERENCE not in columns or len(columns) < 2:
        return None
    ratios = [
        (ours[column] / ours[REFERENCE]) / (paper[column] / paper[REFERENCE])
        for column in columns
        if column != REFERENCE
    ]
    return float(sum(abs(ratio - 1) for ratio in ratios) / len(ratios))


def experiment(gpu: str, model: str, **options: Any) -> dict:
    """Return all of it as plain JSON values. options: as simulated_cells."""
    cells = simulated_cells(gpu, model, **options)
    return {
        "subject": f"simulated {gpu_spec.resolve(gpu)['name']}, {model}",
        "cells": [asdict(cell) for cell in cells],
        "agreement": [asdict(row) for row in agreement(cells)],
    }
