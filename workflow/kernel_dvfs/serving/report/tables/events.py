"""What happened in each system: changes, emergencies, requests handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Events by system: clock changes, servers divided again, started and released, steps of the emergency ladder",
    inputs=lambda plan: plan.reads("systems"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a system, one column a kind of event."""
    import pandas as pd

    runs = study.experiment("systems")
    kinds = sorted({kind for each in runs for kind in each["events"]})
    rows = [
        {"system": each["system"]} | {kind.replace(" ", "_"): each["events"].get(kind, 0) for kind in kinds}
        for each in runs
    ]
    return pd.DataFrame(rows)
