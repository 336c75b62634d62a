"""Savings by load: constant Poisson loads on the same servers."""

import pandas as pd

from kernel_dvfs.serving.report.share import by_system
from kernel_dvfs.serving.report.tables import savings

CAPTION = "Energy saved under constant loads, tokens/s per server of 8 GPUs; latencies and kept promises beside"
# the published names of the first three
NAMES = {650: "low", 2000: "medium", 4000: "high"}


def make(study) -> pd.DataFrame:
    """One row a load and system."""
    found, rows = study.experiment("loads"), []
    for tps in dict.fromkeys(each["tps_per_server"] for each in found):
        runs = by_system([each for each in found if each["tps_per_server"] == tps])
        head = {"tps_per_server": tps, "load": NAMES.get(tps, "-")}
        rows += [head | savings.row(each, runs) for each in runs.values()]
    return pd.DataFrame(rows)
