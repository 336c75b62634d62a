"""Promises kept by class and system."""

import pandas as pd

CAPTION = "Percent of requests whose promises (TTFT and mean TBT) are kept, by class"


def make(study) -> pd.DataFrame:
    """One row a system, one column a class that occurs."""
    return pd.DataFrame(
        [{"system": each["system"]} | each["kept_percent_by_class"] for each in study.experiment("systems")]
    )
