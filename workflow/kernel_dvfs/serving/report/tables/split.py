"""Where the saving comes from: pools, instances, degrees, clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report import reported
from kernel_dvfs.serving.report.share import by_system, saved_percent, split
from kernel_dvfs.serving.system import BASELINE, KNOBS, STATIC, SUBSETS

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Split of DynamoLLM's saving: each knob alone on top of MultiPool, and its mean share over all orders of turning "
    "the three (Shapley)",
    inputs=lambda plan: plan.reads("systems"),
)
_ALONE = {knobs[0]: system for knobs, system in SUBSETS.items() if len(knobs) == 1}
NAMES = {"instances": "instances (consolidation)", "degrees": "tensor-parallel degree", "clocks": "clock"}


def make(study: ServingStudy) -> pd.DataFrame:
    """Percent of SinglePool's energy; alone: of MultiPool's too. paper: one knob alone, reference not stated."""
    import pandas as pd

    runs = by_system(study.experiment("systems"))
    energy = {name: runs[name]["energy_kwh"] for name in (*SUBSETS.values(), BASELINE)}
    parts = split(energy)
    rows = [
        {
            "part": "pools by class",
            "of_singlepool_percent": saved_percent(energy[STATIC], energy[BASELINE]),
            "alone_of_multipool_percent": None,
            "kept_percent": runs[STATIC]["kept_percent"],
            "paper_alone_percent": None,
        }
    ]
    for knob in KNOBS:
        rows.append(
            {
                "part": NAMES[knob],
                "of_singlepool_percent": 100 * parts[knob] / energy[BASELINE],
                "alone_of_multipool_percent": saved_percent(energy[_ALONE[knob]], energy[STATIC]),
                "kept_percent": runs[_ALONE[knob]]["kept_percent"],
                "paper_alone_percent": reported.BY_KNOB[knob],
            }
        )
    whole = SUBSETS[KNOBS]
    rows.append(
        {
            "part": "all",
            "of_singlepool_percent": saved_percent(energy[whole], energy[BASELINE]),
            "alone_of_multipool_percent": saved_percent(energy[whole], energy[STATIC]),
            "kept_percent": runs[whole]["kept_percent"],
            "paper_alone_percent": None,
        }
    )
    return pd.DataFrame(rows)
