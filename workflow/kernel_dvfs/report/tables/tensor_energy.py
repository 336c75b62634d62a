"""The headline at low, default and high tensor-core energy: no measurement of this GPU fixes that figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.layout import PASS_STRICT, STRICT, fresh_repeats, shortest
from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

_KIND = "tensor-energy"  # of variants

OUTPUT = Output(
    caption="The headline (strict waste) at other energies of a tensor-core FLOP; passes claimed, kernels claimed and "
    "validated",
    title="The headline at other tensor-core energies",
    text="Nobody has measured the energy of a tensor-core operation of this GPU, so the study is repeated at the "
    "least and the most that the data allow. The row of the default is the study's own schedule. The other "
    "rows are chosen from one sweep without margin, so they may run late: compare the validated time before "
    "the energy. The effect of this figure alone is in the headline and its band (headline_band).",
    section="rests-on",
    kinds=("simulated",),
    workload="model",
    of_choice=True,
    inputs=lambda plan: [
        *plan.schedule_files(),
        *plan.validation(plan.headline[:1]),
        *plan.chosen_again(_KIND),
    ],
    options=lambda plan: {
        "repeats": plan.repeats,
        "values": plan.tensor_energies_pj,
        "default": plan.tensor_energy_pj,
    },
)


def make(results: Results, values: list[float], default: float, repeats: int) -> pd.DataFrame:
    """One row an energy, pJ per FLOP at V0, ascending; `default` is the spec's own. Changes in percent."""
    import pandas as pd

    from kernel_dvfs.report import validation

    rows = []
    for value in sorted({*values, default}):
        if value == default:
            coarse = results.schedule(PASS_STRICT)
            fine = results.schedule(STRICT)
            comparisons = results.comparisons(*fresh_repeats(STRICT, repeats))
        else:
            variant = results.variant(f"{_KIND}-{shortest(value)}")
            coarse = variant.pass_schedule
            fine = variant.own_schedule
            comparisons = variant.validation
        time, energy = validation.changes(comparisons)
        rows.append(
            {
                "tensor_energy_pj_per_flop": value,
                "is_default": value == default,
                "pass_time_change_percent": coarse["time_change_percent"],
                "pass_energy_change_percent": coarse["energy_change_percent"],
                "kernel_claimed_time_change_percent": fine["time_change_percent"],
                "kernel_claimed_energy_change_percent": fine["energy_change_percent"],
                "kernel_fresh_time_change_percent": time.mean,
                "kernel_fresh_time_low_percent": time.low,
                "kernel_fresh_time_high_percent": time.high,
                "kernel_fresh_energy_change_percent": energy.mean,
                "kernel_fresh_energy_low_percent": energy.low,
                "kernel_fresh_energy_high_percent": energy.high,
            }
        )
    return pd.DataFrame(rows)
