"""DynamoLLM's Table I as data, its arithmetic, and the same grid from the simulated instance.

The table's unit of work is not stated. Read as energy of one request's share it exceeds what the GPUs can draw; read as
instance power times one request's lifetime, undivided by the batch, it fits in size and in how it grows with the answer
(both inferred). So it is used for order, feasibility and ratios inside a row only, and ours is given in both readings.
"""

from __future__ import annotations

from collections import namedtuple

from kernel_dvfs.serving.classes import CLASSES
from kernel_dvfs.serving.make_profile import Load, excess, measure
from kernel_dvfs.serving.steps import StepModel

SOURCE = "DynamoLLM, Table I, as quoted on public slides (arXiv 2408.00741, HPCA 2025)"
TPS = 2000  # "medium system load"
DEGREES = (2, 4, 8)
CLOCKS_GHZ = (0.8, 1.2, 1.6, 2.0)
COLUMNS = tuple((tp, ghz) for tp in DEGREES for ghz in CLOCKS_GHZ)
REFERENCE = (8, 2.0)
_MISSED = None  # a promise was broken

# Wh, Llama2-70B, in the order of COLUMNS
_ = _MISSED
PAPER_WH = {
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

# shares of the classes, percent, in the order of CLASSES: Azure LLM inference traces 2023 (CC-BY-4.0)
MIX = {
    "conversation": (3.58, 9.80, 0.05, 19.00, 10.41, 7.74, 15.09, 8.77, 25.56),
    "coding": (15.44, 0.51, 0.10, 20.74, 1.01, 0.06, 59.44, 2.35, 0.35),
}


def paper_row(class_: str) -> dict:
    """{(tp, GHz): Wh} of a class, cells that broke a promise left out."""
    return {column: wh for column, wh in zip(COLUMNS, PAPER_WH[class_]) if wh is not None}


def best(row: dict) -> tuple:
    """((tp, GHz), saved percent against the reference) of the least energy in a row."""
    column = min(row, key=row.get)
    return column, 100 * (1 - row[column] / row[REFERENCE])


Saving = namedtuple("Saving", "reference_wh chosen_wh percent")


def mix_saving(mix: str, degrees=DEGREES, clocks_ghz=CLOCKS_GHZ) -> Saving:
    """Table I times the shares of a trace: all at the reference, and each class at its best among the columns given.

    Regression arithmetic on published figures, not a result: it takes the table's unit to be one request's energy.
    """
    shares = [share / sum(MIX[mix]) for share in MIX[mix]]
    reference = chosen = 0.0
    for share, class_ in zip(shares, CLASSES):
        row = paper_row(class_)
        own = [wh for (tp, ghz), wh in row.items() if tp in degrees and ghz in clocks_ghz]
        reference += share * row[REFERENCE]
        chosen += share * min(own, default=row[REFERENCE])
    return Saving(reference, chosen, 100 * (chosen / reference - 1))


Cell = namedtuple("Cell", "class_ tp ghz paper_wh feasible power_w share_wh lifetime_wh ttft_p99_s tbt_p99_s")
Cell.__doc__ = """A cell of both tables. feasible: ours keeps both promises at TPS. share_wh: power over request rate;
lifetime_wh: power times a request's mean lifetime; both simulated, given also where a promise is broken."""


def simulated_cells(gpu: str, model: str, requests: int = 800, seed: int = 1, **limits) -> list:
    """Every class at every column: a simulated instance under TPS tokens/s. limits: as make_profile.measure."""
    loads = {class_: Load(class_, requests, seed) for class_ in CLASSES}
    made = []
    for tp in DEGREES:
        steps = StepModel(gpu, model, tp)
        for ghz in CLOCKS_GHZ:
            # the table says 2.0 where the GPU's highest clock is 1.98
            engine = steps.at(min(round(1000 * ghz), steps.top_mhz))
            for class_, load in loads.items():
                point = measure(engine, steps.kv_tokens, load, TPS, **limits)
                lifetime_s = point.ttft_mean_s + (float(load.output.mean()) - 1) * point.tbt_mean_s
                made.append(
                    Cell(
                        class_,
                        tp,
                        ghz,
                        paper_row(class_).get((tp, ghz)),
                        excess(class_, point) <= 1,
                        point.power_w,
                        point.power_w * load.tokens / TPS / 3600,
                        point.power_w * lifetime_s / 3600,
                        point.ttft_p99_s,
                        point.tbt_p99_s,
                    )
                )
    return sorted(made, key=lambda cell: (CLASSES.index(cell.class_), cell.tp, cell.ghz))


Agreement = namedtuple(
    "Agreement",
    "class_ paper_best ours_best_share ours_best_lifetime feasible_alike order_share order_lifetime "
    "ratio_error_share ratio_error_lifetime",
)
Agreement.__doc__ = """A class of both tables. *_best: (tp, GHz) of the least energy among feasible cells.
feasible_alike: of 12 cells. order_*: share of pairs of cells feasible in both that stand in the same order;
ratio_error_*: mean absolute difference, as a factor minus 1, of the cells' ratios to the reference; None where nothing
can be compared."""


def agreement(cells: list) -> list:
    """An Agreement for each class of `cells`."""
    made = []
    for class_ in CLASSES:
        own = {(cell.tp, cell.ghz): cell for cell in cells if cell.class_ == class_}
        paper = paper_row(class_)
        feasible = {column for column, cell in own.items() if cell.feasible}
        both = [column for column in COLUMNS if column in feasible and column in paper]
        energies = [{column: getattr(own[column], name) for column in own} for name in ("share_wh", "lifetime_wh")]
        made.append(
            Agreement(
                class_,
                best(paper)[0],
                *(min(feasible, key=energy.get, default=None) for energy in energies),
                sum((column in feasible) == (column in paper) for column in COLUMNS),
                *(_order(both, paper, energy) for energy in energies),
                *(_ratio_error(both, paper, energy) for energy in energies),
            )
        )
    return made


def _order(columns: list, paper: dict, ours: dict):
    pairs = [(a, b) for place, a in enumerate(columns) for b in columns[:place] if paper[a] != paper[b]]
    alike = sum(bool((paper[a] < paper[b]) == (ours[a] < ours[b])) for a, b in pairs)
    return alike / len(pairs) if pairs else None


def _ratio_error(columns: list, paper: dict, ours: dict):
    if REFERENCE not in columns or len(columns) < 2:
        return None
    ratios = [
        (ours[column] / ours[REFERENCE]) / (paper[column] / paper[REFERENCE])
        for column in columns
        if column != REFERENCE
    ]
    return float(sum(abs(ratio - 1) for ratio in ratios) / len(ratios))
