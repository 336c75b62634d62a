"""Pairs of the grid that were not measured, each with its reason."""

import pandas as pd

CAPTION = "Clock pairs left out of the sweep"


def make(results, omitted: list) -> pd.DataFrame:
    """omitted: [[core_mhz, mem_mhz, reason]]."""
    return pd.DataFrame(omitted, columns=["core_mhz", "mem_mhz", "reason"])
