"""What happened in each system: changes, emergencies, requests handed on."""

import pandas as pd

CAPTION = "Events by system: clock changes, servers divided anew, started and released, steps of the emergency ladder"


def make(study) -> pd.DataFrame:
    """One row a system, one column a kind of event."""
    runs = study.experiment("systems")
    kinds = sorted({kind for each in runs for kind in each["events"]})
    rows = [
        {"system": each["system"]}
        | {kind.replace(" ", "_"): each["events"].get(kind, 0) for kind in kinds}
        | {"allocation_solve_mean_s": each["solve_s"][0], "allocation_solve_max_s": each["solve_s"][1]}
        for each in runs
    ]
    return pd.DataFrame(rows)
