"""A schedule carried to other batches and degrees, beside a choice made anew there: Figures 7 and 8 as numbers."""

import pandas as pd

from kernel_dvfs.layout import STRICT, fresh_repeats
from kernel_dvfs.report import validation


def make(results, study: str, values: list, own: int, repeats: int, reoptimised: bool, setups: dict) -> pd.DataFrame:
    """One row a value of `study` (`batch` or `tp`), from fresh repeats; changes in percent, 95 % intervals.

    setups: {value: digest of its setup}.
    own: the value that the schedule was chosen at, whose row is the validation itself. auto_*: an iteration at auto.
    reoptimised_*: the schedule chosen anew at that value, claimed and fresh. carry_over_*_cost_pp: what
    not choosing anew costs in time and in energy, fresh against fresh (one may be paid with the other).
    """
    column = {"batch": "batch", "tp": "tensor_parallel"}[study]
    rows = []
    for value in values:
        name = f"{study}-{value}"
        if value == own:
            comparisons = results.comparisons(*fresh_repeats(STRICT, repeats))
            anew = results.schedule(STRICT)
        else:
            kernels = results.setup(setups[str(value)]).targets["kernel"]
            comparisons = results.comparisons(*(f"measurements/{name}/{kernel}.json" for kernel in kernels))
            anew = results.variant(name).own_schedule if reoptimised else None
        time, energy = validation.changes(comparisons)
        totals = validation.totals(comparisons).values()
        row = {
            column: value,
            "claimed_time_change_percent": anew["time_change_percent"] if value == own else None,
            "claimed_energy_change_percent": anew["energy_change_percent"] if value == own else None,
            "time_change_percent": time.mean,
            "time_low_percent": time.low,
            "time_high_percent": time.high,
            "energy_change_percent": energy.mean,
            "energy_low_percent": energy.low,
            "energy_high_percent": energy.high,
            "repeats": time.repeats,
            "auto_time_s": sum(each["auto"][0] for each in totals) / len(totals),
            "auto_energy_j": sum(each["auto"][1] for each in totals) / len(totals),
        }
        if reoptimised:
            again = (time, energy) if value == own else validation.changes(results.variant(name).fresh)
            row |= {
                "reoptimised_claimed_time_change_percent": anew["time_change_percent"],
                "reoptimised_claimed_energy_change_percent": anew["energy_change_percent"],
                "reoptimised_time_change_percent": again[0].mean,
                "reoptimised_time_low_percent": again[0].low,
                "reoptimised_time_high_percent": again[0].high,
                "reoptimised_energy_change_percent": again[1].mean,
                "reoptimised_energy_low_percent": again[1].low,
                "reoptimised_energy_high_percent": again[1].high,
                "carry_over_time_cost_pp": time.mean - again[0].mean,
                "carry_over_energy_cost_pp": energy.mean - again[1].mean,
            }
        rows.append(row)
    return pd.DataFrame(rows)
