"""The headline at low, default and high tensor-core energy: no measurement of this GPU fixes that figure."""

import pandas as pd

from kernel_dvfs.choice.schedule import choose
from kernel_dvfs.layout import PASS_STRICT, STRICT, fresh_repeats
from kernel_dvfs.report import validation

CAPTION = (
    "The headline (strict waste) at other energies of a tensor-core FLOP; passes claimed, kernels claimed and fresh"
)


def make(results, values, default, repeats) -> pd.DataFrame:
    """One row an energy, pJ per FLOP at V0, ascending; `default` is the spec's own. Changes in percent."""
    rows = []
    for value in sorted({*values, default}):
        if value == default:
            coarse = results.schedule(PASS_STRICT)
            fine = results.schedule(STRICT)
            comparisons = results.comparisons(*fresh_repeats(STRICT, repeats))
        else:
            variant = results.variant(f"tensor-energy-{value:g}")
            coarse = choose(variant.folder / "profile.parquet", "pass", "global", "waste", 0)
            fine = variant.own_schedule
            comparisons = variant.fresh
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
