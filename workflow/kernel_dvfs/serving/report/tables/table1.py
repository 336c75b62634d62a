"""Table I: published cells beside simulated ones, and how far the two agree."""

import pandas as pd

from kernel_dvfs.serving.table1 import MIX, Agreement, Cell, mix_saving

CAPTION = (
    "DynamoLLM's Table I (Llama2-70B, 2K tokens/s; empty: promise broken) beside a simulated instance: energy of a "
    "request's share of the power, and power times a request's lifetime"
)
AGREEMENT_CAPTION = "The simulated instance against DynamoLLM's Table I: best cell, feasibility, order, ratios"
MIX_CAPTION = "Arithmetic on DynamoLLM's Table I with the class mix of the Azure 2023 traces (no result of ours)"


def make(cells: list) -> pd.DataFrame:
    """One row a table1.Cell."""
    return pd.DataFrame(cells, columns=Cell._fields).rename(columns={"class_": "class"})


def agreement(rows: list) -> pd.DataFrame:
    """One row a table1.Agreement; cells as text, `TP2@1.2`."""
    frame = pd.DataFrame(rows, columns=Agreement._fields).rename(columns={"class_": "class"})
    for name in ("paper_best", "ours_best_share", "ours_best_lifetime"):
        frame[name] = [cell_name(column) for column in frame[name]]
    return frame


def cell_name(column) -> str:
    """`TP2@1.2` of (2, 1.2); a dash for none."""
    return f"TP{column[0]}@{column[1]}" if column is not None else "-"


def mixes() -> pd.DataFrame:
    """What each class at its best cell would save, with both knobs and with one."""
    knobs = {"degree and clock": {}, "clock alone": {"degrees": (8,)}, "degree alone": {"clocks_ghz": (2.0,)}}
    return pd.DataFrame(
        [
            {"trace": mix, "knobs": knob} | mix_saving(mix, **limits)._asdict()
            for mix in MIX
            for knob, limits in knobs.items()
        ]
    )
