"""The headline with what is known of it: its value at the defaults and its band over what nobody has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.layout import HEADLINE_AXES as AXES
from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

ALL = "all together"
_VARIED = {
    ALL: AXES,
    "tensor-core energy": AXES[:1],
    "traffic of dense products": AXES[1:2],
    "highest clock at auto": AXES[2:],
}
# the paper's abstract: after validation
PAPER_PERCENT = {"kernel": -14.6, "pass": -2.0}
LEVELS = ("kernel", "pass")

OUTPUT = Output(
    caption="The strict saving at the defaults, and its band over what nobody has measured (tensor-core energy, DRAM "
    "traffic of dense products, highest clock at auto); truth of the model without noise, exact choice",
    title="The headline and its band",
    text="Three figures of this GPU were never measured. Clocks were chosen for many values of them within their "
    "ranges. The table has the band of the change of energy, from the largest saving to the smallest: with all three "
    "varied together, and with one varied and the others at their defaults. Computed on the model's truth, without "
    "noise, by the exact choice.",
    section="rests-on",
    kinds=("simulated",),
    workload="model",
    of_choice=True,
    when=lambda plan: plan.is_mapped,
    inputs=lambda plan: [plan.headline_map],
)


def make(results: Results) -> pd.DataFrame:
    """One row a level (kernel, pass) and what varies: energy at the defaults, and the band; changes in percent."""
    import pandas as pd

    rows = []
    found = results.headline_map
    default = found[found.is_default].iloc[0]
    for level in LEVELS:
        column = f"{level}_energy_change_percent"
        for varied, axes in _VARIED.items():
            held = [axis for axis in AXES if axis not in axes]
            part = found[(found[held] == default[held]).all(axis=1)]
            rows.append(
                {
                    "level": level,
                    "varied": varied,
                    "default_energy_change_percent": default[column],
                    "low_energy_change_percent": part[column].min(),
                    "high_energy_change_percent": part[column].max(),
                    "paper_energy_change_percent": PAPER_PERCENT[level],
                    "points": len(part),
                }
            )
    return pd.DataFrame(rows)
