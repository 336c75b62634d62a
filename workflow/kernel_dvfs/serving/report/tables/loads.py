"""Changes by load: constant Poisson loads on the same servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.share import by_system
from kernel_dvfs.serving.report.tables import savings

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Energy of a token served in time under constant loads, tokens/s per server of 8 GPUs; negative change = saved",
    when=lambda plan: plan.has("loads"),
    inputs=lambda plan: plan.reads("loads"),
)
# the published names of the first three
NAMES = {650: "low", 2000: "medium", 4000: "high"}


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a load and system."""
    import pandas as pd

    found, rows = study.experiment("loads"), []
    for tps in dict.fromkeys(each["tps_per_server"] for each in found):
        runs = by_system([each for each in found if each["tps_per_server"] == tps])
        head = {"tps_per_server": tps, "load": NAMES.get(tps, "-")}
        rows += [head | savings.row(study, each, runs) for each in runs.values()]
    return pd.DataFrame(rows)
