"""Where the change comes from: pools, instances, degrees, clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report import reported
from kernel_dvfs.serving.report.share import by_system, change_percent, difference, split
from kernel_dvfs.serving.system import BASELINE, KNOBS, STATIC, SUBSETS

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Split of DynamoLLM's change of a token's energy against SinglePool on all servers: each knob alone on top of "
    "MultiPool, and its mean share over all orders of turning the three (Shapley)",
    inputs=lambda plan: plan.reads("systems"),
)
_ALONE = {knobs[0]: system for knobs, system in SUBSETS.items() if len(knobs) == 1}
NAMES = {"instances": "instances (consolidation)", "degrees": "tensor-parallel degree", "clocks": "clock"}


def make(study: ServingStudy) -> pd.DataFrame:
    """Changes of a token's energy, percent of SinglePool's on all servers; alone: of MultiPool's.

    paper: one knob alone, reference not stated. Empty where a system that it is made of served no token in time.
    """
    import pandas as pd

    runs = by_system(study.experiment("systems"))
    energy = {name: runs[name]["j_per_token_in_time"] for name in (*SUBSETS.values(), BASELINE)}
    base, parts = energy[BASELINE], split(energy)

    def row(part: str, change: float | None, system: str, alone: bool = True, paper: float | None = None) -> dict:
        return {
            "part": part,
            "of_singlepool_percent": 100 * change / base if change is not None and base else None,
            "alone_of_multipool_percent": change_percent(energy[system], energy[STATIC]) if alone else None,
            "kept_percent": runs[system]["kept_percent"],
            "paper_alone_percent": paper,
        }

    whole = SUBSETS[KNOBS]
    rows = [row("pools by class", difference(energy[STATIC], base), STATIC, alone=False)]
    rows += [row(NAMES[knob], parts[knob], _ALONE[knob], paper=reported.BY_KNOB[knob]) for knob in KNOBS]
    frame = pd.DataFrame([*rows, row("all", difference(energy[whole], base), whole)])
    return frame.astype({"of_singlepool_percent": float, "alone_of_multipool_percent": float})
