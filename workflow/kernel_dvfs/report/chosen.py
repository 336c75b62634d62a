"""Which rows of a profile a schedule chose."""

import pandas as pd


def is_chosen(rows: pd.DataFrame, targets: dict) -> pd.Series:
    """True where a row is at the setting that `targets` (a schedule's, not empty) names for its target."""
    found = pd.Series(True, index=rows.index)
    for column in next(iter(targets.values())):
        wanted = rows.target.map({target: setting[column] for target, setting in targets.items()})
        found &= (rows[column] == wanted) | (rows[column].isna() & (wanted == "auto"))
    return found
